"""What a storage sink wrote, as Headrace's own storage source reads it."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import duckdb

from headrace.model.table import TableSchema
from headrace.pipeline.registry import open_sink, open_source
from headrace.testing.memory_server import Server
from headrace.testing.memory_sink import CAPABILITIES, MemorySink
from headrace.testing.memory_source import MemoryStream
from headrace.testing.sink_runs import SinkRuns, SinkUnderTest, SourceUnderTest, Told


def read_again(uri: str, folder: Path, server: Server | None = None) -> tuple[Server, Told]:
    """Runs the changes that the folder of ``uri`` holds into a server in memory. ``folder`` is for the run's own files."""
    server = server or Server()
    target = SinkUnderTest(lambda: MemorySink(server, CAPABILITIES["nothing atomic"]), lambda _: ())
    return server, SinkRuns(target, folder, _source(uri)).run()


class StorageReader:
    """A pipeline that follows the target: each :meth:`read` goes on where the last one ended.

    So it would show files that change after they were read. The server in memory has no partitions, so DuckDB reads the tables that
    have some, and begins with the first file.
    """

    def __init__(self, root: Path, parameters: str, folder: Path) -> None:
        """``folder`` is for the files of the pipelines."""
        self._root, self._folder = root, folder
        self._uri = f"{root.as_uri()}?{parameters}"
        self._server = Server()
        self._duckdb: Path | None = None

    def read(self, schema: TableSchema) -> Iterable[Mapping[str, object]]:
        """The rows of a table. Requires that no table stops."""
        if self._duckdb is None:
            _, told = read_again(self._uri, self._folder, self._server)
            if not any("does not support partition" in problem.message for problem in told.stopped):
                assert not told.stopped, [problem.sentence() for problem in told.stopped]
                return list(self._server.contents.tables[schema.table_id].rows.values())
            self._duckdb = self._folder / f"{uuid.uuid4().hex}.duckdb"
        target = SinkUnderTest(lambda: open_sink(f"duckdb://{self._duckdb}?unsupported=text"), lambda _: ())
        told = SinkRuns(target, self._folder, _source(self._uri)).run()
        assert not told.stopped, [problem.sentence() for problem in told.stopped]
        with duckdb.connect(str(self._duckdb)) as connection:
            found = connection.execute(f'SELECT * FROM "{schema.table_id.database}"."{schema.table_id.table}"')
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def saved(self) -> Callable[[], None]:
        """For ``SinkUnderTest.save``. Readers begin anew when the target was put back."""
        put_back = saved_folder(self._root)

        def begin_anew() -> None:
            put_back()
            self._server, self._duckdb = Server(), None

        return begin_anew


def _source(uri: str) -> SourceUnderTest:
    return SourceUnderTest(lambda: open_source(uri).event_source, MemoryStream())


def saved_folder(root: Path) -> Callable[[], None]:
    """Copies a folder, and returns a function that puts the copy back, as from a backup."""
    copy = root.with_name(f"{root.name}-saved")
    shutil.copytree(root, copy)

    def put_back() -> None:
        shutil.rmtree(root)
        shutil.copytree(copy, root)

    return put_back
