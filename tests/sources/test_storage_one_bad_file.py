"""One bad file stops one table: whatever stands in it, polls, reads and inspections go on for all others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import main
from headrace.cli.output import shown
from headrace.errors import SourceNotReadyError, TransientError
from headrace.formats.schema_file import schema_checksum
from headrace.model.offer import Offer
from headrace.model.table import TableId
from headrace.sources.ticdc_storage import bounded_offer, catalogue, checkpoint, splits
from headrace.sources.ticdc_storage import folder as folder_of_changefeed
from headrace.testing.faults import Crashed
from storage_folder import ID, OPTIONS, C, StorageFolder, V

GOOD, BAD = TableId("test", "good"), TableId("test", "bad")
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_PAUSES", (0, 0, 0))


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    """A changefeed with a good table, and a bad one of which so far nothing is bad."""
    made = StorageFolder(tmp_path / "feed")
    for table in ("good", "bad"):
        made.schema(table, 100)
        made.data(f"test/{table}/100", 1, "I 110 1 a")
    made.checkpoint(10_000)
    return made


def add_schema(folder: StorageFolder, text: bytes, version: int = 200) -> str:
    path = f"test/bad/meta/schema_{version}_0123456789.json"
    folder.write(path, text)
    return path


def edited(folder: StorageFolder, edit: Edit) -> bytes:
    document = json.loads(folder.schema_text("bad", 200, "ALTER TABLE `bad` ADD COLUMN `c` INT", (ID, V, C)))
    edit(document)
    return json.dumps(document).encode()


def digits(count: int) -> str:
    return "9" * count


def numbered(text: bytes) -> bytes:
    """The document with the number where the mark stands: Python does not write numbers of so many digits either."""
    return text.replace(b'"@5000"', digits(5_000).encode()).replace(b'"@4000"', digits(4_000).encode())


def put(*path: str | int, value: object) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return edit


def many_columns(document: dict[str, Any]) -> None:
    document["TableColumns"] = [{"ColumnName": f"c{number}", "ColumnType": "INT"} for number in range(4_097)]
    document["TableColumnsTotal"] = 4_097


def of_type(kind: str, members: list[str]) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        document["TableColumns"][2] |= {"ColumnType": kind, "ColumnElems": members}

    return edit


COLUMN = ("TableColumns", 2)
BAD_SCHEMAS: dict[str, tuple[Edit, str]] = {
    "a version of 5,000 digits": (put("TableVersion", value="@5000"), "TableVersion in the schema file is not an integer"),
    "a version of 4,000 digits": (put("TableVersion", value="@4000"), "TableVersion in the schema file is not an integer"),
    "a version of 5,000 digits as a text": (put("TableVersion", value=digits(5_000)), "TableVersion in the schema file is not an"),
    "a version of other digits": (put("TableVersion", value="\N{SUPERSCRIPT TWO}"), "TableVersion in the schema file is not an"),
    "a type of 5,000 digits": (put("Type", value="@5000"), "Type in the schema file is not an integer"),
    "a total of 5,000 digits": (put("TableColumnsTotal", value="@5000"), "TableColumnsTotal in the schema file is not an integer"),
    "a total as a text": (put("TableColumnsTotal", value=digits(5_000)), "TableColumnsTotal in the schema file is not an integer"),
    "a precision of 5,000 digits": (put(*COLUMN, "ColumnPrecision", value="@5000"), "ColumnPrecision of column c in the schema"),
    "a scale of 4,300 digits": (put(*COLUMN, "ColumnScale", value=digits(4_301)), "ColumnScale of column c in the schema"),
    "a precision that no type has": (put(*COLUMN, "ColumnPrecision", value=str(1 << 40)), "Column c has the length 1099511627776"),
    "more columns than TiDB has": (many_columns, "The schema file lists 4097 columns"),
    "a long name": (put(*COLUMN, "ColumnName", value="c" * 100_000), "ColumnName in the schema file has 100000 characters"),
    "many members": (put(*COLUMN, "ColumnElems", value=["x"] * 70_000), "Column c has 70000 members"),
    "many members of a SET": (of_type("SET", ["x"] * 65), "Column c has 65 members, and TiDB has 64 at most"),
    "a long member": (of_type("ENUM", ["x", "y" * 70_000]), "Column c has a member of 70000 characters, and none has more than"),
    "a long default": (put(*COLUMN, "ColumnDefault", value="x" * 70_000), "Column c has a default of 70000 characters"),
}


def assert_only_the_bad_table_waits(folder: StorageFolder, path: str, sentence: str, options: str = OPTIONS) -> Offer:
    """Of a poll, a cut and the commands that look into the folder."""
    offer = folder.consumer(options).poll()
    assert [(problem.table_id, problem.file) for problem in offer.problems] == [(BAD, path)]
    assert offer.problems[0].message.startswith(sentence)
    assert len(offer.problems[0].sentence()) < 700
    assert [(change.table_id, change.changes) for change in offer.unread] == [(BAD, {BAD})]
    assert [change.table_id for change in offer.schema_changes] == [BAD, GOOD]
    consumer = folder.consumer(options)
    consumer.cut(stopped=frozenset({BAD}))
    assert {(report.table_id, report.kept, report.problem) for report in consumer.reports} == {(GOOD, 1, None), (BAD, 1, None)}
    return offer


def assert_commands_tell(folder: StorageFolder, capsys: pytest.CaptureFixture[str], sentence: str, options: str = OPTIONS) -> None:
    for command, code in (("inspect", 0), ("inspect --rows", 0), ("inspect --check", 3)):
        assert main([*command.split(), folder.uri(options)]) == code
        assert sentence in capsys.readouterr().out


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_a_schema_file_with_something_too_large_in_it(folder: StorageFolder, capsys: pytest.CaptureFixture[str], name: str) -> None:
    edit, sentence = BAD_SCHEMAS[name]
    path = add_schema(folder, numbered(edited(folder, edit)))
    assert_only_the_bad_table_waits(folder, path, sentence)
    assert_commands_tell(folder, capsys, sentence)


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"Table":"bad","Schema":"test","TableColumns":' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
    ids=["alone", "in a member"],
)
def test_a_schema_file_that_is_nested_deeply(folder: StorageFolder, text: bytes) -> None:
    path = add_schema(folder, text)
    assert_only_the_bad_table_waits(folder, path, "The schema file is nested too deeply.")


@pytest.mark.long
def test_a_statement_of_more_words_than_can_be_held_stops_its_table(folder: StorageFolder) -> None:
    add_schema(folder, folder.schema_text("bad", 200, "ALTER TABLE `bad` " + ",1" * 300_000))
    offer = folder.consumer(OPTIONS).poll()
    (problem,) = offer.problems
    assert problem.message == "Its statement has more than 500,000 words."
    assert [(change.table_id, change.changes) for change in offer.unread] == [(BAD, {BAD})]


@pytest.mark.long
def test_a_schema_file_of_2_gib_is_not_read_whole(folder: StorageFolder) -> None:
    path = add_schema(folder, b"{")
    os.truncate(folder.root / path, 2 << 30)
    assert_only_the_bad_table_waits(folder, path, "The schema file has more than 64 MiB")


def test_a_statement_that_is_longer_than_the_setting_allows(folder: StorageFolder) -> None:
    statement = "ALTER TABLE `bad` ADD COLUMN `c` INT COMMENT '" + "x" * 2_000 + "'"
    path = folder.schema("bad", 200, statement, (ID, V, C))
    assert not folder.consumer().poll().problems
    assert_only_the_bad_table_waits(folder, path, "Its statement has more than 1000 bytes.", f"{OPTIONS}&max-statement-bytes=1000")


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), KeyError("x"), UnicodeError("odd"), OSError("odd")])
@pytest.mark.parametrize("function", ["parse_schema_file", "classify", "annotate", "with_index_names", "partitioning_after"])
def test_what_nobody_foresaw_about_one_table_is_its_problem(
    folder: StorageFolder, monkeypatch: pytest.MonkeyPatch, function: str, error: Exception
) -> None:
    path = folder.schema("bad", 200, "ALTER TABLE `bad` ADD COLUMN `c` INT DEFAULT 7", (ID, V, C))
    original = getattr(catalogue, function)

    def failing(*given: Any, **named: Any) -> Any:
        if any(isinstance(value, str | bytes) and "ADD COLUMN" in str(value) for value in given):
            raise error
        return original(*given, **named)

    monkeypatch.setattr(catalogue, function, failing)
    offer = assert_only_the_bad_table_waits(folder, path, "")
    (problem,) = offer.problems
    assert problem.hint
    monkeypatch.setattr(catalogue, function, original)
    assert [change.commit_ts for change in folder.consumer().poll().schema_changes] == [100, 100, 200]


def test_several_schema_files_of_a_statement_that_cannot_be_handled_together(
    folder: StorageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for old, new in (("bad", "x"), ("y", "bad")):
        folder.schema(new, 200, f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`")

    def failing(*_: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(catalogue, "plan_renames", failing)
    offer = folder.consumer().poll()
    assert {problem.table_id for problem in offer.problems} == {TableId("test", "x"), BAD}
    assert {(change.commit_ts, GOOD in change.changes) for change in offer.unread} == {(200, False)}
    assert {split.table_id for split in offer.splits} == {GOOD, BAD}


@pytest.mark.parametrize("error", [Crashed("killed"), KeyboardInterrupt(), SystemExit(1), TransientError("the store is busy")])
def test_what_ends_a_run_ends_it_still(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "classify", failing)
        with pytest.raises(type(error)):
            folder.consumer().poll()
    consumer = folder.consumer()
    consumer.poll()
    monkeypatch.setattr(splits, "decode_csv", failing)
    with pytest.raises(type(error)):
        consumer.cut()


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), KeyError("x"), ZeroDivisionError()])
def test_a_data_file_that_cannot_be_handled_stops_its_table(
    folder: StorageFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    original = splits.decode_csv

    def failing(data: Any, schema: Any, *given: Any) -> Any:
        yield from original(data, schema, *given)
        if schema.table_id == BAD:
            raise error

    monkeypatch.setattr(splits, "decode_csv", failing)
    consumer = folder.consumer()
    consumer.cut(stopped=frozenset({BAD}))
    assert {(report.table_id, report.problem is None) for report in consumer.reports} == {(GOOD, True), (BAD, False)}
    (problem,) = (report.problem for report in consumer.reports if report.problem)
    assert problem.file == "test/bad/100/CDC000001.csv"
    assert main(["inspect", "--rows", folder.uri()]) == 0
    assert "test/bad/100/CDC000001.csv" in capsys.readouterr().out


def test_beginnings_of_files_that_cannot_be_handled_are_left_to_the_reading(
    folder: StorageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(bounded_offer, "first_commit_ts", failing)
    monkeypatch.setattr(folder_of_changefeed.csv, "has_commit_ts", failing)
    consumer = folder.consumer()
    consumer.max_cut = 1
    assert {split.table_id for split in consumer.poll().splits} == {GOOD, BAD}


def test_a_value_of_a_data_file_that_is_nested_deeply(tmp_path: Path) -> None:
    folder = StorageFolder(tmp_path / "feed")
    deep = "[" * 100_000 + "]" * 100_000
    for table, value in (("good", '"a"'), ("bad", deep)):
        folder.schema(table, 100)
        line = f'{{"type":"INSERT","es":0,"data":[{{"id":"1","v":{value}}}],"old":null,"_tidb":{{"commitTs":110}}}}\n'
        folder.write(f"test/{table}/100/CDC000001.json", line)
    folder.checkpoint(10_000)
    consumer = folder.consumer("protocol=canal-json&terminator=%0A&date-separator=none")
    consumer.cut()
    found = {report.table_id: report.problem for report in consumer.reports}
    assert found[GOOD] is None
    assert found[BAD] is not None
    assert found[BAD].message == "The message is nested too deeply."


def test_files_whose_numbers_no_file_has_are_foreign(folder: StorageFolder) -> None:
    for name in (f"CDC{digits(40)}.csv", f"CDC{digits(4_000)[:200]}.csv", f"CDC_{digits(41)}_000001.csv"):
        folder.write(f"test/bad/100/{name}", '"I","bad","test",120,2,"b"\n')
    folder.write(f"test/bad/{digits(40)}/CDC000001.csv", '"I","bad","test",120,2,"b"\n')
    folder.write(f"test/bad/100/{digits(40)}/CDC000001.csv", '"I","bad","test",120,2,"b"\n')
    folder.write(f"test/bad/meta/schema_{digits(40)}_0123456789.json", b"{}")
    folder.write("test/bad/100/9999-99-99/CDC000001.csv", '"I","bad","test",120,2,"b"\n')
    offer = folder.consumer().poll()
    assert not offer.problems
    assert sorted(split.key for split in offer.splits) == [
        "test/bad/100/9999-99-99/CDC000001.csv",
        "test/bad/100/CDC000001.csv",
        "test/good/100/CDC000001.csv",
    ]


def test_the_largest_number_that_a_file_has_leaves_a_hole_and_no_more(folder: StorageFolder) -> None:
    largest = (1 << 64) - 1
    folder.data("test/bad/100", f"{largest}", "I 120 2 b")
    consumer = folder.consumer()
    offer = consumer.cut()
    told = [notice.sentence() for notice in offer.notices]
    assert f"table test.bad: File numbers 2-{largest - 1} are missing. (test/bad/100)" in told
    assert consumer.source.missing(consumer.position, offer, BAD, 0) == ""
    assert consumer.source.vanished(consumer.position, BAD, 0) == ()


def test_of_many_holes_the_first_are_told(folder: StorageFolder) -> None:
    for number in range(3, 200, 2):
        folder.data("test/bad/100", number, "I 120 2 b")
    (notice,) = (notice for notice in folder.consumer().poll().notices if "missing" in notice.message)
    assert notice.message.endswith(" and 79 more gaps are missing.")
    assert len(notice.sentence()) < 200


@pytest.mark.long
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b'{"checkpoint-ts":' + b"9" * 5_000 + b"}",
        b'{"checkpoint-ts":' + b"9" * 4_000 + b"}",
        b'{"checkpoint-ts":"\x1b[31m"}',
        b'{"checkpoint-ts":1.5}',
        b'{"checkpoint-ts":true}',
        b'{"checkpoint-ts":-1}',
        b'{"checkpoint-ts":{}}',
        b"[" * 100_000,
        b'{"checkpoint-ts":' + b"[" * 4_000,
        b"null",
    ],
)
def test_an_odd_metadata_file_is_told_in_a_sentence(
    folder: StorageFolder, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    folder.write("metadata", content)
    with pytest.raises(SourceNotReadyError, match="holds no checkpoint"):
        folder.consumer().poll()
    assert main(["inspect", folder.uri()]) == 0
    assert "holds no checkpoint" in capsys.readouterr().out


def test_a_metadata_file_of_2_gib_is_not_read_whole(folder: StorageFolder) -> None:
    folder.write("metadata", b'{"checkpoint-ts":10000}')
    os.truncate(folder.root / "metadata", 2 << 30)
    with pytest.raises(SourceNotReadyError, match="holds no checkpoint"):
        folder.consumer().poll()


def test_index_files_are_not_read_whole(folder: StorageFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write("test/bad/100/meta/CDC.index", "CDC000001.csv\n")
    os.truncate(folder.root / "test/bad/100/meta/CDC.index", 2 << 30)
    assert main(["inspect", folder.uri()]) == 0
    assert len(capsys.readouterr().out) < 10_000


def test_a_checksum_is_that_of_the_bytes_whatever_numbers_are_in_them() -> None:
    text = b'{"Table":"t","Schema":"s","TableColumns":[{"ColumnName":"a","ColumnId":' + b"9" * 5_000 + b'}],"TableColumnsTotal":1}'
    assert 0 <= schema_checksum(text) < 1 << 32


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nerror: all is lost", "[red]x[/red]", "\x9b2J", "a.b", "`x`", "\u202egnp.exe"])
def test_odd_names_of_tables_and_files_reach_no_terminal_as_they_are(
    folder: StorageFolder, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder.schema(name, 100, f"CREATE TABLE `x` (`id` INT PRIMARY KEY COMMENT '{name}',`v` VARCHAR(16))")
    folder.write(f"test/{name}/100/CDC000001.csv", '"I","x","test",120,2\n')
    folder.write(f"test/bad/100/{name}.tmp", "")
    for command in ("inspect", "inspect --rows", "inspect --check"):
        for more in ([], ["--json"]):
            main([*command.split(), folder.uri(), *more])
            said = capsys.readouterr()
            lines = (said.out + said.err).split("\n")
            assert [shown(line) for line in lines] == lines
            assert not any(line.startswith("error: all is lost") for line in lines)
            if more:
                assert any(repr(name)[1:-1] in str(json.loads(line)) for line in lines if line)
            else:
                assert shown(name) in said.out


@pytest.mark.parametrize("extension", ["csv", "json"])
def test_a_data_file_of_3_gib_is_not_read_and_stops_its_table(
    folder: StorageFolder, extension: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"test/bad/100/CDC000002.{extension}"
    if extension == "json":
        for table in ("good", "bad"):
            (folder.root / f"test/{table}/100/CDC000001.csv").unlink()
        folder.write("test/good/100/CDC000001.json", canal_line("good"))
    folder.write(path, b"")
    os.truncate(folder.root / path, 3 << 30)
    consumer = folder.consumer("terminator=%0A&date-separator=none")
    began = time.monotonic()
    consumer.cut(stopped=frozenset({BAD}))
    assert main(["inspect", "--check", folder.uri("terminator=%0A&date-separator=none")]) == 3
    assert time.monotonic() - began < 20
    assert "not read" in capsys.readouterr().out
    assert {report.table_id for report in consumer.reports if not report.problem} >= {GOOD}
    (problem,) = (report.problem for report in consumer.reports if report.problem)
    assert (problem.table_id, problem.file) == (BAD, path)
    assert problem.message == "The file has 3,221,225,472 bytes, and files of more than 1,073,741,824 are not read."
    assert "max-file-bytes" in problem.hint


def test_the_size_of_files_that_are_read_is_a_setting(folder: StorageFolder) -> None:
    size = (folder.root / "test/bad/100/CDC000001.csv").stat().st_size
    folder.data("test/bad/100", 2, "I 120 2 " + "v" * size)
    consumer = folder.consumer(f"{OPTIONS}&max-file-bytes={size + 1}")
    consumer.cut(stopped=frozenset({BAD}))
    assert [report.problem.file for report in consumer.reports if report.problem] == ["test/bad/100/CDC000002.csv"]
    consumer = folder.consumer(f"{OPTIONS}&max-file-bytes={size * 4}")
    consumer.cut()
    assert [report.problem for report in consumer.reports] == [None] * 3


def test_a_rewritten_file_is_not_read_either_if_it_is_too_large(folder: StorageFolder) -> None:
    """Of files without commit ts the driver reads the content."""
    path = "test/bad/100/CDC000001.csv"
    folder.write(path, '"I","bad","test",1,"a"\n')
    folder.write("test/good/100/CDC000001.csv", '"I","good","test",1,"a"\n')
    consumer = folder.consumer()
    consumer.cut()
    folder.write(path, b"")
    os.truncate(folder.root / path, 3 << 30)
    folder.checkpoint(10_001)
    (problem,) = consumer.poll().problems
    assert (problem.table_id, problem.file) == (BAD, path)
    assert problem.message.startswith("The file has 3,221,225,472 bytes")


def canal_line(table: str) -> str:
    row = '"data":[{"id":"1","v":"a"}],"old":null,"_tidb":{"commitTs":110}'
    return f'{{"id":0,"database":"test","table":"{table}","type":"INSERT","isDdl":false,"es":0,{row}}}\n'
