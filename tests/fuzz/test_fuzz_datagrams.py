"""Whatever reaches the port that tasks send their progress to, the receiver goes on and counts what its own tasks say."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest

from fuzzing import damaged, fuzz
from headrace.engine.progress_channel import ProgressAddress, ProgressReceiver, ProgressSender

pytestmark = pytest.mark.long

PIECES = (b"\x00", b"\xff" * 8, b"\x00" * 24, b"{", b"\n", b"9" * 5000)
_BETWEEN = 500  # datagrams; the receiver's buffer takes as many small ones
_LONGEST = 60_000  # bytes: the network takes no longer ones


@pytest.fixture
def receiver() -> Iterator[ProgressReceiver]:
    receiver = ProgressReceiver("127.0.0.1")
    yield receiver
    receiver.close()


def said(address: ProgressAddress, rows: int) -> bytes:
    """What a task says to this address, as bytes: they go to a port of ours."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as ear:
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(5)
        sender = ProgressSender(replace(address, port=ear.getsockname()[1]))
        sender.add(files=1, rows=rows)
        sender.close()
        return ear.recv(65_536)


def counted(receiver: ProgressReceiver, address: ProgressAddress) -> bool:
    """Whether the receiver takes what a task of this job says; a datagram may get lost, so it is said again."""
    for _ in range(50):
        before = receiver.counts()
        sender = ProgressSender(address)
        sender.add(files=1, rows=5)
        sender.close()
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            if receiver.counts() != before:
                return True
            time.sleep(0.001)
    return False


def test_nothing_that_is_sent_ends_the_receiver(receiver: ProgressReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    address = receiver.next_job()
    whole = [said(address, rows) for rows in (0, 1, 2**40)] + [said(replace(address, job=address.job + 1), 7)]
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as stranger:
        sent = 0

        def datagram(chance: Random) -> bytes:
            if chance.random() < 0.1:
                return chance.randbytes(chance.randrange(100))
            return damaged(chance, chance.choice(whole), PIECES)

        def send(data: bytes) -> None:
            nonlocal address, sent
            stranger.sendto(data[:_LONGEST], (address.host, address.port))
            sent += 1
            if sent % _BETWEEN == 0:
                files, rows = receiver.counts()
                assert files >= 0
                assert rows >= 0
                address = receiver.next_job()  # as the loop does: figures that somebody made up end with their job
                assert counted(receiver, address), "it does not count any more"

        fuzz(5 * _BETWEEN, datagram, send)
    assert counted(receiver, receiver.next_job())
    assert raised == []
