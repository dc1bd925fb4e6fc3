"""The DuckDB file, opened for a cut or a single step and closed in between, so that people can query it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from headrace import faults
from headrace.errors import SinkUnreachableError, TransientError
from headrace.faults import Step
from headrace.own_paths import require_own_file
from headrace.sealed_duckdb import open_duckdb, seal

# The file is attached under a name that no schema has. By default a catalogue is named after its file, and "shop" would be
# ambiguous in shop.duckdb.
CATALOG = "headrace$target"
_LOCK_SIGNS = ("could not set lock", "conflicting lock", "already attached", "being used by another process")
_RETRY_SECONDS = 0.1
_SETTLED_NS = 1_000_000_000
"""File times are coarse: within a second, a file may be written twice with the same time."""
FileMark = tuple[tuple[int, int, int], ...]
"""Inode, size in bytes, and modification time in ns of a file and of its write-ahead log."""
FileId = tuple[int, int]
"""Device and inode. Another file that is moved to the same path has different ones."""
# DuckDB's errors about a statement or its values. All others (disk, memory, interruption) are not about the table.
REFUSALS = (
    duckdb.IntegrityError,
    duckdb.DataError,
    duckdb.ProgrammingError,
    duckdb.NotSupportedError,
    duckdb.DependencyException,
)


class Session:
    """One open connection, with the identity of its file. A ``headrace.sinks.sql_ledger.SqlSession``."""

    def __init__(self, connection: Any, file: FileId | None = None) -> None:
        self.connection, self.file = connection, file

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Runs a statement with ``?`` placeholders and returns its rows."""
        cursor = self.connection.execute(statement, list(parameters))
        return list(cursor.fetchall()) if cursor.description else []

    @contextlib.contextmanager
    def arrow(self, name: str, data: Any) -> Iterator[None]:
        """Registers an Arrow table (a ``pyarrow.Table``) under a name from which statements can read."""
        self.connection.register(name, data)
        try:
            yield
        finally:
            # If the statement failed, unregistering fails, too, and would hide the error.
            with contextlib.suppress(duckdb.Error):
                self.connection.unregister(name)


@dataclass
class Database:
    """The file. ``patience`` is how long (seconds) opening waits for another process to release its lock on the file."""

    path: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    patience: float = 10.0
    _cut: Session | None = None

    def begin_cut(self) -> None:
        """Opens the file and a transaction that lasts until :meth:`commit_cut`. Raises TransientError, SinkUnreachableError."""
        self.abandon_cut()
        session = self._open(read_only=False)
        session.execute("BEGIN TRANSACTION")
        self._cut = session

    def commit_cut(self) -> None:
        """Commits and closes. Raises TransientError if the commit failed; then nothing of the cut is in the file."""
        session, self._cut = self._cut, None
        if session is None:
            return
        try:
            self._commit(session)
        except duckdb.Error as error:
            raise TransientError(f"The cut could not be committed to {self.path}: {_first_line(error)}") from error
        finally:
            session.connection.close()

    def interrupt(self) -> None:
        """Makes the statement that runs in the open cut fail. Called from another thread."""
        session = self._cut
        if session is not None:
            session.connection.interrupt()

    def abandon_cut(self) -> None:
        """Rolls an open cut back and closes the file."""
        session, self._cut = self._cut, None
        if session is not None:
            session.connection.close()  # closing rolls back, also a transaction that an error has aborted

    @property
    def in_cut(self) -> bool:
        return self._cut is not None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """The session of the open cut, which stays open; otherwise a transaction of its own.

        Raises TransientError if a statement fails. The transaction is then lost, and the open cut with it.
        """
        own = None if self._cut is not None else self._open(read_only=False)
        session = self._cut or own
        assert session is not None
        try:
            if own is not None:
                own.execute("BEGIN TRANSACTION")
            yield session
            if own is not None:
                self._commit(own)
        except duckdb.Error as error:
            raise TransientError(f"DuckDB failed to write {self.path}: {_first_line(error)}") from error
        finally:
            if own is not None:
                own.connection.close()

    def _commit(self, session: Session) -> None:
        """Raises TransientError if another file is at the path by now.

        DuckDB opens its log by the path, so the log would be beside the other file. That file would then be changed, or could not
        be opened any more.
        """
        faults.before(Step.DUCKDB_COMMIT)
        if session.file != _file_id(self.path):
            raise TransientError(
                f"The DuckDB file {self.path} was replaced while a transaction was open; the transaction is repeated."
            )
        session.execute("COMMIT")
        faults.after(Step.DUCKDB_COMMIT)

    def mark(self) -> FileMark | None:
        """Equal as long as the file is not written; ``None`` if that cannot be determined, because it was written a moment ago."""
        found = []
        for path in (self.path, self._log):
            with contextlib.suppress(OSError):
                known = path.stat()
                found.append((known.st_ino, known.st_size, known.st_mtime_ns))
        newest = max((modified for _, _, modified in found), default=0)
        return tuple(found) if found and time.time_ns() - newest > _SETTLED_NS else None

    @contextlib.contextmanager
    def reading(self, patience: float | None = None) -> Iterator[Session | None]:
        """A read-only session; ``None`` if there is no file yet. ``patience`` (seconds): see :class:`Database`."""
        if self._cut is not None:
            yield self._cut
            return
        self._require_own()
        if not self.path.exists():
            yield None
            return
        session = self._open(read_only=True, patience=patience)
        try:
            yield session
        finally:
            session.connection.close()

    def _open(self, *, read_only: bool, patience: float | None = None) -> Session:
        until = time.monotonic() + (self.patience if patience is None else patience)
        while True:
            try:
                return self._attach(read_only=read_only)
            except duckdb.Error as error:
                locked = any(sign in str(error).lower() for sign in _LOCK_SIGNS)
                if not locked:
                    raise SinkUnreachableError(
                        f"The DuckDB file {self.path} cannot be opened: {_first_line(error)}",
                        "Check its folder, its permissions, and the version that wrote it.",
                    ) from error
                if time.monotonic() >= until:
                    raise TransientError(
                        f"The DuckDB file {self.path} is locked by another process: {_first_line(error)}",
                        "Close the program that has it open. A run of Headrace has it open while it applies a cut; one that hangs "
                        "can be killed, and leaves nothing behind.",
                    ) from error
            time.sleep(_RETRY_SECONDS)

    def _attach(self, *, read_only: bool) -> Session:
        # Data beyond the memory limit go to the place that DuckDB would use if the file were the main one.
        self._require_own()
        connection = open_duckdb(settings={"temp_directory": f"{self.path}.tmp", **self.settings})
        try:
            connection.execute("SET TimeZone = 'UTC'")
            path = str(self.path).replace("'", "''")
            before = _file_id(self.path)
            connection.execute(f"ATTACH '{path}' AS \"{CATALOG}\"" + (" (READ_ONLY)" if read_only else ""))
            connection.execute(f'USE "{CATALOG}"')
            # Statements from the source's schema changes run here, and statements written by a person.
            seal(connection)
        except BaseException:
            connection.close()
            raise
        return Session(connection, before or _file_id(self.path))

    def _require_own(self) -> None:
        """Raises DefinitionError if others can put files beside this one, and SinkUnreachableError if that cannot be determined.

        DuckDB opens the log beside the file by name, recreates it at commits and removes it repeatedly, and puts rows into a folder
        beside the file. It uses whatever is there at that time, whoever created it.
        """
        try:
            require_own_file(self.path, "DuckDB file")
        except OSError as error:
            raise SinkUnreachableError(f"The DuckDB file {self.path} cannot be opened: {error.strerror or error}.") from None

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}.wal")


def _file_id(path: Path) -> FileId | None:
    """``None`` if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".") + "."
