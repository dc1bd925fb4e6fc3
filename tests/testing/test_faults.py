"""What tests let happen at fault points."""

from __future__ import annotations

import threading

import pytest

from headrace import faults
from headrace.faults import OwnStep
from headrace.testing.faults import Crashed, Moment, Passage, Pause, Step, armed, crash_at, fail_at


def test_an_unarmed_point_does_nothing() -> None:
    assert faults.arm(None) is None
    faults.before(Step.INTENT)
    faults.after(Step.INTENT)


def test_passages_are_recorded_in_order() -> None:
    with armed() as passed:
        faults.before(Step.SCHEMA_CHANGE, "DROP TABLE t")
        faults.after(Step.SCHEMA_CHANGE, "DROP TABLE t")
    faults.before(Step.INTENT)
    assert passed == [Passage(moment, Step.SCHEMA_CHANGE, "DROP TABLE t") for moment in (Moment.BEFORE, Moment.AFTER)]
    assert str(passed[0]) == "before apply a schema change: DROP TABLE t"


def test_who_crashed_stays_dead_until_the_end() -> None:
    with armed(crash_at(Moment.AFTER, Step.INTENT, skip=1)) as passed:
        faults.after(Step.INTENT)
        with pytest.raises(Crashed, match="after write the intent"):
            faults.after(Step.INTENT)
        with pytest.raises(Crashed):
            faults.before(Step.CHECKPOINT)
    assert len(passed) == 2
    faults.before(Step.CHECKPOINT)


def test_a_failure_comes_as_often_as_asked() -> None:
    with armed(fail_at(Moment.BEFORE, Step.POLL, lambda: OSError("gone"), times=2)):
        for _ in range(2):
            with pytest.raises(OSError, match="gone"):
                faults.before(Step.POLL)
        faults.before(Step.POLL)


def test_a_pause_holds_one_thread_until_it_is_let_go() -> None:
    pause = Pause(Moment.BEFORE, Step.ROUND)
    with armed(pause) as passed:
        held = threading.Thread(target=faults.before, args=(Step.ROUND,))
        held.start()
        assert pause.reached.wait(10)
        faults.before(Step.ROUND)  # somebody else's
        assert held.is_alive()
        pause.released.set()
        held.join(10)
        assert not held.is_alive()
    assert len([passage for passage in passed if passage.step is Step.ROUND]) == 2


def test_a_connector_names_steps_of_its_own() -> None:
    upload = OwnStep("lake", "upload a data file")
    with armed(crash_at(Moment.AFTER, OwnStep("lake", "upload a data file"))) as passed:
        faults.before(upload, "part-1")
        faults.after(OwnStep("queue", "upload a data file"))
        with pytest.raises(Crashed, match=r"after upload a data file \(lake\)"):
            faults.after(upload)
    assert str(passed[0]) == "before upload a data file (lake): part-1"
