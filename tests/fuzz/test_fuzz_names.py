"""Whatever a file in the changefeed's folder is called, its path is read as something, and as that alone."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fuzzing import flipped, fuzz, mutated, tokens_of
from headrace.formats.storage_paths import (
    DataPath,
    DateSeparator,
    ForeignPath,
    SchemaPath,
    first_file_in,
    is_misplaced,
    is_version,
    parse_data_name,
    parse_path,
)
from headrace.model.tso import MAX_TSO

pytestmark = pytest.mark.long

CONFORMANCE = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
RECORDED = sorted(
    {str(path.relative_to(data)) for data in CONFORMANCE.glob("*/data") for path in data.rglob("*") if path.is_file()},
    key=lambda path: (len(path), path),
)[::20]
WRITTEN = (
    *(
        "metadata",
        "shop/meta/schema_450253240000000000_2805160324.json",
        "shop/orders/meta/schema_450253245302439940_4039745375.json",
    ),
    *("shop/orders/450253245302439940/CDC000001.csv", "shop/orders/450253245302439940/112/2024-06-05/CDC_12_000001.json"),
    *(
        "shop/orders/450253245302439940/2024-06/meta/CDC.index",
        "shop/orders/100/2024/CDC0000000001.csv",
        "112/100/2023/CDC000001.csv",
    ),
    *("112/meta/schema_100_0000000001.json", "shop/orders/100/schema.json", "shop/orders/100/meta/CDC_12.index", "a/b/c/d/e/f/g"),
    *("shop/orders /100/CDC000001.csv", f"shop/{'o' * 65}/meta/schema_100_0000000001.json", "shop /orders/100/schema.json"),
)
PATHS = [tokens_of(path) for path in (*WRITTEN, *RECORDED)]
SEPARATORS = (None, *DateSeparator)


def path(chance: Random) -> tuple[str, DateSeparator | None]:
    """A path as a store lists it (so one that can be encoded), and what is known of the changefeed."""
    text = mutated(chance, chance.choice(PATHS), PATHS) if chance.random() < 0.7 else flipped(chance, "".join(chance.choice(PATHS)))
    return text.encode("utf-8", "replace").decode(), chance.choice(SEPARATORS)


def read(made: tuple[str, DateSeparator | None]) -> None:
    key, separator = made
    parsed = parse_path(key, separator, {"112"})
    assert parsed.key == key, "what is read off a path tells the path"
    is_misplaced(key)
    parse_data_name(key)
    is_version(key)
    first_file_in(key, separator, {"112"})
    if isinstance(parsed, DataPath):
        assert 0 <= parsed.version <= MAX_TSO
        assert len(parsed.order) == 6
        assert parsed.stream
    elif isinstance(parsed, SchemaPath):
        assert 0 <= parsed.version <= MAX_TSO
        assert parsed.legacy or int(parsed.checksum) >= 0
    if not isinstance(parsed, ForeignPath):
        assert "//" not in key
        names = key.split("/")[:-1][:2]
        assert all(0 < len(name) <= 64 and name[-1] != " " for name in names), "a table can have the names of its folders"


def test_every_path_is_something_and_only_that() -> None:
    fuzz(15_000, path, read)
