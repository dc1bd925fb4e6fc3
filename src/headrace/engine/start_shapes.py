"""The shapes that a stream's tables had when the pipeline began: a person gives them, or the stream repeats them.

The changefeed may have begun later than the tables, so that the stream has no CREATE TABLE of them. Such a shape is written to the
ledger as if a schema change of the stream had led to it, and then makes or adopts its table like any shape from before the start.
"""

from __future__ import annotations

from headrace.engine.requests import Carried
from headrace.engine.run_options import RunOptions
from headrace.engine.shapes import begins_unknown, told_shapes
from headrace.errors import DefinitionError
from headrace.model.ledger import LedgerState, TableShape
from headrace.model.offer import Offer
from headrace.sinks.base import LedgerUpdate
from headrace.sources.base import EventSource, StreamSource


def given_shapes(known: LedgerState | None, source: EventSource, options: RunOptions) -> tuple[TableShape, ...]:
    """The shapes that tables had when the pipeline began, for a stream that lacks their schema changes.

    ``known`` is the ledger's record before the run. After the first cut, the ledger has the shapes. Raises DefinitionError.
    """
    if options.given is None or (known is not None and known.position):
        return ()
    if not isinstance(source, StreamSource):
        raise DefinitionError("--schema-from is of use for Kafka and TiDB Binlog only: this source has the tables' shapes itself.")
    start = known.start if known is not None else options.start
    if not start:
        raise DefinitionError(
            "--schema-from gives the shapes that tables had when the pipeline began, and the commit ts of that is missing.",
            "Name it with --start: the TSO at which the tables were copied, such as Pos in the metadata file of Dumpling.",
        )
    changes, problems = source.effects(options.given(start))
    for problem in problems:
        raise DefinitionError(f"--schema-from: {problem.table_id}: {problem.message}", problem.hint)
    return told_shapes(known or LedgerState(""), changes)


def met_shapes(state: LedgerState, offer: Offer) -> Carried | None:
    """The shapes that a stream repeats of tables which existed when the pipeline began, and of which it has no schema change."""
    before = [change for change in offer.schema_changes if change.commit_ts <= state.start]
    told = {table_id for change in before for table_id in change.changes} | state.shapes_by_table.keys()
    of_start = (shape for shape in offer.shapes if shape.version <= state.start and shape.schema.table_id not in told)
    found = tuple(shape for shape in of_start if begins_unknown(state, shape.schema.table_id))
    return Carried(LedgerUpdate(shapes=found)) if found else None
