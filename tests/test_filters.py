"""Which tables a pipeline takes."""

from __future__ import annotations

import pytest

from headrace.errors import DefinitionError
from headrace.model.table import TableId
from headrace.transform.filters import TableFilter


@pytest.mark.parametrize(
    ("patterns", "table", "included"),
    [
        ("", TableId("shop", "orders"), True),
        ("shop.*", TableId("shop", "orders"), True),
        ("shop.*", TableId("other", "orders"), False),
        ("shop.*,!shop.tmp_*", TableId("shop", "tmp_1"), False),
        ("shop.*,!shop.tmp_*,shop.tmp_kept", TableId("shop", "tmp_kept"), True),
        ("!shop.tmp_*", TableId("shop", "orders"), True),
        ("SHOP.Orders", TableId("shop", "orders"), True),
        ("shop.orders", TableId("shop"), True),
        ("shop.*,!shop.tmp_*", TableId("shop"), True),
        ("*.*,!shop.*", TableId("shop"), False),
    ],
)
def test_the_last_pattern_that_matches_decides(patterns: str, table: TableId, included: bool) -> None:
    assert TableFilter.parse(patterns).includes(table) is included


def test_a_pattern_without_a_database_is_refused() -> None:
    with pytest.raises(DefinitionError, match="names no database"):
        TableFilter.parse("orders")
