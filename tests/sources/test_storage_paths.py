"""The path grammar: what a file is, read off its path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.storage_paths import (
    DataPath,
    DateSeparator,
    ForeignPath,
    IndexPath,
    MetadataPath,
    SchemaPath,
    parse_path,
)
from headrace.model.tso import MAX_TSO

DISPATCHER = "1234567890123456789987654321098765432"


def test_the_other_files_are_read_and_written() -> None:
    cases = {
        "metadata": MetadataPath(),
        "shop/orders/meta/schema_450253245302439940_0563607735.json": SchemaPath(
            "shop", "orders", 450253245302439940, "0563607735"
        ),
        "shop/meta/schema_450253240000000000_2805160324.json": SchemaPath("shop", "", 450253240000000000, "2805160324"),
        "test/t/100/schema.json": SchemaPath("test", "t", 100, legacy=True),
        "test/t/100/meta/CDC.index": IndexPath("test/t/100", ""),
        f"test/t/100/meta/CDC_{DISPATCHER}.index": IndexPath("test/t/100", DISPATCHER),
        "test/t/100/CDC.index": IndexPath("test/t/100", "", legacy=True),
    }
    for key, expected in cases.items():
        assert parse_path(key) == expected
        assert expected.key == key


@pytest.mark.parametrize(
    "key",
    [
        "README",
        "test/t/100/CDC000001.csv.tmp.6f1c",
        "test/t/100/CDC000001.csv.checkpoint",
        "test/t/",
        "test/t/0100/CDC000001.csv",
        "CDC000001.csv",
        "test/t/meta/schema_1_23.json",
        "a/b/c/meta/schema_100_3633961634.json",
        "other/metadata",
    ],
)
def test_everything_else_is_foreign_and_no_error(key: str) -> None:
    assert parse_path(key) == ForeignPath(key)


def test_a_four_digit_directory_is_a_year_a_partition_or_a_version_as_configured() -> None:
    def place(key: str, separator: DateSeparator | None, ids: frozenset[str] = frozenset()) -> tuple[str, int, str, str]:
        parsed = parse_path(key, separator, ids)
        assert isinstance(parsed, DataPath)
        return (parsed.parent, parsed.version, parsed.partition, parsed.date)

    assert place("a/b/100/2024/CDC000001.csv", DateSeparator.YEAR) == ("a/b", 100, "", "2024")
    assert place("a/b/100/2024/CDC000001.csv", DateSeparator.NONE) == ("a/b", 100, "2024", "")
    assert place("123/100/2024/CDC000001.csv", DateSeparator.NONE) == ("123/100", 2024, "", "")
    assert place("123/100/2024/CDC000001.csv", None, frozenset({"123"})) == ("123", 100, "", "2024")
    assert place("123/100/2024/CDC000001.csv", None) == ("123/100", 2024, "", "")


names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=12).filter(lambda n: not n.isdigit())


@given(
    names,
    names,
    st.integers(1, MAX_TSO),
    st.one_of(st.just(""), st.integers(1, 2**40).map(str)),
    st.sampled_from(["", "2024-06-05", "2024-06"]),
    st.one_of(st.just(""), st.integers(0, 10**38).map(str)),
    st.integers(1, 10**7),
    st.integers(6, 20),
    st.sampled_from(["csv", "json"]),
)
def test_paths_round_trip(
    database: str, table: str, version: int, partition: str, date: str, dispatcher: str, number: int, width: int, extension: str
) -> None:
    path = DataPath(f"{database}/{table}", version, partition, date, dispatcher, f"{number:0{width}d}", extension)
    assert parse_path(path.key, DateSeparator.DAY if date else DateSeparator.NONE) == path
