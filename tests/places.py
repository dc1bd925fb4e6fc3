"""Empty targets for many runs in this process: what the fixture ``place`` gives."""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.registry import open_sink
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target


class Place:
    """An empty target, again and again. ``mariadb`` is the server, ``None`` where the target is a DuckDB file."""

    def __init__(self, folder: Path, mariadb: MariaDb | None) -> None:
        self.mariadb = mariadb
        self._folder = folder
        self._count = 0
        self.takes_bags = open_sink(self.fresh()[1]).capabilities.bags

    def fresh(self) -> tuple[Target, str]:
        """Another empty target and its sink URI."""
        if self.mariadb is not None:
            self.mariadb.fresh()
            return MariaDbTarget(self.mariadb), self.mariadb.uri()
        self._count += 1
        target = DuckDbTarget(self._folder / f"target-{self._count}.duckdb")
        return target, target.uri
