"""``headrace table``: shows what stopped tables wait for, and records requests for tables. Starts no JVM."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from headrace.cli.ledgers import opened, state_of
from headrace.cli.output import Output
from headrace.cli.progress import NOTHING_APPLIED, checkpoint_text, counted, lag_seconds
from headrace.cli.remedies import is_held, ways_on
from headrace.engine.requests import does_not_fit
from headrace.errors import DefinitionError
from headrace.model.commands import skip_command, word
from headrace.model.ledger import LedgerState, RequestKind, TableProgress, TableRequest, TableStatus
from headrace.model.place import PlaceInFile, PlaceInStream, SourcePlace, fields_of
from headrace.model.split import HeldSplit
from headrace.model.table import NOBODYS, TableId
from headrace.model.tso import format_tso, parse_tso
from headrace.pipeline.definition import Settings
from headrace.pipeline.registry import open_source, source_options
from headrace.sources.base import DataSource, StreamSource

_FILES_SHOWN = 5
_Ask = Callable[[str, str], bool] | None


def show_tables(settings: Settings, output: Output) -> int:
    """Prints each table that is stopped, or for which a hold was requested. Raises DefinitionError."""
    with opened(settings) as (_, ledger):
        state = state_of(ledger, settings)
    stopped = _stopped_or_held(state)
    source = _source(settings, state)
    needed, of_stream = needs(state, source), reads_stream(source)
    for table_id, own in stopped.items():
        asked = [request for request in state.requests.values() if request.table_id == table_id]
        if output.is_json:
            goes_on = list(ways_on(own, state, of_stream=of_stream))
            held = is_held(own, state)
            output.event("stopped_table", **_fields(own, needed.get(table_id, ()), asked), held=held, goes_on=goes_on)
        else:
            _print(own, needed.get(table_id, ()), asked, output, held=is_held(own, state))
            for way in ways_on(own, state, of_stream=of_stream):
                output.line(f"  {way}")
    if not stopped:
        output.line("no table is stopped")
    return 0


def tell_stopped(state: LedgerState, told: Collection[TableId], output: Output) -> None:
    """Warns, at the end of a run, about each stopped or held table that is not in ``told``, with its first remedy.

    ``told`` are the tables that the run has already reported.
    """
    left = {table_id: own for table_id, own in _stopped_or_held(state).items() if table_id not in told}
    for table_id, own in left.items():
        stands = "held" if is_held(own, state) else str(own.status)
        output.warning("; ".join((f"{table_id}: {stands}", *ways_on(own, state)[:1])))
    if left:
        output.line("headrace table list shows why, and what else can be done")


def _stopped_or_held(state: LedgerState) -> dict[TableId, TableProgress]:
    return {t: own for t, own in sorted(state.tables.items()) if own.status.is_stopped or t in state.held}


def hold_table(settings: Settings, name: str, output: Output) -> int:
    """Requests that nothing is written to the table until it is released. Raises DefinitionError."""

    def request(state: LedgerState, own: TableProgress) -> TableRequest:
        if own.table_id in state.holds and not _is_to_end(state, own.table_id):
            raise DefinitionError(f"{own.table_id} is already to be held.", "headrace table list shows when that has taken effect.")
        if own.status.is_gone or own.status is TableStatus.EXCLUDED:
            raise DefinitionError(f"{own.table_id} cannot be held: nothing is written to it, because it is {own.status}.")
        return new_request(state, own.table_id, RequestKind.HOLD, since=state.table_checkpoint(own.table_id))

    return _leave(settings, name, request, output, find=known_table)


def _is_to_end(state: LedgerState, table_id: TableId) -> bool:
    """Whether a later request that was not carried out yet (resync or reset) ends all holds of the table."""
    held = max(hold.identity for hold in state.standing_holds if hold.table_id == table_id)
    ending = (RequestKind.RESYNC, RequestKind.RESET)
    asked = (r for r in state.requests.values() if r.table_id == table_id and r.kind in ending and r not in state.released)
    return any(request.identity > held for request in asked)


def release_table(settings: Settings, name: str, output: Output) -> int:
    """Ends all holds of the table, and cancels its resyncs that were not carried out yet. Raises DefinitionError."""

    def request(state: LedgerState, own: TableProgress) -> TableRequest:
        if own.table_id not in state.held:
            known = ", ".join(map(str, sorted(state.held))) or "none"
            raise DefinitionError(f"{own.table_id} is not held.", f"Held tables: {known}.")
        return new_request(state, own.table_id, RequestKind.RELEASE, since=own.checkpoint)

    return _leave(settings, name, request, output, find=known_table)


def resume_table(settings: Settings, name: str, output: Output) -> int:
    """Requests that the table is tried again at once. Raises DefinitionError."""

    def request(state: LedgerState, own: TableProgress) -> TableRequest:
        if own.table_id in state.holds:
            raise DefinitionError(f"{own.table_id} is held.", f"Release it with headrace table release {word(own.table_id)}.")
        _needs_no_load(own)
        return _request(state, own, RequestKind.RESUME)

    return _leave(settings, name, request, output)


def skip_rows(settings: Settings, name: str, to: str, ask: _Ask, output: Output) -> int:
    """Gives up the table's rows up to ``to`` (TSO, ISO time or ``latest``). Raises DefinitionError."""

    def request(state: LedgerState, own: TableProgress) -> TableRequest | None:
        if state.cuts and not state.cuts[-1].precision.is_exact:
            raise DefinitionError(
                "The source's rows carry no exact commit ts, so rows up to a commit ts cannot be given up.",
                "Give up single files with --file.",
            )
        _needs_no_load(own)
        if own.table_id.is_database:
            raise DefinitionError(
                f"{own.table_id} is a database, and has no rows.", "headrace table list shows what lets it go on."
            )
        if any(r.kind in (RequestKind.RESET, RequestKind.RESYNC) and r.table_id == own.table_id for r in state.requests.values()):
            raise DefinitionError(
                f"A reset or resync of {own.table_id} was requested, after which it stands at another checkpoint.",
                "Try again when a run has carried that out; headrace table list shows it.",
            )
        reached = state.checkpoint if to == "latest" else _tso(to, "--to")
        _within(state, own, reached, "--to")
        what = f"The changes of {own.table_id} from {own.checkpoint + 1} to {reached} will never be in the target."
        return _request(state, own, RequestKind.SKIP_ROWS, to=reached) if _sure(ask, what, own) else None

    return _leave(settings, name, request, output)


def skip_place(settings: Settings, name: str, place: SourcePlace, ask: _Ask, output: Output) -> int:
    """Gives up one file, or one record of a stream, that the table still needs. Raises DefinitionError.

    Without ``name`` it gives up a record whose table is unknown.
    """

    def request(state: LedgerState, own: TableProgress) -> TableRequest | None:
        source = _source(settings, state)
        if isinstance(place, PlaceInFile):
            _waits_for_file(source, state, own, place.file)
        else:
            _waits_for_record(source, state, own, place)
        kind = RequestKind.SKIP_FILE if isinstance(place, PlaceInFile) else RequestKind.SKIP_RECORD
        what = f"The changes in {place.name} will never be in the target, whatever their commit ts is."
        return _request(state, own, kind, place=place) if _sure(ask, what, own) else None

    return _leave(settings, name, request, output, find=None if name else _nobodys)


def _nobodys(state: LedgerState, _: str) -> TableProgress:
    return TableProgress(NOBODYS, state.checkpoint)


def _waits_for_file(source: DataSource, state: LedgerState, own: TableProgress, file: str) -> None:
    if reads_stream(source):
        raise DefinitionError(f"{source.identity} is a stream, and has no files.", "Name a record with --partition and --offset.")
    needed = source.held(state.position)
    if file in {held.key for held in needed if held.table_id == own.table_id or not held.table_id.table}:
        return
    # The position does not name a file of another protocol. The run that stopped at it may have known the protocol from its URI.
    if skip_command(own.table_id, PlaceInFile(file)) in own.reason:
        return
    gives_up = source.event_source.give_up
    if own.table_id == NOBODYS or gives_up(state.position, own.table_id, PlaceInFile(file)) == state.position:
        raise DefinitionError(
            f"The table {own.table_id} does not wait for a file {file!r}.", "headrace table list names those it waits for."
        )


def _waits_for_record(source: DataSource, state: LedgerState, own: TableProgress, place: PlaceInStream) -> None:
    if not reads_stream(source):
        raise DefinitionError(f"{source.identity} is no stream, and has no partitions.", "Name a file with --file.")
    if source.event_source.give_up(state.position, own.table_id, place) == state.position:
        if own.table_id == NOBODYS:
            raise DefinitionError(f"No record at {place} waits to be given up.", "The run reports which record cannot be read.")
        raise DefinitionError(
            f"The table {own.table_id} does not wait for a record at {place}.",
            "headrace table list says at which record it stopped.",
        )


def reads_stream(source: DataSource | None) -> bool:
    """Whether the source has records in partitions, and no files."""
    return source is not None and isinstance(source.event_source, StreamSource)


def resync_table(settings: Settings, name: str, at: str, output: Output) -> int:
    """Lets the table go on from ``at``, the TSO or ISO time as of which it was loaded. Raises DefinitionError."""

    def request(state: LedgerState, own: TableProgress) -> TableRequest:
        loaded, table_id = _tso(at, "--at"), own.table_id
        if own.status in (TableStatus.GONE, TableStatus.GONE_WAITING, TableStatus.EXCLUDED):
            raise DefinitionError(f"{table_id} cannot go on: it is {own.status}.")
        place = state.table_checkpoint(table_id)
        if state.cuts and not state.cuts[-1].precision.is_exact:
            raise DefinitionError(
                "The source's rows carry no exact commit ts, so Headrace cannot tell which of them the loaded table "
                "already contains.",
                "Let the pipeline begin anew on an empty target: headrace reset.",
            )
        return new_request(state, table_id, RequestKind.RESYNC, since=place, to=loaded)

    return _leave(settings, name, request, output, must_exist=True, find=known_table)


def needs(state: LedgerState, source: DataSource) -> dict[TableId, list[HeldSplit]]:
    """The files that each stopped table still has to read, the oldest first, as far as the ledger's position shows."""
    found: dict[TableId, list[HeldSplit]] = {}
    stopped = _stopped(state)
    for held in source.held(state.position) if stopped else ():
        if held.table_id in stopped:
            found.setdefault(held.table_id, []).append(held)
    return found


def removal(held: Sequence[HeldSplit]) -> str:
    """Which day's files are needed, and when the source removes them; ``""`` if it never removes them."""
    oldest = min((h for h in held if h.removed_after), key=lambda h: h.day, default=None)
    return f"it needs files of {oldest.day}; TiCDC removes them after {oldest.removed_after}" if oldest else ""


def _leave(
    settings: Settings,
    name: str,
    make: Callable[[LedgerState, TableProgress], TableRequest | None],
    output: Output,
    *,
    must_exist: bool = False,
    find: Callable[[LedgerState, str], TableProgress] | None = None,
) -> int:
    """Writes the request that ``make`` builds for the table into the ledger; nothing if the person did not confirm it.

    ``find`` finds the table by its name. Without ``find`` only stopped tables are found.
    """
    with opened(settings) as (sink, ledger):
        state = state_of(ledger, settings)
        own = (find or _find)(state, name)
        if must_exist and sink.metadata_applier.describe(own.table_id) is None:
            raise DefinitionError(
                f"{sink.identity} holds no table {own.table_id}.", "Load it first, in the shape that it had then."
            )
        request = make(state, own)
        if request is None:
            output.line("nothing was requested")
            return 0
        ledger.request(state.pipeline, request)
    ended = _ended_by(state, request)
    if output.is_json:
        output.event("request", **_request_fields(request), takes_back=[_request_fields(other) for other in ended])
    else:
        output.line(f"{own.table_id}: {_told(request)}" if own.table_id != NOBODYS else _told(request))
        for line in _told_of_release(state, ended):
            output.line(line)
        output.line("a running pipeline picks this up within seconds; otherwise the next run does when it starts")
        if request.kind is RequestKind.RESYNC and request.to > state.checkpoint:
            output.line(f"the table is held until the pipeline, which is at {state.checkpoint}, has reached that commit ts")
        if request.kind is RequestKind.HOLD:
            output.line("load the table only when headrace table list shows it as held, or while no run is active")
    return 0


def _source(settings: Settings, state: LedgerState) -> DataSource:
    """The definition's source, or else the ledger's. The ledger does not record the changefeed's TOML file."""
    uri = settings.source_uri if settings.source else state.source_identity
    return open_source(uri, source_options(settings.changefeed))


def _stopped(state: LedgerState) -> dict[TableId, TableProgress]:
    return {table_id: own for table_id, own in sorted(state.tables.items()) if own.status.is_stopped}


def _find(state: LedgerState, name: str) -> TableProgress:
    stopped = _stopped(state)
    found = _only([own for table_id, own in stopped.items() if table_id.is_named(name)], name)
    if found is None:
        known = ", ".join(map(str, stopped)) or "none"
        raise DefinitionError(f"No table {name} is stopped.", f"Stopped tables: {known}.")
    return found


def known_table(state: LedgerState, name: str) -> TableProgress:
    """A table in the pipeline's ledger, in any state. Raises DefinitionError if there is none of that name."""
    found = _only([own for table_id, own in state.tables.items() if table_id.is_named(name) and table_id.table], name)
    if found is None:
        raise DefinitionError(f"The pipeline {state.pipeline} knows no table {name}.", "headrace status lists those it knows.")
    return found


def _only(found: Sequence[TableProgress], name: str) -> TableProgress | None:
    refuse_two_tables([own.table_id for own in found], name)
    return found[0] if found else None


def refuse_two_tables(found: Sequence[TableId], name: str) -> None:
    """Raises DefinitionError if a name with a dot matches two tables."""
    if len(found) > 1:
        which = " or ".join(f"table {table_id.table} of database {table_id.database}" for table_id in found)
        hint = f"Write it with backquotes: {' or '.join(word(table_id.quoted) for table_id in found)}."
        raise DefinitionError(f"{name} is ambiguous: it may be {which}.", hint)


def _needs_no_load(own: TableProgress) -> None:
    if own.status is TableStatus.INCOMPLETE:
        raise DefinitionError(
            f"{own.table_id} lacks rows, and cannot go on until it is loaded anew.",
            f"Load it, and run headrace table resync {word(own.table_id)} --at TSO.",
        )


def _request(
    state: LedgerState, own: TableProgress, kind: RequestKind, *, to: int = 0, place: SourcePlace | None = None
) -> TableRequest:
    return new_request(state, own.table_id, kind, since=own.checkpoint, to=to, place=place)


def new_request(
    state: LedgerState, table_id: TableId, kind: RequestKind, *, since: int, to: int = 0, place: SourcePlace | None = None
) -> TableRequest:
    """A request with a new identity that sorts after all earlier ones, even after those of a machine whose clock is ahead."""
    known = (identity.partition("-")[0] for identity in state.requests)
    now = max(time.time_ns(), 1 + max((int(time_of) for time_of in known if time_of.isdecimal()), default=0))
    return TableRequest(f"{now:020}-{uuid.uuid4().hex[:8]}", table_id, kind, to=to, since=since, place=place)


def _tso(text: str, option: str) -> int:
    try:
        return parse_tso(text)
    except ValueError as error:
        raise DefinitionError(f"{option}: {error}.") from None


def _within(state: LedgerState, own: TableProgress, tso: int, option: str) -> None:
    if own.checkpoint < tso <= state.checkpoint:
        return
    raise DefinitionError(
        f"{option} {tso} ({format_tso(tso)}) must be above the table's checkpoint {own.checkpoint} and not above the "
        f"pipeline's, {state.checkpoint} ({format_tso(state.checkpoint)}).",
        "Wait until the pipeline has reached it." if tso > state.checkpoint else "Changes up to there are already applied.",
    )


def _sure(ask: _Ask, what: str, own: TableProgress) -> bool:
    return ask is None or ask(what, str(own.table_id) or "skip")


def _told(request: TableRequest) -> str:
    match request.kind:
        case RequestKind.SKIP_ROWS:
            told = f"its rows from {request.since + 1} to {request.to} are given up"
        case RequestKind.SKIP_FILE | RequestKind.SKIP_RECORD if request.place is not None:
            told = f"{request.place.described} is given up"
        case RequestKind.RESYNC:
            way = f"back from {request.since} to" if request.to < request.since else "on from"
            told = f"it was loaded as of {format_tso(request.to)}, and goes {way} {request.to}"
        case RequestKind.RESET:
            told = "it is reset, and begins anew"
        case RequestKind.HOLD:
            told = "it is to be held: nothing is written to it until it is released"
        case RequestKind.RELEASE:
            told = "it is released"
        case _:
            told = "it is tried again"
    return told


def _ended_by(state: LedgerState, request: TableRequest) -> tuple[TableRequest, ...]:
    """The holds and resyncs that a release ends; empty for any other request."""
    if request.kind is not RequestKind.RELEASE:
        return ()
    after = replace(state, requests={**state.requests, request.identity: request})
    return tuple(r for r in after.released if r.table_id == request.table_id and r not in state.released)


def _told_of_release(state: LedgerState, ended: Sequence[TableRequest]) -> Iterator[str]:
    """The resyncs that a release cancels, and what happens to the table afterwards."""
    for request in ended:
        if request.kind is RequestKind.RESYNC:
            yield f"taken back: headrace table resync {word(request.table_id)} --at {request.to}"
    unfit = next((request for request in reversed(ended) if does_not_fit(state, request)), None)
    if unfit is not None:
        reached = state.table_checkpoint(unfit.table_id)
        yield (
            f"it does not go on: it was loaded as of {unfit.to}, but its checkpoint is {reached}. Load it anew, and run "
            f"headrace table resync {word(unfit.table_id)} --at TIME"
        )
    elif ended:
        yield f"it catches up from {state.table_checkpoint(ended[0].table_id)}"
    if unfit is None and any(request.to for request in ended):
        yield "rows that were loaded stay; in a table without a key, changes are then applied twice"


def _request_fields(request: TableRequest) -> dict[str, object]:
    return {
        "table": str(request.table_id) or None,
        "kind": str(request.kind),
        "since": request.since,
        "to": request.to or None,
        "file": None,
        **fields_of(request.place),
    }


def _fields(own: TableProgress, needed: Sequence[HeldSplit], asked: Sequence[TableRequest]) -> dict[str, object]:
    return {
        "table": str(own.table_id),
        "status": str(own.status),
        "checkpoint": own.checkpoint,
        "checkpoint_time": format_tso(own.checkpoint),
        "lag_seconds": round(lag_seconds(own.checkpoint), 1),
        "reason": own.reason,
        "files": [{"file": h.key, "bytes": h.size, "day": h.day, "removed_after": h.removed_after} for h in needed],
        "bytes": sum(h.size for h in needed),
        "requests": [_request_fields(request) for request in asked],
    }


def _print(own: TableProgress, needed: Sequence[HeldSplit], asked: Sequence[TableRequest], output: Output, *, held: bool) -> None:
    reached = f" at {checkpoint_text(own.checkpoint)}" if own.checkpoint else f", {NOTHING_APPLIED}"
    output.line(f"{own.table_id}: {own.status}{reached}")
    if own.reason:
        output.line(f"  {own.reason}")
    if held:
        output.line("  held: nothing is written to it")
    if needed:
        output.line(f"  needs {counted(len(needed), 'file')}, {counted(sum(h.size for h in needed), 'byte')}:")
        for each in needed[:_FILES_SHOWN]:
            output.line(f"    {each.key}, about {counted(each.size, 'byte')}")
        if len(needed) > _FILES_SHOWN:
            output.line(f"    and {len(needed) - _FILES_SHOWN:,} more; --json names all")
    if told := removal(needed):
        output.line(f"  {told}")
    for request in asked:
        if request.kind not in (RequestKind.HELD, RequestKind.LOADED):
            output.line(f"  asked: {_told(request)}; a running pipeline picks it up within seconds")
