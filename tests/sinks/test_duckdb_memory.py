"""A cut that is larger than the memory DuckDB may use is applied all the same, as one transaction."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from headrace.cli.display import RunDisplay
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from headrace.testing.ticdc_writer import TicdcWriter

pytestmark = pytest.mark.long

TABLE = TableId("shop", "orders")
COLUMNS = (
    Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),
    Column("note", ColumnType(TypeKind.VARCHAR, length=400)),
)
SCHEMA = TableSchema(TABLE, COLUMNS, handle_key=("id",))
ROWS = 100_000
MEMORY = "20MB"


def orders(seed: int) -> pa.Table:
    """30 MB of text that no compression makes small."""
    letters = np.random.default_rng(seed).integers(97, 123, ROWS * 300, dtype=np.uint8)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * 300
    notes = pa.StringArray.from_buffers(ROWS, pa.py_buffer(offsets), pa.py_buffer(letters))
    return pa.table({"id": pa.array(np.arange(ROWS)), "note": notes})


def catch_up(writer: TicdcWriter, sink: str) -> int:
    definition = Definition(source=writer.uri, sink=sink, options=RunOptions(once=True))
    with RunDisplay(make_output(json=False)) as display:
        return PipelineRun(definition, display, LocalEngine()).run()  # type: ignore[arg-type]


def test_a_cut_larger_than_duckdbs_memory_is_applied(tmp_path: Path) -> None:
    writer = TicdcWriter(tmp_path / "source", "csv", include_commit_ts=True)
    writer.schema_change(TABLE, 100, "CREATE TABLE `orders` (`id` INT PRIMARY KEY, `note` VARCHAR(400))", SCHEMA, 3)
    file = tmp_path / "target.duckdb"
    for seed, operation in enumerate(("I", "U")):
        rows = orders(seed)
        size = writer.bulk(TABLE, rows, 200 + 200 * seed, operation)
        assert size > 30_000_000
        writer.checkpoint(300 + 200 * seed)
        assert catch_up(writer, f"duckdb://{file}?memory-limit={MEMORY}&threads=1") == 0
        with duckdb.connect(str(file), read_only=True) as found:
            kept = found.sql("SELECT id, note FROM target.shop.orders ORDER BY id").to_arrow_table()
        assert kept.column("note").combine_chunks().to_pylist() == rows.column("note").combine_chunks().to_pylist()
    assert not list(tmp_path.glob("target.duckdb.*")), "what was put on disk for a while is gone"
