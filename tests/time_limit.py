"""How long a random test goes on drawing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis.errors import FlakyStrategyDefinition, HypothesisException


class TimeIsOverError(BaseException):
    """Ends a test of Hypothesis, which takes it for neither a failure nor an example."""


class Clock:
    """Ends the drawing when the time that was given is over (0: never). An example that failed is made small without it."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds if seconds else math.inf
        self._failed = False

    def require_time(self) -> None:
        """To be called before an example. Raises TimeIsOverError."""
        if time.monotonic() > self._end and not self._failed:
            raise TimeIsOverError

    def example_ends(self) -> None:
        """To be called in the ``finally`` of an example. What Hypothesis raises to give an example up is no failure."""
        error = sys.exc_info()[1]
        self._failed = self._failed or (isinstance(error, Exception) and not isinstance(error, HypothesisException))


@contextmanager
def until_time_is_over() -> Iterator[None]:
    """Around a random test. An example that ends before it draws looks to Hypothesis like one that cannot be repeated."""
    try:
        yield
    except TimeIsOverError:
        pass
    except FlakyStrategyDefinition as flaky:
        if not isinstance(flaky.__context__, TimeIsOverError):
            raise
