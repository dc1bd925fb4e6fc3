"""Opens the ledger of a pipeline for a command other than the run. Such a command takes no epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import DefinitionError
from headrace.model.ledger import LedgerState
from headrace.pipeline.definition import Settings
from headrace.sinks.base import DataSink, Ledger, PlacedLedger
from headrace.sinks.file_ledger import FileLedger


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[DataSink, Ledger]]:
    """The sink and the ledger that goes with it. Raises DefinitionError."""
    target = settings.target.assembled()
    with target.opened() as ledger:
        yield target.sink, ledger


def require_place(ledger: Ledger, what: str) -> None:
    """Raises DefinitionError if the ledger's file or folder does not exist. ``what`` begins the message, up to the colon."""
    if missing := ledger.missing() if isinstance(ledger, PlacedLedger) else "":
        option, key = ("--ledger", "ledger") if isinstance(ledger, FileLedger) else ("--sink", "sink")
        raise DefinitionError(
            f"{what}: {missing} does not exist.",
            f"Is {option} right, or {key} in the definition file? The first headrace run creates it.",
        )


def state_of(ledger: Ledger, settings: Settings) -> LedgerState:
    """The ledger's record of the pipeline. Raises DefinitionError if there is no pipeline of that name."""
    name = settings.name or "default"
    state = ledger.peek(name)
    if state is None:
        require_place(ledger, f"There is no pipeline named {name}")
        known = ", ".join(ledger.pipelines()) or "none"
        raise DefinitionError(f"There is no pipeline named {name} here.", f"Name another one with --name; there are: {known}.")
    return state
