"""Converts rows to the shape in force: rows of a version whose columns differ from the table's at the time when they count.

TiCDC writes a row in the shape that its table has at the row's commit ts. So such rows mean that the source does not report a
schema change (an event filter of the changefeed may leave it out), or that something wrote into an old directory. Unknown values
are never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.net import is_upsert
from headrace.model.block import COMMIT_TS, META_COUNT, ChangeBlock
from headrace.model.outcome import Notice, Problem, SplitReport
from headrace.model.split import Recast, Segment, Split


def recast_rows(
    items: Iterator[ChangeBlock | SplitReport], split: Split, recast: Recast, segment: Segment, *, whole: bool
) -> Iterator[ChangeBlock | SplitReport]:
    """The items with their rows in the shape in force, up to the first row that lacks a value there.

    A deletion needs only its key, unless ``whole`` is set: then every column of every row counts.
    """
    newest = 0
    for item in items:
        if isinstance(item, SplitReport):
            left_out = recast.left_out and newest
            yield replace(item, notices=(*item.notices, _left_out(split, recast, newest))) if left_out else item
            return
        batch = item.batch
        newest = max(newest, pc.max(batch.column(COMMIT_TS)).as_py() or 0)
        wanting = batch if whole else batch.filter(pa.array(is_upsert(batch)))
        if recast.missing and wanting.num_rows:
            problem = _lacks(split, recast, segment, pc.min(wanting.column(COMMIT_TS)).as_py())
            yield SplitReport(split.key, split.table_id, problem=problem)
            return
        yield replace(item, version=segment.version, schema=segment.schema, batch=_recast(batch, recast))


def _recast(batch: pa.RecordBatch, recast: Recast) -> pa.RecordBatch:
    carried = set(batch.schema.names)
    names = [(own, name) for own, name in recast.names if own in carried]
    meta = list(range(META_COUNT))
    columns = [*(batch.column(n) for n in meta), *(batch.column(own) for own, _ in names)]
    fields = [*(batch.schema.field(n) for n in meta), *(batch.schema.field(own).with_name(name) for own, name in names)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _lacks(split: Split, recast: Recast, segment: Segment, commit_ts: int) -> Problem:
    message = (
        f"a row with commit ts {commit_ts} was written in the shape of version {split.version}, although the table already had the "
        f"shape of version {segment.version} then: the row's value in this column is not known."
    )
    hint = (
        "A schema change between them is missing, perhaps because an event filter of the changefeed leaves it out. Put a schema "
        f"file with the table's shape at that time next to its other schema files, named with a version between {segment.version} "
        f"and {commit_ts}; the table then goes on."
    )
    return Problem(split.table_id, message, place=split.place, column=", ".join(recast.missing), hint=hint)


def _left_out(split: Split, recast: Recast, commit_ts: int) -> Notice:
    message = (
        f"Rows up to commit ts {commit_ts} have columns that a schema change had dropped before: {', '.join(recast.left_out)}. "
        "The values of these are left out."
    )
    return Notice(message, split.table_id, split.place)
