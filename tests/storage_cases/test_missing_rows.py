"""Of which tables the ledger says that rows may be missing: those that bear the rows now, and only while they lack them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from building import Bucket, ask, ledger
from simulated import SimulatedBucket
from test_damaged_repeats import late_after_a_drain, late_by_its_number, put, run_with_letters
from test_final_drains import drain

from faulty_runs import at, crash
from headrace.cli.stopped_tables import new_request
from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.testing.faults import Crashed, armed
from headrace.transform.filters import TableFilter
from quick import without_pauses

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """One whose table ``t`` is applied up to 150."""
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
    bucket.at(150)
    return bucket


def lacking(bucket: Bucket, part: str) -> set[str]:
    return {str(t) for t, own in ledger(bucket).tables.items() if part in own.lacks}


@pytest.mark.parametrize("same_cut", [False, True])
@pytest.mark.parametrize("statement", ["TRUNCATE TABLE `t`", "DROP TABLE `t`"])
def test_a_statement_that_is_skipped_empties_nothing(bucket: Bucket, statement: str, same_cut: bool) -> None:
    part = late_by_its_number(bucket)
    if not same_cut:
        bucket.at(220)
    bucket.schema("t", 250, "id,v", statement, 11 if statement.startswith("T") else 4)
    bucket.at(300, policies=SchemaChangePolicies.parse_text("truncate-table=skip,drop-table=skip"))
    assert lacking(bucket, part) == {"test.t"}


def loaded_anew(bucket: Bucket, as_of: int, *rows: tuple[int, str]) -> None:
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("DELETE FROM test.t")
        connection.executemany("INSERT INTO test.t VALUES (?, ?)", rows)
    ask(bucket, new_request(ledger(bucket), T, RequestKind.RESYNC, since=ledger(bucket).table_checkpoint(T), to=as_of))


def test_a_table_that_is_read_again_after_a_final_drain_lacks_nothing(bucket: Bucket) -> None:
    bucket.rows("t/100/2", "I 170 5 e", "I 180 6 f")
    drain(bucket)
    loaded_anew(bucket, 175, (1, "a"), (2, "b"), (5, "e"))
    told = [bucket.run().told, bucket.at(300).told]
    assert (bucket.state(), ledger(bucket).tables[T].lacks) == ([(1, "a"), (2, "b"), (5, "e"), (6, "f")], "")
    assert "came after --until-end" not in " ".join(told)


@pytest.mark.parametrize("way", ["held", "torn"])
def test_rows_that_a_table_was_loaded_with_are_not_missing_when_their_file_came_late(bucket: Bucket, way: str) -> None:
    bucket.rows("t/100/3", "I 155 5 e")
    bucket.at(160)
    if way == "held":
        ask(bucket, new_request(ledger(bucket), T, RequestKind.HOLD, since=160))
        bucket.at(170)
    else:
        put(bucket, "100/CDC000004", '"I","t","test",165,7')
    bucket.rows("t/100/2", "I 145 3 c", "I 175 6 f")
    bucket.at(180)
    if way == "torn":
        put(bucket, "100/CDC000004", '"I","t","test",165,7,"x"\n')
    loaded = [(1, "a"), (2, "b"), (3, "c"), (5, "e"), (6, "f"), (7, "x")]
    loaded_anew(bucket, 180, *loaded)
    told = "".join(bucket.at(checkpoint).told for checkpoint in (190, 200))
    assert (bucket.state(), lacking(bucket, "larger numbers")) == (loaded, set())
    assert "larger numbers" not in told


def stops_behind_a_change(bucket: Bucket) -> str:
    """In the cut that reads the late file; the table is repaired then. What the runs told."""
    bucket.schema("t", 250, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    put(bucket, "250/CDC000001", '"I","t","test",255,7\n')
    told = bucket.at(300).told
    assert ledger(bucket).tables[T].status is TableStatus.STOPPED
    put(bucket, "250/CDC000001", '"I","t","test",255,7,"x",1\n')
    return told + "".join(bucket.at(checkpoint).told for checkpoint in (330, 340))


def test_rows_that_a_round_applied_are_not_missing_where_the_table_stops_behind_it(bucket: Bucket) -> None:
    bucket.rows("t/100/3", "I 155 5 e")
    bucket.at(160)
    bucket.rows("t/100/2", "I 210 6 f")
    assert "larger numbers" not in stops_behind_a_change(bucket)
    assert (6, "f", 7) in bucket.state()
    assert lacking(bucket, "larger numbers") == set()


def test_rows_that_are_missing_are_counted_once_where_the_table_stops_behind_them(bucket: Bucket) -> None:
    late_by_its_number(bucket)
    told = stops_behind_a_change(bucket)
    assert "1 of its rows" in ledger(bucket).tables[T].lacks
    assert "2 of its rows" not in told


def test_rows_that_are_missing_are_told_at_once_where_the_table_stops_for_another_file(bucket: Bucket) -> None:
    part = late_by_its_number(bucket)
    put(bucket, "100/CDC000004", '"I","t"\n')
    assert part in bucket.at(300).told
    own = ledger(bucket).tables[T]
    assert (own.status, part in own.lacks) == (TableStatus.STOPPED, True)
    put(bucket, "100/CDC000004", '"I","t","test",220,7,"g"\n')
    bucket.at(310)
    assert (ledger(bucket).tables[T].status, lacking(bucket, part)) == (TableStatus.RUNNING, {"test.t"})
    assert "1 of its rows" in bucket.at(320).told


def rename(bucket: Bucket, old: str, new: str, version: int, shape: str = "id,v") -> None:
    bucket.schema(new, version, shape, f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`", 14)


def to_another_name(bucket: Bucket) -> set[str]:
    rename(bucket, "t", "u", 170)
    bucket.rows("u/170/1", "I 175 6 f")
    return {"test.u"}


def to_a_third_name_and_another_shape(bucket: Bucket) -> set[str]:
    rename(bucket, "t", "u", 170)
    bucket.schema("u", 171, "id,v,c", "ALTER TABLE `u` ADD COLUMN `c` INT DEFAULT 7", 5)
    rename(bucket, "u", "w", 172, "id,v,c")
    bucket.rows("w/172/1", "I 175 6 f 8")
    return {"test.w"}


def to_another_name_and_back(bucket: Bucket) -> set[str]:
    rename(bucket, "t", "u", 170)
    rename(bucket, "u", "t", 171)
    return {"test.t"}


def names_change_places(bucket: Bucket) -> set[str]:
    for version, (old, new) in {170: ("t", "x"), 171: ("o", "t"), 172: ("x", "o")}.items():
        rename(bucket, old, new, version)
    bucket.rows("t/171/1", "I 175 6 f")
    return {"test.o"}


def names_change_places_at_once(bucket: Bucket) -> set[str]:
    for table in ("t", "o", "x"):
        bucket.schema(table, 170, "id,v", "RENAME TABLE `t` TO `x`, `o` TO `t`, `x` TO `o`", 14)
    return {"test.o"}


def another_table_takes_the_name(bucket: Bucket) -> set[str]:
    rename(bucket, "t", "u", 170)
    bucket.create("t", 172)
    bucket.rows("t/172/1", "I 175 6 f")
    return {"test.u"}


def the_rows_are_emptied_under_their_new_name(bucket: Bucket) -> set[str]:
    rename(bucket, "t", "u", 170)
    bucket.schema("u", 171, "id,v", "TRUNCATE TABLE `u`", 11)
    return set()


def the_table_is_emptied(bucket: Bucket) -> set[str]:
    bucket.schema("t", 170, "id,v", "TRUNCATE TABLE `t`", 11)
    return set()


def the_table_is_dropped(bucket: Bucket) -> set[str]:
    bucket.schema("t", 170, "id,v", "DROP TABLE `test`.`t`", 4)
    return set()


def the_table_is_dropped_and_made_again(bucket: Bucket) -> set[str]:
    the_table_is_dropped(bucket)
    bucket.create("t", 171)
    bucket.rows("t/171/1", "I 175 6 f")
    return set()


def the_database_is_dropped_and_made_again(bucket: Bucket) -> set[str]:
    bucket.schema("", 170, (), "DROP DATABASE `test`", 2)
    bucket.schema("", 171, (), "CREATE DATABASE `test`", 1)
    bucket.create("t", 172)
    return set()


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("most", [None, 1])
@pytest.mark.parametrize(
    "happens",
    [
        to_another_name,
        to_a_third_name_and_another_shape,
        to_another_name_and_back,
        names_change_places,
        names_change_places_at_once,
        another_table_takes_the_name,
        the_rows_are_emptied_under_their_new_name,
        the_table_is_emptied,
        the_table_is_dropped,
        the_table_is_dropped_and_made_again,
        the_database_is_dropped_and_made_again,
    ],
)
def test_rows_of_a_late_file_are_missing_of_the_table_that_has_the_others_of_it_now(
    bucket: Bucket, happens: Callable[[Bucket], set[str]], most: int | None, drained: bool
) -> None:
    bucket.create("o", 101)
    bucket.rows("o/101/1", "I 145 1 o")
    bucket.at(151)
    part = late_after_a_drain(bucket, comes=False) if drained else late_by_its_number(bucket, comes=False)
    expected = happens(bucket)
    drain(bucket) if drained else bucket.at(180)
    assert lacking(bucket, part) == set()
    there = {table: bucket.state(table) for table in ("t", "u", "w", "o")}
    bucket.rows("t/100/4" if drained else "t/100/2", "I 160 3 c" if drained else "I 145 3 c")
    options = {} if most is None else {"max_cut": most}
    ran = [bucket.at(checkpoint, **options) for checkpoint in (190, 200, 210)]
    assert {table: bucket.state(table) for table in there} == there
    assert lacking(bucket, part) == expected
    told = {str(n.table_id) for n in ran[0].notices if part in n.message}
    assert told == expected
    assert [r.files for r in ran[1:]] == [0, 0]


def test_rows_of_a_late_file_of_a_former_name_are_told_when_the_table_that_has_the_others_is_released(bucket: Bucket) -> None:
    part = late_by_its_number(bucket, comes=False)
    to_another_name(bucket)
    bucket.at(180)
    u = TableId("test", "u")
    ask(bucket, new_request(ledger(bucket), u, RequestKind.HOLD, since=180))
    bucket.at(190)
    bucket.rows("t/100/2", "I 145 3 c")
    bucket.at(200)
    assert lacking(bucket, part) == set()
    ask(bucket, new_request(ledger(bucket), u, RequestKind.RELEASE, since=180))
    bucket.at(210)
    assert lacking(bucket, part) == {"test.u"}


def test_no_row_of_a_file_of_a_former_name_is_applied(bucket: Bucket) -> None:
    """Whatever its rows say of when they were committed."""
    part = late_by_its_number(bucket, comes=False)
    to_another_name(bucket)
    bucket.at(180)
    bucket.rows("t/100/2", "I 145 3 c", "I 185 7 g")
    bucket.at(190)
    assert bucket.at(200).code == 0
    assert [key for key, _ in bucket.state("u") or ()] == [1, 2, 5, 6]
    assert lacking(bucket, part) == {"test.u"}


def test_rows_that_two_rounds_have_of_a_late_file_are_missing_of_neither(bucket: Bucket) -> None:
    part = late_by_its_number(bucket, comes=False)
    bucket.rows("t/100/2", "I 210 6 f", "I 260 7 g")
    bucket.schema("t", 250, "id,v", "ALTER TABLE `t` ADD INDEX `iv` (`v`)", 7)
    assert part not in bucket.at(300).told
    assert (len(bucket.state() or ()), lacking(bucket, part)) == (5, set())


def test_a_late_file_of_before_a_skipped_truncate_has_rows_that_are_missing(bucket: Bucket) -> None:
    part = late_by_its_number(bucket, comes=False)
    the_table_is_emptied(bucket)
    bucket.at(180, policies=SchemaChangePolicies.parse_text("truncate-table=skip"))
    bucket.rows("t/100/2", "I 145 3 c")
    bucket.at(190)
    assert lacking(bucket, part) == {"test.t"}


def test_rows_of_a_late_file_of_a_former_name_are_told_wherever_a_run_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    number, died = 0, True
    while died:
        number += 1
        bucket = Bucket(tmp_path / str(number))
        bucket.create("t")
        bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
        bucket.at(150)
        part = late_by_its_number(bucket, comes=False)
        to_another_name(bucket)
        bucket.at(180)
        bucket.rows("t/100/2", "I 145 3 c")
        rename(bucket, "u", "w", 185)
        bucket.checkpoint(190)
        try:
            with armed(at(number, crash)):
                ran = bucket.run()
            died = False
        except Crashed:
            ran = bucket.run()
        assert (lacking(bucket, part), part in ran.told) == ({"test.w"}, True), number
    assert number > 10


@pytest.mark.parametrize("happens", [None, to_another_name, names_change_places, another_table_takes_the_name])
@pytest.mark.parametrize("committed", [145, 165])
def test_rows_that_a_table_was_loaded_with_are_not_missing_when_it_has_caught_up(
    bucket: Bucket, committed: int, happens: Callable[[Bucket], set[str]] | None
) -> None:
    bucket.create("o", 101)
    bucket.rows("o/101/1", "I 145 1 o")
    bucket.at(151)
    part = late_by_its_number(bucket, comes=False)
    loaded_anew(bucket, 160, (1, "a"), (2, "b"), (3, "c"), (5, "e"))
    for checkpoint in (166, 168):
        bucket.at(checkpoint)
    expected = {"test.t"} if happens is None else happens(bucket)
    bucket.at(180)
    bucket.rows("t/100/2", f"I {committed} 3 c")
    told = bucket.at(190).told
    assert lacking(bucket, part) == (set() if committed == 145 else expected)
    assert (part in told) == (committed == 165)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_what_a_later_table_of_a_name_was_loaded_with_hides_no_missing_rows_of_the_former_one(
    bucket: Bucket, held: bool, gone: bool
) -> None:
    part = late_by_its_number(bucket, comes=False)
    rename(bucket, "t", "u", 170)
    bucket.create("t", 180)
    bucket.rows("t/180/1", "I 185 7 n")
    bucket.at(200)
    if held:
        ask(bucket, new_request(ledger(bucket), T, RequestKind.HOLD, since=200))
        bucket.at(205)
        bucket.rows("t/100/2", "I 145 3 c")
        bucket.at(206)
    loaded_anew(bucket, 206 if held else 200, (7, "n"))
    bucket.at(210)
    if gone:
        rename(bucket, "t", "b", 220)
        bucket.at(230)
    if not held:
        bucket.rows("t/100/2", "I 145 3 c")
    for checkpoint in (240, 250):
        bucket.at(checkpoint)
    assert lacking(bucket, part) == {"test.u"}


@pytest.mark.parametrize("ends", ["RENAME TABLE `test`.`u` TO `test`.`w`", "TRUNCATE TABLE `u`", "DROP TABLE `test`.`u`"])
@pytest.mark.parametrize("is_read_first", [False, True])
def test_rows_are_missing_of_the_table_that_has_the_others_when_the_cut_ends(
    bucket: Bucket, ends: str, is_read_first: bool
) -> None:
    """A later table of the name waits before its ALTER; with that the late file is read after what happens to the former one."""
    part = late_by_its_number(bucket, comes=False)
    rename(bucket, "t", "u", 170)
    bucket.create("t", 180)
    bucket.rows("t/180/1", "I 185 7 n")
    bucket.at(200)
    if not is_read_first:
        bucket.schema("t", 245, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
        bucket.at(247, policies=SchemaChangePolicies.parse_text("add-column=approve"))
    bucket.rows("t/100/2", "I 145 3 c")
    kind, _ = ends.split(" ", 1)
    bucket.schema("w" if kind == "RENAME" else "u", 250, "id,v", ends, {"RENAME": 14, "TRUNCATE": 11, "DROP": 4}[kind])
    ran = [bucket.at(checkpoint) for checkpoint in (300, 310)]
    expected = {"test.w"} if kind == "RENAME" else set()
    assert lacking(bucket, part) == expected
    assert {str(n.table_id) for n in ran[0].notices if part in n.message} == expected


DAMAGES = ['"I","t","test",145,zz,"c"\n', '"I","t","test",145,3,"c"\n"I","t","test",147', '"I","t","test",145,3\n', "garbage\n"]


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("damaged", DAMAGES)
def test_a_damaged_late_file_of_a_former_name_stops_nothing_and_its_rows_may_be_missing(
    bucket: Bucket, damaged: str, letters: bool
) -> None:
    late_by_its_number(bucket, comes=False)
    to_another_name(bucket)
    bucket.at(180)
    put(bucket, "100/CDC000002", damaged)
    ran = [run_with_letters(bucket, 190) if letters else bucket.at(190)]
    bucket.rows("u/170/2", "I 195 9 k")
    ran += [bucket.at(checkpoint) for checkpoint in (200, 210)]
    assert [(run.code, run.stopped) for run in ran] == [(0, {})] * 3
    assert "came late and cannot be read whole" in ran[0].told
    assert [run.files for run in ran] == [1, 1, 0]
    assert (9, "k") in (bucket.state("u") or ())
    assert (lacking(bucket, "cannot be read whole"), ledger(bucket).dead_letters) == ({"test.u"}, {})


def test_a_damaged_late_file_of_a_dropped_table_is_missed_by_nobody(bucket: Bucket) -> None:
    late_by_its_number(bucket, comes=False)
    the_table_is_dropped(bucket)
    bucket.at(180)
    put(bucket, "100/CDC000002", DAMAGES[0])
    ran = bucket.at(190)
    assert (ran.code, lacking(bucket, "read whole"), "read whole" in ran.told) == (0, set(), False)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_late_file_of_a_name_that_another_table_has_stops_nothing_and_tells_of_the_former_one(
    bucket: Bucket, damage: str
) -> None:
    late_by_its_number(bucket, comes=False)
    another_table_takes_the_name(bucket)
    bucket.at(180)
    put(bucket, "100/CDC000002", damage)
    for checkpoint in (190, 200):
        ran = bucket.at(checkpoint)
        assert (ran.code, ran.stopped, lacking(bucket, "cannot be read whole")) == (0, {}, {"test.u"})


@pytest.mark.parametrize("behind", ["", "garbage\n"])
def test_rows_of_the_present_table_in_a_late_file_of_the_former_one_are_applied(bucket: Bucket, behind: str) -> None:
    """No release is known to write them there. A file that cannot be read stops the table then."""
    late_by_its_number(bucket, comes=False)
    another_table_takes_the_name(bucket)
    bucket.at(180)
    put(bucket, "100/CDC000002", '"I","t","test",145,3,"c"\n"I","t","test",185,8,"h"\n' + behind)
    ran = bucket.at(190)
    assert (ran.code, (8, "h") in (bucket.state() or ())) == ((3, False) if behind else (0, True))
    assert lacking(bucket, "came after") == {"test.u"}


@pytest.mark.parametrize("dropped", [False, True])
def test_rows_of_a_late_file_are_missing_of_their_table_also_while_the_filter_leaves_out_the_one_with_its_name(
    bucket: Bucket, dropped: bool
) -> None:
    part = late_by_its_number(bucket, comes=False)
    another_table_takes_the_name(bucket)
    bucket.at(180)
    bucket.rows("t/100/2", "I 145 3 c")
    without_t = {"includes": TableFilter.parse("*.*,!test.t").includes, "filter_text": "*.*,!test.t"}
    bucket.at(190, **without_t)
    if dropped:
        bucket.schema("t", 195, "id,v", "DROP TABLE `t`", 4)
    bucket.at(200, **without_t)
    assert lacking(bucket, part) == {"test.u"}


BAD, GOOD = '"I","t","test",{},zz,"c"\n', '"I","t","test",{},3,"c"\n'


@pytest.mark.parametrize("behind", ["", '"I","t","test",146,4,"d"\n', '"I","t","test",205,4,"d"\n'])
@pytest.mark.parametrize("way", [late_by_its_number, late_after_a_drain])
def test_a_bad_record_of_a_late_file_is_missing_also_when_its_letter_is_replayed(
    bucket: Bucket, way: Callable[..., str], behind: str
) -> None:
    way(bucket, comes=False)
    number, committed = (2, 145) if way is late_by_its_number else (3, 160)
    put(bucket, f"100/CDC00000{number}", BAD.format(committed) + behind.replace("146", str(committed + 1)))
    run_with_letters(bucket, 210)
    assert lacking(bucket, "came after") == {"test.t"}
    put(bucket, f"100/CDC00000{number}", GOOD.format(committed) + behind.replace("146", str(committed + 1)))
    run_with_letters(bucket, 220)
    ask(bucket, new_request(ledger(bucket), T, RequestKind.REPLAY, since=ledger(bucket).table_checkpoint(T)))
    for checkpoint in (230, 240):
        run_with_letters(bucket, checkpoint)
        assert lacking(bucket, "came after") == {"test.t"}


def test_bad_records_that_came_too_late_are_counted_with_the_rows(bucket: Bucket) -> None:
    late_by_its_number(bucket, comes=False)
    put(bucket, "100/CDC000002", BAD.format(145) + '"I","t","test",146,4,"d"\n')
    run_with_letters(bucket, 210)
    assert "2 of its rows are not above the checkpoint" in ledger(bucket).tables[T].lacks


@pytest.mark.parametrize("ends", ["RENAME TABLE `test`.`u` TO `test`.`w`", "TRUNCATE TABLE `u`"])
def test_a_run_that_dies_in_a_cut_of_many_steps_leaves_no_note_with_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    without_pauses(monkeypatch)
    number, died = 0, True
    while died:
        number += 1
        bucket = SimulatedBucket(tmp_path / str(number))
        bucket.create("t")
        bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
        bucket.rows("t/100/3", "I 155 5 e")
        bucket.apply(160)
        rename(bucket, "t", "u", 170)
        bucket.create("t", 180)
        bucket.rows("t/180/1", "I 185 7 n")
        bucket.apply(200)
        bucket.rows("t/100/2", "I 145 3 c")
        is_renamed = ends.startswith("RENAME")
        bucket.schema("w" if is_renamed else "u", 250, "id,v", ends, 14 if is_renamed else 11)
        bucket.schema("t", 245, "id,v", "ALTER TABLE `t` COMMENT='x'")
        bucket.schema("t", 270, "id,v", "ALTER TABLE `t` COMMENT='y'")
        bucket.rows("t/270/1", "I 280 9 h")
        try:
            with armed(at(number, crash)):
                bucket.apply(300)
            died = False
        except Crashed:
            bucket.apply(300)
        bucket.apply(310)
        lacks = {str(t) for t, own in bucket.ledger_state.tables.items() if own.lacks}
        assert lacks == ({"test.w"} if is_renamed else set()), number
    assert number > 20
