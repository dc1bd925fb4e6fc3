"""``headrace run`` follows a random history and is killed at random moments; in the end the target holds what the upstream does."""

from __future__ import annotations

from pathlib import Path

import pytest

from killing import Ordeal, Tally, Victim
from places import Place

pytestmark = [pytest.mark.spark, pytest.mark.server]

# A driver or a JVM that starts again takes ten seconds and more, a worker none. `make soak` kills more of each.
KILLS = [Victim.DRIVER, Victim.JVM, *[Victim.WORKER] * 3]


@pytest.mark.parametrize("seed", [1])
def test_a_run_that_is_killed_again_and_again_loses_and_doubles_nothing(seed: int, place: Place, tmp_path: Path) -> None:
    target, uri = place.fresh()
    with Ordeal(seed, tmp_path, target, uri, Tally()) as ordeal:
        for victim in ordeal.chance.sample(KILLS, len(KILLS)):
            ordeal.go_on_until_applied()
            ordeal.go_on(ordeal.chance.randint(1, 15))
            ordeal.kill(victim)
        ordeal.finish()
