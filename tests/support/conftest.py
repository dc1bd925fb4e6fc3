"""Lets the suites run before what they observe is written down, and tells whether one ran whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

_DESELECTED = pytest.StashKey[set[object]]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is written down comes after what is observed: pytest itself puts tests together that share a fixture."""
    items.sort(key=lambda item: item.path.name == "test_written_down.py")


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
