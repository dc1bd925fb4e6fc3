"""A run that goes on and on holds no more files, threads, memory and disk than it did, and its ledger stays as small as it was.

``tests/long_life.py`` lets runs live through a year, with Spark too.
"""

from __future__ import annotations

import tracemalloc
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from headrace.model.recent import KEPT, Recent
from headrace.sources.ticdc_storage.days import numbers_at
from living import LongRun, Shop, least, without_spark
from servers import MariaDb

DAY = 12  # cuts: samples are taken at one time of the day, when the folder holds as many files
WARM = 5 * DAY  # the folder holds four days, and the ledger as many cuts as it keeps
KEPT_CUTS = 20
NEVER = timedelta(days=1000)


class TestRun:
    """A run without Spark that lives through hundreds of cuts."""

    @pytest.fixture(params=["blackhole", "duckdb", pytest.param("mariadb", marks=pytest.mark.server)])
    def long_run(self, request: pytest.FixtureRequest, tmp_path: Path) -> LongRun:
        kind = request.param
        server: MariaDb | None = request.getfixturevalue("mariadb") if kind == "mariadb" else None
        shop = Shop(tmp_path / "feed", DAY, timedelta(days=1), altered_every=NEVER, keyless=kind != "blackhole")
        return LongRun(
            tmp_path / "run", shop, partial(without_spark, kept_cuts=KEPT_CUTS), server=server, blackhole=kind == "blackhole"
        )

    @pytest.mark.pipeline
    def test_it_holds_no_more_than_it_did(self, long_run: LongRun) -> None:
        with long_run:
            long_run.live(WARM)
            samples = [long_run.live(DAY) for _ in range(6)]
        before, held = least(samples[:2])["driver"], least(samples[-3:])["driver"]
        assert held.files <= before.files
        assert held.threads <= before.threads + 2  # object_store's own pool
        # 48 cuts: a sentence, or an entry of a dictionary, that each of them leaves behind would be three blocks and more.
        assert held.inner - before.inner < 3 * 4 * DAY
        assert samples[-1].ledger_rows <= samples[1].ledger_rows + 5
        assert samples[-1].position < samples[1].position * 1.3
        assert samples[-1].disk < samples[1].disk * 1.3 + 256


def test_what_is_known_of_sealed_days_takes_little_memory() -> None:
    """Each day makes another text of each stream, and thousands of them are remembered."""
    year, count = 365, 200
    texts = [f"2026-01-01:{','.join(str(50 + day % 7) for day in range(year + number))}" for number in range(count)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert [numbers_at(text, "2026-02-01") for text in texts] == [((1, 50 + 31 % 7),)] * count
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / count < 20 * (year + count)


def test_what_was_said_is_forgotten_in_time() -> None:
    said = Recent[int]()
    assert said.add(0)
    assert not said.add(0)
    assert all(said.add(number) for number in range(1, KEPT + 1))
    assert not said.add(KEPT)
    assert said.add(0)
