"""``--until-end`` over folders in which something lacks or is damaged: nothing that lies there is left out without a word."""

from __future__ import annotations

import base64
import json
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from building import Bucket, Ran, csv_record, ledger

from headrace.engine import retries
from headrace.engine.run_options import OnError
from headrace.errors import EXIT_TABLE_STOPPED, SourceNotReadyError, SourceUnreachableError
from headrace.model.place import PlaceInFile
from headrace.model.tso import latest_tso, tso_from_ms
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sources.ticdc_storage import final_drain, splits
from headrace.sources.ticdc_storage.splits import FileSplit
from quick import without_pauses
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

TORN = '{"Table":'
MINUTE = tso_from_ms(60_000)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    monkeypatch.setattr(retries, "_LOOKS", 0)
    return Bucket(tmp_path)


def begun(bucket: Bucket) -> None:
    bucket.create("t", 100)
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.create("o", 101)
    bucket.at(150)


def drain(bucket: Bucket, *, letters: bool = False) -> Ran:
    options = {"once": False, "until_end": True, "quiet": 0.0, "poll_interval": 0.01}
    if letters:
        options |= {"on_error": OnError.DEAD_LETTER, "letters": open_dead_letters(str(bucket.root.parent / "dead"), "default")}
    return bucket.run(**options)


def lines_in_letters(bucket: Bucket) -> list[str]:
    """The records that lie as dead letters."""
    found = (json.loads(path.read_text()) for path in (bucket.root.parent / "dead").rglob("*.json"))
    return sorted(base64.b64decode(letter["raw"]).decode().strip() for letter in found)


def ahead(minutes: int = 5) -> int:
    """A TSO that lies ahead of what the clock allows by these minutes."""
    return latest_tso(time.time()) + minutes * MINUTE


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("torn", [True, False])
def test_a_version_without_a_readable_schema_file_at_the_very_end_stops_its_table(
    bucket: Bucket, torn: bool, has_metadata: bool
) -> None:
    begun(bucket)
    file = bucket.rows("t/300/1", "I 305 2 b", "I 306 3 c")
    bucket.rows("o/101/1", "I 220 2 b")
    path = "test/t/meta/schema_300_1234567890.json"
    if torn:
        bucket.write(path, TORN)
    if not has_metadata:
        (bucket.root / "metadata").unlink()
    for _ in range(2):
        ran = drain(bucket)
        assert ran.code == EXIT_TABLE_STOPPED
        assert {(str(p.table_id), p.place) for p in ran.problems} <= {("test.t", PlaceInFile(path if torn else file))}
        assert "test.t" in {str(t) for t, own in ledger(bucket).tables.items() if own.status.is_stopped}
        assert (bucket.state("t"), bucket.state("o")) == ([(1, "a")], [(2, "b")])
    if torn:
        (bucket.root / path).unlink()
    bucket.schema("t", 300)
    ran = drain(bucket)
    assert ran.code == 0
    assert "schema files with versions from" not in ran.told  # nothing came late: the table waited for it
    assert bucket.state("t") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_without_any_schema_file_stops(bucket: Bucket) -> None:
    begun(bucket)
    file = bucket.rows("n/300/1", "I 305 2 b")
    ran = drain(bucket)
    assert ran.code == EXIT_TABLE_STOPPED
    assert {problem.place for problem in ran.problems} == {PlaceInFile(file)}
    bucket.create("n", 300)
    assert drain(bucket).code == 0
    assert bucket.state("n") == [(2, "b")]


def test_a_torn_schema_file_of_the_end_stops_its_table_without_rows_too(bucket: Bucket) -> None:
    begun(bucket)
    bucket.write("test/t/meta/schema_300_1234567890.json", TORN)
    assert [*drain(bucket).stopped] == ["test.t"]


def test_without_commit_ts_a_version_without_schema_file_stops_its_table(bucket: Bucket) -> None:
    bucket.options = f"{OPTIONS}&include-commit-ts=false"
    bucket.create("t")
    bucket.write("test/t/100/CDC000001.csv", '"I","t","test",1,"a"\n')
    bucket.at(150)
    file = "test/t/300/CDC000001.csv"
    bucket.write(file, '"I","t","test",2,"b"\n')
    ran = drain(bucket)
    assert (ran.code, {problem.place for problem in ran.problems}) == (EXIT_TABLE_STOPPED, {PlaceInFile(file)})


@pytest.mark.parametrize("row", ["I {0} 2 b", "I 210 2 b"])
@pytest.mark.parametrize("schema", ["none", "torn", "shape", "change"])
def test_data_files_of_a_version_ahead_of_the_clock_stop_their_table(bucket: Bucket, schema: str, row: str) -> None:
    begun(bucket)
    version = ahead()
    file = bucket.rows(f"t/{version}/1", row.format(version + 5))
    bucket.rows("o/101/1", "I 220 2 b")
    torn = f"test/t/meta/schema_{version}_1234567890.json"
    if schema == "torn":
        bucket.write(torn, TORN)
    elif schema != "none":
        bucket.schema("t", version, "id,v", "TRUNCATE TABLE `t`" if schema == "change" else "")
    ran = drain(bucket)
    assert ran.code == EXIT_TABLE_STOPPED
    assert {(str(p.table_id), p.place) for p in ran.problems} == {("test.t", PlaceInFile(torn if schema == "torn" else file))}
    assert "too far ahead of this machine's clock" in ran.stopped["test.t"]
    assert (ledger(bucket).checkpoint, bucket.state("o")) == (220, [(2, "b")])


def test_without_commit_ts_a_shape_ahead_of_the_clock_stops_its_table(bucket: Bucket) -> None:
    bucket.options = f"{OPTIONS}&include-commit-ts=false"
    bucket.create("t")
    bucket.write("test/t/100/CDC000001.csv", '"I","t","test",1,"a"\n')
    bucket.at(150)
    version = ahead()
    bucket.schema("t", version)
    bucket.write(f"test/t/{version}/CDC000001.csv", '"I","t","test",2,"b"\n')
    ran = drain(bucket)
    assert (ran.code, [*ran.stopped]) == (EXIT_TABLE_STOPPED, ["test.t"])
    assert "its shape is not taken" in ran.told


def test_a_torn_schema_file_ahead_of_the_clock_is_told_and_left_out(bucket: Bucket) -> None:
    begun(bucket)
    bucket.write(f"test/t/meta/schema_{ahead()}_1234567890.json", TORN)
    bucket.rows("t/100/2", "I 210 2 b")
    ran = drain(bucket)
    assert (ran.code, bucket.state("t")) == (0, [(1, "a"), (2, "b")])
    assert "its schema change is not taken" in ran.told


def test_data_files_ahead_of_the_clock_of_which_nothing_tells_the_table_end_the_run(bucket: Bucket) -> None:
    begun(bucket)
    bucket.options = f"{OPTIONS}&use-table-id-as-path=true"
    path = f"77/{ahead()}/CDC000001.csv"
    bucket.write(path, '"I","t","test",210,2,"b"\n')
    with pytest.raises(SourceNotReadyError, match=f"{path}: .* ahead of this machine's clock. Its table is not known"):
        drain(bucket)


GOOD = [csv_record(row, "t", "test") for row in ("I 205 2 b", "I 215 4 d", "I 216 5 e")]
BAD = '"I","t","test",210,zz,"c"'
NO_TS = '"I","t","test",garbage,3,"c"'


@pytest.mark.parametrize("bad", [BAD, NO_TS])
@pytest.mark.parametrize("place", range(4))
def test_good_rows_behind_a_bad_record_are_taken(bucket: Bucket, place: int, bad: str) -> None:
    begun(bucket)
    bucket.write("test/t/100/CDC000002.csv", "\n".join([*GOOD[:place], bad, *GOOD[place:], ""]))
    for _ in range(2):
        assert drain(bucket, letters=True).code == 0
        assert (ledger(bucket).checkpoint, lines_in_letters(bucket)) == (216, [bad])
        assert bucket.state("t") == [(1, "a"), (2, "b"), (4, "d"), (5, "e")]


def test_a_bad_record_behind_rows_that_were_applied_becomes_a_letter(bucket: Bucket) -> None:
    """TiCDC repeats rows at the beginning of a file after it was started again."""
    begun(bucket)
    bucket.write("test/t/100/CDC000002.csv", csv_record("I 110 1 a", "t", "test") + f"\n{BAD}\n")
    assert drain(bucket, letters=True).code == 0
    assert (ledger(bucket).checkpoint, lines_in_letters(bucket)) == (210, [BAD])


def test_a_bad_record_stops_its_table_and_good_rows_behind_it_are_taken_after_the_repair(bucket: Bucket) -> None:
    begun(bucket)
    file = "test/t/100/CDC000002.csv"
    bucket.write(file, "\n".join([GOOD[0], BAD, *GOOD[1:], ""]))
    ran = drain(bucket)
    assert (ran.code, {p.place for p in ran.problems}) == (EXIT_TABLE_STOPPED, {PlaceInFile(file, line=2)})
    bucket.write(file, "\n".join([*GOOD, ""]))
    assert drain(bucket).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b"), (4, "d"), (5, "e")]


def test_a_file_with_more_bad_records_than_are_passed_over_stops_its_table(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(bucket)
    monkeypatch.setattr(final_drain, "_MOST_BAD", 2)
    bucket.write("test/t/100/CDC000002.csv", "\n".join([GOOD[0], BAD, BAD, BAD, *GOOD[1:], ""]))
    ran = drain(bucket, letters=True)
    assert (ran.code, [*ran.stopped]) == (EXIT_TABLE_STOPPED, ["test.t"])


def test_a_file_that_cannot_be_read_for_a_while_does_not_end_before_its_rows(bucket: Bucket) -> None:
    begun(bucket)
    bucket.rows("t/100/2", "I 210 2 b")
    bucket.rows("o/101/1", "I 205 2 b")
    content, failing = splits._content, iter([True])

    def fail_once(split: FileSplit) -> object:
        if split.key == "test/t/100/CDC000002.csv" and next(failing, False):
            raise SourceUnreachableError("the store does not answer")
        return content(split)

    with patch.object(splits, "_content", fail_once):
        ran = drain(bucket)
    assert ran.code == 0 or ran.stopped
    assert drain(bucket).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b")]


# Folders as chance makes them.


@dataclass
class Folder:
    """What chance put into a folder: the good rows of each table, and the records that nobody can decode."""

    rows: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    bad: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    number: int = 0


def grow(bucket: Bucket, chance: random.Random, folder: Folder, table: str, version: int, above: int) -> None:
    """Files in the directory of a version, with rows above a commit ts (TSO), and records that are damaged or cut off."""
    for file in range(2, 3 + chance.randint(0, 1)):
        commit_ts = above
        lines = [csv_record("I 110 1000 x", table, "test")] if table != "n" and chance.random() < 0.4 else []  # it is repeated
        for _ in range(chance.randint(1, 4)):
            commit_ts += chance.randint(1, 9)
            folder.number += 1
            if chance.random() < 0.25:
                told = chance.choice([str(commit_ts), "garbage"])
                lines.append(f'"I","{table}","test",{told},zz{folder.number},"x"')
                folder.bad[table].append(lines[-1])
            else:
                lines.append(csv_record(f"I {commit_ts} {folder.number} x", table, "test"))
                folder.rows[table].append((folder.number, "x"))
        text = "".join(f"{line}\n" for line in lines)
        bucket.write(f"test/{table}/{version}/CDC{file:06d}.csv", text[:-4] if chance.random() < 0.1 else text)


def make_schema(bucket: Bucket, chance: random.Random, table: str, version: int) -> None:
    """A schema file, or what is left of it."""
    path = bucket.schema(table, version)
    damage = chance.choice(["none", "none", "missing", "torn"])
    if damage == "missing":
        (bucket.root / path).unlink()
    elif damage == "torn":
        bucket.write(path, TORN)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_lies_in_a_folder_is_applied_or_a_letter_or_its_table_stops(bucket: Bucket, seed: int) -> None:
    chance, folder = random.Random(seed), Folder()
    letters, was_begun = chance.random() < 0.6, chance.random() < 0.8
    for table in "to":
        bucket.create(table)
        bucket.rows(f"{table}/100/1", "I 110 1000 x")
        folder.rows[table].append((1000, "x"))
    if was_begun:
        bucket.at(150)
    for table in "ton":
        if table != "n" and chance.random() < 0.5:
            grow(bucket, chance, folder, table, 100, 150)
        for version in chance.choice([[], [], [200], [300], [200, 300], [ahead()]]):
            make_schema(bucket, chance, table, version)
            if chance.random() < 0.8:
                grow(bucket, chance, folder, table, version, version)
    for _ in range(2):
        ran = drain(bucket, letters=letters)
        stopped = {t.table for t, own in ledger(bucket).tables.items() if own.status.is_stopped}
        assert (ran.code == EXIT_TABLE_STOPPED) is bool(stopped), ran
        kept = lines_in_letters(bucket) if letters else []
        for table in {*folder.rows, *folder.bad} - stopped:
            assert bucket.state(table) == sorted(folder.rows[table], key=repr) or not folder.rows[table], (table, ran)
            assert {*folder.bad[table]} <= {*kept}, (table, ran)
