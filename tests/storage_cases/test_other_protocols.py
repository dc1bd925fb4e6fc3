"""Files of another protocol than the one that is read: their tables wait, and nothing counts as applied."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace

import duckdb
import pytest
from building import Bucket, ledger

from following import Following, end_all
from headrace.cli.main import main
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.position import FileState, StoragePosition
from headrace.sources.ticdc_storage.position_update import advanced
from headrace.transform.filters import TableFilter
from quick import without_pauses
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

JSON = OPTIONS.replace("csv", "canal-json")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.create("o", 101)
    bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
    return bucket


def test_a_wrong_protocol_loses_nothing(bucket: Bucket) -> None:
    assert JSON != OPTIONS
    bucket.options = JSON
    for checkpoint in (150, 160):
        ran = bucket.at(checkpoint)
        assert (ran.code, list(ran.stopped)) == (3, ["test.t"])
        assert "CDC000001.csv: The file is .csv, and the protocol is canal-json" in ran.stopped["test.t"]
        assert "No data file is .json: correct protocol=" in ran.stopped["test.t"]
    bucket.options = OPTIONS
    assert (bucket.run().code, bucket.state()) == (0, [(1, "a"), (2, "b")])


def test_a_file_of_another_protocol_stops_its_table_until_it_is_moved_away(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.rows("o/101/1", "I 155 1 o")
    bucket.write("test/t/100/CDC000002.json", '{"type":"INSERT"}\n')
    ran = bucket.at(160)
    assert (ran.code, list(ran.stopped), bucket.state("o")) == (3, ["test.t"], [(1, "o")])
    assert "If it is not a file of this changefeed, move it away or give it up" in ran.stopped["test.t"]
    (bucket.root / "test/t/100/CDC000002.json").unlink()
    bucket.rows("t/100/2", "I 158 3 c")
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_files_of_a_protocol_that_was_applied_before_stop_nothing(bucket: Bucket) -> None:
    bucket.at(150)
    assert (bucket.at(160).code, ledger(bucket).tables[TableId("test", "t")].status.value) == (0, "running")
    bucket.write("test/t/100/CDC000003.json", "")
    assert bucket.at(170).code == 0


def test_a_file_of_another_protocol_with_the_number_of_one_that_was_applied_stops_its_table(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.write("test/t/100/CDC000001.json", '{"type":"INSERT"}\n')
    ran = bucket.at(160)
    assert (ran.code, list(ran.stopped)) == (3, ["test.t"])
    (bucket.root / "test/t/100/CDC000001.json").unlink()
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b")])


def _give_up(bucket: Bucket, path: str) -> int:
    return main(["table", "skip", "test.t", "--file", path, "--yes", "--sink", bucket.sink])


def test_a_file_of_another_protocol_can_be_given_up_and_leaves_its_number_to_the_changefeed(bucket: Bucket) -> None:
    bucket.at(150)
    foreign = "test/t/100/CDC000002.json"
    bucket.write(foreign, '{"type":"INSERT"}\n')
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    assert (bucket.at(165).code, ledger(bucket).tables[TableId("test", "t")].status.value) == (0, "running")
    bucket.rows("t/100/2", "I 168 3 c")
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])
    bucket.write(foreign, '{"type":"INSERT","id":0}\n')  # written again it is another file
    assert bucket.at(180).code == 3


def test_a_file_of_another_protocol_is_given_up_beside_an_unread_one_of_its_number(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.rows("t/100/2", "I 158 3 c")
    bucket.write("test/t/100/CDC000002.json", '{"type":"INSERT"}\n')
    assert bucket.at(160).code == 3
    assert _give_up(bucket, "test/t/100/CDC000003.json") == 2  # there is none
    assert _give_up(bucket, "test/t/100/CDC000002.json") == 0
    assert (bucket.at(165).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_a_file_of_another_protocol_in_a_version_that_is_over_stops_nothing(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.schema("t", 155, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    bucket.rows("t/155/1", "I 158 3 c")
    assert bucket.at(160).code == 0
    bucket.write("test/t/100/CDC000002.json", '{"type":"INSERT"}\n')  # no file of the shape comes there any more
    assert (bucket.at(170).code, bucket.state()) == (0, [(3, "c")])
    bucket.write("test/t/155/CDC000002.json", '{"type":"INSERT"}\n')
    assert bucket.at(180).code == 3


CANAL = (
    '{"id":0,"database":"test","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":0,"ts":0,"sql":"",'
    '"sqlType":{"id":4,"v":12},"mysqlType":{"id":"int","v":"varchar(64)"},"old":null,"data":[{"id":"1","v":"FOREIGN"}],'
    '"_tidb":{"commitTs":170}}\n'
)


def test_a_file_that_was_given_up_is_not_applied_when_the_others_are_removed(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "").replace("&protocol=csv", "")  # by the files' names
    assert "protocol" not in bucket.options
    bucket.at(150)
    foreign = "test/t/100/CDC000007.json"
    bucket.write(foreign, CANAL)
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    for path in [*bucket.root.glob("test/*/*/*.csv"), *bucket.root.glob("test/*/*/*/*.csv")]:
        path.unlink()  # as file-expiration-days does
    for checkpoint in (170, 180, 500):
        assert (bucket.at(checkpoint).code, bucket.state()) == (0, [(1, "a"), (2, "b")])
    bucket.rows("t/100/8", "I 510 3 c")
    assert (bucket.at(520).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_the_protocol_stays_the_one_of_what_was_applied(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "").replace("&protocol=csv", "")
    bucket.at(150)
    for path in [*bucket.root.glob("test/*/*/*.csv"), *bucket.root.glob("test/*/*/*/*.csv")]:
        path.unlink()
    for number in (7, 8):
        bucket.write(f"test/t/100/CDC00000{number}.json", CANAL)
    ran = bucket.at(200)
    assert (ran.code, bucket.state()) == (3, [(1, "a"), (2, "b")])
    assert "The file is .json, and the protocol is csv" in ran.stopped["test.t"]


def test_a_file_of_another_protocol_hides_no_gap_in_the_numbers(bucket: Bucket) -> None:
    bucket.at(150)
    foreign = "test/t/100/CDC000002.json"
    bucket.write(foreign, CANAL)
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    bucket.at(165)
    bucket.rows("t/100/3", "I 168 3 c")
    assert "File numbers 2 are missing" in bucket.at(170).told


def test_a_protocol_that_was_detected_wrongly_is_corrected_in_the_uri(bucket: Bucket) -> None:
    """More files of another changefeed than of this one: what they hold may be applied, but the changefeed's own rows wait."""
    bucket.options = bucket.options.replace("protocol=csv&", "")
    for number in (7, 8):
        bucket.write(f"test/o/101/CDC00000{number}.json", CANAL.replace('"table":"t"', '"table":"o"'))
    ran = bucket.at(180)
    assert (ran.code, bucket.state()) == (3, None)
    assert "If the changefeed's protocol is csv, name it with protocol=csv in the source's URI" in ran.stopped["test.t"]
    bucket.options = OPTIONS
    bucket.rows("o/101/9", "I 185 5 e")
    ran = bucket.at(190)
    assert (list(ran.stopped), bucket.state()) == (["test.o"], [(1, "a"), (2, "b")])


@pytest.mark.parametrize("how", ["reset", "resync"])
def test_a_file_that_was_given_up_stands_for_no_file_of_its_number(bucket: Bucket, how: str) -> None:
    """A table that is to be read again, but whose file was removed, is refused."""
    bucket.rows("t/100/2", "I 145 3 c")
    bucket.at(150)
    foreign = "test/t/100/CDC000001.json"
    bucket.write(foreign, CANAL)
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    bucket.at(165)
    (bucket.root / "test/t/100/CDC000001.csv").unlink()
    with duckdb.connect(str(bucket.database)) as target:
        target.execute("DROP TABLE test.t" if how == "reset" else "DELETE FROM test.t")
    command = ["reset", "--table", "test.t", "--yes"] if how == "reset" else ["table", "resync", "test.t", "--at", "105"]
    main([*command, "--sink", bucket.sink])
    bucket.rows("o/101/1", "I 168 1 o")
    ran = bucket.at(170)
    assert ran.code == 3
    assert "number 1" in ran.told + "".join(ran.stopped.values())


def test_a_position_that_went_back_misses_a_file_beside_one_of_another_protocol(bucket: Bucket) -> None:
    bucket.at(150)
    former = ledger(bucket).position
    bucket.rows("t/100/2", "I 155 3 c")
    bucket.at(160)
    known = ledger(bucket).position
    bucket.write("test/t/100/CDC000002.json", CANAL)
    (bucket.root / "test/t/100/CDC000002.csv").unlink()
    source = bucket.consumer().source
    assert "2.csv" in "".join(path for path, _ in StoragePosition.parse(source.missing_again(known, former)).unread_files())


def test_the_protocol_is_taken_from_what_an_older_ledger_knows_of_applied_files(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "")
    bucket.at(150)
    with duckdb.connect(str(bucket.database)) as target:
        target.execute("""UPDATE headrace.pipelines SET source_position = replace(source_position, ',"y":"csv"', '')""")
    assert '"y"' not in ledger(bucket).position
    (bucket.root / "test/t/100/CDC000001.csv").unlink()
    bucket.write("test/t/100/CDC000002.json", CANAL)
    ran = bucket.at(200)
    assert "The file is .json, and the protocol is csv" in ran.stopped["test.t"]
    assert bucket.state() == [(1, "a"), (2, "b")]


def test_a_file_that_cannot_be_read_settles_no_protocol_and_takes_no_number(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "")
    for path in bucket.root.glob("test/*/*/*.csv"):
        path.unlink()
    stray = "test/t/100/CDC000001.json"
    bucket.write(stray, "garbage\n")
    assert bucket.at(105).code == 3
    (bucket.root / stray).unlink()
    for number in (1, 2):
        bucket.rows(f"t/100/{number}", f"I {110 + number} {number} a")
    assert bucket.at(150).code == 3  # it vanished
    assert _give_up(bucket, stray) == 0
    ran = bucket.at(160)
    assert (ran.code, bucket.state()) == (0, [(1, "a"), (2, "a")])
    assert "written again" not in ran.told


def test_a_file_that_was_read_with_a_wrong_protocol_is_not_waited_for_once_it_is_given_up(bucket: Bucket) -> None:
    stray = "test/t/100/CDC000009.json"
    bucket.write(stray, "garbage\n")
    bucket.options = JSON
    assert bucket.at(150).code == 3
    bucket.options = OPTIONS
    assert bucket.at(160).code == 3
    assert _give_up(bucket, stray) == 0
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b")])
    (bucket.root / stray).unlink()
    bucket.rows("t/100/2", "I 175 3 c")
    assert (bucket.at(180).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_an_old_file_of_another_protocol_with_a_number_that_was_applied_stops_its_table(bucket: Bucket) -> None:
    """Of so many files the position keeps the latest time alone."""
    for number in range(2, 72):
        bucket.rows(f"t/100/{number}", f"I {100 + number} {number + 10} x")
    bucket.at(180)
    bucket.write("test/t/100/CDC000001.json", CANAL)
    os.utime(bucket.root / "test/t/100/CDC000001.json", (1e9, 1e9))
    assert bucket.at(190).code == 3


def test_a_position_with_an_unknown_extension_is_refused() -> None:
    with pytest.raises(ValueError, match="is not the extension of a data file"):
        StoragePosition.parse('{"v":2,"w":1,"y":"avro"}')


GARBAGE = "garbage\n"


def _empty(bucket: Bucket, suffix: str = "csv") -> None:
    for path in bucket.root.glob(f"test/*/*/CDC*.{suffix}"):
        path.unlink()


def _detecting(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "")
    assert "protocol" not in bucket.options


@pytest.mark.parametrize("count", [3, 79])
def test_numbers_of_a_wrongly_detected_protocol_hide_no_file(bucket: Bucket, count: int) -> None:
    """The files come with times before those of the others, as a copy that preserves times has them."""
    _empty(bucket)
    _detecting(bucket)
    for number in range(1, count + 1):
        bucket.write(f"test/t/100/CDC{number:06d}.json", CANAL.replace("170", "103"))
    assert (bucket.at(150).code, bucket.state()) == (0, [(1, "FOREIGN")])
    _empty(bucket, "json")
    bucket.options = OPTIONS
    for number in range(1, count + 1):
        path = bucket.rows(f"t/100/{number}", f"I {160 + number} {number} x")
        os.utime(bucket.root / path, (1e9, 1e9))
    ran = bucket.at(300)
    assert (ran.code, ran.stopped, bucket.state()) == (0, {}, sorted([(n, "x") for n in range(1, count + 1)], key=repr))
    assert "The files that were applied last are .json, and the protocol is csv now" in ran.told
    assert "applied last" not in bucket.at(310).told


def test_no_file_is_applied_twice_when_the_protocol_is_changed_and_changed_back(bucket: Bucket) -> None:
    """Without commit ts only the position knows what was applied."""
    own = OPTIONS + "&include-commit-ts=false"
    _empty(bucket)
    for number in (1, 2):
        bucket.write(f"test/t/100/CDC{number:06d}.csv", f'"I","t","test",{number},"a"\n')
    bucket.options = own
    assert bucket.at(150).code == 0
    bucket.options = own.replace("protocol=csv", "protocol=canal-json")
    bucket.write("test/o/101/CDC000001.json", CANAL.replace('"table":"t"', '"table":"o"'))
    assert list(bucket.at(180).stopped) == ["test.t"]
    (bucket.root / "test/o/101/CDC000001.json").unlink()
    with duckdb.connect(str(bucket.database)) as target:
        target.execute("UPDATE test.t SET v = 'mended' WHERE id = 1")
    bucket.options = own
    bucket.write("test/t/100/CDC000003.csv", '"I","t","test",3,"a"\n')
    assert (bucket.at(190).code, bucket.state()) == (0, [(1, "mended"), (2, "a"), (3, "a")])


def test_a_file_that_vanished_while_another_protocol_was_detected_can_be_given_up_in_a_run_that_follows(bucket: Bucket) -> None:
    _empty(bucket)
    _detecting(bucket)
    stray = "test/t/100/CDC000001.json"
    bucket.write(stray, GARBAGE)
    bucket.checkpoint(150)
    run = Following(SimpleNamespace(uri=bucket.folder.uri(bucket.options), toml=""), bucket.sink)  # type: ignore[arg-type]
    try:
        run.wait_until(lambda: any("not valid JSON" in problem.sentence() for problem in run.display.stopped))
        (bucket.root / stray).unlink()
        for number in (1, 2):
            bucket.rows(f"t/100/{number}", f"I {150 + number} {number} a")
        bucket.checkpoint(160)
        run.wait_until(lambda: any("It was .json, and most files are csv" in p.sentence() for p in run.display.stopped))
        assert _give_up(bucket, stray) == 0
        run.wait_until(lambda: "test.t" in run.display.resumed)
        stops = len(run.display.stopped)
        for checkpoint in (170, 180):
            bucket.checkpoint(checkpoint)
            run.wait_for(checkpoint)
    finally:
        end_all()
    assert len(run.display.stopped) == stops
    assert bucket.state() == [(1, "a"), (2, "a")]


def test_a_file_of_another_protocol_that_was_moved_away_is_not_asked_for(bucket: Bucket) -> None:
    _empty(bucket)
    _detecting(bucket)
    strays = [f"test/t/100/CDC{number:06d}.json" for number in (7, 8)]
    for stray in strays:
        bucket.write(stray, GARBAGE)
    assert bucket.at(150).code == 3
    bucket.rows("t/100/1", "I 155 1 a")
    bucket.options = OPTIONS
    assert "move it away or give it up" in bucket.at(160).stopped["test.t"]
    for stray in strays:
        (bucket.root / stray).unlink()
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a")])
    bucket.options = JSON
    ran = bucket.at(180)  # changed back, the files are missed again
    assert ran.code == 3


@pytest.mark.parametrize("is_corrected", [False, True])
def test_a_file_is_given_up_by_the_protocol_of_the_run_that_stopped_at_it(
    bucket: Bucket, is_corrected: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command does not know the URI's options, and would detect another protocol."""
    strays = [f"test/t/100/CDC{number:06d}.json" for number in (7, 8)]
    if is_corrected:
        _detecting(bucket)
    for stray in strays:
        bucket.write(stray, CANAL.replace("170", "145"))
    if is_corrected:
        assert bucket.at(150).code == 3
        bucket.options = OPTIONS
    for checkpoint, stray in enumerate(strays, 160):
        assert bucket.at(checkpoint).code == 3
        for command in (["status"], ["table", "list"]):
            main([*command, "--sink", bucket.sink])
            shown = capsys.readouterr().out
            assert f"headrace table skip test.t --sink {bucket.sink} --file '{stray}'" in shown
        assert _give_up(bucket, "test/t/100/CDC000009.json") == 2  # there is none
        assert _give_up(bucket, stray) == 0
    ran = bucket.at(170)
    assert (ran.code, bucket.state("o")) == (0, [])


def test_a_misdetected_file_that_is_given_up_takes_no_number_and_settles_no_protocol(bucket: Bucket) -> None:
    _empty(bucket)
    bucket.options = OPTIONS.replace("protocol=csv&", "") + "&include-commit-ts=false"
    stray = "test/t/100/CDC000001.json"
    bucket.write(stray, GARBAGE)
    assert bucket.at(150).code == 3
    assert _give_up(bucket, stray) == 0
    assert bucket.at(155).code == 0
    assert StoragePosition.parse(ledger(bucket).position).applied_extension == ""
    for number, checkpoint in ((1, 160), (2, 170)):
        bucket.write(f"test/t/100/CDC{number:06d}.csv", f'"I","t","test",{number},"a"\n')
        assert (bucket.at(checkpoint).code, len(bucket.state() or [])) == (0, number)
    (bucket.root / stray).unlink()
    assert (bucket.at(180).code, bucket.state()) == (0, [(1, "a"), (2, "a")])


def test_a_file_of_no_protocol_that_was_seen_before_says_to_look_up_the_protocol_first(bucket: Bucket) -> None:
    _empty(bucket)
    stray = "test/t/100/CDC000007.json"
    bucket.write(stray, CANAL.replace("170", "145"))
    reason = bucket.at(150).stopped["test.t"]
    assert reason.index("Look up the changefeed's protocol first") < reason.index("correct protocol=")
    assert f"If it is csv, move the file away or give it up with headrace table skip test.t --file '{stray}'" in reason


def test_what_was_consumed_of_both_protocols_is_in_the_ledger_and_read_from_there() -> None:
    def of(number: int, extension: str) -> FileState:
        return FileState(f"test/t/100/CDC{number:06d}.{extension}", 9, 10, consumed=True)

    csv = advanced(StoragePosition(), 5, [of(1, "csv"), of(2, "csv")])
    both = advanced(csv, 6, [of(2, "json"), of(3, "json")])
    again = StoragePosition.parse(both.to_text())
    assert again == both
    for extension, numbers in (("csv", {1, 2}), ("json", {2, 3})):
        place = again.of_files(extension)
        assert StoragePosition.parse(place.to_text()).of_files(extension) == place
        for number in range(1, 5):
            path = f"test/t/100/CDC{number:06d}.{extension}"
            for each in (again, place, again.of_files("csv"), again.of_files("json")):
                assert each.is_applied(path, 9, 10) == (number in numbers)
    assert both.goes_on_from(csv)
    assert not csv.goes_on_from(both)
    assert again.of_files("csv").of_files("json") == again
    assert advanced(again, 7, [of(3, "csv")]).consumed == {"test/t/100": {"/6": ((1, 3),)}}


OTHER = CANAL.replace('"id":"1"', '"id":"9999"')
"""A row that is told from all of the changefeed."""


@dataclass
class _History:
    """What a changefeed and a person do, at random: the person does what the reasons of stops say."""

    bucket: Bucket
    chance: Random
    at: int = 150
    number: int = 1
    wanted: list[tuple[int, str]] = field(default_factory=lambda: [(1, "a"), (2, "b")])
    is_lost: bool = False

    def begin(self) -> None:
        """The protocol is configured, or detected: also wrongly, by files that are applied, or by one that cannot be read."""
        first = self.chance.choice(("configured", "detected", "applied", "garbage"))
        if first != "configured":
            _detecting(self.bucket)
        if first in ("applied", "garbage"):
            _empty(self.bucket)
            others = self.chance.choice((1, 2, 70)) if first == "applied" else 1
            for number in range(1, others + 1):
                text = OTHER.replace("170", "103") if first == "applied" else GARBAGE
                self.bucket.write(f"test/t/100/CDC{number:06d}.json", text)
            self.bucket.at(self.at)
            if self.chance.random() < 0.7:
                _empty(self.bucket, "json")
            self.at += 10
            self.bucket.rows("t/100/1", f"I {self.at - 6} 1 a", f"I {self.at - 5} 2 b")
            for _ in range(1, others):
                self.rows()
            if self.chance.random() < 0.7:
                for path in self.bucket.root.glob("test/t/100/*.csv"):
                    os.utime(path, (1e9, 1e9))
        self.settle()

    def rows(self) -> None:
        self.number += 1
        row = (self.at * 1000 + self.number, "x")
        self.wanted.append(row)
        path = self.bucket.rows(f"t/100/{self.number}", f"I {self.at - 5} {row[0]} x")
        if self.chance.random() < 0.3:
            os.utime(self.bucket.root / path, (1e9, 1e9))

    def foreign(self) -> None:
        text = GARBAGE if self.chance.random() < 0.3 else OTHER.replace("170", str(self.at - 5))
        self.bucket.write(f"test/t/100/CDC{self.chance.randrange(1, self.number + 3):06d}.json", text)

    def step(self) -> None:
        match self.chance.choice(("rows", "rows", "foreign", "foreign", "expire", "lost", "leave out", "wrong", "follow")):
            case "rows":
                self.rows()
            case "foreign":
                self.foreign()
            case "expire":
                _empty(self.bucket)
            case "lost":
                self.number, self.is_lost = self.number + 1, True
            case "leave out":
                without_t = "*.*,!test.t"
                self.bucket.at(self.at, includes=TableFilter.parse(without_t).includes, filter_text=without_t)
            case "wrong":
                own, self.bucket.options = self.bucket.options, JSON
                self.bucket.at(self.at)
                self.bucket.options = own
            case _:
                self.follow()
        self.at += 10

    def follow(self) -> None:
        """The files come while a run follows, and those that are not of the changefeed are cleared away meanwhile."""
        run = Following(SimpleNamespace(uri=self.bucket.folder.uri(self.bucket.options), toml=""), self.bucket.sink)  # type: ignore[arg-type]
        try:
            for _ in range(2):
                self.chance.choice((self.rows, self.foreign))()
                self.bucket.checkpoint(self.at)
                run.wait_for(self.at)
                for path in self.strays() if self.chance.random() < 0.7 else ():
                    self.clear(path)
                self.at += 10
        finally:
            end_all()

    def strays(self) -> list[str]:
        return [str(path.relative_to(self.bucket.root)) for path in sorted(self.bucket.root.glob("test/t/100/*.json"))]

    def clear(self, path: str) -> None:
        if self.chance.random() < 0.5:
            (self.bucket.root / path).unlink()
        else:
            _give_up(self.bucket, path)

    def settle(self) -> str:
        """Runs until nothing stops, or files of the changefeed itself are missing. Returns why it stopped then."""
        reason = ""
        for _ in range(5):
            ran = self.bucket.at(self.at)
            self.at += 10
            reason = ran.stopped.get("test.t", "")
            if not ran.stopped or "missing" in reason:
                break
            if "If the changefeed's protocol is csv, name it" in reason:
                self.bucket.options = OPTIONS
            elif "It was .json" in reason:
                assert _give_up(self.bucket, reason.partition("file ")[2].partition(":")[0]) == 0
            for path in self.strays():
                self.clear(path)
        return reason


@pytest.mark.parametrize("seed", range(24))
def test_any_history_with_files_of_another_protocol_is_applied_once_or_says_what_lacks(bucket: Bucket, seed: int) -> None:
    history = _History(bucket, Random(seed))
    history.begin()
    for _ in range(12):
        history.step()
        reason = history.settle()
        if reason:
            assert history.is_lost, reason
            assert "missing" in reason
            return
        assert [row for row in bucket.state() or [] if row[0] != 9999] == sorted(history.wanted, key=repr)
