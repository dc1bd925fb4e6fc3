"""Figures, their targets, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Target:
    """A bound. ``at_least``: larger figures are better."""

    bound: float
    at_least: bool = True

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


RATE_UNIT = "changes/s"
# "How fast" of the project's goals: on 2 cores, warm.
TARGETS: Mapping[str, Target] = {
    "csv to MariaDB": Target(300_000),
    "csv to MariaDB without LOCAL": Target(100_000),
    "csv to DuckDB": Target(400_000),
    "canal-json to MariaDB": Target(200_000),
    "canal-json to DuckDB": Target(400_000),
    "tables to MariaDB: rows": Target(10, at_least=False),
    "tables to DuckDB: rows": Target(10, at_least=False),
    "stream to MariaDB: p95": Target(0.5, at_least=False),
    "stream to DuckDB: p95": Target(0.5, at_least=False),
    "idle poll": Target(20, at_least=False),
    "idle poll: Spark jobs": Target(0, at_least=False),
    "binlog, 1 row a transaction: against protobuf": Target(5),
    "binlog, 10 rows a transaction: against protobuf": Target(5),
    "binlog, 1000 rows a transaction: against protobuf": Target(5),
    "canal-json topic against files": Target(70),
    "binlog topic against files": Target(70),
    "one row of a topic against files: p95": Target(2, at_least=False),
    "avro: decoding against files": Target(40),
    "decode canal-json: against files": Target(90),
    "decode open-protocol: against files": Target(50),
    "decode simple: against files": Target(50),
    "decode debezium: against files": Target(40),
    "decode debezium with schema: against files": Target(40),
    "tracker: batches against single calls": Target(10),
    "tracker: memory": Target(2, at_least=False),
    "detector, 1 % conflicts: against union-set": Target(1),
    "detector, 10 % conflicts: against union-set": Target(1),
    "detector, 50 % conflicts: against union-set": Target(1),
    "detector, 1 % conflicts, CPU: against union-set": Target(1),
    "detector, 10 % conflicts, CPU: against union-set": Target(1),
    "detector, 50 % conflicts, CPU: against union-set": Target(1),
    "memory, topic of 10M against 1M": Target(1.5, at_least=False),
    "memory of 10M against 1M, MariaDB": Target(1.5, at_least=False),
    "memory of 10M against 1M, DuckDB": Target(1.5, at_least=False),
    "memory of 50M against 1M, MariaDB": Target(1.5, at_least=False),
    "memory of 50M against 1M, DuckDB": Target(1.5, at_least=False),
}


@dataclass(frozen=True)
class Measurement:
    """One figure. ``floor``: what the machine gives without Headrace, in the same unit; ``details``: seconds or MiB by name."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def target(self) -> Target | None:
        return TARGETS.get(self.name)

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; ``None`` without one."""
        if self.target is None:
            return None
        return not self.error and self.target.is_met(self.value)

    @property
    def of_floor(self) -> float | None:
        """How much of the floor's speed is reached, 1.0 being all of it."""
        if not self.floor or not self.value:
            return None
        return self.value / self.floor if self.unit == RATE_UNIT else self.floor / self.value

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "floor": self.floor,
            "of_floor": self.of_floor,
            "target": self.target.bound if self.target else None,
            "met": self.is_met,
            "details": dict(self.details),
            "error": self.error,
        }


def median(values: Sequence[float]) -> float:
    """The value in the middle; of an even number the higher of the two."""
    return sorted(values)[len(values) // 2]


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def print_table(console: Console, measurements: Sequence[Measurement]) -> None:
    """One line a figure: value, floor, target, and where the time or the memory went."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "measured", "of the floor", "target", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_column("details")
    for m in measurements:
        met = {None: "", True: "met", False: "[bold]NOT MET[/]"}[m.is_met]
        share = f"{m.of_floor:.0%}" if m.of_floor is not None else ""
        value = m.error if m.error else f"{_figure(m.value)} {m.unit}"
        table.add_row(m.name, value, share, _bound(m.target), met, _details(m.details))
    console.print(table)


def _figure(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _bound(target: Target | None) -> str:
    if target is None:
        return ""
    return f"{'≥' if target.at_least else '≤'} {target.bound:,g}"


def _details(details: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_figure(value)}" for name, value in details.items())


def write_json(path: Path, machine: Mapping[str, object], measurements: Sequence[Measurement]) -> None:
    """Everything in one document."""
    document = {"machine": dict(machine), "measurements": [m.as_json() for m in measurements]}
    path.write_text(json.dumps(document, indent=2) + "\n")
