"""TiDB's timestamp oracle (TSO): the 64-bit commit ts, and its translation to and from time.

A TSO is ``physical_ms << 18 | logical`` with ``physical_ms`` in Unix milliseconds (TiDB documentation, "TimeStamp
Oracle (TSO) in TiDB"). It fits a signed 64-bit integer until the year 3084.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LOGICAL_BITS = 18
MAX_TSO = (1 << 63) - 1
_MOST_DIGITS = 40  # with zeros before it
_2000_MS, _3000_MS = 946_684_800_000, 32_503_680_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK_TOLERANCE = 10 * 60
"""How far (seconds) the source's clock may be ahead of this machine's, unless a user says more.

No commit ts or checkpoint is ahead of TiDB's clock, so it can seem to be ahead only if clocks differ. Time zones play no part,
because both clocks count from 1970 in UTC. Clocks synchronised by NTP differ by less than a second; others drift by seconds a day.
"""


def tso_from_ms(physical_ms: int, logical: int = 0) -> int:
    """The TSO of a Unix time in milliseconds."""
    return physical_ms << LOGICAL_BITS | logical


def tso_to_ms(tso: int) -> int:
    """The Unix time in milliseconds of a TSO."""
    return tso >> LOGICAL_BITS


def tso_to_datetime(tso: int) -> datetime:
    """The UTC time of a TSO, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=tso_to_ms(tso))


def tso_from_datetime(when: datetime) -> int:
    """The first TSO of a time; a time without zone is taken as UTC."""
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return tso_from_ms((when - _EPOCH) // timedelta(milliseconds=1))


def latest_tso(now: float, tolerance: int = CLOCK_TOLERANCE) -> int:
    """The greatest TSO that is plausible now. ``now`` is this machine's clock (Unix time in seconds).

    The source's clock may be ahead by at most ``tolerance`` seconds. Progress never goes beyond this TSO, because it cannot go
    back: nothing would be applied until that time, and changes written until then would count as applied.
    """
    return tso_from_ms(int((now + tolerance) * 1000))


def tells_time(tso: int) -> bool:
    """Whether a TSO can be one of TiDB, from 2000 to 2999. A source without commit ts may have other numbers in their place."""
    return _2000_MS <= tso_to_ms(tso) < _3000_MS


def format_tso(tso: int) -> str:
    """``2024-06-05 09:30:23.694 UTC`` for people. A value that does not tell a time is returned as a number."""
    if not tells_time(tso):
        return str(tso)
    return tso_to_datetime(tso).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def tso_and_time(tso: int) -> str:
    """A TSO as a number, with its time if it is plausible."""
    shown = format_tso(tso)
    return shown if shown == str(tso) else f"{tso}, {shown}"


def parse_tso(text: str) -> int:
    """A TSO written as an integer, or as ISO time (UTC when it names no zone). Raises ``ValueError``."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        if len(text) > _MOST_DIGITS or int(text) > MAX_TSO:
            raise ValueError(f"{text} is larger than any TSO")
        return int(text)
    try:
        return tso_from_datetime(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"{text!r} is neither a TSO nor an ISO time such as 2024-06-05T09:30:23Z") from None
