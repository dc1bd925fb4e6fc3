"""What callers of this package do wrong, or what stops it."""

from __future__ import annotations

from headrace.errors import HeadraceError, TerminalError


class OutOfOrderError(HeadraceError):
    """Rows or resolved ts of a table came in an order that would lose or repeat changes."""


class SinkClosedError(HeadraceError):
    """The sink is closed, so it takes no more events."""


class SinkFailedError(TerminalError):
    """The sink failed. It executes nothing more, and acknowledges nothing more."""
