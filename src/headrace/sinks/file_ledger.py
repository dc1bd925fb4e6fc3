"""The ledger of sinks that have none of their own: numbered JSON states in a folder or in an object store.

``<location>/<pipeline>/00000000000000000042.json`` holds the whole record after its 42nd step. A step creates the file with the
next number, and fails if that exists (a conditional write). So of two runs that write at once, exactly one succeeds, and the other
is fenced. Decisions and requests of people are stored beside it, one file each in ``decisions`` and ``requests``, because they are
not steps of the run. TSOs are written as strings: as numbers they are too large for most JSON readers.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError
from obstore.store import ObjectStore

from headrace import faults
from headrace.errors import DefinitionError, FencedError, LedgerUnreadableError, SinkUnreachableError, TargetWentBackError
from headrace.faults import Step
from headrace.model.ledger import (
    CutRecord,
    Decision,
    JournalEntry,
    JournalState,
    LedgerState,
    RequestKind,
    TableProgress,
    TableRequest,
    TableShape,
    TableStatus,
    Verdict,
    Words,
)
from headrace.model.place import fields_of, place_from
from headrace.model.shape_text import kept_shape_from_text, kept_shape_to_text
from headrace.model.table import TableId
from headrace.places.object_place import Place, folder_name, ignoring_absence, open_place
from headrace.sinks.base import LedgerPart, LedgerUpdate
from headrace.sinks.record_owner import require_owner

KEPT_STATES = 5
_FORMAT = 1
_NUMBERED = re.compile(r"[0-9]{1,20}\.json")
_DECISIONS = "decisions"
_REQUESTS = "requests"
_ACQUIRE_TRIES = 20
_NOBODYS = ""
"""The source of a record that was reset."""


def open_file_ledger(location: str) -> FileLedger:
    """The ledger in a folder (a path, or ``file://``) or under a prefix (``s3://``, ``gcs://``, ``azure://``, TiCDC's parameters).

    Neither connects nor creates anything yet. Raises DefinitionError.
    """
    return FileLedger(open_place(location, "ledger"))


class FileLedger:
    """A :class:`headrace.sinks.base.Ledger` of numbered states. One object serves one run, and one thread at a time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._held: _Held | None = None

    @property
    def identity(self) -> str:
        """The place of the ledger, without secrets."""
        return self._place.location.url

    def missing(self) -> str:
        """See ``PlacedLedger.missing``. A prefix of an object store is never missing."""
        path = self._place.location.path
        return f"the ledger folder {path}" if self._place.is_local and not Path(path).is_dir() else ""

    def peek(self, pipeline: str) -> LedgerState | None:
        """The newest state. Takes no epoch and creates nothing. Raises SinkUnreachableError."""
        newest = self._load(pipeline)
        return self._with_words(newest.state) if newest and not newest.is_reset else None

    def pipelines(self) -> list[str]:
        """The names of the pipelines recorded here, sorted."""
        with self._place.reached():
            store = self._place.store(create=False)
            prefixes = obstore.list_with_delimiter(store)["common_prefixes"] if store else []
        return [name for name in sorted(unquote(prefix.rstrip("/")) for prefix in prefixes) if not self._is_reset(name)]

    def reset(self, pipeline: str) -> bool:
        """See ``Ledger.reset``. Writes a last step that marks the record as removed, then deletes older states.

        Also works if no state can be read. The previous state stays until the next step, because a power failure may tear the last
        one.
        """
        found = False
        while (newest := self._newest_to_reset(pipeline)) is not None and not newest.is_reset:
            found = True
            nobodys = LedgerState(pipeline, _NOBODYS, "", newest.state.epoch + 1)
            if self._create(_Held(newest.number + 1, nobodys, uuid.uuid4().hex)):
                break
        with self._place.reached():
            store = self._place.store(create=False)
            numbers = self._numbers(folder_name(pipeline)) if store else []
            if store:
                self._sweep(store, pipeline, numbers[:-2])
        return self._forget_words(pipeline, max(numbers, default=0)) or found

    def _newest_to_reset(self, pipeline: str) -> _Held | None:
        """As :meth:`_load`. If no state can be read, a state with an epoch above that of any run, since each run took a number."""
        try:
            return self._load(pipeline)
        except LedgerUnreadableError:
            with self._place.reached():
                number = max(self._numbers(folder_name(pipeline)), default=0)
            return _Held(number, LedgerState(pipeline, "unreadable", "", number), "")

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = (), above: int = 0
    ) -> LedgerState:
        """Takes the next epoch; the previous run's next write fails. ``fingerprint`` and ``start`` count only for a new record.

        ``parts`` need no preparation, because a state can hold all of them.

        Raises DefinitionError if the record belongs to another source, or if the store lets a run overwrite another's step;
        SinkUnreachableError; and FencedError if other runs keep taking the record at the same time.
        """
        for _ in range(_ACQUIRE_TRIES):
            newest = self._load(pipeline)
            if newest is None or newest.is_reset:
                # Those of a pipeline that was removed by hand, or whose reset broke off.
                self._forget_words(pipeline, newest.number if newest else 0)
                epoch = max(newest.state.epoch if newest else 0, above) + 1
                state = LedgerState(
                    pipeline, source_identity, fingerprint, epoch, start=start, checkpoint=start, attempted=start, began=epoch
                )
            else:
                require_owner(pipeline, newest.state.source_identity, source_identity)
                state = replace(newest.state, epoch=max(newest.state.epoch, above) + 1, attempt=0)
            note = "" if newest is None or newest.is_reset else newest.note
            held = _Held(newest.number + 1 if newest else 1, state, uuid.uuid4().hex, note)
            if self._create(held):
                self._require_conditions(held)
                self._held = held
                if newest is not None and newest.is_reset:
                    self._sweep_before(newest)
                return self._with_words(state)
        raise FencedError(f"Other runs of pipeline {pipeline!r} keep taking the ledger {self.identity}.")

    def next_attempt(self) -> int:
        """Increments the attempt. Raises FencedError, SinkUnreachableError."""
        return self._write(lambda state: replace(state, attempt=state.attempt + 1)).attempt

    @property
    def state(self) -> LedgerState:
        """The state after this run's newest step."""
        return self._require_held().state

    def require_newest(self) -> None:
        """Raises FencedError if another run has taken over, TargetWentBackError if this run's newest step is gone.

        Raises SinkUnreachableError.
        """
        held = self._require_held()
        with self._place.reached():
            listings = (self._numbers(folder_name(held.state.pipeline)) for _ in range(2))  # one alone may come without content
            newest = next((numbers[-1] for numbers in listings if numbers and numbers[-1] >= held.number), 0)
        if newest > held.number:
            raise FencedError.taken_over(held.state.pipeline, held.state.epoch, None)
        if newest < held.number:
            raise TargetWentBackError(f"The ledger {self.identity} has not the last step of this run any more: it was put back.")

    @property
    def note(self) -> str:
        """The note of the newest step (see :meth:`update_all`); empty without one."""
        return self._require_held().note

    def note_of(self, pipeline: str) -> str:
        """The note of a pipeline's newest step; empty without a record. Raises SinkUnreachableError."""
        newest = self._load(pipeline)
        return "" if newest is None or newest.is_reset else newest.note

    def update(self, update: LedgerUpdate) -> None:
        """Writes one step. Raises FencedError, SinkUnreachableError."""
        self.update_all([update])

    def update_all(self, updates: Sequence[LedgerUpdate], note: str | None = None) -> None:
        """Writes several updates, one after the other, as one step. Raises FencedError, SinkUnreachableError.

        ``note`` is a text of the sink's own. It is written with the step, and later steps keep it until one brings another.
        """
        state = self._write(lambda found: reduce(lambda done, update: update.applied_to(done), updates, found), note)
        for request in (request for update in updates for request in update.requests):
            self.request(state.pipeline, request)
        used = [_word_key(state.pipeline, _DECISIONS, identity) for update in updates for identity in update.used_decisions]
        used += [_word_key(state.pipeline, _REQUESTS, identity) for update in updates for identity in update.used_requests]
        if used:
            with self._place.reached(), ignoring_absence():
                obstore.delete(self._place.store(create=True), used)

    def decide(self, pipeline: str, decision: Decision) -> None:
        """Stores a decision, in place of an earlier one about the same change. Raises SinkUnreachableError."""
        self._leave(pipeline, _DECISIONS, decision.identity, asdict(decision))

    def request(self, pipeline: str, request: TableRequest) -> None:
        """Stores a request about a table. Raises SinkUnreachableError."""
        self._leave(pipeline, _REQUESTS, request.identity, _request_to_dict(request))

    def words(self, pipeline: str) -> Words:
        """The decisions and requests that wait for the run: one listing, then one read for each. Raises SinkUnreachableError."""
        found: dict[str, list[dict[str, str]]] = {_DECISIONS: [], _REQUESTS: []}
        with self._place.reached():
            store, folder = self._place.store(create=False), folder_name(pipeline)
            for key in self._place.keys(folder) if store else ():
                kind = key.removeprefix(f"{folder}/").rpartition("/")[0]
                with ignoring_absence():
                    try:
                        if kind in found:
                            found[kind].append(json.loads(bytes(obstore.get(store, key).bytes())))
                    except ValueError:
                        raise self._not_whole(key) from None
        decisions = [Decision(data["identity"], Verdict(data["verdict"]), data["statement"]) for data in found[_DECISIONS]]
        requests = sorted(map(_request_from_dict, found[_REQUESTS]), key=lambda request: request.identity)
        return Words({d.identity: d for d in decisions}, {r.identity: r for r in requests})

    def _is_reset(self, pipeline: str) -> bool:
        try:
            newest = self._load(pipeline)
        except SinkUnreachableError:  # there is something
            return False
        return newest is not None and newest.is_reset

    def _forget_words(self, pipeline: str, newest: int) -> bool:
        """Removes the decisions and requests for a pipeline. Returns whether there were any.

        Removes none if there is a step after the ``newest``: another run has begun, or the listing before this one was wrong.
        """
        folder = folder_name(pipeline)
        with self._place.reached():
            store = self._place.store(create=False)
            keys = self._place.keys(folder)
            words = [key for key in keys if key.removeprefix(f"{folder}/").rpartition("/")[0] in (_DECISIONS, _REQUESTS)]
            if max(_numbers_of(keys), default=0) > newest:
                return False
            if store and words:
                with ignoring_absence():
                    obstore.delete(store, words)
        return bool(words)

    def _leave(self, pipeline: str, kind: str, identity: str, word: Mapping[str, object]) -> None:
        with self._place.reached():
            text = json.dumps(word, ensure_ascii=False)
            self._place.put(_word_key(pipeline, kind, identity), text.encode())

    def _with_words(self, state: LedgerState) -> LedgerState:
        words = self.words(state.pipeline)
        return replace(state, decisions=words.decisions, requests=words.requests)

    def close(self) -> None:
        """There is no connection to close."""

    def _require_held(self) -> _Held:
        if self._held is None:
            raise FencedError("The ledger has not been acquired.")
        return self._held

    def _write(self, step: Callable[[LedgerState], LedgerState], note: str | None = None) -> LedgerState:
        """Applies the step to the newest state, writes the result and returns it."""
        while True:
            held = self._require_held()
            following = _Held(held.number + 1, step(held.state), held.writer, held.note if note is None else note)
            if self._create(following):
                self._held = following
                return following.state
            # An earlier step of this run may have been written although its response was lost: this step follows it.
            with self._place.reached():
                found = self._read(self._place.store(create=True), _key(following))
            if found is None or found.writer != held.writer:
                raise FencedError.taken_over(held.state.pipeline, held.state.epoch, found.state.epoch if found else None)
            self._held = _Held(following.number, *found)

    def _create(self, step: _Held) -> bool:
        """Writes a step unless its number is taken. Returns whether this run has the newest number now.

        Raises SinkUnreachableError, also if the store does not list the step: then its listings cannot show newer ones either.
        """
        folder = folder_name(step.state.pipeline)
        key = _key(step)
        with self._place.reached():
            store = self._place.store(create=True)
            try:
                faults.before(Step.FILE_LEDGER_PUT)
                self._place.put(key, step.text.encode(), create=True)
                faults.after(Step.FILE_LEDGER_PUT)
            except AlreadyExistsError:
                # A retried request may find the file of its own first try, if only the response to that was lost.
                found = self._read(store, key)
                if found is None or found != (step.state, step.writer, step.note):
                    return False
            # The number may also be free because its file was swept long ago: then a newer one exists.
            numbers = self._numbers(folder)
            newest = max(numbers, default=0)
            if newest < step.number:
                raise SinkUnreachableError(
                    f"The ledger {self.identity} cannot be used: its listing lacks a file that was just written.",
                    "The run tries again. If this stays, check the store, and the proxy or gateway in front of it.",
                )
            if newest > step.number:
                obstore.delete(store, key)
                return False
            if len(numbers) > 2 * KEPT_STATES:
                self._sweep(store, step.state.pipeline, numbers[:-KEPT_STATES])
        return True

    def _require_conditions(self, step: _Held) -> None:
        """Tests, with the step that was just created, whether the store refuses to create an existing key: the fence depends on it.

        Raises DefinitionError. S3 clones and proxies may accept ``If-None-Match`` and ignore it.
        """
        if self._place.is_local:
            return
        with self._place.reached():
            try:
                self._place.put(_key(step), step.text.encode(), create=True)
            except AlreadyExistsError:
                return
            if max(self._numbers(folder_name(step.state.pipeline)), default=0) > step.number:
                return  # a newer run has swept it meanwhile; this run is fenced at its next step
        raise DefinitionError(
            f"The store of the ledger {self.identity} overwrites an object that a request may only create (If-None-Match): two "
            "runs could write at the same time.",
            "Keep the ledger in a store with conditional writes, or in a folder.",
        )

    def _sweep_before(self, step: _Held) -> None:
        """Removes the states before this one, unless its file is torn and it was read from an earlier one."""
        pipeline = step.state.pipeline
        with self._place.reached():
            store = self._place.store(create=True)
            if self._read(store, _key(step)) is not None:
                self._sweep(store, pipeline, [n for n in self._numbers(folder_name(pipeline)) if n < step.number])

    def _sweep(self, store: ObjectStore, pipeline: str, numbers: list[int]) -> None:
        if numbers:
            with ignoring_absence():
                obstore.delete(store, [f"{folder_name(pipeline)}/{number:020}.json" for number in numbers])

    def _load(self, pipeline: str) -> _Held | None:
        folder = folder_name(pipeline)
        with self._place.reached():
            store = self._place.store(create=False)
            # The client takes a page of HTML for an empty listing. A second bad answer is noticed when the first step is created.
            numbers = (self._numbers(folder) or self._numbers(folder)) if store else []
            # A power failure may tear the newest file. The state before it is also correct, only older.
            for number in reversed(numbers):
                found = self._read(store, f"{folder}/{number:020}.json")
                if found is not None:
                    self._require_own(pipeline, found.state)
                    return _Held(numbers[-1], *found)
        if numbers == [1]:
            # The very first step is torn, and nothing was written after it: its run has done nothing yet.
            return _Held(1, LedgerState(pipeline, _NOBODYS, "", 1), "")
        if numbers:
            raise LedgerUnreadableError(
                f"No state of pipeline {pipeline!r} in the ledger {self.identity} can be read.",
                "Restore one of its files, or forget the pipeline with headrace reset: it then begins with the first file.",
            )
        return None

    def _require_own(self, pipeline: str, state: LedgerState) -> None:
        """Raises LedgerUnreadableError if a person copied or renamed a folder: its steps would go to the former pipeline."""
        if state.pipeline != pipeline:
            raise LedgerUnreadableError(
                f"What the ledger {self.identity} holds as pipeline {pipeline!r} is that of pipeline {state.pipeline!r}: "
                "the folder was copied or renamed.",
                f"Give it its former name, or forget it with headrace reset --name {pipeline}.",
            )

    def _numbers(self, folder: str) -> list[int]:
        return _numbers_of(self._place.keys(folder))

    def _read(self, store: ObjectStore, key: str) -> WrittenState | None:
        if not self._place.is_file(key):
            return None
        try:
            return state_from_json(bytes(obstore.get(store, key).bytes()).decode())
        except (NotFoundError, FileNotFoundError):
            return None
        except ValueError:
            if self._place.is_local:
                return None
            raise self._not_whole(key) from None

    def _not_whole(self, key: str) -> LedgerUnreadableError:
        """The error for a torn state. The store may have cut its response short, so a second read may succeed."""
        return LedgerUnreadableError(
            f"The ledger {self.identity} cannot be used: the store did not send all of {key}.",
            "If this does not pass, restore that file, or forget the pipeline with headrace reset.",
        )


@dataclass(frozen=True)
class _Held:
    """A step: its number, the state after it, and the run that wrote it."""

    number: int
    state: LedgerState
    writer: str
    note: str = ""

    @property
    def text(self) -> str:
        return state_to_json(self.state, self.writer, self.note)

    @property
    def is_reset(self) -> bool:
        """Whether the record was removed. The step keeps the number and the epoch, so that a run of that pipeline notices."""
        return self.state.source_identity == _NOBODYS


def _key(step: _Held) -> str:
    return f"{folder_name(step.state.pipeline)}/{step.number:020}.json"


def _numbers_of(keys: list[str]) -> list[int]:
    """The numbers of the steps among a pipeline's files, sorted."""
    paths = (key.rpartition("/") for key in keys)
    names = (name for parent, _, name in paths if not parent.endswith((f"/{_DECISIONS}", f"/{_REQUESTS}")))
    return sorted(int(name[:-5]) for name in names if _NUMBERED.fullmatch(name))


def _word_key(pipeline: str, kind: str, identity: str) -> str:
    return f"{folder_name(pipeline)}/{kind}/{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


class WrittenState(NamedTuple):
    """A state, the run that wrote it, and the sink's note (:meth:`FileLedger.update_all`)."""

    state: LedgerState
    writer: str
    note: str = ""


def state_to_json(state: LedgerState, writer: str, note: str = "") -> str:
    """A state as JSON text. ``writer`` identifies the run that wrote it."""
    noted = {"note": note} if note else {}
    return json.dumps(
        noted
        | {
            "format": _FORMAT,
            "writer": writer,
            "pipeline": state.pipeline,
            "source_identity": state.source_identity,
            "fingerprint": state.fingerprint,
            "epoch": state.epoch,
            "began": state.began,
            "attempt": state.attempt,
            "start": str(state.start),
            "checkpoint": str(state.checkpoint),
            "attempted": str(state.attempted),
            "position": state.position,
            "tables": [_table_to_dict(table) for table in state.rows],
            "journal": [_entry_to_dict(entry) for entry in state.journal.values()],
            "dead_letters": [[table.database, table.table, count] for table, count in state.dead_letters.items()],
            "shapes": [_shape_to_dict(shape) for shape in state.shapes.values()],
            "cuts": [asdict(cut) | {"hi": str(cut.hi)} for cut in state.cuts],
        },
        ensure_ascii=False,
        indent=1,
    )


def state_from_json(text: str) -> WrittenState:
    """The state with its writer and note. Raises ValueError for a torn state, DefinitionError for another format version."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise DefinitionError("The ledger was written by another version of Headrace, in a format that this one cannot read.")
    tables = [_table_from_dict(table) for table in data["tables"]]
    known: dict[tuple[TableId, ...], tuple[TableId, ...]] = {}
    journal = [_entry_from_dict(entry, known) for entry in data["journal"]]
    shapes = [_shape_from_dict(shape) for shape in data.get("shapes", ())]
    state = LedgerState(
        pipeline=data["pipeline"],
        source_identity=data["source_identity"],
        fingerprint=data["fingerprint"],
        epoch=data["epoch"],
        began=data.get("began", 0),
        attempt=data["attempt"],
        start=int(data["start"]),
        checkpoint=int(data["checkpoint"]),
        attempted=int(data["attempted"]),
        position=data["position"],
        journal={entry.identity: entry for entry in journal},
        dead_letters={TableId(database, table): count for database, table, count in data.get("dead_letters", ())},
        shapes={shape.key: shape for shape in shapes},
        cuts=tuple(CutRecord(**cut | {"hi": int(cut["hi"])}) for cut in data["cuts"]),
    )
    return WrittenState(state.with_rows(tables), data["writer"], data.get("note", ""))


def _shape_to_dict(shape: TableShape) -> dict[str, str]:
    return {
        "incarnation": str(shape.incarnation),
        "version": str(shape.version),
        "shape": kept_shape_to_text(shape),
    }


def _shape_from_dict(data: Mapping[str, str]) -> TableShape:
    return kept_shape_from_text(int(data["incarnation"]), int(data["version"]), data["shape"])


def _table_to_dict(table: TableProgress) -> dict[str, object]:
    return {
        "table": [table.table_id.database, table.table_id.table],
        "checkpoint": str(table.checkpoint),
        "after": table.after,
        "status": str(table.status),
        "reason": table.reason,
        "incarnation": str(table.incarnation),
        "again": table.again,
        "let_in": table.let_in,
        "lacks": table.lacks,
        "loaded": str(table.loaded),
    } | ({"target": [table.target.database, table.target.table]} if table.target is not None else {})


def _table_from_dict(data: dict[str, object]) -> TableProgress:
    return TableProgress(
        table_id=_table_id(data["table"]),
        checkpoint=int(str(data["checkpoint"])),
        after=bool(data["after"]),
        status=TableStatus(str(data["status"])),
        reason=str(data["reason"]),
        incarnation=int(str(data["incarnation"])),
        again=bool(data.get("again", False)),
        let_in=bool(data.get("let_in", False)),
        lacks=str(data.get("lacks", "")),
        loaded=int(str(data.get("loaded", 0))),
        target=_table_id(data["target"]) if "target" in data else None,
    )


def _entry_to_dict(entry: JournalEntry) -> dict[str, object]:
    return {
        "identity": entry.identity,
        "commit_ts": str(entry.commit_ts),
        "tables": [[table.database, table.table] for table in entry.tables],
        "statement": entry.statement,
        "state": str(entry.state),
        "fingerprint": entry.state_before,
    }


def _entry_from_dict(data: dict[str, object], known: dict[tuple[TableId, ...], tuple[TableId, ...]]) -> JournalEntry:
    """``known`` are tables of other entries, to be shared: many changes may name the same tables, even all of them."""
    told = data["tables"]
    tables = tuple(_table_id(table) for table in told) if isinstance(told, list) else ()
    return JournalEntry(
        identity=str(data["identity"]),
        commit_ts=int(str(data["commit_ts"])),
        tables=known.setdefault(tables, tables),
        statement=str(data["statement"]),
        state=JournalState(str(data["state"])),
        state_before=str(data["fingerprint"]),
    )


def _request_to_dict(request: TableRequest) -> dict[str, object]:
    names = [request.table_id.database, request.table_id.table]
    times = {"to": str(request.to), "since": str(request.since)}
    place = {"file": ""} | fields_of(request.place)
    return {"identity": request.identity, "table_id": names, "kind": str(request.kind), **times, **place}


def _request_from_dict(data: Mapping[str, Any]) -> TableRequest:
    return TableRequest(
        identity=data["identity"],
        table_id=_table_id(data["table_id"]),
        kind=RequestKind(data["kind"]),
        to=int(data["to"]),
        since=int(data["since"]),
        place=place_from(data),
    )


def _table_id(names: object) -> TableId:
    if not isinstance(names, list) or len(names) != 2:
        raise ValueError(f"{names!r} is not a database and a table")
    return TableId(str(names[0]), str(names[1]))
