"""``docs/types-and-ddl.md`` says what the suites of this folder observed, and nothing else."""

from __future__ import annotations

import os

import pytest
import recorder
from recorder import PAGE, TARGETS, Rows, Table, page, record, recorded, rows_of_page

pytestmark = pytest.mark.server

SUITES: dict[Table, str] = {"types": "test_types.py", "ddl": "test_ddl.py"}


@pytest.mark.parametrize("table", SUITES)
def test_the_page_says_what_was_observed(table: Table, whole_suites: frozenset[str]) -> None:
    observed = recorded(table)
    whole = SUITES[table] in whole_suites
    if whole:
        for row, cells in observed.items():
            assert set(cells) == set(TARGETS[table]), f"{row} was not tried on every target"
        if os.environ.get("HEADRACE_WRITE_DOCS"):
            write(table, observed)
    written = rows_of_page(PAGE.read_text(encoding="utf-8"))[table]
    if whole:
        assert list(written) == list(observed), "The page has other rows than the suites: run make docs"
    for row, cells in observed.items():
        for target, result in cells.items():
            assert written.get(row, {}).get(target) == result, f"{row} on {target} is told otherwise: run make docs"


def write(table: Table, observed: Rows) -> None:
    tables = rows_of_page(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    PAGE.write_text(page({**tables, table: observed}), encoding="utf-8")


def test_a_page_is_read_as_it_was_written() -> None:
    tables: dict[Table, Rows] = {
        "types": {"`a|b`": dict.fromkeys(TARGETS["types"], "x | y"), "second": {TARGETS["types"][0]: "z"}},
        "ddl": {},
    }
    assert rows_of_page(page(tables)) == tables


def test_a_row_that_is_observed_twice_must_be_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_records", {"types": {}, "ddl": {}})
    record("ddl", "one", "MariaDB", "typed change")
    with pytest.raises(AssertionError, match="as 'typed change' and as 'nothing to do'"):
        record("ddl", "one", "MariaDB", "nothing to do")
