"""The ledger of a storage sink: a file ledger in the target, with which a cut is committed and then published."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import reduce

from headrace.errors import DefinitionError, FencedError, SinkUnreachableError
from headrace.formats.storage_paths import METADATA
from headrace.model.ledger import Decision, LedgerState, RequestKind, TableRequest, TableStatus, Words
from headrace.sinks.base import LedgerPart, LedgerUpdate
from headrace.sinks.file_ledger import FileLedger
from headrace.sinks.storage.open_cut import CutWriter
from headrace.sinks.storage.publication import Publication, remove_others
from headrace.sinks.storage.target_store import OWN, UNFINISHED, TargetStore

_OWNER = f"{OWN}/owner.json"
_NEVER_AGAIN = frozenset({TableStatus.GONE, TableStatus.NOT_FOLLOWED, TableStatus.EXCLUDED})


class StorageLedger:
    """A :class:`headrace.sinks.base.Ledger`. In an open cut, steps wait until the one with a checkpoint writes all of them."""

    def __init__(self, files: FileLedger, store: TargetStore, writer: CutWriter, *, output: str, adopt: bool) -> None:
        """``output`` is what readers have to know (``StorageOutput.told``). ``adopt``: go on behind what the target has."""
        self._files, self._store, self._writer = files, store, writer
        self._output, self._adopt = output, adopt
        self._state: LedgerState | None = None
        self._waiting: list[LedgerUpdate] = []
        self._published = 0
        """The checkpoint (TSO) in ``metadata``. It does not go back, also if another pipeline or a changefeed wrote it."""

    def missing(self) -> str:
        """See ``PlacedLedger.missing``."""
        return self._files.missing()

    def peek(self, pipeline: str) -> LedgerState | None:
        """See ``Ledger.peek``."""
        return self._files.peek(pipeline)

    def pipelines(self) -> list[str]:
        """See ``Ledger.pipelines``."""
        return self._files.pipelines()

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = (), above: int = 0
    ) -> LedgerState:
        """See ``Ledger.acquire``. Completes the publication of the last run, and removes what it did not commit.

        Raises DefinitionError if another pipeline writes to the target, because a target has one checkpoint; if the options that
        readers have to know are not those of the first run; and for a target that holds something which is not the pipeline's.
        """
        self._claim(pipeline)
        self._state = self._files.acquire(pipeline, source_identity, fingerprint, start, parts, above)
        self._settle()
        return self._state

    def next_attempt(self) -> int:
        """See ``Ledger.next_attempt``. Completes a publication that failed."""
        attempt = self._files.next_attempt()
        self._settle()
        self._state = self._files.state
        return attempt

    def update(self, update: LedgerUpdate) -> None:
        """See ``Ledger.update``. The step of an open cut that has a checkpoint writes all steps of the cut, and publishes it."""
        if self._writer.cut is None:
            self._files.update(update)
            self._state = self._files.state
            return
        self._waiting.append(update)
        if update.checkpoint is None:
            return
        self._files.require_newest()
        publication = self._publication()
        steps, self._waiting = self._waiting, []
        if publication is not None:
            publication.write(self._store)
        self._files.update_all(steps, publication.folder if publication is not None else None)
        self._state = self._files.state
        if publication is not None:
            self._complete(publication)
        self._writer.keep()

    def abandon(self) -> None:
        """Forgets the steps of the open cut."""
        self._waiting = []

    def decide(self, pipeline: str, decision: Decision) -> None:
        """See ``Ledger.decide``."""
        self._files.decide(pipeline, decision)

    def request(self, pipeline: str, request: TableRequest) -> None:
        """See ``Ledger.request``. Raises DefinitionError for a resync: nobody can load a table anew into files that were read."""
        if request.kind is RequestKind.RESYNC:
            raise DefinitionError(
                f"{request.table_id} cannot be loaded anew in {self._store.name}: readers have passed the time of these rows.",
                "Let a pipeline write to another folder, from a changefeed that begins with the table's rows.",
            )
        self._files.request(pipeline, request)

    def words(self, pipeline: str) -> Words:
        """See ``Ledger.words``."""
        return self._files.words(pipeline)

    def reset(self, pipeline: str) -> bool:
        """See ``Ledger.reset``. What is published stays, and what is committed is published first."""
        if (folder := self._files.note_of(pipeline)) and not Publication.is_completed(self._store, folder):
            Publication.read(self._store, folder).complete(self._store, lambda: None)
        found = self._files.reset(pipeline)
        if self._owner().get("pipeline") == pipeline:
            self._store.discard(_OWNER)
        return found

    def close(self) -> None:
        """Forgets the open cut."""
        self.abandon()
        self._files.close()

    def _publication(self) -> Publication | None:
        """What the open cut publishes; ``None`` for nothing."""
        if self._state is None:
            raise FencedError("This run has not taken the pipeline's ledger yet.")
        after = reduce(lambda state, step: step.applied_to(state), self._waiting, self._state)
        reached = max(published_checkpoint(after), self._published)
        told = read_checkpoint(self._store)  # less than published, if a late request of an earlier run came behind it
        if self._writer.open.is_empty and reached <= told:
            return None
        return self._writer.publication(reached if reached > told else 0)

    def _complete(self, publication: Publication) -> None:
        publication.complete(self._store, self._files.require_newest)
        self._published = max(self._published, publication.checkpoint)

    def _settle(self) -> None:
        """Completes the last publication, and removes the staged files of all other cuts. Forgets what is known of the target."""
        self._writer.forget()
        folder = self._files.note
        if folder:
            publication = Publication.read(self._store, folder)
            if not Publication.is_completed(self._store, folder):
                publication.complete(self._store, self._files.require_newest)
            self._published = max(self._published, publication.checkpoint)
        self._published = max(self._published, read_checkpoint(self._store))
        remove_others(self._store, folder, self._files.require_newest)
        self._store.remove(UNFINISHED)

    def _owner(self) -> dict[str, str]:
        """Whose the target is: the pipeline, and how it writes. Empty for nobody's."""
        raw = self._store.read(_OWNER)
        try:
            return {} if raw is None else {name: str(value) for name, value in json.loads(raw).items()}
        except (ValueError, AttributeError):
            raise SinkUnreachableError(f"{_OWNER} in {self._store.name} cannot be read.", "Restore it.") from None

    def _claim(self, pipeline: str) -> None:
        """Makes the target this pipeline's. Raises DefinitionError if that is impossible."""
        owner = self._owner()
        if self._store.size(_OWNER) is None:
            self._require_empty()
            mine = {"pipeline": pipeline, "output": self._output}
            owner = mine if self._store.create(_OWNER, json.dumps(mine).encode()) else self._owner()
        if not owner.keys() >= {"pipeline", "output"}:
            raise SinkUnreachableError(f"{_OWNER} in {self._store.name} is not whole.", "Restore it.")
        if owner["pipeline"] != pipeline:
            raise DefinitionError(
                f"The pipeline {owner['pipeline']!r} writes to {self._store.name}, and its readers know one checkpoint only.",
                f"Use another folder, or that pipeline's name: --name {owner['pipeline']}.",
            )
        if owner["output"] != self._output:
            raise DefinitionError(
                f"{self._store.name} was begun with other options, and readers take all of its files to be written alike. They "
                f"were {owner['output']}. They are now {self._output}.",
                "Use the former options, or another folder. If no run has written to it yet, headrace reset frees it.",
            )

    def _require_empty(self) -> None:
        """Raises DefinitionError if the target holds what no pipeline of Headrace wrote, or one that was reset."""
        if self._adopt:
            return
        found = [name for name in (*self._store.folders(""), *self._store.files("")) if name != OWN]
        if found:
            raise DefinitionError(
                f"{self._store.name} holds something already ({min(found)}), and this pipeline did not write it.",
                "Name an empty folder. With --adopt the pipeline goes on behind what is there, and readers have both.",
            )


def published_checkpoint(state: LedgerState) -> int:
    """The checkpoint (TSO) for readers: the least of all tables that may still go on, with a stopped one among them.

    A table that waits will bring rows of an earlier time than the pipeline's checkpoint.
    """
    waiting = (own for own in state.tables.values() if own.status is not TableStatus.RUNNING and own.status not in _NEVER_AGAIN)
    return min((own.checkpoint - (not own.after) for own in waiting), default=state.checkpoint)


def read_checkpoint(store: TargetStore) -> int:
    """The checkpoint (TSO) that ``metadata`` of the target has; 0 without one. Raises SinkUnreachableError."""
    raw = store.read(METADATA)
    try:
        return 0 if raw is None else int(json.loads(raw)["checkpoint-ts"])
    except (ValueError, KeyError, TypeError):
        raise SinkUnreachableError(
            f"{METADATA} in {store.name} cannot be read.", "Restore it, or remove it if no reader follows the target."
        ) from None
