"""Tells whether a suite that records ran whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

_DESELECTED = pytest.StashKey[set[object]]()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remembers the modules of which ``-k``, ``-m`` or ``--lf`` left tests out."""
    for item in items:
        item.config.stash.setdefault(_DESELECTED, set()).add(item.path.name)


@pytest.fixture
def whole_suites(request: pytest.FixtureRequest) -> frozenset[str]:
    """The file names of the test modules of which every test is in this session."""
    config = request.config
    if request.session.testsfailed or any("::" in argument for argument in config.args):
        return frozenset()
    return frozenset({item.path.name for item in request.session.items} - config.stash.get(_DESELECTED, set()))
