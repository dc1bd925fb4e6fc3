"""How far tasks are reaches the driver while they run; what anybody else sends does not, and nothing of it ends a run."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.engine.progress_channel import ProgressAddress, ProgressReceiver, ProgressSender


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def told(receiver: ProgressReceiver) -> ProgressAddress:
    address = receiver.next_job()
    assert address is not None
    return address


def send(address: ProgressAddress, rows: int) -> None:
    sender = ProgressSender(address)
    sender.add(files=1, rows=rows)
    sender.close()


@pytest.fixture
def receiver() -> Iterator[ProgressReceiver]:
    made = ProgressReceiver("127.0.0.1")
    yield made
    made.close()


def test_what_tasks_read_is_summed_and_a_former_job_does_not_count(receiver: ProgressReceiver) -> None:
    former, current = told(receiver), told(receiver)
    for address, rows in ((former, 1000), (current, 7), (current, 5)):
        send(address, rows)
    assert eventually(lambda: receiver.counts() == (2, 12))
    receiver.job_ended()
    assert receiver.counts() == (0, 0), "they would be taken for the next job's first"


def test_without_an_address_nothing_is_sent() -> None:
    sender = ProgressSender(None)
    sender.add(files=1, rows=1)
    sender.close()


def test_only_who_knows_the_number_of_the_job_is_counted(receiver: ProgressReceiver) -> None:
    """Another user of the machine can send to the port, but has 2**64 numbers to try for each job."""
    jobs = {told(receiver).job for _ in range(50)}
    assert len(jobs) == 50
    assert max(jobs) > 1 << 58, "drawn from 64 bits; 50 of them are below 2**58 with a probability of 2**-300"
    current = told(receiver)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as neighbour:
        for guessed in (0, 1, 2, current.job ^ 1):
            neighbour.sendto(struct.pack("!QQQ", guessed, 5, 5), (current.host, current.port))
    send(current, 7)
    assert eventually(lambda: receiver.counts() == (1, 7))
    assert receiver.counts() == (1, 7)
    assert str(current.job) not in repr(current)


@pytest.mark.parametrize("length", [0, 1, 23, 25, 1000, 60_000])
def test_a_datagram_of_another_length_is_passed_over(receiver: ProgressReceiver, length: int) -> None:
    current = told(receiver)
    start = struct.pack("!QQQ", current.job, 5, 5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto((start + os.urandom(length))[:length], (current.host, current.port))
    send(current, 7)
    assert eventually(lambda: receiver.counts()[1] >= 7)
    assert receiver.counts() == (1, 7)


def test_figures_that_no_task_can_have_are_passed_over(receiver: ProgressReceiver) -> None:
    current = told(receiver)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(struct.pack("!QQQ", current.job, 1, (1 << 64) - 1), (current.host, current.port))
    send(current, 7)
    assert eventually(lambda: receiver.counts() == (1, 7))


@pytest.mark.parametrize("bind", ["203.0.113.1", "no.such.host.invalid", "x" * 300, "a..b"])
def test_an_address_that_cannot_be_bound_leaves_a_run_without_figures(bind: str) -> None:
    receiver = ProgressReceiver(bind)
    assert receiver.next_job() is None
    receiver.job_ended()
    assert receiver.counts() == (0, 0)
    receiver.close()


def test_a_socket_that_is_closed_leaves_a_run_without_figures(receiver: ProgressReceiver) -> None:
    address = told(receiver)
    receiver.close()
    assert receiver.next_job() is None
    send(address, 7)
    assert receiver.counts() == (0, 0)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300, "a..b"])
def test_a_task_that_cannot_reach_the_driver_goes_on(host: str) -> None:
    send(ProgressAddress(host, 9, 1), 7)


def test_tasks_reach_a_driver_by_another_name_than_the_address_that_it_binds() -> None:
    receiver = ProgressReceiver("127.0.0.1", "localhost")
    address = told(receiver)
    assert address.host == "localhost"
    receiver.close()


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
def test_an_address_of_ipv6_is_bound() -> None:
    receiver = ProgressReceiver("[::1]")
    send(told(receiver), 7)
    assert eventually(lambda: receiver.counts() == (1, 7))
    receiver.close()
