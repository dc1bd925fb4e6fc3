"""A run that goes on and on holds no more files, threads, memory and disk than it did, and its ledger stays as small as it was.

``tests/long_life.py`` lets runs live through a year, with Spark too.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from headrace.model.recent import KEPT, Recent
from headrace.sources.ticdc_storage.days import numbers_at
from living import LongRun, Shop, least, without_spark
from servers import MariaDb

KEPT_CUTS = 20
NEVER = timedelta(days=1000)


@dataclass(frozen=True)
class Pace:
    """How many cuts a day has, and how many blocks of Python's allocator a cut may leave behind: figures vary by some 200.

    Samples are taken at one time of the day, when the changefeed's folder holds as many files.
    """

    cuts: int
    blocks: int


PACES = {"blackhole": Pace(40, 3), "duckdb": Pace(9, 10), "mariadb": Pace(12, 8)}


class TestRun:
    """A run without Spark that lives through days of cuts."""

    @pytest.mark.pipeline
    @pytest.mark.parametrize("kind", ["blackhole", "duckdb", pytest.param("mariadb", marks=pytest.mark.server)])
    def test_it_holds_no_more_than_it_did(self, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        pace = PACES[kind]
        server: MariaDb | None = request.getfixturevalue("mariadb") if kind == "mariadb" else None
        shop = Shop(tmp_path / "feed", pace.cuts, timedelta(days=1), altered_every=NEVER, keyless=kind != "blackhole")
        begin = partial(without_spark, kept_cuts=KEPT_CUTS)
        with LongRun(tmp_path / "run", shop, begin, server=server, blackhole=kind == "blackhole") as run:
            run.live(5 * pace.cuts)  # the folder holds four days then, and the ledger as many cuts as it keeps
            samples = [run.live(pace.cuts) for _ in range(6)]
        before, held = least(samples[:2])["driver"], least(samples[-2:])["driver"]
        assert held.files <= before.files
        assert held.threads <= before.threads + 2  # object_store's own pool
        assert held.inner - before.inner < 4 * pace.cuts * pace.blocks
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
