"""A backlog twenty times as large as a cut may be takes the memory of a cut, not that of the backlog."""

from __future__ import annotations

import multiprocessing
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from following import Recorder
from headrace.engine.run_options import RunOptions
from headrace.model.table import Column
from headrace.model.tso import tso_from_datetime
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from upstreams import KEY, ORDERS, Changefeed

pytestmark = pytest.mark.pipeline

CUT = 2 << 20
FILES = 20
LETTERS = 400
ROWS = CUT // (LETTERS + 60)


def backlog(folder: Path, files: int) -> Changefeed:
    """So many files of a cut each, with text that no compression makes small."""
    changefeed = Changefeed(folder)
    upstream = changefeed.upstream
    upstream.create_database("shop")
    upstream.create_table(ORDERS, [KEY, Column("note", ColumnType(TypeKind.VARCHAR, length=LETTERS))])
    chance = np.random.default_rng(1)
    offsets = pa.py_buffer(np.arange(ROWS + 1, dtype=np.int32) * LETTERS)
    for number in range(files):
        letters = pa.py_buffer(chance.integers(97, 123, ROWS * LETTERS, dtype=np.uint8))
        ids = pa.array(np.arange(number * ROWS, (number + 1) * ROWS))
        rows = pa.table({"id": ids, "note": pa.StringArray.from_buffers(ROWS, offsets, letters)})
        upstream.advance(1000)
        assert 0.9 * CUT < changefeed.writer.bulk(ORDERS, rows, tso_from_datetime(upstream.now)) <= CUT
    upstream.advance(1000)
    upstream.checkpoint()
    return changefeed


def measured_run(changefeed: Changefeed, uri: str, max_cut: int = CUT) -> tuple[int, int]:
    """A run in a process of its own: how many cuts it took, and the most memory that it ever held, in bytes."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_run, args=(changefeed.uri, str(changefeed.toml), uri, max_cut, answers))
    process.start()
    process.join()
    assert process.exitcode == 0
    cuts, peak = answers.get()
    return cuts, peak


def _run(source: str, toml: str, sink: str, max_cut: int, answers: SimpleQueue[tuple[int, int]]) -> None:
    definition = Definition(source=source, sink=sink, changefeed=toml, options=RunOptions(once=True, max_cut=max_cut))
    display = Counting()
    assert PipelineRun(definition, display, LocalEngine()).run() == 0  # type: ignore[arg-type]
    # The peak of this process alone: what getrusage tells is inherited.
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    answers.put((display.cuts, int(line.split()[1]) << 10))


class Counting(Recorder):
    """Counts cuts."""

    cuts = 0

    def cut_finished(self, *arguments: object) -> None:
        self.cuts += 1


def test_memory_does_not_grow_with_the_backlog(tmp_path: Path) -> None:
    def uri(name: str) -> str:
        return f"duckdb://{tmp_path / name}.duckdb?memory-limit=24MB&threads=1"

    alone, small = measured_run(backlog(tmp_path / "small", 1), uri("small"))
    cuts, large = measured_run(backlog(tmp_path / "large", FILES), uri("large"))
    assert (alone, cuts) == (1, FILES)
    # At once it would take four times as much more as there is.
    assert large - small < FILES * CUT
    with duckdb.connect(str(tmp_path / "large.duckdb"), read_only=True) as target:
        assert target.sql("SELECT count(*), count(DISTINCT id) FROM shop.orders").fetchall() == [(FILES * ROWS, FILES * ROWS)]
