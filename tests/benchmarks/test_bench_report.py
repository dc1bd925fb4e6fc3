"""What the bench says about its figures."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from benchmarks.report import RATE_UNIT, Measurement, median, percentile, print_table, write_json
from rich.console import Console


def test_a_rate_is_met_from_its_bound_on() -> None:
    assert Measurement("csv to MariaDB", 300_000, RATE_UNIT).is_met is True
    assert Measurement("csv to MariaDB", 299_999, RATE_UNIT).is_met is False


def test_a_time_is_met_up_to_its_bound() -> None:
    assert Measurement("stream to MariaDB: p95", 0.5, "s").is_met is True
    assert Measurement("stream to MariaDB: p95", 0.51, "s").is_met is False


def test_what_has_no_target_is_neither_met_nor_missed() -> None:
    assert Measurement("csv to nothing", 1, RATE_UNIT).is_met is None


def test_a_measurement_that_broke_is_not_met() -> None:
    assert Measurement("idle poll", 0, "ms", error="It broke.").is_met is False


@pytest.mark.parametrize(("value", "unit", "floor"), [(50, RATE_UNIT, 100), (4, "s", 2)])
def test_half_as_fast_as_the_floor_is_half_of_the_floor(value: float, unit: str, floor: float) -> None:
    assert Measurement("some", value, unit, floor).of_floor == 0.5


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 95), percentile([7.0], 95)) == (50.0, 95.0, 7.0)
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_table_and_json_tell_the_same(tmp_path: Path) -> None:
    measurements = [
        Measurement("csv to MariaDB", 250_000, RATE_UNIT, 500_000, {"run": 4.0}),
        Measurement("x", 0, "", error="Broken."),
    ]
    text = io.StringIO()
    print_table(Console(file=text, width=160), measurements)
    assert "250,000 changes/s" in text.getvalue()
    assert "50%" in text.getvalue()
    assert "NOT MET" in text.getvalue()
    assert "Broken." in text.getvalue()
    write_json(tmp_path / "result.json", {"cores": 2}, measurements)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["machine"] == {"cores": 2}
    assert written["measurements"][0]["of_floor"] == 0.5
    assert written["measurements"][0]["met"] is False
