"""The parts of a target, for runs and for other commands: the sink, its ledger, and the work place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.pipeline.registry import open_sink, sink_options
from headrace.places.work_place import WorkLease, open_work
from headrace.sinks.base import DataSink, Ledger
from headrace.sinks.file_ledger import open_file_ledger

DEFAULT_SINK = "duckdb:///headrace.duckdb"
DEFAULT_LEDGER = ".headrace"


@dataclass(frozen=True)
class Target:
    """The part of a definition that says where changes go."""

    sink: str = field(default=DEFAULT_SINK, repr=False)
    """The sink's URI."""
    ledger: str = field(default=DEFAULT_LEDGER, repr=False)
    """Where the ledger is kept for a sink that has none of its own: a folder, or a URL."""
    work: str | None = field(default=None, repr=False)
    """The work place: a folder, or a URL; ``None`` is the temporary folder."""
    adopt: bool = False
    allow_non_transactional: bool = False

    def assembled(self) -> Assembly:
        """The parts, which have no connections yet. Raises DefinitionError."""
        sink = open_sink(self.sink, sink_options(adopt=self.adopt, allow_non_transactional=self.allow_non_transactional))
        return Assembly(sink, open_work(self.work), self.ledger)


@dataclass(frozen=True)
class Assembly:
    """The parts of a target that belong together."""

    sink: DataSink
    work: WorkLease
    ledger_place: str = field(repr=False)

    @contextmanager
    def opened(self) -> Iterator[Ledger]:
        """Opens the sink and yields its ledger, or the file ledger. At the end all is closed, and the work place is removed.

        Raises DefinitionError.
        """
        with self.work, self.sink as sink:
            ledger = sink.ledger or open_file_ledger(self.ledger_place)
            try:
                yield ledger
            finally:
                ledger.close()
