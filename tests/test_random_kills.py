"""``headrace run`` follows a random history and is killed at random moments; in the end the target holds what the upstream does."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from kafka_server import running_kafka
from killing import Ordeal, Tally, Victim
from places import Place
from soak import Broker
from targets import DuckDbTarget

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


def test_a_run_that_follows_a_topic_survives_the_death_of_its_broker_too(tmp_path: Path) -> None:
    """The broker of its own starts again on the same data; meanwhile the run asks for it."""
    target = DuckDbTarget(tmp_path / "target.duckdb")
    with ExitStack() as stack:
        broker = Broker(stack.enter_context(running_kafka()), stack)
        ordeal = stack.enter_context(Ordeal(1, tmp_path / "history", target, target.uri, Tally(), broker=broker.running))
        for trouble in (broker.dies, partial(Ordeal.kill, victim=Victim.DRIVER), broker.dies):
            ordeal.go_on_until_applied()
            ordeal.go_on(ordeal.chance.randint(1, 15))
            trouble(ordeal)
        ordeal.finish()
