"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest
from histories import Stage

from places import Place


@pytest.fixture
def stage(place: Place, tmp_path: Path) -> Stage:
    """Both kinds of target in turn, for histories."""
    return Stage(place, tmp_path)
