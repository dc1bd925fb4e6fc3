"""Payloads of the exchange in files, where read and write tasks run on one machine.

Spark copies each payload several times on its way: to the JVM, into its row format, through compression into a shuffle file, and
back. On one machine each read task writes its large payloads into a file, and only their places go through Spark. The write tasks
map the files into memory.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from headrace.errors import JobFailedError

LEAST_BYTES = 64 << 10
"""Smaller batches go through Spark, because a file costs more than they do."""


@dataclass(frozen=True, slots=True)
class PayloadPlace:
    """Where a payload lies: the file's path, and the offset and the size in bytes."""

    file: str
    offset: int
    size: int


class PayloadFile:
    """The payloads of one read task. The file is created for the first one, with mode 0600. Without a ``folder`` it takes none."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / uuid.uuid4().hex
        self._least = LEAST_BYTES if folder else math.inf
        self._out: pa.NativeFile | None = None

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Whether the batch is large enough to go into the file."""
        return int(batch.nbytes) >= self._least

    def put(self, batch: pa.RecordBatch) -> PayloadPlace:
        """Writes a batch as an Arrow IPC stream. Raises JobFailedError if the file cannot be written."""
        try:
            if self._out is None:
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                self._out = pa.OSFile(str(self._path), "wb")
            start = self._out.tell()
            with pa.ipc.new_stream(self._out, batch.schema) as writer:
                writer.write_batch(batch)
            return PayloadPlace(str(self._path), start, self._out.tell() - start)
        except OSError as error:
            raise _unwritten(self._path.parent, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Ends the file. If the task failed, its next attempt writes another one, so the file is removed.

        Raises JobFailedError if the file cannot be written.
        """
        if self._out is None:
            return
        try:
            self._out.close()
        except OSError as unwritten:
            raise _unwritten(self._path.parent, unwritten) from unwritten
        finally:
            if kind is not None:
                self._path.unlink(missing_ok=True)


def read_payload(place: PayloadPlace) -> pa.Buffer:
    """The payload, without a copy, and without keeping the file open. Raises JobFailedError if the file does not have it."""
    try:
        with pa.memory_map(place.file) as mapped:
            mapped.seek(place.offset)
            found = mapped.read_buffer(place.size)
    except OSError as error:
        raise _lost(place, error.strerror or str(error)) from error
    if found.size != place.size:
        raise _lost(place, "it is cut off")
    return found


@contextmanager
def payload_folder(parent: Path | None) -> Iterator[str]:
    """A folder for the payloads of one job in ``parent``, with mode 0700, removed when the job ends; empty without a ``parent``.

    Tasks that have a file mapped can read it to its end. Raises JobFailedError.
    """
    if parent is None:
        yield ""
        return
    try:
        folder = tempfile.mkdtemp(prefix="payloads-", dir=parent)
    except OSError as error:
        raise _unwritten(parent, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unwritten(folder: Path, error: OSError) -> JobFailedError:
    told = f"Rows for the write tasks cannot be written to {folder}: {error.strerror or error}."
    return JobFailedError(told, "Make room there, or name another folder with --spark spark.local.dir.")


def _lost(place: PayloadPlace, reason: str) -> JobFailedError:
    told = f"Rows for the write tasks cannot be read from {place.file}: {reason}."
    return JobFailedError(told, "Nothing but Headrace may change files there while it runs.")
