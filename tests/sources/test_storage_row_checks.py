"""What ``headrace inspect --check`` finds: each kind in a folder that has it, and nothing wrong in TiCDC's own output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from damage import HEALTHY, Scene, edit_line, rewrite
from harness import all_cases
from headrace.cli.main import main
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.inspection import Finding, Severity
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.ticdc_storage import open_source, row_checks
from headrace.sources.ticdc_storage.inspection import FindingKind
from headrace.testing.ticdc_writer import RowChange, TicdcWriter
from headrace.testing.upstream import Delete, Insert, Update, Upstream
from storage_folder import ID, OPTIONS, C, StorageFolder, V
from targets import DuckDbTarget

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
T = TableId("test", "t")


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(200)
    made.schema("", 90, "CREATE DATABASE `test`")
    made.schema("t", 100, CREATE)
    return made


def found(folder: StorageFolder, options: str = OPTIONS) -> list[Finding]:
    return list(open_source(folder.uri(options)).check().findings)


def only(folder: StorageFolder, kind: FindingKind, severity: Severity) -> Finding:
    """The one finding of a folder."""
    (finding,) = found(folder)
    assert (finding.kind, finding.severity) == (kind, severity)
    return finding


def key_breaks(folder: StorageFolder, options: str = OPTIONS) -> list[str]:
    """The keys with a change that does not fit, each with its commit ts."""
    return [f"{f.key} {f.commit_ts}" for f in found(folder, options) if f.kind is FindingKind.KEY_HISTORY]


def test_a_folder_without_fault_has_no_finding(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 120 2 b", "U 130 1 c")
    folder.data("test/t/100", 2, "D 140 1 c", "I 150 1 d", "D 160 2 b")
    folder.write("test/t/100/meta/CDC.index", "CDC000002.csv\n")
    checkup = open_source(folder.uri()).check()
    assert checkup.findings == ()
    assert (checkup.counts, checkup.errors, checkup.inspection.tables[0].rows) == ({}, 0, 6)


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_the_conformance_folders_have_nothing_worse_than_hints(case: object, tmp_path: Path) -> None:
    changefeed = {"changefeed": str(case.write_changefeed(tmp_path))}  # type: ignore[attr-defined]
    checkup = open_source(case.source_uri(), changefeed).check()  # type: ignore[attr-defined]
    assert [f.message for f in checkup.findings if f.severity is not Severity.INFO] == []
    kinds = {f.kind for f in checkup.findings}
    assert (FindingKind.REPLAY in kinds) == (case.name in REPLAYS)  # type: ignore[attr-defined]
    assert (FindingKind.NOT_CHECKED in kinds) == (case.name in INEXACT)  # type: ignore[attr-defined]


REPLAYS = {"canal-restart", "csv-restart", "csv-partition-no-separator"}
INEXACT = {"canal-no-extension", "csv-default-no-commit-ts"}


def test_an_index_that_names_an_older_file_is_behind(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.data("test/t/100", 2, "I 120 2 b")
    folder.write("test/t/100/meta/CDC.index", "CDC000001.csv\n")
    assert (
        only(folder, FindingKind.INDEX_BEHIND, Severity.INFO).message
        == "The index names CDC000001.csv, and CDC000002.csv is there."
    )


def test_an_index_that_names_a_missing_file_is_a_warning(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.write("test/t/100/meta/CDC.index", "CDC000009.csv\n")
    assert only(folder, FindingKind.INDEX_WITHOUT_DATA, Severity.WARNING).table_id == T


def test_empty_files_temporary_files_and_those_of_another_protocol_are_told(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.write("test/t/100/CDC000002.csv", "")
    folder.write("test/t/100/CDC000003.csv.tmp.0d9c", "half")
    folder.write("test/t/100/CDC000003.json", "{}")
    folder.write("README", "x")
    assert {finding.kind: finding.severity for finding in found(folder)} == {
        FindingKind.EMPTY_FILE: Severity.INFO,
        FindingKind.TEMPORARY_FILES: Severity.INFO,
        FindingKind.UNKNOWN_FILES: Severity.INFO,
        FindingKind.OTHER_PROTOCOL: Severity.WARNING,
    }


def test_a_checksum_that_does_not_match_is_a_warning(folder: StorageFolder) -> None:
    folder.write("test/t/meta/schema_150_0000000001.json", folder.schema_text("t", 150))
    assert only(folder, FindingKind.CHECKSUM, Severity.WARNING).file == "test/t/meta/schema_150_0000000001.json"


def test_data_without_a_schema_file_and_gaps_are_told(folder: StorageFolder) -> None:
    folder.data("test/t/100", 2, "I 110 1 a")
    folder.data("test/lost/150", 1, "I 110 1 a")
    assert {(f.kind, f.severity) for f in found(folder)} == {
        (FindingKind.DATA_WITHOUT_SCHEMA, Severity.ERROR),
        (FindingKind.GAP, Severity.INFO),
    }


def test_schema_files_whose_turn_has_not_come_are_told(folder: StorageFolder) -> None:
    folder.schema("t", 300, "ALTER TABLE `t` ADD COLUMN `c` INT", (ID, V, C))
    finding = only(folder, FindingKind.ABOVE_CHECKPOINT, Severity.INFO)
    assert (finding.table_id, finding.commit_ts) == (T, 300)


def test_a_record_that_cannot_be_read_is_an_error_with_its_line(folder: StorageFolder) -> None:
    path = folder.data("test/t/100", 1, "I 110 1 a", "I 120 x b")
    finding = only(folder, FindingKind.BROKEN_DATA, Severity.ERROR)
    assert (finding.table_id, finding.file, finding.line) == (T, path, 2)


CUT = '"I","t","test",110,1,"a"\n"I","t","test",{ts},3,"ab'


def test_a_record_that_is_cut_off_and_repeated_is_a_hint(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", CUT.format(ts=130))
    folder.data("test/t/100", 2, "I 125 2 b", "I 130 3 abc")
    finding = only(folder, FindingKind.CUT_OFF, Severity.INFO)
    assert (finding.line, finding.commit_ts) == (2, 130)


def test_a_record_that_is_cut_off_above_the_checkpoint_is_a_warning(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", CUT.format(ts=230))
    only(folder, FindingKind.CUT_OFF, Severity.WARNING)


def test_a_record_that_is_cut_off_below_the_checkpoint_is_an_error(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", CUT.format(ts=130))
    only(folder, FindingKind.CUT_OFF, Severity.ERROR)


def test_a_commit_ts_that_goes_back_between_files_is_a_repetition(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "U 120 1 b")
    folder.data("test/t/100", 2, "U 120 1 b", "D 130 1 b")
    folder.data("test/t/100", 3, "U 120 1 b", "D 130 1 b")
    kinds = {f.kind: f.message for f in found(folder)}
    assert set(kinds) == {FindingKind.REPLAY, FindingKind.SPLIT_TRANSACTION}
    assert kinds[FindingKind.REPLAY].startswith("1 files begin before the end of the one before them")
    assert kinds[FindingKind.SPLIT_TRANSACTION].startswith("1 files begin with the commit ts that the one before them ends with")


def test_a_commit_ts_that_goes_back_inside_a_file_is_an_error(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 130 3 c", "I 120 2 b", "I 115 4 d")
    message = only(folder, FindingKind.OUT_OF_ORDER, Severity.ERROR).message
    assert message.startswith("The commit ts goes back 2 times, first at record 3;")


def test_numbers_and_dispatchers_are_streams_of_their_own(folder: StorageFolder) -> None:
    line = '"I","t","test",{ts},{key},"a"\n'
    folder.write("test/t/100/CDC_11_000001.csv", line.format(ts=150, key=1))
    folder.write("test/t/100/CDC_22_000001.csv", line.format(ts=120, key=2))
    assert found(folder) == []


def test_rows_of_an_older_version_are_a_repetition(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "U 120 1 old")
    folder.schema("t", 150)
    folder.data("test/t/150", 1, "U 120 1 old", "U 160 1 b")
    assert only(folder, FindingKind.REPLAY, Severity.INFO).message.startswith(
        "1 rows are older than the version of their directory"
    )


def test_rows_before_the_first_version_or_behind_the_next_are_out_of_place(folder: StorageFolder) -> None:
    folder.schema("u", 100)
    folder.data("test/u/100", 1, "I 95 1 a", "I 170 2 b")
    folder.schema("u", 150, "TRUNCATE TABLE `u`")
    messages = [f.message for f in found(folder) if f.kind is FindingKind.OUTSIDE_VERSION]
    assert [message[:12] for message in messages] == ["1 rows are o", "1 rows are n"]


def test_rows_that_name_another_table_are_an_error(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,"a"\n"I","other","test",120,2,"b"\n')
    assert only(folder, FindingKind.OTHER_TABLE, Severity.ERROR).message == "The file holds rows of test.other."


def test_a_text_that_looks_like_a_record_names_no_table(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,"a\nI,other,test,1,1,b\n"\n')
    assert found(folder) == []


def test_canal_messages_that_name_another_table_are_an_error(folder: StorageFolder) -> None:
    line = '{"id":0,"database":"test","table":"%s","pkNames":["id"],"isDdl":false,"type":"INSERT","es":0,"ts":1,"sql":"",'
    line += '"sqlType":{"id":4,"v":12},"mysqlType":{"id":"int","v":"varchar"},"old":null,"data":[{"id":"%d","v":"%s"}],'
    line += '"_tidb":{"commitTs":%d}}\n'
    text = '{\\"id\\":0,\\"database\\":\\"x\\",\\"table\\":\\"y\\",'
    folder.write("test/t/100/CDC000001.json", line % ("t", 1, text, 110) + line % ("other", 2, "b", 120))
    (finding,) = found(folder, "protocol=canal-json&terminator=%0A&date-separator=none&enable-tidb-extension=true")
    assert (finding.kind, finding.message) == (FindingKind.OTHER_TABLE, "The file holds rows of test.other.")


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        (("I 110 1 a", "I 120 1 b"), ['["1"] 120']),
        (("I 110 1 a", "D 120 1 a", "U 130 1 b"), ['["1"] 130']),
        (("U 110 1 a", "D 120 2 b"), ['["1"] 110', '["2"] 120']),
        (("I 110 1 a", "D 120 1 a", "D 130 1 a"), ['["1"] 130']),
        (("I 110 1 a", "U 120 1 b", "D 130 1 b", "I 140 1 c"), []),
        (("I 110 1 a", "D 120 1 a", "I 120 1 b", "U 130 1 c"), []),
        (("I 110 1 a", "I 220 1 b"), []),
    ],
    ids=["inserted twice", "updated when gone", "never inserted", "deleted twice", "right", "replaced", "above the checkpoint"],
)
def test_the_changes_of_a_key_must_fit_together(folder: StorageFolder, rows: tuple[str, ...], broken: list[str]) -> None:
    folder.data("test/t/100", 1, *rows)
    assert key_breaks(folder) == broken


def test_repeated_changes_fit_whatever_form_they_have(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "U 120 1 b", "D 130 1 b")
    folder.data("test/t/100", 2, "I 110 1 a", "D 120 1 a", "I 120 1 b", "D 130 1 b", "I 140 1 c")
    assert key_breaks(folder) == []


def test_a_table_that_was_there_before_may_begin_with_anything(folder: StorageFolder) -> None:
    folder.schema("old", 100)
    folder.data("test/old/100", 1, "U 110 1 a", "D 120 2 b", "I 130 1 c")
    assert key_breaks(folder) == ['["1"] 130']


def test_a_truncated_table_begins_anew(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.schema("t", 120, "TRUNCATE TABLE `t`")
    folder.data("test/t/120", 1, "I 130 1 b", "U 140 2 c")
    assert key_breaks(folder) == ['["2"] 140']


def test_the_history_of_a_key_goes_over_versions(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.schema("t", 120, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", (ID, V, C))
    folder.write("test/t/120/CDC000001.csv", '"I","t","test",130,1,"b",7\n')
    assert key_breaks(folder) == ['["1"] 130']


@pytest.mark.parametrize("statement", ["ALTER TABLE `t` EXCHANGE PARTITION p0 WITH TABLE `e`", "FLASHBACK TABLE `t`"])
def test_after_a_change_that_moves_rows_without_telling_anything_goes(folder: StorageFolder, statement: str) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.schema("t", 120, statement)
    folder.data("test/t/120", 1, "I 130 1 b", "D 140 2 c")
    assert key_breaks(folder) == []


def test_where_files_are_missing_a_history_that_does_not_fit_is_only_a_warning(folder: StorageFolder) -> None:
    folder.data("test/t/100", 2, "U 110 1 a")
    assert [(f.kind, f.severity) for f in found(folder) if f.kind is not FindingKind.GAP] == [
        (FindingKind.KEY_HISTORY, Severity.WARNING)
    ]


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
@pytest.mark.parametrize("raw", [False, True], ids=["split", "raw"])
def test_keys_that_move_fit_with_old_rows(tmp_path: Path, protocol: str, raw: bool) -> None:
    exact = {"include_commit_ts": True, "output_old_value": True} if protocol == "csv" else {"enable_tidb_extension": True}
    writer = TicdcWriter(tmp_path / "feed", protocol, output_raw_change_event=raw, **exact)  # type: ignore[arg-type]
    upstream = Upstream(writer)
    key = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
    upstream.create_table(T, [key, Column("v", ColumnType(TypeKind.VARCHAR, length=9))])
    upstream.execute(Insert(T, {"id": 1, "v": "a"}), Insert(T, {"id": 2, "v": "b"}))
    upstream.execute(Update(T, (1,), {"id": 11}))
    upstream.execute(Update(T, (11,), {"v": "c"}), Delete(T, (2,)))
    upstream.execute(Insert(T, {"id": 1, "v": "d"}))
    upstream.checkpoint()
    assert open_source(writer.uri, {"changefeed": changefeed_file(writer, tmp_path)}).check().findings == ()
    last = upstream.execute(Insert(T, {"id": 3, "v": "e"}))
    writer.rows(T, last + 1, [RowChange({"id": 3, "v": "e"}, {"id": 1, "v": "e"})])
    writer.checkpoint(last + 2)
    (finding,) = open_source(writer.uri, {"changefeed": changefeed_file(writer, tmp_path)}).check().findings
    assert (finding.key, finding.message.split(".")[0]) == ('["1"]', 'The row with the key ["1"] is inserted though it is there')


def changefeed_file(writer: TicdcWriter, folder: Path) -> str:
    path = folder / "changefeed.toml"
    path.write_text(writer.options.changefeed_toml(), encoding="utf-8")
    return str(path)


def test_keyless_tables_have_no_history(folder: StorageFolder) -> None:
    folder.schema("bag", 100, "CREATE TABLE `bag` (`id` INT,`v` VARCHAR(16))", (ID | {"ColumnIsPk": "false"}, V))
    folder.data("test/bag/100", 1, "I 110 1 a", "I 120 1 a", "D 130 9 z")
    assert found(folder) == []


def test_without_commit_ts_it_says_what_cannot_be_checked(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", '"I","t","test",1,"a"\n"I","t","test",1,"a"\n"I","u","test",1,"a"\n')
    assert [f.kind for f in found(folder)] == [FindingKind.NOT_CHECKED, FindingKind.OTHER_TABLE]


def test_many_findings_of_a_kind_are_counted_and_the_first_kept(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_checks, "_KEPT", 3)
    folder.data("test/t/100", 1, *(f"D 110 {key} a" for key in range(10)))
    checkup = open_source(folder.uri()).check()
    assert (len(checkup.findings), checkup.errors) == (3, 10)


def test_a_damaged_table_is_found_beside_a_healthy_one(tmp_path: Path) -> None:
    broken = TableId("shop", "broken")
    scene = Scene(tmp_path / "data", "", DuckDbTarget(tmp_path / "unused"))
    scene.create(HEALTHY, broken)
    scene.change(HEALTHY, broken)
    scene.publish()
    assert open_source(scene.source).check().findings == ()
    rewrite(scene.data_files(broken)[-1], edit_line(2, lambda line: line[: len(line) // 2] + b"\x00"))
    assert {f.table_id for f in open_source(scene.source).check().findings} == {broken}


def test_progress_counts_files(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.data("test/t/100", 2, "I 120 2 a")
    told: list[tuple[int, int]] = []
    open_source(folder.uri()).check(progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_the_command_groups_findings_and_ends_with_three_for_errors(
    folder: StorageFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder.data("test/t/100", 1, *(f"D 110 {key} a" for key in range(10)))
    folder.write("README", "x")
    assert main(["inspect", "--check", folder.uri()]) == EXIT_TABLE_STOPPED
    out = capsys.readouterr().out
    assert "error: history of a key: 10 found\n" in out
    assert 'table test.t: The row with the key ["0"] is updated or deleted though it is not there. ' in out
    assert f"({path}, commit ts 110)" in out
    assert "  … and 5 more\n" in out
    assert out.index("error: history") < out.index("info: unknown files: 1 found")
    assert "  1 files are not part of the format: README." in out


def test_the_command_ends_with_zero_for_hints(folder: StorageFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write("README", "x")
    assert main(["inspect", "--check", folder.uri()]) == EXIT_OK
    (folder.root / "README").unlink()
    assert main(["inspect", "--check", folder.uri()]) == EXIT_OK
    assert "nothing wrong found" in capsys.readouterr().out


def test_the_command_tells_machines_each_finding_on_a_line(folder: StorageFolder, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder.data("test/t/100", 1, "D 110 1 a")
    assert main(["inspect", "--check", "--json", folder.uri()]) == EXIT_TABLE_STOPPED
    finding, inspection = map(json.loads, capsys.readouterr().out.splitlines())
    assert (finding["event"], finding["kind"], finding["severity"]) == ("finding", "history of a key", "error")
    assert (finding["file"], finding["commit_ts"], finding["key"]) == (path, 110, '["1"]')
    assert inspection["event"] == "inspection"
    assert inspection["findings"] == [{"kind": "history of a key", "severity": "error", "count": 1}]
    assert inspection["tables"][0]["versions"][0]["rows"] == 1
