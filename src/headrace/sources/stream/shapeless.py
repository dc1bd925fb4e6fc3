"""Rows of a stream whose columns are unknown, because no schema change shows what their table was when they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.model.outcome import Problem
from headrace.model.place import PlaceInStream
from headrace.model.stream import StagedPiece
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.staged import Staged

_NO_COLUMNS = "its columns are not known: neither the stream nor the ledger has a schema change of it from before these rows."
_GIVE_COLUMNS = (
    "Begin anew (headrace reset) with a stream that has the table's CREATE TABLE, or give the shape that the table had at "
    "--start with --schema-from."
)
_NO_TABLE = "its columns are not known: it was dropped or renamed before these rows, and no CREATE TABLE was read since."
_GIVE_TABLE = (
    "Check whether a schema change of the table waits (headrace ddl list), and whether the changefeed leaves some out (event "
    "filters). Begin anew (headrace reset) with a stream that has them."
)

HasRows = Callable[[StagedPiece, int, int], bool]
"""Whether a piece has rows above one commit ts (TSO) and up to another one."""


def rows_without_shape(
    staged: Staged,
    history: StreamHistory,
    reached: Callable[[TableId], int],
    needed: Callable[[TableId], int],
    watermark: int,
    has_rows: HasRows,
) -> Iterator[Problem]:
    """A problem for each table with such rows up to the watermark (TSO): above it, their schema changes may still come.

    Rows of a table count above ``needed`` (TSO), and above ``reached`` as long as no shape of it is known.
    """
    for table_id in {piece.table_id: None for piece in staged.pieces()}:
        if history.versions(table_id):
            spans, least = _spans(history, table_id), needed(table_id)
        else:
            spans, least = [_Span(0, MAX_TSO)], reached(table_id)
        for span in spans:
            above, up_to = max(span.above, least), min(span.up_to, watermark)
            piece = next((p for p in staged.pieces_of(table_id) if above < up_to and has_rows(p, above, up_to)), None)
            if piece is not None:
                yield Problem(table_id, span.why, PlaceInStream(piece.partition, piece.first, piece.last), hint=span.hint)
                break


class _Span(NamedTuple):
    """Rows with ``above < commit_ts <= up_to`` (TSO), and why they have no shape."""

    above: int
    up_to: int
    why: str = _NO_COLUMNS
    hint: str = _GIVE_COLUMNS


def _spans(history: StreamHistory, table_id: TableId) -> list[_Span]:
    """Before the first schema change, unless the table begins with it; and from where the table ended to where one begins."""
    first = history.versions(table_id)[0][0]
    before = [] if history.begins(table_id, first) else [_Span(0, first - 1)]
    return [*before, *(_Span(end, begin, _NO_TABLE, _GIVE_TABLE) for end, begin in history.absences(table_id))]
