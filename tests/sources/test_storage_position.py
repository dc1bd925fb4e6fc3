"""The position: what is consumed, what is open, and what is sealed, as values."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.storage_paths import DataPath, parse_path
from headrace.sources.ticdc_storage import position_update
from headrace.sources.ticdc_storage.days import days_of, has_ended, with_days
from headrace.sources.ticdc_storage.intervals import (
    Intervals,
    add_number,
    add_numbers,
    contains,
    count_of,
    format_intervals,
    missing_numbers,
    numbers_of,
    parse_intervals,
    remove_number,
)
from headrace.sources.ticdc_storage.position import UNSETTLED, FileState, LeftOut, OpenFile, StoragePosition, Unread
from headrace.sources.ticdc_storage.position_update import adopted, advanced, newest_passed, passed_below, sealed_days, with_files


def data_path(key: str) -> DataPath:
    path = parse_path(key)
    assert isinstance(path, DataPath)
    return path


def consumed(*keys: str, size: int = 10, modified: int = 1) -> StoragePosition:
    return advanced(StoragePosition(), 100, [FileState(key, size, modified, True) for key in keys])


@given(st.lists(st.integers(1, 60)), st.integers(1, 60))
@settings(deadline=None)
def test_intervals_hold_exactly_the_numbers_that_were_added(numbers: list[int], probe: int) -> None:
    intervals = ()
    for number in numbers:
        intervals = add_number(intervals, number)
    assert contains(intervals, probe) == (probe in numbers)
    assert all(low <= high for low, high in intervals)
    assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(intervals))
    assert parse_intervals(format_intervals(intervals)) == intervals
    assert add_numbers((), numbers) == intervals
    assert list(numbers_of(intervals)) == sorted(set(numbers))
    assert count_of(intervals) == len(set(numbers))
    assert list(numbers_of(remove_number(intervals, probe))) == sorted(set(numbers) - {probe})


@pytest.mark.long
@given(st.sets(st.integers(1, 60)))
@settings(deadline=None)
def test_gaps_and_numbers_make_a_whole(numbers: set[int]) -> None:
    missing = {n for low, high in missing_numbers(add_numbers((), numbers)) for n in range(low, high + 1)}
    assert missing.isdisjoint(numbers)
    assert missing | numbers == set(range(1, max(numbers, default=0) + 1))


states = st.builds(
    FileState,
    path=st.builds(
        lambda table, version, number: f"test/{table}/{version}/CDC{number:06d}.csv",
        st.sampled_from("ab"),
        st.integers(1, 3),
        st.integers(1, 9),
    ),
    size=st.integers(1, 3),
    modified=st.integers(0, 3),
    consumed=st.booleans(),
    pending_ts=st.one_of(st.none(), st.integers(1, 9)),
)


@given(st.lists(st.lists(states, max_size=4), max_size=5))
@settings(deadline=None)
def test_a_position_survives_its_text_and_the_last_word_on_a_file_counts(cuts: list[list[FileState]]) -> None:
    position = StoragePosition()
    last: dict[str, FileState] = {}
    for cut in cuts:
        position = StoragePosition.parse(advanced(position, 5, cut).to_text())
        last.update({state.path: state for state in cut})
    assert StoragePosition.parse(position.to_text()) == position
    for key, state in last.items():
        assert position.is_consumed(data_path(key)) == state.consumed
        assert position.is_open(key) == (not state.consumed)
        assert (key in position.open) == (not state.consumed and state.pending_ts is not None)
        if state.consumed:
            assert not position.needs_reading(data_path(key), state.size, state.modified or 1, 9)


def test_a_thousand_consumed_files_are_one_interval_and_a_few_marks() -> None:
    position = consumed(*(f"test/t/100/CDC{number:06d}.csv" for number in range(1, 1001)))
    assert position.consumed == {"test/t/100": {"/6": ((1, 1000),)}}
    assert len(position.marks["test/t/100"]) == 64
    assert len(position.to_text()) < 4000


def test_marks_get_fewer_as_directories_get_more() -> None:
    keys = [f"test/t{table}/100/CDC{number:06d}.csv" for table in range(500) for number in range(1, 21)]
    position = consumed(*keys)
    assert max(len(entries) for entries in position.marks.values()) == 5


@pytest.mark.parametrize("count", [1, 3, 64, 65, 1000])
def test_each_of_many_consumed_files_is_known_when_it_is_written_again(count: int) -> None:
    """However many they are, and in whatever order they were applied."""
    files = [(f"test/t/100/CDC{number:06d}.csv", 1000 + (number * 7919) % 1009) for number in range(1, count + 1)]
    position = advanced(StoragePosition(), 9, [FileState(key, 10, modified, True) for key, modified in files])
    for key, modified in files:
        assert not position.needs_reading(data_path(key), 10, modified, 9)
        assert position.needs_reading(data_path(key), 10, 3000, 9)
        again = advanced(position, 9, [FileState(key, 10, 3000, True)])
        assert not again.needs_reading(data_path(key), 10, 3000, 9)


@given(st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 12)), max_size=6), min_size=1, max_size=6), st.integers(1, 3))
@settings(deadline=None)
def test_whichever_consumed_file_is_written_again_is_read_and_no_other(cuts: list[list[tuple[int, int]]], marks: int) -> None:
    """However few of the files the position marks one by one; those of later cuts may have overwritten earlier ones."""
    position, now = StoragePosition(), 0
    modified: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position_update, "_MARKS_PER_DIRECTORY", marks)
        for cut in cuts:
            keys = [f"test/t/{version}/CDC{number:06d}.csv" for version, number in cut]
            modified |= {key: now + place for place, key in enumerate(keys, 1)}
            now += len(keys)
            position = StoragePosition.parse(
                advanced(position, 9, [FileState(key, 10, modified[key], True) for key in dict.fromkeys(keys)]).to_text()
            )
    for key, time in modified.items():
        assert not position.needs_reading(data_path(key), 10, time, 9)
        assert position.needs_reading(data_path(key), 10, now + 1, 9)


def test_two_widths_of_one_number_are_two_files() -> None:
    position = consumed("test/t/100/CDC000001.csv")
    assert not position.is_consumed(data_path("test/t/100/CDC00000000000000000001.csv"))


def test_dispatchers_have_numbers_of_their_own() -> None:
    position = consumed("test/t/100/CDC_1_000001.csv")
    assert not position.is_consumed(data_path("test/t/100/CDC_2_000001.csv"))


def test_an_open_file_is_read_when_the_watermark_reaches_its_next_row() -> None:
    path = data_path("test/t/100/CDC000001.csv")
    position = advanced(StoragePosition(), 100, [FileState(path.key, 10, 1, False, 150)])
    assert not position.needs_reading(path, 10, 1, 149)
    assert position.needs_reading(path, 10, 1, 150)
    assert position.needs_reading(path, 11, 1, 149)


def test_a_consumed_file_that_was_written_again_needs_reading() -> None:
    path = data_path("test/t/100/CDC000001.csv")
    position = consumed(path.key, size=10, modified=7)
    assert not position.needs_reading(path, 10, 7, 100)
    assert position.needs_reading(path, 10, 8, 100)
    assert position.needs_reading(path, 11, 7, 100)


def test_versions_are_sealed_below_the_newest_that_was_passed() -> None:
    versions = [100, 200, 300]
    assert newest_passed(dict.fromkeys(versions, 250), ()) == 200
    assert newest_passed(dict.fromkeys(versions, 300), ()) == 300
    assert newest_passed(dict.fromkeys(versions, 300), [200]) == 200
    assert newest_passed({100: 50}, ()) == 0


def test_a_version_is_passed_when_the_table_that_had_the_one_before_has_come_so_far() -> None:
    assert newest_passed({100: 150, 200: 150, 300: 300}, ()) == 100
    assert newest_passed({100: 300, 200: 300, 300: 500, 400: 500}, ()) == 400


def test_a_passed_version_stays_passed() -> None:
    position = passed_below(StoragePosition(), {"test/t": 200, "7": 150})
    assert position.passed == {"test/t": 200, "7": 150}
    assert passed_below(position, {"test/t": 100}) == position


NUMBERS = st.sets(st.integers(1, 9), max_size=4)
DATES = {
    "day": [f"2026-0{month}-{day:02d}" for month in (1, 2) for day in range(1, 29)],
    "month": [f"202{year}-{month:02d}" for year in (5, 6) for month in range(1, 13)],
    "year": [str(year) for year in range(1999, 2030)],
}


@given(st.data(), st.sampled_from(list(DATES)))
@settings(max_examples=30, deadline=None)
def test_sealed_dates_say_of_each_file_whether_it_was_there(data: st.DataObject, kind: str) -> None:
    added = data.draw(st.lists(st.dictionaries(st.sampled_from(DATES[kind]), NUMBERS, max_size=6), min_size=1, max_size=4))
    position, present = StoragePosition(), set()
    for dates in added:
        keys = [f"test/t/100/{date}/CDC{number:06d}.csv" for date, numbers in dates.items() for number in numbers]
        present |= set(keys)
        position = advanced(position, 9, [FileState(key, 10, 5, True) for key in keys])
        position = StoragePosition.parse(sealed_days(position, list(position.consumed)).to_text())
    assert not position.consumed
    assert not position.marks
    for date in data.draw(st.sets(st.sampled_from(DATES[kind]), max_size=5)) | {date for dates in added for date in dates}:
        for number in range(1, 10):
            key = f"test/t/100/{date}/CDC{number:06d}.csv"
            assert position.is_consumed(data_path(key)) == (key in present)
            assert position.needs_reading(data_path(key), 10, 5, 9) == (key not in present)
            assert position.needs_reading(data_path(key), 10, 6, 9)
    assert set(position.consumed_directories()) == {key.rpartition("/")[0] for key in present}


def test_a_sealed_day_takes_a_few_bytes_however_many_there_are() -> None:
    text, plain = "", {}
    for date in DATES["day"]:
        plain[date] = ((1, 3),)
    text = with_days(text, plain)
    assert text == "2026-01-01:3*28,*3,3*28"
    busy: dict[str, Intervals] = {date: ((1, 10 + at % 7),) for at, date in enumerate(DATES["day"])}
    assert len(with_days("", busy)) < 4 * len(busy)
    assert days_of(with_days(text, busy)) == busy


@pytest.mark.parametrize(
    ("name", "last_moment"),
    [
        ("2026-01-31", "2026-02-01T12:59:59+00:00"),
        ("2026-01", "2026-02-01T12:59:59+00:00"),
        ("2025-12", "2026-01-01T12:59:59+00:00"),
        ("2025", "2026-01-01T12:59:59+00:00"),
    ],
)
def test_a_date_is_over_when_it_is_over_at_utc_minus_12_with_an_hour_to_spare(name: str, last_moment: str) -> None:
    last = datetime.fromisoformat(last_moment)
    assert not has_ended(name, last)
    assert has_ended(name, last + timedelta(seconds=1))


@pytest.mark.parametrize("name", ["", "2026-13", "2026-02-30", "0000", "0001-01-01", "1999", "10000", "meta", "12345678901"])
def test_what_is_no_date_is_never_over(name: str) -> None:
    assert not has_ended(name, datetime.max.replace(tzinfo=UTC))


@pytest.mark.long
def test_files_that_have_to_be_read_are_intervals() -> None:
    keys = [f"test/t/100/CDC{number:06d}.csv" for number in range(1, 100_001)]
    keys += ["test/t/100/CDC_12_000003.csv", "test/t/100/CDC0000000000000000007.csv", "test/t/100/CDC1000000.json"]
    position = advanced(StoragePosition(), 9, [FileState(key, 7, 5, False) for key in keys])
    assert len(position.to_text()) < 200
    again = StoragePosition.parse(position.to_text())
    assert again == position
    assert sorted(again.unread_files()) == sorted((key, 7) for key in keys)
    done = advanced(again, 9, [FileState(key, 7, 5, True) for key in keys[1:]])
    assert list(done.unread_files()) == [(keys[0], 7)]


def test_everything_that_is_held_keeps_its_place_in_text() -> None:
    position = StoragePosition(
        open={"test/t/100/CDC000001.csv": OpenFile(10, 5, 7)},
        unread={"test/t/100": {"/6.csv": Unread(((3, 9),), 70)}},
        left_out=(LeftOut(100, 200, {"test/t/100": {"/6.csv": ((4, 9),)}}),),
    )
    assert StoragePosition.parse(position.to_text()) == position


OLDER = (
    '{"v":1,"w":200,"s":{"test/t":150},"d":{"test/t/150":{"/6":"1-5,7"}},"o":{"test/t/150/CDC000009.csv":[10,20,null],'
    '"test/t/150/CDC000010.csv":[11,20,210]},"i":{"test/t/150":{"CDC000007.csv":"0a1b2c3d"}},"e":[100,150,2]}'
)


def test_the_position_of_an_older_ledger_is_read() -> None:
    position = StoragePosition.parse(OLDER)
    assert (position.watermark, position.passed, position.unknown_below) == (200, {"test/t": 150}, {"test/t": 150})
    assert position.settled == {"test/t/150": UNSETTLED}
    assert position.open == {"test/t/150/CDC000010.csv": OpenFile(11, 20, 210)}
    assert list(position.unread_files()) == [("test/t/150/CDC000009.csv", 10)]
    third, seventh = data_path("test/t/150/CDC000003.csv"), data_path("test/t/150/CDC000007.csv")
    assert not position.needs_reading(third, 1, 99, 200)
    assert position.needs_reading(seventh, 1, 99, 200)
    assert StoragePosition.parse(position.to_text()) == position
    known = adopted(position, {"test/t/150": 99}, ["test/t/100/CDC000001.csv"])
    assert not known.needs_reading(third, 1, 99, 200)
    assert known.needs_reading(third, 1, 100, 200)
    assert known.is_consumed(data_path("test/t/100/CDC000001.csv"))
    assert not known.is_consumed(data_path("test/t/100/CDC000002.csv"))


@pytest.mark.parametrize("text", ["{", "[]", '{"v":99}', '"x"'])
def test_text_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        StoragePosition.parse(text)


def test_the_files_that_a_cut_has_begun_are_kept_until_each_is_done_with() -> None:
    first, second = "test/t/100/CDC000001.csv", "test/t/100/CDC000003.csv"
    position = StoragePosition(begun=with_files({}, [first, second]))
    assert StoragePosition.parse(position.to_text()) == position
    position = advanced(position, 200, [FileState(first, 10, 1, consumed=True)])
    assert list(position.begun_files()) == [second]
    position = advanced(position, 200, [FileState(second, 10, 1, consumed=False)])
    assert (position.begun, position.is_open(second)) == ({}, True)
