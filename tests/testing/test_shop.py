"""The demo's shop."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ticdc_files import csv_changes, read_schema_file

from headrace.model.tso import tso_to_datetime
from headrace.testing.shop import CARTS, CUSTOMERS, IMPORTED, PRODUCTS, Shop, write_shop

pytestmark = pytest.mark.long

END = datetime(2026, 5, 4, 12, 0, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return write_shop(tmp_path_factory.mktemp("shop"), end=END)


def files(shop: Shop) -> dict[str, bytes]:
    return {path.relative_to(shop.root).as_posix(): path.read_bytes() for path in shop.root.rglob("*") if path.is_file()}


def test_one_seed_and_end_give_the_same_files(shop: Shop, tmp_path: Path) -> None:
    again = write_shop(tmp_path / "again", end=END)
    assert files(again) == files(shop)
    assert files(write_shop(tmp_path / "other", seed=2, end=END)) != files(shop)


def test_the_counts_do_not_depend_on_the_time(shop: Shop, tmp_path: Path) -> None:
    now = write_shop(tmp_path)
    assert (now.rows, now.changes, now.schema_changes) == (shop.rows, shop.changes, shop.schema_changes)
    assert abs(datetime.now(UTC) - tso_to_datetime(now.checkpoint_ts)) < timedelta(seconds=30)


def test_it_is_small_and_ends_when_it_should(shop: Shop) -> None:
    assert 3000 < shop.changes < 8000
    assert END - timedelta(seconds=2) < tso_to_datetime(shop.checkpoint_ts) <= END
    dates = {path.parent.name for path in shop.root.rglob("*.csv")}
    assert dates == {"2026-05-03", "2026-05-04"}


def test_it_shows_every_schema_change_that_the_first_release_follows(shop: Shop) -> None:
    codes = {read_schema_file(path).type_code for path in shop.root.rglob("schema_*.json")}
    assert codes == {1, 3, 4, 5, 6, 11}


def test_the_rows_say_what_happened(shop: Shop) -> None:
    assert IMPORTED not in shop.rows
    assert 0 < shop.rows[CARTS] < 800
    keys = {row["sku"] for row in shop.expected_rows(PRODUCTS)}
    assert "T-007B" in keys
    assert "T-007" not in keys
    customers = shop.expected_rows(CUSTOMERS)
    assert all("fax" not in row for row in customers)
    assert {row["points"] for row in customers} > {100}


def test_every_change_is_counted(shop: Shop) -> None:
    options = replace(shop.upstream.writer.options)
    count = 0
    for path in shop.root.rglob("schema_*.json"):
        file = read_schema_file(path)
        if file.schema is not None:
            for data in (path.parent.parent / str(file.version)).rglob("CDC*.csv"):
                count += len(list(csv_changes(data.read_bytes(), options, file.schema)))
    assert count == shop.changes
