"""Decides which of several spellings of a key counts: the last one of those that the server considers equal.

Only the state at the end of a cut may be written. A former state of a row has former values in its other unique keys. A REPLACE
with them would replace the rows that have these values now, perhaps written by another task. Deletions are harmless, so all of them
run before any row is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from headrace.model.block import KIND, META_COUNT, SIGHT
from headrace.model.events import RowKind
from headrace.model.table import folded_name
from headrace.sinks.base import TableChange
from headrace.sinks.mysql import refusal
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.spellings import Spellings
from headrace.sinks.mysql.text import literals, quote_name

_ASKED_ROWS = 1_000  # a statement with 10,000 takes half a second on MariaDB
_DIGITS = 12
"""The length of a row's number and a comma in the server's result."""
_OF_BYTES = "_bin"
_UPSERTS = [kind.value for kind in RowKind if kind.is_upsert]

Groups = list[list[int]]


@dataclass(frozen=True)
class Settled:
    """What to do for a change: delete ``deletes``, then write ``last_spellings`` and the change's upserts.

    ``change`` is the original one, from which a watch takes the state of each spelling. ``last_spellings`` are the remaining
    ordered rows; ``netted`` of the ordered rows were overtaken by others. ``last_spellings`` are separate from the upserts, because
    ``deletes`` may have removed a row that one of them would replace, which matters to a watch that counts.
    """

    change: TableChange
    deletes: pa.Table
    last_spellings: pa.Table
    netted: int = 0


def unsettled(change: TableChange) -> Settled:
    """A change without ordered rows, for which no query is needed."""
    return Settled(change, change.deletes, change.upserts.slice(0, 0))


def settled(session: MySqlSession, change: TableChange) -> Settled:
    """The change without the ordered rows that others overtake.

    Raises refusal.Refused if the server refuses the query, or if the change's watch shows that an overtaken row is another row of
    the source.
    """
    ordered = change.ordered
    alive = np.isin(ordered.column(KIND).to_numpy(), _UPSERTS)
    try:
        overtaken = dict(_overtaken(session, change, alive))
    except pymysql.err.MySQLError as error:
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, change.target, session) from None
        raise
    if change.watch is not None:
        Spellings(session, change).refuse_overtaken(overtaken)
    final = alive.copy()
    final[list(overtaken)] = False
    rows = ordered.select(ordered.column_names[META_COUNT:])
    kept = [*change.target_schema.handle_key, *({SIGHT} & set(rows.column_names))]
    gone = rows.filter(pa.array(~alive)).select(kept)
    deletes = pa.concat_tables([change.deletes, gone]) if change.deletes.num_rows else gone
    return Settled(change, deletes, rows.filter(pa.array(final)), len(overtaken))


def _overtaken(session: MySqlSession, change: TableChange, alive: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The numbers of ordered rows that are alive, although a later row has the same key for the server.

    Each comes with the number of the next such row.
    """
    edges = [*(change.groups or (0,)), change.ordered.num_rows]
    # If only the last row of a group is alive, none can be overtaken.
    asked = [(start, end) for start, end in pairwise(edges) if alive[start : end - 1].any()]
    if not asked:
        return
    for equal in _equal_keys(session, change, asked):
        for number, next_number in pairwise(sorted(equal)):
            if alive[number]:
                yield number, next_number


def _equal_keys(session: MySqlSession, change: TableChange, groups: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """The numbers of the ordered rows in these groups (first row, row after the last) whose keys the server considers equal."""
    collations = _collations(session, change)
    keys = change.ordered.select(list(change.target_schema.handle_key))
    columns = [change.target_schema.column(name) for name in keys.column_names]
    names = [f"k{place}" for place in range(len(columns))]
    for numbers in _together(_apart(change, groups, collations)):
        rows = keys.take(pa.array(numbers)).combine_chunks()
        values = [
            _compared(literals(rows, n, column).to_pylist(), collations.get(folded_name(column.name)))
            for n, column in enumerate(columns)
        ]
        first = ", ".join(f"{texts[0]} AS {name}" for name, texts in zip(names, values, strict=True))
        others = (f"SELECT {number}, {', '.join(row)}" for number, *row in list(zip(numbers, *values, strict=True))[1:])
        spellings = " UNION ALL ".join([f"SELECT {numbers[0]} AS n, {first}", *others])
        session.run(f"SET SESSION group_concat_max_len = {len(numbers) * _DIGITS}")  # longer results are cut off
        asked = f"SELECT GROUP_CONCAT(n) FROM ({spellings}) AS spellings GROUP BY {', '.join(names)} HAVING COUNT(*) > 1"
        for (found,) in session.find([asked]):
            yield [int(number) for number in str(found).split(",")]


def _compared(texts: list[str], collation: tuple[str, str] | None) -> list[str]:
    """The literals as values that are compared like those of the column."""
    if collation is None:
        return texts
    charset, name = map(quote_name, collation)
    return [f"CONVERT({text} USING {charset}) COLLATE {name}" for text in texts]


def _collations(session: MySqlSession, change: TableChange) -> dict[str, tuple[str, str]]:
    """Character set and collation of the table's text columns, by their folded names."""
    found = session.execute(
        "SELECT column_name, character_set_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = ? AND table_name = ? AND collation_name IS NOT NULL",
        (change.target.database, change.target.table),
    )
    return {folded_name(str(column)): (str(charset), str(collation)) for column, charset, collation in found}


def _apart(
    change: TableChange, groups: Sequence[tuple[int, int]], collations: Mapping[str, tuple[str, str]]
) -> Iterator[list[int]]:
    """The groups, split if a column compares bytes: equal keys then differ only in trailing spaces."""
    names = [name for name in change.target_schema.handle_key if collations.get(folded_name(name), ("", ""))[1].endswith(_OF_BYTES)]
    forms = [pc.utf8_rtrim(change.ordered.column(name), characters=" ").to_pylist() for name in names]
    for start, end in groups:
        found: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number in range(start, end):
            found[tuple(of_column[number] for of_column in forms)].append(number)
        yield from (group for group in found.values() if len(group) > 1)


def _together(groups: Iterable[list[int]]) -> Iterator[list[int]]:
    """The rows of whole groups, about :data:`_ASKED_ROWS` at a time."""
    gathered: list[int] = []
    for group in groups:
        if gathered and len(gathered) + len(group) > _ASKED_ROWS:
            yield gathered
            gathered = []
        gathered = [*gathered, *group]
    if gathered:
        yield gathered
