"""Damage in and behind rows that TiCDC repeats: what nothing shows to be applied is told, however near to repeats it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from building import Bucket, Ran, ask, ledger
from test_final_drains import drain, lines_in_letters
from test_ownership import only

from faulty_runs import at, crash
from headrace.cli.stopped_tables import new_request
from headrace.engine.run_options import OnError
from headrace.errors import EXIT_TABLE_STOPPED, SourceUnreachableError
from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.table import TableId
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sources.ticdc_storage import splits
from headrace.testing.faults import Crashed, armed
from quick import without_pauses
from storage_folder import V

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")
REPEATED, BAD, NEW = ('"I","t","test",140,2,"b"', '"I","t","test",1x0,3,"c"', '"I","t","test",170,4,"d"')
CUT_OFF = "the last record is cut off in the middle, and no later file repeats it"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """One whose table ``t`` is applied up to 150."""
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
    bucket.at(150)
    return bucket


def put(bucket: Bucket, file: str, text: str) -> None:
    bucket.write(f"test/t/{file}.csv", text)
    directory, _, name = file.rpartition("/")
    bucket.write(f"test/t/{directory}/meta/CDC.index", f"{name}.csv\n")


def run_with_letters(bucket: Bucket, checkpoint: int) -> Ran:
    letters = open_dead_letters(str(bucket.root.parent / "dead"), "default")
    return bucket.at(checkpoint, on_error=OnError.DEAD_LETTER, letters=letters)


def restarted(bucket: Bucket) -> str:
    """TiCDC goes on in the directory that it had."""
    return "100/CDC000002"


def restarted_anew(bucket: Bucket) -> str:
    """A schema file without a statement lies there too, and TiCDC writes into its directory."""
    bucket.schema("t", 145)
    return "145/CDC000001"


@pytest.mark.parametrize("place", [restarted, restarted_anew])
@pytest.mark.parametrize(
    "records",
    [(REPEATED, BAD, NEW), (REPEATED, BAD), (BAD, NEW), (REPEATED, '"I","t","test",16,3,"c","x"', NEW), (REPEATED, "\0", NEW)],
    ids=["between", "at the end", "at the beginning", "with a wrong commit ts", "with none"],
)
def test_a_bad_record_behind_repeats_is_a_letter(bucket: Bucket, records: tuple[str, ...], place: Callable[[Bucket], str]) -> None:
    put(bucket, place(bucket), "".join(f"{record}\n" for record in records))
    assert run_with_letters(bucket, 200).code == 0
    assert lines_in_letters(bucket) == [record.strip() for record in records if record not in (REPEATED, NEW)]
    assert bucket.state() == [(1, "a"), (2, "b"), *([(4, "d")] if NEW in records else [])]
    assert run_with_letters(bucket, 300).code == 0
    assert ledger(bucket).dead_letters == {T: 1}


def test_a_bad_record_among_repeats_alone_is_none(bucket: Bucket) -> None:
    put(bucket, "100/CDC000002", f'"I","t","test",110,1,"a"\n{BAD}\n{REPEATED}\n{NEW}\n')
    assert run_with_letters(bucket, 200).code == 0
    assert (lines_in_letters(bucket), bucket.state()) == ([], [(1, "a"), (2, "b"), (4, "d")])


def test_a_bad_record_becomes_a_letter_in_one_cut_only(bucket: Bucket) -> None:
    put(bucket, "100/CDC000002", f'{REPEATED}\n{BAD}\n{NEW}\n"I","t","test",270,5,"e"\n')
    for checkpoint in (180, 250, 300):
        assert run_with_letters(bucket, checkpoint).code == 0
    assert (len(lines_in_letters(bucket)), ledger(bucket).dead_letters) == (1, {T: 1})
    assert bucket.state() == [(1, "a"), (2, "b"), (4, "d"), (5, "e")]


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("bad", [BAD, '"I","t","test",3,"c"', "\1\2"])
def test_a_final_drain_reaches_a_bad_record_at_the_very_end(bucket: Bucket, bad: str, letters: bool) -> None:
    put(bucket, "100/CDC000002", f"{REPEATED}\n{bad}\n")
    ran = drain(bucket, letters=letters)
    reached = ledger(bucket).checkpoint
    if letters:
        assert (ran.code, lines_in_letters(bucket)) == (0, [bad])
    else:
        assert [*ran.stopped] == ["test.t"]
    drain(bucket, letters=letters)
    assert ledger(bucket).checkpoint == reached


@pytest.mark.parametrize("place", [restarted, restarted_anew])
@pytest.mark.parametrize("left", [7, 40])
def test_what_is_cut_off_among_repeats_hides_what_stood_behind(bucket: Bucket, left: int, place: Callable[[Bucket], str]) -> None:
    file, whole = place(bucket), f'{REPEATED}\n"I","t","test",160,3,"c"\n'
    put(bucket, file, whole[: len(REPEATED) - 7] if left == 7 else whole[:-4])
    for checkpoint in (200, 250):
        assert CUT_OFF in bucket.at(checkpoint).stopped.get("test.t", CUT_OFF)
        assert ledger(bucket).tables[T].status is TableStatus.STOPPED
    put(bucket, file, whole)
    assert bucket.at(300).code == 0
    assert bucket.state() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_transaction_that_goes_on_in_the_next_file_does_not_repeat_what_is_cut_off(bucket: Bucket) -> None:
    whole = '"I","t","test",155,3,"c"\n"I","t","test",160,4,"d"\n"I","t","test",160,5,"e"\n'
    put(bucket, "100/CDC000002", whole[:-4])
    bucket.rows("t/100/3", "I 160 6 f", "I 170 7 g")
    assert CUT_OFF in bucket.at(200).stopped["test.t"]
    put(bucket, "100/CDC000002", whole)
    assert bucket.at(300).code == 0
    assert [key for key, _ in bucket.state()] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("torn", ['"I","t","test",160,4,"d', '"I","t","test",160,4,"d"\n"I","t","test",160,5,"e'])
def test_a_file_that_begins_with_the_same_row_of_the_transaction_repeats_it(bucket: Bucket, torn: str) -> None:
    put(bucket, "100/CDC000002", f'"I","t","test",155,3,"c"\n{torn}')
    bucket.rows("t/100/3", "I 160 4 d", "I 160 5 e", "I 170 6 f")
    assert bucket.at(200).code == 0
    assert [key for key, _ in bucket.state()] == [1, 2, 3, 4, 5, 6]
    assert bucket.at(300).files == 0


@pytest.mark.parametrize("torn", ['"I","t","test",160,4', '"I","t","test",160,', '"I","t","test",160,4,"d"\n"I","t"'])
def test_a_row_that_says_too_little_of_itself_is_not_taken_for_a_repeated_one(bucket: Bucket, torn: str) -> None:
    put(bucket, "100/CDC000002", f'"I","t","test",155,3,"c"\n{torn}')
    bucket.rows("t/100/3", "I 160 41 d", "I 160 5 e", "I 170 6 f")
    assert CUT_OFF in bucket.at(200).stopped["test.t"]


def test_a_table_without_key_has_no_row_that_tells_a_transaction_from_its_rest(bucket: Bucket) -> None:
    columns = ({"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11"}, V)
    bucket.schema("n", 160, columns, "CREATE TABLE `n` (`id` INT,`v` VARCHAR(16))", 3)
    bucket.write("test/n/160/CDC000001.csv", '"I","n","test",170,1,"a"\n"I","n","test",180,1,"b"\n"I","n","test",180,1,"b')
    bucket.rows("n/160/2", "I 180 1 b", "I 190 1 c")
    assert CUT_OFF in bucket.at(200).stopped["test.n"]


def test_rows_that_are_left_out_as_replays_repeat_nothing(bucket: Bucket) -> None:
    whole = '"I","t","test",155,3,"c"\n"I","t","test",160,4,"d"\n"I","t","test",165,5,"e"\n'
    put(bucket, "100/CDC000002", whole[:45])
    bucket.schema("t", 200)
    bucket.rows("t/200/1", "I 155 3 c", "I 160 4 d", "I 165 5 e", "I 210 6 f")
    stopped = bucket.at(250).stopped["test.t"]
    assert CUT_OFF in stopped
    assert "Rows that files of newer versions repeat are not applied" in stopped
    put(bucket, "100/CDC000002", whole)
    assert bucket.at(300).code == 0
    assert [key for key, _ in bucket.state()] == [1, 2, 3, 4, 5, 6]


def twice_altered(bucket: Bucket) -> None:
    bucket.schema("t", 180, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.schema("t", 200, "id,v", "ALTER TABLE `t` DROP COLUMN `c`", 6)


@pytest.mark.parametrize("anew", [lambda bucket: bucket.schema("t", 200), twice_altered], ids=["restarted", "there and back"])
@pytest.mark.parametrize("vanishes", [True, False])
@pytest.mark.parametrize("kind", [RequestKind.RESYNC, RequestKind.SKIP_ROWS])
def test_what_is_given_up_goes_no_further_than_a_person_asked(
    bucket: Bucket, kind: RequestKind, vanishes: bool, anew: Callable[[Bucket], object]
) -> None:
    """The next file of the stream begins below it, with rows that count nowhere."""
    put(bucket, "100/CDC000002", '"I","t","test",155,3,"c"\n"I","t","test",x,7,"bad"\n"I","t","test",165,4,"d"\n')
    assert bucket.at(170).code == EXIT_TABLE_STOPPED
    anew(bucket)
    bucket.rows("t/200/1", "I 155 3 c", "I 165 4 d", "I 210 5 e")
    bucket.at(250)
    if vanishes:
        (bucket.root / "test/t/100/CDC000002.csv").unlink()
        bucket.at(260)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("INSERT INTO test.t VALUES (3, 'c')")
    state = ledger(bucket)
    ask(bucket, new_request(state, T, kind, since=state.table_checkpoint(T), to=160))
    for checkpoint in (270, 300):
        bucket.at(checkpoint)
        assert (4, "d") in bucket.state() or ledger(bucket).tables[T].status.is_stopped


def late_after_a_drain(bucket: Bucket, *, comes: bool = True) -> str:
    bucket.rows("t/100/2", "I 170 5 e")
    drain(bucket)
    if comes:
        bucket.rows("t/100/3", "I 160 3 c", "I 210 6 f")
    return "came after --until-end had taken everything"


def late_by_its_number(bucket: Bucket, *, comes: bool = True) -> str:
    bucket.rows("t/100/3", "I 155 5 e")
    bucket.at(160)
    if comes:
        bucket.rows("t/100/2", "I 145 3 c", "I 210 6 f")
    return "came after others with larger numbers"


@pytest.mark.parametrize("happens", [late_after_a_drain, late_by_its_number])
def test_rows_that_may_be_missing_are_told_wherever_a_run_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Bucket], str]
) -> None:
    """And go on being told, by ``status`` and at each start, until the table is loaded or emptied."""
    without_pauses(monkeypatch)
    number, died = 0, True
    while died:
        number += 1
        bucket = Bucket(tmp_path / str(number))
        bucket.create("t")
        bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
        bucket.at(150)
        part = happens(bucket)
        bucket.checkpoint(300)
        try:
            with armed(at(number, crash)):
                ran = bucket.run()
            died = False
        except Crashed:
            ran = bucket.run()
        own = ledger(bucket).tables[T]
        assert (own.status, part in own.lacks, part in ran.told) == (TableStatus.RUNNING, True, True), number
    assert number > 10
    assert part in bucket.at(310).told
    bucket.schema("t", 320, "id,v", "TRUNCATE TABLE `t`", 11)
    bucket.at(330)
    assert ledger(bucket).tables[T].lacks == ""
    assert part not in bucket.at(340).told


def stopped_and_repaired(bucket: Bucket) -> str:
    put(bucket, "100/CDC000004", '"I","t"\n')
    assert "test.t" in bucket.at(320).stopped
    assert "larger numbers" in ledger(bucket).tables[T].lacks
    put(bucket, "100/CDC000004", '"I","t","test",310,7,"g"\n')
    return "t"


def held_and_released(bucket: Bucket) -> str:
    for kind in (RequestKind.HOLD, RequestKind.RELEASE):
        ask(bucket, new_request(ledger(bucket), T, kind, since=ledger(bucket).table_checkpoint(T)))
        bucket.at(320)
    return "t"


def renamed(bucket: Bucket) -> str:
    bucket.schema("u", 300, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    return "u"


@pytest.mark.parametrize("happens", [stopped_and_repaired, held_and_released, renamed])
def test_rows_that_may_be_missing_go_on_being_told_whatever_becomes_of_the_table(
    bucket: Bucket, happens: Callable[[Bucket], str]
) -> None:
    part = late_by_its_number(bucket)
    bucket.at(220)
    table = TableId("test", happens(bucket))
    bucket.at(400)
    own = ledger(bucket).tables[table]
    assert (own.status, part in own.lacks) == (TableStatus.RUNNING, True)
    assert part in bucket.at(410).told


def test_a_table_that_was_loaded_anew_lacks_nothing(bucket: Bucket) -> None:
    part = late_by_its_number(bucket)
    bucket.at(220)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("INSERT INTO test.t VALUES (3, 'c')")
    ask(bucket, new_request(ledger(bucket), T, RequestKind.RESYNC, since=ledger(bucket).table_checkpoint(T), to=220))
    bucket.at(320)
    assert ledger(bucket).tables[T].lacks == ""
    assert part not in bucket.at(400).told


def held(bucket: Bucket) -> None:
    ask(bucket, new_request(ledger(bucket), T, RequestKind.HOLD, since=ledger(bucket).table_checkpoint(T)))


def released(bucket: Bucket) -> None:
    ask(bucket, new_request(ledger(bucket), T, RequestKind.RELEASE, since=ledger(bucket).table_checkpoint(T)))


def refused(bucket: Bucket) -> Ran:
    """A run in which the store does not give the data files."""

    def refuse(_: object) -> object:
        raise SourceUnreachableError("503 Slow Down", "Wait.")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(splits, "_content", refuse)
        return bucket.run()


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("way", ["held", "refused", "left out", "torn"])
def test_a_file_that_comes_late_while_its_table_cannot_take_it_is_told_when_it_does(
    bucket: Bucket, way: str, drained: bool
) -> None:
    bucket.create("o", 101)
    bucket.at(151)
    part = late_after_a_drain(bucket, comes=False) if drained else late_by_its_number(bucket, comes=False)
    options = only("test.o") if way == "left out" else {}
    if way in ("held", "left out"):
        held(bucket) if way == "held" else None
        bucket.run(**options)
    file, text = ("100/CDC000003", "160,3") if drained else ("100/CDC000002", "145,3")
    put(bucket, file, f'"I","t","test",{text},"c' if way == "torn" else f'"I","t","test",{text},"c"\n"I","t","test",290,6,"f"\n')
    bucket.checkpoint(300)
    refused(bucket) if way == "refused" else bucket.run(**options)
    assert (3, "c") not in bucket.state()
    if way == "torn":
        put(bucket, file, f'"I","t","test",{text},"c"\n"I","t","test",290,6,"f"\n')
    if way == "held":
        released(bucket)
    assert part in bucket.at(310).told
    own = ledger(bucket).tables[T]
    assert (own.status, part in own.lacks) == (TableStatus.RUNNING, True)


@pytest.mark.parametrize("change", ["rename", "truncate", "drop"])
def test_what_a_schema_change_of_the_same_cut_makes_of_rows_that_may_be_missing(bucket: Bucket, change: str) -> None:
    part = late_by_its_number(bucket)
    if change == "rename":
        bucket.schema("u", 250, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    elif change == "truncate":
        bucket.schema("t", 250, "id,v", "TRUNCATE TABLE `t`", 11)
    else:
        bucket.schema("t", 250, "id,v", "DROP TABLE `test`.`t`", 4)
        bucket.create("t", 251)
    bucket.at(300)
    lacking = {str(t) for t, own in ledger(bucket).tables.items() if part in own.lacks}
    assert lacking == ({"test.u"} if change == "rename" else set())


def test_a_bad_record_is_a_letter_in_the_cut_of_its_own_commit_ts(bucket: Bucket) -> None:
    put(bucket, "100/CDC000002", '"I","t","test",160,3,"c"\n"I","t","test",170,x,"d"\n"I","t","test",180,5,"e"\n')
    for checkpoint, count in ((165, 0), (175, 1), (300, 1)):
        run_with_letters(bucket, checkpoint)
        assert (len(lines_in_letters(bucket)), ledger(bucket).dead_letters.get(T, 0)) == (count, count)
