"""A changefeed's folder whose target is simulated in memory, so that a test chooses what one transaction of it takes in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from building import Bucket

from following import Recorder
from headrace.cli.stopped_tables import new_request
from headrace.engine.run_options import RunOptions
from headrace.model.ledger import LedgerState, RequestKind, TableProgress
from headrace.model.table import TableId
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from headrace.testing.memory_server import Server
from headrace.testing.memory_sink import CAPABILITIES, MemorySink


class SimulatedBucket(Bucket):
    """Its target is of a kind of :data:`CAPABILITIES`. Runs begin behind ``start`` (TSO), if it is given."""

    def __init__(self, folder: Path, kind: str = "nothing atomic", start: int | None = None) -> None:
        super().__init__(folder)
        self.directory, self.kind, self.start, self.server = folder, kind, start, Server()

    def target(self) -> MemorySink:
        return MemorySink(self.server, CAPABILITIES[self.kind])

    def apply(self, checkpoint: int) -> int:
        """``C = checkpoint``, and a run into the target. Returns its exit code."""
        self.checkpoint(checkpoint)
        ledger, work = str(self.directory / "ledger"), str(self.directory / "work")
        options = RunOptions(once=True, start=self.start)
        definition = Definition(self.folder.uri(self.options), "blackhole://", ledger=ledger, work=work, options=options)
        run = PipelineRun(definition, Recorder(), LocalEngine())
        run._sink = self.target()
        run._target = replace(run._target, sink=run._sink)
        run._work()
        if isinstance(run._result, BaseException):
            raise run._result
        return run._result

    @property
    def ledger_state(self) -> LedgerState:
        state = self.target().ledger.peek("default")
        assert state is not None
        return state

    def own(self, table_id: TableId) -> TableProgress:
        """The ledger's row of a table."""
        return self.ledger_state.tables[table_id]

    def ask(self, table_id: TableId, kind: RequestKind) -> None:
        """A person asks this of a table."""
        known = self.ledger_state
        self.target().ledger.request("default", new_request(known, table_id, kind, since=known.table_checkpoint(table_id)))

    def rows_of(self, table_id: TableId) -> list[tuple[object, ...]] | None:
        """The rows of a table in the target, sorted; ``None`` where it is not there."""
        table = self.server.contents.tables.get(table_id)
        return None if table is None else sorted(tuple(row.values()) for row in table.rows.values())
