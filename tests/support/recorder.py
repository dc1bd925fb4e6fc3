"""What the suites of types and schema changes observed, and the page ``docs/types-and-ddl.md`` that is made of nothing else.

A suite calls :func:`record` once it has seen what it tells: a cell is put together from the target's catalogue, from values
that were read back, from the text of a refusal. Records live as long as the pytest process, so this folder's tests run in
one process (``make test``). ``test_written_down.py``, which pytest runs after both suites, holds the
records against the page, or writes the page (``make docs``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Table = Literal["types", "ddl"]
Rows = dict[str, dict[str, str]]
"""What each row's targets do: row, then target, then cell."""

PAGE = Path(__file__).parent.parent.parent / "docs" / "types-and-ddl.md"
MARIADB = "MariaDB"
DUCKDB = "DuckDB"
DUCKDB_LENIENT = "DuckDB with `unsupported=text&zero-dates=null`"
TARGETS: Mapping[Table, tuple[str, ...]] = {"types": (MARIADB, DUCKDB, DUCKDB_LENIENT), "ddl": (MARIADB, DUCKDB)}

_INTRODUCTION = """# Types and schema changes

How each target stores TiDB's types and executes its schema changes. The tests under `tests/support` observe this on real
targets and write this page (`make docs`); nothing here is written by hand.
"""
_TYPES = """Each cell shows the column's type in the target, and whether each value of the type, up to its limits, is the same as
upstream:

- *exact*: equal byte for byte for strings and binary values, bit for bit for numbers;
- *refused*: the value stops its table, with a message that names the value and what to do; it is never changed to fit.

Each type was written as CSV and as canal-JSON. *As key* means that the column is the table's key, and that rows were inserted,
updated, deleted, and moved to another key.
"""
_DDL = """- *Source's statement*: the statement runs as TiCDC wrote it, qualified with its database.
- *Typed change*: the target gets the same change in its own syntax.
- *Adapted*: the statement runs, but the named parts are left out or replaced, and a warning says so.
- *Needs resync*: rows change without being in any file. Only this table stops, and the message says what to do.
"""
_SECTIONS: Mapping[Table, tuple[str, str, str]] = {"types": ("Types", "TiDB", _TYPES), "ddl": ("Schema changes", "Change", _DDL)}

_records: dict[Table, Rows] = {"types": {}, "ddl": {}}


def record(table: Table, row: str, target: str, result: str) -> None:
    """Notes what a target did: ``row`` is a TiDB type or a kind of statement, ``target`` one of the table's ``TARGETS``.

    A row may be observed in several ways (as CSV and as canal-JSON, say) as long as they agree. Raises AssertionError when
    they do not, ValueError for an unknown target or a text that is no cell.
    """
    if target not in TARGETS[table]:
        raise ValueError(f"{target!r} is no column of table {table}; its columns are {', '.join(TARGETS[table])}")
    for text in (row, result):
        if not text or text != text.strip() or "\n" in text:
            raise ValueError(f"{text!r} is not the text of a cell: it is empty, has outer blanks, or more than one line")
    cells = _records[table].setdefault(row, {})
    before = cells.setdefault(target, result)
    assert before == result, f"{row} on {target} was observed as {before!r} and as {result!r}"


def recorded(table: Table) -> Rows:
    """What was recorded so far, rows in the order in which they came."""
    return {row: dict(cells) for row, cells in _records[table].items()}


def page(tables: Mapping[Table, Rows]) -> str:
    """The page's text for these rows."""
    parts = [_INTRODUCTION]
    for table, (title, first, explanation) in _SECTIONS.items():
        targets = TARGETS[table]
        lines = [_line([first, *targets]), _line(["---"] * (1 + len(targets)))]
        lines += [_line([row, *(cells.get(target, "") for target in targets)]) for row, cells in tables.get(table, {}).items()]
        parts.append("\n".join([f"## {title}", "", explanation, *lines, ""]))
    return "\n".join(parts)


def rows_of_page(text: str) -> dict[Table, Rows]:
    """The rows of a page that :func:`page` wrote."""
    tables: dict[Table, Rows] = {}
    for table, (title, _, _) in _SECTIONS.items():
        found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        lines = [line for line in (found[1] if found else "").splitlines() if line.startswith("|")]
        rows = [_cells(line) for line in lines[2:]]
        tables[table] = {
            row: {target: cell for target, cell in zip(TARGETS[table], cells, strict=True) if cell} for row, *cells in rows
        }
    return tables


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _cells(line: str) -> list[str]:
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
