"""What is a connector's own is said by the connector: neither the engine nor the command knows its words."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from headrace.engine.write_task import _equal_in_streams, _missing_old_images
from headrace.model.advice import SourceAdvice
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.advice import advice_for
from headrace.sources.ticdc_storage.options import Protocol

SOURCE = Path(headrace.__file__).parent
SETTINGS = ("sink.csv", "include-commit-ts", "enable-tidb-extension", "output-old-value", "across-nodes", "output-handle-key")
OWN = "sinks/storage/output.py"
"""The storage sink's own settings, which have the same names as TiCDC's."""
T = TableId("test", "t")


@pytest.mark.parametrize("package", ["engine", "cli", "pipeline", "sinks", "model"])
def test_no_setting_of_a_source_is_named(package: str) -> None:
    named = [
        f"{path.relative_to(SOURCE)}: {setting}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        if path != SOURCE / OWN
        for setting in SETTINGS
        if setting in path.read_text(encoding="utf-8")
    ]
    assert named == []


def test_hints_hold_what_the_source_advises() -> None:
    csv, canal = advice_for(Protocol.CSV), advice_for(Protocol.CANAL_JSON)
    assert _missing_old_images(T, csv).hint == f"{csv.old_rows} Or give the table a primary key."
    assert _missing_old_images(T, canal).hint == "Give the table a primary key."
    assert "Or set enable-table-across-nodes = false" in _equal_in_streams(T, csv).hint
    assert _equal_in_streams(T, SourceAdvice()).hint == "Give the table a primary key."
