"""Section 8.4 of the specification of TiCDC's storage output: decoding canal-JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from building import Bucket

from headrace.errors import EXIT_TABLE_STOPPED
from headrace.model.policy import OnError
from headrace.sinks.dead_letters import open_dead_letters
from storage_folder import ID, V

pytestmark = pytest.mark.pipeline

OPTIONS = "protocol=canal-json&enable-tidb-extension=true&date-separator=none&terminator="
LF, CRLF, NONE = (OPTIONS + terminator for terminator in ("%0A", "%0D%0A", ""))
ENDS = {LF: b"\n", CRLF: b"\r\n", NONE: b""}
Fields = Mapping[str, object]


def column(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"ColumnName": name, "ColumnType": kind, **more}


def message(
    kind: str,
    data: Fields,
    old: Fields | None = None,
    ts: int | None = 110,
    *,
    mysql: Fields | None = None,
    sql: Fields | None = None,
    es: int = 0,
) -> bytes:
    """A message as TiCDC writes it, without its terminator; without ``ts`` it has no TiDB extension."""
    names = list(data)
    document: dict[str, object] = {
        "id": 0,
        "database": "test",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": kind,
        "es": es,
        "ts": es + 5,
        "sql": "",
        "sqlType": sql or dict.fromkeys(names, 12),
        "mysqlType": mysql or dict.fromkeys(names, "varchar"),
        "old": None if old is None else [old],
        "data": [data],
    }
    if ts is not None:
        document["_tidb"] = {"commitTs": ts}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def row(key: int, value: str | None) -> Fields:
    return {"id": str(key), "v": value}


@pytest.mark.parametrize("options", [CRLF, LF])
def test_t38_insert_update_and_delete_of_one_key(tmp_path: Path, options: str) -> None:
    messages = (
        message("INSERT", row(1, "a")),
        message("UPDATE", row(1, "b"), row(1, "a"), 120),
        message("DELETE", row(1, "b"), ts=130),
    )
    bucket = Bucket(tmp_path, options)
    rows, report = bucket.decoded(b"".join(m + ENDS[options] for m in messages))
    assert rows == [("I", 110, 1, "a"), ("-", 120, 1, "a"), ("+", 120, 1, "b"), ("D", 130, 1, "b")]
    assert report.problem is None
    for ts, state in ((110, [(1, "a")]), (120, [(1, "b")]), (130, [])):
        assert bucket.at(ts).code == 0
        assert bucket.state() == state


@pytest.mark.parametrize("told", ["", "&only-output-updated-columns=true", "&content-compatible=true"])
@pytest.mark.parametrize("options", [LF, NONE])
def test_t39_an_old_row_of_changed_columns_is_completed_from_the_new_one(tmp_path: Path, options: str, told: str) -> None:
    messages = (
        message("UPDATE", {"id": "1", "v": "b", "w": "same"}, {"v": "a"}),
        message("UPDATE", {"id": "2", "v": "b", "w": None}, {"v": None}, 120),
        message("UPDATE", {"id": "3", "v": "b", "w": "full"}, {"id": "3", "v": "a", "w": None}, 130),
    )
    columns = (ID, V, column("w", "VARCHAR"))
    rows, report = Bucket(tmp_path, options + told).decoded(b"".join(m + ENDS[options] for m in messages), columns)
    assert report.problem is None
    assert [r for r in rows if r[0] == "-"] == [("-", 110, 1, "a", "same"), ("-", 120, 2, None, None), ("-", 130, 3, "a", None)]


def test_t40_an_update_of_the_key_deletes_the_old_row(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, LF)
    bucket.create("t")
    bucket.write("test/t/100/CDC000001.json", message("INSERT", row(1, "a")) + b"\n")
    assert bucket.at(115).code == 0
    bucket.write("test/t/100/CDC000002.json", message("UPDATE", row(2, "a"), row(1, "a"), 120) + b"\n")
    assert bucket.at(200).code == 0
    assert bucket.state() == [(2, "a")]


def test_t41_a_delete_may_hold_the_key_only(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, LF)
    bucket.create("t")
    inserts = (message("INSERT", row(1, "a")), message("INSERT", row(2, "b")))
    bucket.write("test/t/100/CDC000001.json", b"".join(m + b"\n" for m in inserts))
    assert bucket.at(115).code == 0
    # In a file of its own no other row shows the columns.
    bucket.write("test/t/100/CDC000002.json", message("DELETE", {"id": "1"}, ts=120) + b"\n")
    assert bucket.at(200).code == 0
    assert bucket.state() == [(2, "b")]


@pytest.mark.parametrize("escaped", [False, True])
def test_t42_each_character_of_a_binary_column_is_a_byte(tmp_path: Path, escaped: bool) -> None:
    every = bytes(range(256))
    written = message("INSERT", {"id": "1", "b": every.decode("latin-1")})
    if escaped:
        written = json.dumps(json.loads(written)).encode()
    bucket = Bucket(tmp_path, LF)
    rows, report = bucket.decoded(written + b"\n", (ID, column("b", "VARBINARY", ColumnPrecision="256")))
    assert (rows, report.problem) == ([("I", 110, 1, every)], None)
    assert bucket.at(200).code == 0
    assert bucket.state() == [(1, every)]


def test_t42_a_character_above_a_byte_is_an_error(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, LF)
    rows, report = bucket.decoded(message("INSERT", {"id": "1", "b": "€"}) + b"\n", (ID, column("b", "BLOB")))
    assert rows == []
    assert report.problem is not None
    assert str(report.problem.place).endswith(".json, line 1")
    assert (report.problem.column, report.problem.value) == ("b", "€")


@pytest.mark.parametrize("listed", [True, False])
def test_t43_members_of_enum_and_set_are_kept_whole(tmp_path: Path, listed: bool) -> None:
    """Their names come from the schema file, or from the messages in content-compatible mode."""
    members = {"e": ["blob", "x"], "s": ["a", "b", "c"], "q": ["a,b", "it's"]}
    kinds = {"e": "ENUM", "s": "SET", "q": "ENUM"}
    mysql = {"id": "int(11)", "e": "enum('blob','x')", "s": "set('a','b','c')", "q": "enum('a,b','it''s')"}
    columns = tuple(column(name, kind, **({"ColumnElems": members[name]} if listed else {})) for name, kind in kinds.items())
    types = dict(zip(mysql, ("int", "enum", "set", "enum"), strict=True)) if listed else mysql
    messages = (
        message("INSERT", {"id": "1", "e": "1", "s": "5", "q": "1"}, mysql=types),
        message("INSERT", {"id": "2", "e": "0", "s": "0", "q": "2"}, mysql=types),
    )
    rows, report = Bucket(tmp_path, LF).decoded(b"".join(m + b"\n" for m in messages), (ID, *columns))
    assert report.problem is None
    assert rows == [("I", 110, 1, "blob", "a,c", "a,b"), ("I", 110, 2, "", "", "it's")]


ENUM = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`e` ENUM('3','2','1'))"


@pytest.mark.parametrize("kind", ["ENUM", "SET"])
@pytest.mark.parametrize("options", [LF, NONE])
def test_a_member_s_place_is_never_taken_for_its_text(tmp_path: Path, options: str, kind: str) -> None:
    """Older TiCDC lists no members, and the table is older than the changefeed. A person can list them."""
    bucket = Bucket(tmp_path, options)
    path = bucket.schema("t", 100, (ID, column("e", kind)), "", 0)
    end = ENDS[options]
    bucket.write(
        "test/t/100/CDC000001.json",
        message("INSERT", {"id": "1", "e": None}) + end + message("INSERT", {"id": "2", "e": "1"}) + end,
    )
    ran = bucket.at(120)
    assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.t"])
    assert f"column e, value '1': The value is the position of a member of the {kind} column" in ran.stopped["test.t"]
    assert "ColumnElems of e in the table's schema file of version 100" in ran.stopped["test.t"]
    assert bucket.state() in (None, [])
    listed = json.loads((bucket.root / path).read_bytes())
    listed["TableColumns"][1]["ColumnElems"] = ["3", "2", "1"]
    bucket.write(path, json.dumps(listed, indent=4))
    ran = bucket.at(130)
    assert (ran.code, bucket.state()) == (0, [(1, None), (2, "3")])


@pytest.mark.parametrize("on_error", list(OnError))
def test_places_of_members_are_no_dead_letters(tmp_path: Path, on_error: OnError) -> None:
    bucket = Bucket(tmp_path, LF)
    bucket.schema("t", 100, (ID, column("e", "ENUM")), "", 0)
    bucket.write("test/t/100/CDC000001.json", message("INSERT", {"id": "2", "e": "1"}) + b"\n")
    letters = open_dead_letters(str(tmp_path / "letters"), "default")
    ran = bucket.at(120, on_error=on_error, letters=letters)
    assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.t"])


@pytest.mark.parametrize("kind", ["ENUM", "SET"])
@pytest.mark.parametrize("on_error", list(OnError))
def test_rows_that_name_long_members_time_and_again_stop_their_table_alone(tmp_path: Path, kind: str, on_error: OnError) -> None:
    """A place is a digit: 30 KiB of rows would be 12 MiB."""
    bucket = Bucket(tmp_path, LF)
    bucket.create("ok", 100)
    bucket.write("test/ok/100/CDC000001.json", message("INSERT", row(1, "a")).replace(b'"table":"t"', b'"table":"ok"') + b"\n")
    bucket.schema("t", 100, (ID, column("e", kind, ColumnElems=["x" * 60_000, "y"])), "", 0)
    rows = (message("INSERT", {"id": str(number), "e": "1"}) for number in range(200))
    bucket.write("test/t/100/CDC000001.json", b"".join(text + b"\n" for text in rows))
    letters = open_dead_letters(str(tmp_path / "letters"), "default")
    ran = bucket.at(120, on_error=on_error, letters=letters)
    assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.t"])
    assert "CDC000001.json, line 1, column e: Rows name members of the " + kind in ran.stopped["test.t"]
    assert bucket.state(table="ok") == [(1, "a")]
    assert bucket.state() in (None, [])


def test_statements_tell_members_that_older_schema_files_do_not(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, LF)
    columns = (ID, column("e", "ENUM"))
    bucket.schema("t", 100, columns, ENUM, 3)
    bucket.write("test/t/100/CDC000001.json", message("INSERT", {"id": "1", "e": "1"}) + b"\n")
    bucket.schema("t", 200, columns, "ALTER TABLE `t` COMMENT = 'x'", 28)
    bucket.write("test/t/200/CDC000001.json", message("INSERT", {"id": "2", "e": "2"}, ts=210) + b"\n")
    bucket.schema("t", 300, columns, "ALTER TABLE `t` MODIFY `e` ENUM('3','2','1','a,''b')", 12)
    bucket.write("test/t/300/CDC000001.json", message("INSERT", {"id": "3", "e": "4"}, ts=310) + b"\n")
    ran = bucket.at(400)
    assert (ran.code, ran.stopped) == (0, {})
    assert bucket.state() == [(1, "3"), (2, "2"), (3, "a,'b")]


def test_an_added_enum_without_default_gets_its_first_member_or_is_refused(tmp_path: Path) -> None:
    required = column("e", "ENUM", ColumnNullable="false")
    for name, statement in (("told", "ALTER TABLE `t` ADD COLUMN `e` ENUM('x','y') NOT NULL"), ("not", "")):
        bucket = Bucket(tmp_path / name, LF)
        bucket.schema("t", 100, (ID,), "CREATE TABLE `t` (`id` INT PRIMARY KEY)", 3)
        bucket.write("test/t/100/CDC000001.json", message("INSERT", {"id": "1"}) + b"\n")
        bucket.schema("t", 200, (ID, required), statement, 5)
        ran = bucket.at(300)
        if statement:
            assert (ran.code, bucket.state()) == (0, [(1, "x")])
        else:
            assert (ran.code, bucket.state()) == (EXIT_TABLE_STOPPED, [(1,)])
            assert "its members are not known" in ran.stopped["test.t"]


def test_t44_without_the_extension_the_millisecond_decides_and_it_is_told(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, "protocol=canal-json&date-separator=none&terminator=%0A")
    ms = 1_700_000_000_000
    bucket.create("t", ms << 18)
    messages = (
        message("INSERT", row(1, "a"), ts=None, es=ms + 1),
        message("INSERT", row(1, "b"), ts=None, es=ms + 1),
        message("INSERT", row(2, "c"), ts=None, es=ms + 5),
    )
    bucket.write(f"test/t/{ms << 18}/CDC000001.json", b"".join(m + b"\n" for m in messages))
    ran = bucket.at((ms + 3) << 18)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, "b")])
    assert "only the millisecond of the commit ts" in ran.told
    assert "enable-tidb-extension=true" in ran.told
    assert bucket.at((ms + 6) << 18).code == 0
    assert bucket.state() == [(1, "b"), (2, "c")]


@pytest.mark.parametrize("options", [LF, CRLF, NONE])
def test_t45_only_terminators_end_messages(tmp_path: Path, options: str) -> None:
    text = "a\u0085b\u2028c\u2029d"
    messages = (message("INSERT", row(1, text)), b"" if options == NONE else b"\n", message("INSERT", row(2, text)))
    rows, report = Bucket(tmp_path, options).decoded(b"".join(m + ENDS[options] for m in messages))
    assert (rows, report.problem) == ([("I", 110, 1, text), ("I", 110, 2, text)], None)
    assert text.encode() in messages[0]


def test_t46_the_jdbc_code_of_a_row_does_not_matter(tmp_path: Path) -> None:
    messages = (
        message("INSERT", {"id": "1", "n": "1"}, sql={"id": 4, "n": -6}),
        message("INSERT", {"id": "2", "n": "200"}, sql={"id": 4, "n": 5}),
    )
    bucket = Bucket(tmp_path, LF)
    rows, report = bucket.decoded(b"".join(m + b"\n" for m in messages), (ID, column("n", "TINYINT UNSIGNED")))
    assert (rows, report.problem) == ([("I", 110, 1, 1), ("I", 110, 2, 200)], None)
    assert bucket.at(200).code == 0
    assert bucket.state() == [(1, 1), (2, 200)]


def test_t46_a_value_outside_of_the_column_s_type_stops_its_table(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, LF)
    bucket.decoded(message("INSERT", {"id": "1", "n": "256"}, sql={"id": 4, "n": 5}) + b"\n", (ID, column("n", "TINYINT UNSIGNED")))
    ran = bucket.at(200)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "column n, value '256'" in ran.stopped["test.t"]
