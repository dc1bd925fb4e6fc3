"""Rows that are not needed any more: they were given up, or loaded in another way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from headrace.model.commands import skip_command
from headrace.model.ledger import LedgerState, RequestKind, TableProgress, TableRequest, TableStatus
from headrace.model.outcome import Notice, SplitReport
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO

FLOORS = (RequestKind.SKIP_ROWS, RequestKind.LOADED)
"""Requests that stand until a cut has taken their table up to ``to``. Its rows up to there are not needed."""


def given_up_to(state: LedgerState) -> dict[TableId, int]:
    """The commit ts (TSO) up to which a table's rows are not needed, because they were given up or loaded in another way."""
    floors: dict[TableId, int] = {}
    for request in state.requests.values():
        if request.kind in FLOORS and is_at_floor(state, request):
            floors[request.table_id] = max(request.to, floors.get(request.table_id, 0))
    return floors


def is_at_floor(state: LedgerState, request: TableRequest) -> bool:
    """Whether the request still applies. It does not if the table went back before ``since``: only later rows were given up."""
    return request.kind is not RequestKind.SKIP_ROWS or state.table_checkpoint(request.table_id) >= request.since


def given_up(request: TableRequest, until: int = MAX_TSO) -> str:
    """The ledger's sentence about rows that were given up. ``until`` (TSO) is where their table ended."""
    return f"its rows from {request.since + 1} to {min(request.to, until)} were given up"


def over_with_table(state: LedgerState, rows: Iterable[TableProgress]) -> tuple[TableRequest, ...]:
    """Requests to give up rows, or for loaded rows, that end with their table and do not apply to the name's next table."""
    gone = {row.table_id for row in rows if row.status.is_gone}
    return tuple(request for request in state.requests.values() if request.kind in FLOORS and request.table_id in gone)


def told_given_up(requests: Iterable[TableRequest], until: int = MAX_TSO) -> Iterator[Notice]:
    """The notices about completed requests; see :func:`given_up`."""
    for request in requests:
        if request.kind is RequestKind.SKIP_ROWS:
            yield Notice(f"{given_up(request, until)}, and are not in the target.", request.table_id)


def served_requests(state: LedgerState) -> tuple[TableRequest, ...]:
    """The requests that are completed when the tables have these rows."""

    def is_over(request: TableRequest) -> bool:
        own = state.tables.get(request.table_id)
        if own is None or (own.status is not TableStatus.RUNNING and not own.status.is_gone):
            return False
        return own.status.is_gone or state.table_checkpoint(request.table_id) >= request.to

    return tuple(request for request in state.requests.values() if request.kind in FLOORS and is_over(request))


def running_reason(state: LedgerState, own: TableProgress) -> str:
    """The reason that the ledger keeps for a running table: that it lacks rows, or where they came from."""
    for request in state.requests.values():
        if request.table_id == own.table_id and request.kind is RequestKind.SKIP_ROWS:
            return given_up(request)
    return own.reason if own.status is TableStatus.CATCHING_UP else ""


def without_given_up(reports: Iterable[SplitReport]) -> Mapping[str, SplitReport]:
    """The reports by split, without the problems of damaged splits whose rows are all not needed any more.

    Either a later split of its stream begins at or below what was given up: whatever lies after the damage belongs before that,
    too, or is written again in the later one (a writer that went back repeats everything from there). Or the split lies in a
    version before a schema change that was given up, and nothing readable in it is newer than what was given up.
    """
    known = list(reports)
    return {report.split_key: _forgiven(report, known) for report in known}


def _forgiven(report: SplitReport, reports: list[SplitReport]) -> SplitReport:
    problem, place = report.problem, report.at()
    damaged = problem is not None or report.truncated
    if not report.given_up or not damaged or (problem is not None and problem.transient):
        return report
    later = (o for o in reports if (o.table_id, o.stream) == (report.table_id, report.stream) and o.rank > report.rank)
    is_ended = report.ended and report.span[1] <= report.given_up  # the window may end earlier
    is_past = is_ended or (report.stream and any(0 < other.span[0] <= report.given_up for other in later))
    if not report.kept and is_past:
        told = f"the damaged {place.noun} was given up: everything in it belongs before the rows that are still wanted."
        notices = (*report.notices, Notice(told, report.table_id, place))
        return replace(report, problem=None, truncated=False, pending_ts=None, notices=notices)
    if problem is None or not isinstance(place, PlaceInFile):
        return report
    hint = (
        f"{problem.hint} No later file shows that it ends before {report.given_up}: repair it, or give it up whole with "
        f"{skip_command(report.table_id, place)}."
    )
    return replace(report, problem=replace(problem, hint=hint.lstrip()))
