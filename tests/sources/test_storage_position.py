"""The position: what is consumed, what is open, and what is sealed, as values."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.ticdc_storage.paths import DataPath, parse_path
from headrace.sources.ticdc_storage.position import (
    FileState,
    OpenFile,
    StoragePosition,
    add_number,
    advanced,
    contains,
    format_intervals,
    is_sealed,
    missing_numbers,
    newest_sealable,
    parse_intervals,
    sealed_below,
)


def data_path(key: str) -> DataPath:
    path = parse_path(key)
    assert isinstance(path, DataPath)
    return path


def consumed(*keys: str, size: int = 10, modified: int = 1) -> StoragePosition:
    return advanced(StoragePosition(), 100, [FileState(key, size, modified, True) for key in keys])


@given(st.lists(st.integers(1, 60)), st.integers(1, 60))
def test_intervals_hold_exactly_the_numbers_that_were_added(numbers: list[int], probe: int) -> None:
    intervals = ()
    for number in numbers:
        intervals = add_number(intervals, number)
    assert contains(intervals, probe) == (probe in numbers)
    assert all(low <= high for low, high in intervals)
    assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(intervals))
    assert parse_intervals(format_intervals(intervals)) == intervals


@given(st.sets(st.integers(1, 60)))
def test_gaps_and_numbers_make_a_whole(numbers: set[int]) -> None:
    missing = {n for low, high in missing_numbers(numbers) for n in range(low, high + 1)}
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
def test_a_position_survives_its_text_and_the_last_word_on_a_file_counts(cuts: list[list[FileState]]) -> None:
    position = StoragePosition()
    last: dict[str, FileState] = {}
    for cut in cuts:
        position = StoragePosition.parse(advanced(position, 5, cut).to_text())
        last.update({state.path: state for state in cut})
    assert StoragePosition.parse(position.to_text()) == position
    for key, state in last.items():
        assert position.is_consumed(data_path(key)) == state.consumed
        assert (key in position.open) == (not state.consumed)
        if state.consumed:
            assert not position.needs_reading(data_path(key), state.size, state.modified or 1, 9)


def test_a_thousand_consumed_files_are_one_interval_and_a_hundred_identities() -> None:
    position = consumed(*(f"test/t/100/CDC{number:06d}.csv" for number in range(1, 1001)))
    assert position.consumed == {"test/t/100": {"/6": ((1, 1000),)}}
    assert len(position.identities["test/t/100"]) == 100
    assert len(position.to_text()) < 4000


def test_identities_get_fewer_as_directories_get_more() -> None:
    keys = [f"test/t{table}/100/CDC{number:06d}.csv" for table in range(500) for number in range(1, 21)]
    position = consumed(*keys)
    assert max(len(entries) for entries in position.identities.values()) == 10


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
    assert newest_sealable([100, 200, 300], 250, ()) == 200
    assert newest_sealable([100, 200, 300], 300, ()) == 300
    assert newest_sealable([100, 200, 300], 300, [200]) == 200
    assert newest_sealable([100], 50, ()) == 0


def test_sealing_forgets_directories_one_by_one() -> None:
    position = consumed("test/t/100/2024-06-05/CDC000001.csv", "test/t/200/CDC000001.csv", "7/100/CDC000001.csv")
    sealed = sealed_below(position, {"test/t": 200, "7": 150})
    assert set(sealed.consumed) == {"test/t/200"}
    assert sealed.sealed == {"test/t": 200, "7": 150}
    assert is_sealed("test/t/100/2024-06-05", sealed.sealed)
    assert not is_sealed("test/t/200", sealed.sealed)
    assert sealed_below(sealed, {"test/t": 100}).sealed["test/t"] == 200


def test_open_files_keep_their_entries_in_text() -> None:
    position = StoragePosition(open={"test/t/100/CDC000001.csv": OpenFile(10, 5, None)})
    assert StoragePosition.parse(position.to_text()) == position


@pytest.mark.parametrize("text", ["{", "[]", '{"v":99}', '"x"'])
def test_text_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        StoragePosition.parse(text)
