"""How far tasks are reaches the driver while they run."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.engine.progress_channel import ProgressReceiver, ProgressSender


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def test_what_tasks_read_is_summed_and_a_former_job_does_not_count() -> None:
    receiver = ProgressReceiver("127.0.0.1")
    former, current = receiver.next_job(), receiver.next_job()
    for address, rows in ((former, 1000), (current, 7), (current, 5)):
        sender = ProgressSender(address)
        sender.add(files=1, rows=rows)
        sender.close()
    assert eventually(lambda: receiver.counts() == (2, 12))
    receiver.job_ended()
    assert receiver.counts() == (0, 0), "they would be taken for the next job's first"
    assert receiver.next_job().job > current.job
    receiver.close()


def test_without_an_address_nothing_is_sent() -> None:
    sender = ProgressSender(None)
    sender.add(files=1, rows=1)
    sender.close()
