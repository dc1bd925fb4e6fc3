"""Finds places that only this machine can reach. Tasks on other machines would write to their own disks instead."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engine.launch import is_local
from headrace.errors import DefinitionError
from headrace.places.work_place import WorkLease
from headrace.sinks.base import SinkCapabilities
from headrace.sinks.dead_letters import DeadLetters
from headrace.sources.base import EventSource, StreamSource

_STORE = "s3://bucket/prefix"


def local_places(
    master: str, source: EventSource | None, capabilities: SinkCapabilities, work: WorkLease, letters: DeadLetters | None
) -> Iterator[DefinitionError]:
    """One error for each place that workers need and cannot reach; none if Spark's ``master`` is local."""
    if is_local(master):
        return
    why = f"Spark runs on other machines (spark.master={master})"
    if capabilities.spools and capabilities.own_spool:
        yield DefinitionError(
            f"{why}, and {capabilities.own_spool} names a folder, and each machine has its own folder of that name.",
            f"Take it out, and name a store that all machines reach with --work, or work under pipeline: {_STORE}.",
        )
    elif work.is_local and (capabilities.spools or isinstance(source, StreamSource)):
        yield DefinitionError(
            f"{why}, and the work place, in which tasks hand rows over, is a folder of this machine: {work.name}.",
            f"Name a store that all machines reach with --work, or work under pipeline: {_STORE}.",
        )
    if letters is not None and letters.place.is_local:
        yield DefinitionError(
            f"{why}, and each of them would write dead letters to a folder of its own: {letters.place.location.place}.",
            f"Name a store that all machines reach with --dead-letters, or dead-letters under pipeline: {_STORE}.",
        )


def require_shared_places(
    master: str, source: EventSource | None, capabilities: SinkCapabilities, work: WorkLease, letters: DeadLetters | None
) -> None:
    """Raises DefinitionError for the first place that workers need and cannot reach."""
    for error in local_places(master, source, capabilities, work, letters):
        raise error
