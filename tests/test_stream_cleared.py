"""A work place that somebody clears under a living run, or whose files are damaged: what was staged there is staged again.

The run goes on by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import faults
from headrace.engine.loop import Loop
from headrace.faults import Moment, Step
from headrace.places.work_place import WorkLease, open_work
from headrace.testing.memory_sink import CAPABILITIES
from quick import without_pauses
from streams import A, B, World

pytestmark = pytest.mark.pipeline


@pytest.fixture(params=["its files", "the whole folder"])
def clear(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], None]:
    def act() -> None:
        for folder in (tmp_path / "work").glob("headrace-work-run-*"):
            shutil.rmtree(folder if request.param == "the whole folder" else folder / "staged")

    return act


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[WorkLease]:
    with open_work(str(tmp_path / "work")) as lease:
        yield lease


@pytest.fixture(params=list(CAPABILITIES))
def world(request: pytest.FixtureRequest, tmp_path: Path, lease: WorkLease, monkeypatch: pytest.MonkeyPatch) -> World:
    """Its work place is that of a real run."""
    without_pauses(monkeypatch)
    monkeypatch.setattr(World, "place", property(lambda _: lease.following()))
    world = World(tmp_path, partitions=2, capability=request.param)
    world.create(A)
    world.create(B, keyless=True)
    for table_id in (A, B):
        world.insert(table_id, *range(6))
    world.upstream.checkpoint()
    world.run()
    return world


def test_pieces_that_wait_above_the_watermark_are_staged_again(
    world: World, clear: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def begins() -> None:
        world.stream.stall(1)
        for table_id in (A, B):
            world.insert(table_id, *range(10, 20))
        world.upstream.checkpoint()

    def goes_on() -> None:
        world.stream.go_on()
        world.upstream.checkpoint()

    acts, original = [begins, clear, goes_on, lambda: None], Loop._poll

    def acting(loop: Loop, *args: object, **more: object) -> object:
        if acts:
            acts.pop(0)()
        else:
            loop.stop()
        return original(loop, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "_poll", acting)
    ran = world.run(once=False, poll_interval=0.0)
    assert (ran.stopped, ran.failures) == ([], [])
    world.check()


@pytest.mark.parametrize("step", [Step.POLL, Step.STAGE, Step.INTENT, Step.ROUND, Step.READ])
@pytest.mark.parametrize("moment", list(Moment))
def test_a_run_goes_on_wherever_it_was(world: World, clear: Callable[[], None], step: Step, moment: Moment) -> None:
    struck: list[str] = []

    def strike(at: Moment, passed: faults.FaultPoint, detail: str) -> None:
        if (at, passed) == (moment, step) and not struck:
            struck.append(detail)
            clear()

    for table_id in (A, B):
        world.insert(table_id, *range(10, 20))
    world.upstream.checkpoint()
    former = faults.arm(strike)
    try:
        world.run()
    finally:
        faults.arm(former)
    assert struck
    assert world.state.checkpoint == world.stream.promised
    world.check()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda content: content[: len(content) // 2],
    "nothing": lambda _: b"",
    "a page of HTML": lambda _: b"<html>Please log in.</html>",
    "one byte": lambda content: content[:-200] + bytes([content[-200] ^ 255]) + content[-199:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_pieces_that_are_not_as_they_were_written_are_staged_again(world: World, tmp_path: Path, damage: str) -> None:
    struck: list[Path] = []

    def strike(at: Moment, passed: faults.FaultPoint, detail: str) -> None:
        if (at, passed) == (Moment.AFTER, Step.STAGE) and not struck:
            struck.extend((tmp_path / "work").glob("headrace-work-run-*/staged/*/pieces"))
            for path in struck:  # replaced as a whole: the files may be mapped
                fresh = path.with_name("fresh")
                fresh.write_bytes(DAMAGES[damage](path.read_bytes()))
                fresh.replace(path)

    for table_id in (A, B):
        world.insert(table_id, *range(10, 20))
    world.upstream.checkpoint()
    former = faults.arm(strike)
    try:
        ran = world.run()
    finally:
        faults.arm(former)
    assert struck
    told = [*(problem.message for problem in ran.stopped), *ran.failures]
    assert any("in the work place is not as it was written" in text for text in told)
    assert {str(problem.table_id) for problem in ran.stopped} <= set(ran.resumed)
    assert world.state.checkpoint == world.stream.promised
    world.check()


def test_a_stall_does_not_have_the_place_listed_at_each_poll(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store that costs a request."""
    listed: list[str] = []
    monkeypatch.setattr("headrace.places.work_place.LeasedPlace.keys", lambda _, below: listed.append(below) or [])
    world.stream.stall(1)
    world.insert(A, *range(10, 20))
    world.upstream.checkpoint()
    polls, original = iter(range(4)), Loop._poll

    def acting(loop: Loop, *args: object, **more: object) -> object:
        if next(polls, None) is None:
            loop.stop()
        return original(loop, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "_poll", acting)
    world.run(once=False, poll_interval=0.0)
    assert not listed
