"""An S3 store that gives trouble: what is read is whole or an error, and the run goes on when the trouble is over.

The store is moto behind a proxy (``faulty_proxy``) that spoils a share of the answers, by seeds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from faulty_proxy import Fault, FaultyProxy, Kind, faulty_proxy
from following import Following, run_once
from harness import assert_state
from headrace.engine import loop
from headrace.errors import FencedError, SinkUnreachableError, SourceUnreachableError
from headrace.model.ledger import Decision, Verdict
from headrace.model.uri import parse_uri
from headrace.places import object_place
from headrace.sinks.base import LedgerUpdate
from headrace.sinks.file_ledger import FileLedger, open_file_ledger
from headrace.sources.ticdc_storage import stores
from headrace.sources.ticdc_storage.stores import Store, store_location
from servers import S3Server
from targets import DuckDbTarget
from upstreams import Changefeed, shop, shop_closes, shop_ends, shop_goes_on, shop_reopens

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

PATIENCE = 120.0
REFUSING = (Fault.ERROR, Fault.UNAVAILABLE, Fault.SLOW_DOWN)
LOSING = (Fault.CLOSED, Fault.LOST)
SHORTENING = (Fault.CUT, Fault.SHORT)
MEANINGLESS = (Fault.EMPTY, Fault.NO_CONTENT, Fault.HTML, Fault.NOT_FOUND)
CONTENT = b"0123456789" * 1000


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(loop, "_LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(loop, "_LOOK_PAUSE", 0.02)
    monkeypatch.setattr(loop, "_RETRY_STOPPED_EVERY", 0.1)
    monkeypatch.setattr(stores, "_SILENT_SECONDS", 1)
    monkeypatch.setattr(stores, "_TRIES", 1)  # the client pauses for seconds in between
    monkeypatch.setattr(object_place, "_RETRIES", {"max_retries": 1, "backoff": {"init_backoff": timedelta(milliseconds=10)}})
    logging.getLogger("werkzeug").setLevel(logging.ERROR)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.endpoint) as proxy:
        yield proxy


class Bucket(Changefeed):
    """A changefeed whose folder is in the store, and is read through the proxy."""

    def __init__(self, folder: Path, s3: S3Server, proxy: FaultyProxy) -> None:
        super().__init__(folder)
        self._s3, self._bucket = s3, s3.make_bucket()
        self._proxied = replace(s3, endpoint=proxy.endpoint)
        self._sent: dict[Path, bytes] = {}

    @property
    def uri(self) -> str:
        _, _, query = super().uri.partition("?")
        return f"{self._proxied.uri(self._bucket, 'cdc')}&{query}"

    def publish(self) -> int:
        """Uploads what is new, ``metadata`` last, and returns the checkpoint."""
        root, client = self.writer.root, self._s3.client()
        for path in sorted((p for p in root.rglob("*") if p.is_file()), key=lambda path: (path.name == "metadata", path)):
            content = path.read_bytes()
            if self._sent.get(path) != content:
                client.put_object(Bucket=self._bucket, Key=f"cdc/{path.relative_to(root).as_posix()}", Body=content)
                self._sent[path] = content
        return self.watermark


@pytest.fixture
def bucket(tmp_path: Path, s3: S3Server, proxy: FaultyProxy) -> Bucket:
    return Bucket(tmp_path / "feed", s3, proxy)


@pytest.fixture
def target(tmp_path: Path) -> DuckDbTarget:
    return DuckDbTarget(tmp_path / "target.duckdb")


READING: dict[str, tuple[Callable[[Store], object], object]] = {
    "read": (lambda store: store.read("t/1"), CONTENT),
    "read_buffer": (lambda store: store.read_buffer("t/1").to_pybytes(), CONTENT),
    "read_start": (lambda store: store.read_start("t/1", 500), CONTENT[:500]),
    "stat": (lambda store: store.stat("t/1").size, len(CONTENT)),  # type: ignore[union-attr]
    "entries": (lambda store: len(store.entries("", recursive=True).files), 5),
}


@pytest.mark.parametrize("fault", [*SHORTENING, Fault.UNAVAILABLE, Fault.LOST, Fault.SILENT])
def test_a_store_answers_whole_or_not_at_all(fault: Fault, s3: S3Server, proxy: FaultyProxy) -> None:
    name = s3.make_bucket()
    for number in range(1, 6):
        s3.client().put_object(Bucket=name, Key=f"p/t/{number}", Body=CONTENT)
    store = store_location(parse_uri(replace(s3, endpoint=proxy.endpoint).uri(name, "p"))).open()
    for what, (read, truth) in READING.items():
        assert read(store) == truth, what
    for what in READING if fault is not Fault.SILENT else ("entries",):
        read, truth = READING[what]
        with proxy.troubled(fault):
            try:
                assert read(store) == truth, what
                told = ""
            except SourceUnreachableError as error:
                told = str(error)
        assert told.startswith("Cannot read s3://") or what == "stat", what  # what is asked by HEAD has no body
    assert proxy.met


@pytest.mark.parametrize("faults", [REFUSING, LOSING, SHORTENING], ids=["refusing", "losing", "shortening"])
def test_a_changefeed_in_a_store_that_gives_trouble(
    faults: tuple[Fault, ...], bucket: Bucket, target: DuckDbTarget, proxy: FaultyProxy
) -> None:
    run = Following(bucket, target.uri)
    try:
        with proxy.troubled(*faults, share=0.1, seed=len(faults)):
            for part in (shop, shop_reopens, shop_goes_on):
                part(bucket, with_bag=True)
                run.wait_for(bucket.publish(), PATIENCE)
        with proxy.troubled(*faults):  # the client tries again by itself: of a tenth of the requests, the run may notice none
            run.wait_until(lambda: bool(run.display.failures), PATIENCE)
        for part in (shop_ends, shop_closes):
            part(bucket)
        shop(bucket, with_bag=True)
        run.wait_for(bucket.publish(), PATIENCE)
        run.wait_until(lambda: {str(p.table_id) for p in run.display.stopped} <= set(run.display.resumed), PATIENCE)
    finally:
        run.interrupt()
        run.ended()
    assert_state(target, bucket.state())
    assert {kind for _, kind in proxy.met} >= {Kind.LIST, Kind.GET, Kind.HEAD}


def test_a_changefeed_in_a_store_whose_listings_are_often_answered_without_content(
    bucket: Bucket, target: DuckDbTarget, proxy: FaultyProxy
) -> None:
    """What a gateway or a login page answers looks like the listing of an empty folder."""
    run = Following(bucket, target.uri)
    try:
        with proxy.troubled(*MEANINGLESS, share=0.3, seed=4, only=Kind.LIST):
            for part in (shop, shop_reopens, shop_goes_on):
                part(bucket, with_bag=True)
                run.wait_for(bucket.publish(), PATIENCE)
    finally:
        run.interrupt()
        run.ended()
    assert_state(target, bucket.state())
    assert {fault for fault, _ in proxy.met} == {*MEANINGLESS}


def test_a_store_that_is_down_is_waited_for_and_told(bucket: Bucket, target: DuckDbTarget, proxy: FaultyProxy) -> None:
    shop(bucket, with_bag=True)
    bucket.publish()
    with proxy.troubled(Fault.UNAVAILABLE):
        with pytest.raises(SourceUnreachableError, match="Cannot read s3://") as raised:
            run_once(bucket, target.uri)
        assert raised.value.exit_code == 4
        run = Following(bucket, target.uri)
        run.wait_until(lambda: len(run.display.failures) > 1, PATIENCE)
    run.wait_for(bucket.watermark, PATIENCE)
    run.interrupt()
    run.ended()
    assert all(reason.startswith("Cannot read s3://") for reason in run.display.failures)
    assert_state(target, bucket.state())


def test_a_schema_file_that_the_store_does_not_give_stops_its_table_until_it_does(
    bucket: Bucket, target: DuckDbTarget, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(bucket, with_bag=True)
    bucket.publish()
    assert run_once(bucket, target.uri) == 0
    known = {path.name for path in bucket.writer.root.rglob("schema_*.json")}
    shop_reopens(bucket, with_bag=True)
    bucket.publish()
    fresh = sorted(path for path in bucket.writer.root.rglob("schema_*.json") if path.name not in known)
    assert fresh
    proxy.fault = lambda request: Fault.DENIED if request.key.endswith(fresh[0].name) else None
    with monkeypatch.context() as patched:
        patched.setattr(loop, "_RETRY_STOPPED_EVERY", 60)  # a step takes longer than what a run that follows waits here
        assert run_once(bucket, target.uri) == 3
    run = Following(bucket, target.uri)
    try:
        run.wait_until(lambda: bool(run.display.stopped), PATIENCE)
        assert all(fresh[0].name in str(problem.place) for problem in run.display.stopped)
        proxy.fault = lambda _: None
        run.wait_until(lambda: {str(p.table_id) for p in run.display.stopped} <= set(run.display.resumed), PATIENCE)
    finally:
        run.interrupt()
        run.ended()
    assert not run.display.failures
    assert_state(target, bucket.state())


class Ledgers:
    """The ledger of one pipeline in the store, as it comes through the proxy."""

    def __init__(self, s3: S3Server, proxy: FaultyProxy) -> None:
        self.uri = replace(s3, endpoint=proxy.endpoint).uri(s3.make_bucket(), "ledger")

    def taken(self) -> FileLedger:
        ledger = open_file_ledger(self.uri)
        ledger.acquire("shop", "source", "fingerprint", 0)
        return ledger


@pytest.fixture
def ledgers(s3: S3Server, proxy: FaultyProxy) -> Ledgers:
    return Ledgers(s3, proxy)


@pytest.mark.parametrize("seed", range(2))
def test_a_ledger_takes_no_answer_that_was_lost_for_a_takeover(seed: int, ledgers: Ledgers, proxy: FaultyProxy) -> None:
    ledger = ledgers.taken()
    unsure = 0
    with proxy.troubled(*REFUSING, *LOSING, *SHORTENING, share=0.3, seed=seed):
        for checkpoint in range(1, 13):
            while True:  # as the loop does: after a failure it raises the attempt, and looks where things stand
                try:
                    state = ledger.peek("shop")
                    if state is None or state.checkpoint < checkpoint:
                        ledger.update(LedgerUpdate(checkpoint=checkpoint))
                    break
                except SinkUnreachableError:
                    unsure += 1
                    with suppress(SinkUnreachableError):
                        ledger.next_attempt()
    assert unsure
    assert {Fault.LOST, Fault.SHORT} <= {fault for fault, _ in proxy.met}
    state = open_file_ledger(ledgers.uri).peek("shop")
    assert state is not None
    assert (state.checkpoint, state.epoch) == (12, 1)
    ledgers.taken()
    with pytest.raises(FencedError):
        ledger.update(LedgerUpdate(checkpoint=13))


def test_a_step_whose_answer_was_lost_counts(ledgers: Ledgers, proxy: FaultyProxy) -> None:
    """The store repeats no conditional write by itself here: the run does not know, and finds out at its next step."""
    ledger = ledgers.taken()
    with proxy.troubled(Fault.LOST, only=Kind.PUT), suppress(SinkUnreachableError):
        ledger.update(LedgerUpdate(checkpoint=8))
    with proxy.troubled(Fault.LOST, only=Kind.LIST), pytest.raises(SinkUnreachableError):
        ledger.update(LedgerUpdate(checkpoint=9))
    ledger.next_attempt()
    state = ledger.peek("shop")
    assert state is not None
    assert (state.checkpoint, state.attempt, state.epoch) == (9, 1, 1)


@pytest.mark.parametrize("times", [1, 2, 100])
def test_a_ledger_that_is_listed_without_content_does_not_begin_anew(times: int, ledgers: Ledgers, proxy: FaultyProxy) -> None:
    ledger = ledgers.taken()
    ledger.decide("shop", Decision("1-a", Verdict.SKIP, ""))
    for checkpoint in range(1, 13):  # the first step is swept, so that it can be created again
        ledger.update(LedgerUpdate(checkpoint=checkpoint))
    left = [Fault.HTML] * times
    proxy.fault = lambda request: left.pop() if request.kind is Kind.LIST and left else None
    if times > 2:
        with pytest.raises(SinkUnreachableError, match="its listing lacks a file that was just written"):
            ledgers.taken()
        with pytest.raises(SinkUnreachableError, match="its listing lacks a file that was just written"):
            ledger.update(LedgerUpdate(checkpoint=13))
        left.clear()
    ledgers.taken()
    state = open_file_ledger(ledgers.uri).peek("shop")
    assert state is not None
    assert (state.checkpoint >= 12, state.epoch, set(state.decisions)) == (True, 2, {"1-a"})


def test_a_run_with_its_ledger_in_a_store_that_gives_trouble(tmp_path: Path, ledgers: Ledgers, proxy: FaultyProxy) -> None:
    changefeed = Changefeed(tmp_path / "feed")
    shop(changefeed, with_bag=True)
    run = Following(changefeed, "blackhole://", ledger=ledgers.uri)
    try:
        run.wait_for(changefeed.watermark, PATIENCE)
        with proxy.troubled(*REFUSING, *LOSING, *SHORTENING, share=0.3, seed=5):
            for part in (shop_reopens, shop_goes_on):
                part(changefeed, with_bag=True)
                run.wait_for(changefeed.watermark, PATIENCE)
    finally:
        run.interrupt()
        run.ended()
    assert any(reason.startswith("The ledger s3://") for reason in run.display.failures)
    state = open_file_ledger(ledgers.uri).peek("default")
    assert state is not None
    assert (state.checkpoint, state.epoch) == (changefeed.watermark, 1)
