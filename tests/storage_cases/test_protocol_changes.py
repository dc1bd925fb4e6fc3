"""The changefeed's protocol is changed in mid life: files of the former one that are needed and gone are missed all the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb
import pytest
from building import Bucket, ledger

from headrace.cli.main import main
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.transform.filters import TableFilter
from quick import without_pauses
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

JSON = OPTIONS.replace("csv", "canal-json")
WITHOUT_T = "*.*,!test.t"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.create("o", 101)
    bucket.rows("t/100/1", "I 110 1 a")
    return bucket


def _canal(table: str, ts: int, key: int, v: str) -> str:
    message = {
        **{"id": 0, "database": "test", "table": table, "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 0, "ts": 0},
        **{"sql": "", "sqlType": {"id": 4, "v": 12}, "mysqlType": {"id": "int", "v": "varchar(64)"}, "old": None},
        **{"data": [{"id": str(key), "v": v}], "_tidb": {"commitTs": ts}},
    }
    return json.dumps(message) + "\n"


def _target(bucket: Bucket, *statements: str) -> None:
    with duckdb.connect(str(bucket.database)) as target:
        for statement in statements:
            target.execute(statement)


def _switch(bucket: Bucket) -> None:
    """The protocol becomes canal-json, in the directory of a new version, which is numbered from 1 again."""
    bucket.schema("t", 155, "id,v", "ALTER TABLE `t` COMMENT='x'", 25)
    bucket.options = JSON
    bucket.write("test/t/155/CDC000001.json", _canal("t", 160, 3, "c"))


def _remove(bucket: Bucket) -> None:
    for path in bucket.root.glob("test/t/100/*.csv"):
        path.unlink()


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("how", ["reset", "resync"])
def test_a_table_that_goes_back_over_a_change_of_protocol_is_refused(bucket: Bucket, how: str, is_gone: bool) -> None:
    """Files of the former protocol are not read again: whether they are gone or there."""
    bucket.rows("t/100/2", "I 140 2 b")
    assert bucket.at(150).code == 0
    _remove(bucket)
    if how == "reset":
        _switch(bucket)
    else:  # no table goes back over a schema change
        bucket.options = JSON
        bucket.write("test/t/100/CDC000003.json", _canal("t", 160, 3, "c"))
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])
    if not is_gone:
        bucket.rows("t/100/1", "I 110 1 a")
        bucket.rows("t/100/2", "I 140 2 b")
    if how == "reset":
        _target(bucket, "DROP TABLE test.t")
        main(["reset", "--table", "test.t", "--yes", "--sink", bucket.sink])
    else:
        _target(bucket, "DELETE FROM test.t WHERE id > 1")
        main(["table", "resync", "test.t", "--at", "120", "--sink", bucket.sink])
    bucket.write("test/o/101/CDC000001.json", _canal("o", 175, 1, "o"))
    ran = bucket.at(180)
    assert ran.code == 3
    if is_gone:
        assert "test/t/100, number 1 (.csv) is not there any more" in ran.told
    else:
        assert "CDC000001.csv is .csv, and the protocol is canal-json now: it is not read again. Restore" in ran.told


def test_a_position_that_went_back_misses_files_of_the_former_protocol(bucket: Bucket) -> None:
    bucket.at(120)
    former = ledger(bucket).position
    bucket.rows("t/100/2", "I 140 2 b")
    bucket.at(150)
    _remove(bucket)
    _switch(bucket)
    assert bucket.at(170).code == 0
    place = StoragePosition.parse(bucket.consumer().source.missing_again(ledger(bucket).position, former))
    assert "test/t/100/CDC000002.csv" in [path for path, _ in place.unread_files()]
    assert place.own_extensions == ("csv", "json")


@pytest.mark.parametrize("how", ["left out", "held", "stopped", "stopped from the first file on"])
def test_an_unapplied_file_of_the_former_protocol_that_is_gone_stops_its_table(bucket: Bucket, how: str) -> None:
    options = {"includes": TableFilter.parse(WITHOUT_T).includes, "filter_text": WITHOUT_T} if how == "left out" else {}
    if how != "stopped from the first file on":
        assert bucket.at(120).code == 0
    if how == "held":
        main(["table", "hold", "test.t", "--sink", bucket.sink])
    if how.startswith("stopped"):
        bucket.write("test/t/100/CDC000002.csv", b'"I","t","test",140,2,"b"\n"U","t"\x00\xff\r\n')
        bucket.write("test/t/100/CDC000001.csv", b'"U","t"\x00\xff\r\n') if "first" in how else None
    else:
        bucket.rows("t/100/2", "I 140 2 b")
    bucket.at(150, **options)
    _remove(bucket)
    _switch(bucket)
    if how == "held":
        main(["table", "release", "test.t", "--sink", bucket.sink])
    told = ""
    for checkpoint in (170, 180):
        ran = bucket.at(checkpoint)
        told += ran.told + ran.stopped.get("test.t", "")
        assert (ran.code, (3, "c") in (bucket.state() or [])) == (3, False)
    if how == "left out":
        assert "test/t/100/CDC000002.csv is missing. Load it anew" in told
    else:
        assert "It was .csv, and the protocol is canal-json now. Load the table anew" in told


def test_a_file_of_the_former_protocol_that_is_gone_is_waited_for_until_it_is_given_up(bucket: Bucket) -> None:
    assert bucket.at(120).code == 0
    bucket.write("test/t/100/CDC000002.csv", "garbage\n")
    assert bucket.at(150).code == 3
    _switch(bucket)
    assert "do not move it away" in bucket.at(165).stopped["test.t"]
    _remove(bucket)
    assert bucket.at(170).code == 3
    command = ["table", "skip", "test.t", "--file", "test/t/100/CDC000002.csv", "--yes", "--sink", bucket.sink]
    assert main(command) == 0
    assert (bucket.at(180).code, bucket.state()) == (0, [(1, "a"), (3, "c")])


def test_a_table_that_was_loaded_anew_after_the_change_misses_no_file_of_the_former_protocol(bucket: Bucket) -> None:
    assert bucket.at(120).code == 0
    bucket.write("test/t/100/CDC000002.csv", "garbage\n")
    assert bucket.at(150).code == 3
    _remove(bucket)
    _switch(bucket)
    assert bucket.at(170).code == 3
    _target(bucket, "INSERT INTO test.t VALUES (2, 'b'), (3, 'c')")
    main(["table", "resync", "test.t", "--at", "170", "--sink", bucket.sink])
    bucket.write("test/t/155/CDC000002.json", _canal("t", 175, 4, "d"))
    assert (bucket.at(180).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c"), (4, "d")])


def test_numbers_that_go_on_from_those_of_the_former_protocol_are_no_gap(bucket: Bucket) -> None:
    bucket.rows("t/100/2", "I 140 2 b")
    assert bucket.at(150).code == 0
    _remove(bucket)
    bucket.options = JSON
    bucket.write("test/t/100/CDC000003.json", _canal("t", 160, 3, "c"))
    ran = bucket.at(170)
    assert (ran.code, "are missing" in ran.told) == (0, False)
    bucket.write("test/t/100/CDC000005.json", _canal("t", 175, 5, "e"))
    assert "File numbers 4 are missing" in bucket.at(180).told


def test_an_older_ledger_takes_the_protocols_of_applied_files_for_the_changefeeds() -> None:
    place = StoragePosition.parse(
        '{"v":2,"w":9,"d":{"test/t/155":{"/6":"1"}},"y":"json","z":{"csv":{"d":{"test/t/100":{"/6":"1"}}}}}'
    )
    assert place.own_extensions == ("csv", "json")
    assert StoragePosition.parse(place.owning("json").to_text()).own_extensions == ("csv", "json")
    assert StoragePosition.parse('{"v":2,"w":9}').own_extensions == ()


@dataclass
class _History:
    """What a changefeed whose protocol is changed and a person do, at random. Every file is seen by a run before it is removed."""

    bucket: Bucket
    chance: Random
    at: int = 150
    version: int = 100
    number: int = 1
    extension: str = "csv"
    rows_at: dict[int, int] = field(default_factory=lambda: {1: 110})
    is_held: bool = False
    is_left_out: bool = False
    is_harmed: bool = False
    positions: list[str] = field(default_factory=list)

    @property
    def wanted(self) -> list[tuple[int, str]]:
        return sorted([(key, "x") for key in self.rows_at], key=repr)

    def run(self) -> int:
        self.at += 10
        options = {"includes": TableFilter.parse(WITHOUT_T).includes, "filter_text": WITHOUT_T} if self.is_left_out else {}
        code = self.bucket.at(self.at, **options).code
        self.positions.append(ledger(self.bucket).position)
        return code

    def rows(self) -> None:
        self.number += 1
        key, ts = len(self.rows_at) + 1, self.at + 5
        self.rows_at[key] = ts
        if self.extension == "csv":
            self.bucket.rows(f"t/{self.version}/{self.number}", f"I {ts} {key} x")
        else:
            self.bucket.write(f"test/t/{self.version}/CDC{self.number:06d}.json", _canal("t", ts, key, "x"))

    def switch(self) -> None:
        self.run()
        self.version, self.number = self.at + 2, 0
        self.bucket.schema("t", self.version, "id,v", "ALTER TABLE `t` COMMENT='x'", 25)
        self.extension = "json" if self.extension == "csv" else "csv"
        self.bucket.options = OPTIONS if self.extension == "csv" else JSON
        self.rows()
        self.is_harmed = True  # files of the former protocol are not read any more

    def remove(self) -> None:
        self.run()
        gone = [path for path in sorted(self.bucket.root.glob("test/t/*/CDC*.*")) if self.chance.random() < 0.6]
        for path in gone:
            path.unlink()
        self.is_harmed = self.is_harmed or bool(gone)

    def go_back(self, how: str) -> bool:
        """A ``resync --at`` or a ``reset``. Returns whether the table went on."""
        if self.is_held or self.is_left_out or self.run() != 0:
            return True
        if how == "reset":
            _target(self.bucket, "DROP TABLE test.t")
            main(["reset", "--table", "test.t", "--yes", "--sink", self.bucket.sink])
        else:
            ts = self.chance.choice(sorted(self.rows_at.values()))
            ts = max(ts, self.version)  # what its schema change has settled is not gone back over
            later = [str(key) for key, at in self.rows_at.items() if at > ts]
            _target(self.bucket, f"DELETE FROM test.t WHERE id IN ({', '.join(later) or 'NULL'})")
            main(["table", "resync", "test.t", "--at", str(ts), "--sink", self.bucket.sink])
        return self.run() == 0

    def toggle(self, what: str) -> None:
        if what == "hold":
            main(["table", "release" if self.is_held else "hold", "test.t", "--sink", self.bucket.sink])
            self.is_held = not self.is_held
        else:
            self.is_left_out = not self.is_left_out

    def check_going_back(self) -> None:
        """What was applied since any former position, and is gone, is missed at that position."""
        known, source = StoragePosition.parse(self.positions[-1]), self.bucket.consumer().source
        for former in self.positions[::3]:
            before, after = StoragePosition.parse(former), StoragePosition.parse(source.missing_again(self.positions[-1], former))
            for extension in ("csv", "json"):
                for version in sorted({100, self.version}):
                    for number in range(1, 8):
                        path = f"test/t/{version}/CDC{number:06d}.{extension}"
                        was_applied = known.is_consumed_path(path) and not before.is_consumed_path(path)
                        if was_applied and not (self.bucket.root / path).exists():
                            assert after.is_open(path)


@pytest.mark.parametrize("seed", range(24))
def test_any_history_over_changes_of_protocol_is_applied_once_or_stops(bucket: Bucket, seed: int) -> None:
    bucket.rows("t/100/1", "I 110 1 x")
    history = _History(bucket, Random(seed))
    history.run()
    for _ in range(10):
        match history.chance.choice(("rows", "rows", "run", "switch", "remove", "remove", "hold", "leave out", "reset", "resync")):
            case "rows":
                history.rows()
            case "run":
                history.run()
            case "switch":
                history.switch()
            case "remove":
                history.remove()
            case "hold" | "leave out" as what:
                history.toggle(what)
            case how:
                if not history.go_back(how):
                    assert history.is_harmed
                    return
    for what, is_so in (("hold", history.is_held), ("leave out", history.is_left_out)):
        if is_so:
            history.toggle(what)
    codes = [history.run() for _ in range(3)]
    history.check_going_back()
    if codes[-1] == 0:
        assert bucket.state() == history.wanted
    else:
        assert history.is_harmed
