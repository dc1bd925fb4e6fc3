"""The work place of a run: what one of its steps leaves for another one, which may run on another machine.

It is a temporary folder where Spark is local, and a URL that driver and workers all reach where it is not. Everything of a run lies
below one name, which it alone has. The run removes it at its end, and the next run removes what killed runs left:

* in a folder it is the lock that tells that a run lives (``headrace.scratch``);
* in a store it is an object that the run writes again and again. A run that has not done so for five minutes, by the store's own
  clock, is over.

Keys are made by the program and never by what it reads: a name of a table or a file of the source has no place in them.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, NotFoundError

from headrace.errors import TransientError
from headrace.places.location import Location
from headrace.places.object_place import Place, named_place
from headrace.scratch import Scratch, open_private

_WHAT = "work place"
SETTING = "--work"
_RUN = re.compile(r"headrace-work-run-[0-9a-f]{16}")
_ALIVE = "alive"
"""The object by which a run shows that it lives. It is written before everything else of the run and removed after it."""
_KEY = re.compile(r"[0-9a-z][0-9a-z._-]*(/[0-9a-z][0-9a-z._-]*)*")
_BEAT = timedelta(seconds=30)
_SILENCE = timedelta(minutes=5)
_LAST_BEAT_SECONDS = 30.0


@dataclass(frozen=True)
class WorkPlace:
    """A run's part of the work place. It pickles, so that tasks can read and write; :class:`WorkLease` makes and removes it."""

    folder: Place
    """The folder or prefix of this run alone."""
    setting: str
    """What a user changes to have it elsewhere, for messages."""

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine reach it."""
        return self.folder.is_local

    @contextmanager
    def writing(self, key: str) -> Iterator[pa.NativeFile]:
        """A file to write to. Under its key it appears whole, at the end, in place of one that is there; or not at all.

        In a store it is held in memory until then. Raises TransientError.
        """
        _require_key(key)
        with self._reached():
            if not self.is_local:
                sink = pa.BufferOutputStream()
                yield sink
                obstore.put(self.folder.store(create=True), key, sink.getvalue().to_pybytes())
                return
            path = self._made(key)
            fresh = path.with_name(f"{path.name}#{secrets.randbits(63)}")
            try:
                open_private(fresh).close()
                with pa.OSFile(str(fresh), "wb") as file:
                    yield file
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)

    def write(self, key: str, *parts: bytes | pa.Buffer) -> None:
        """Writes a file whole, part after part. Raises TransientError."""
        with self.writing(key) as file:
            for part in parts:
                file.write(part)

    def open(self, key: str) -> pa.NativeFile:
        """A file to read and seek in: mapped into memory from a folder, fetched whole from a store.

        Raises TransientError, also for one that is not there: the cut is then taken again.
        """
        _require_key(key)
        with self._reached():
            if self.is_local:
                return pa.memory_map(str(self._path(key)), "r")
            return pa.BufferReader(pa.py_buffer(obstore.get(self.folder.store(create=True), key).bytes()))

    def read(self, key: str) -> pa.Buffer:
        """The bytes of a file, mapped or fetched as by :meth:`open`. Raises TransientError."""
        return self.open(key).read_buffer()

    def keys(self, below: str = "") -> list[str]:
        """The keys of all whole files, or of those below a folder; sorted. Raises TransientError."""
        with self._reached():
            return sorted(key for key in self.folder.keys(below) if _KEY.fullmatch(key) and key != _ALIVE)

    def remove(self, below: str) -> None:
        """Removes everything below a folder. What is gone already does no harm. Raises TransientError."""
        _require_key(below)
        with self._reached():
            if self.is_local:
                shutil.rmtree(self._path(below), ignore_errors=True)
            else:
                _delete(self.folder, self.folder.keys(below))

    def _path(self, key: str) -> Path:
        return Path(self.folder.location.path, key)

    def _made(self, key: str) -> Path:
        """The path of a key, with the folders above it but for the run's own.

        A task of a killed run must not make that again, which the next run has removed.
        """
        path = Path(self.folder.location.path)
        *above, name = key.split("/")
        for part in above:
            path /= part
            path.mkdir(mode=0o700, exist_ok=True)
        return path / name

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise _unusable(self.folder.location, self.setting, error) from None


class WorkLease:
    """What keeps a run's work place its own: made when it is first asked for, removed by :meth:`close`. For the driver alone."""

    def __init__(self, above: Place | None = None, setting: str = SETTING) -> None:
        """``above`` is the folder or prefix that runs have their parts in; ``None`` is the temporary folder."""
        self._above, self.setting = above, setting
        self._making = threading.Lock()
        self._scratch: Scratch | None = None
        self._held: Place | None = None
        self._ended = threading.Event()
        self._beating: threading.Thread | None = None

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine reach it."""
        return self._above is None or self._above.is_local

    @property
    def name(self) -> str:
        """Where it lies, for people; without secrets."""
        return self._above.location.place if self._above is not None else tempfile.gettempdir()

    def place(self) -> WorkPlace:
        """The run's part; a folder is made again when it was cleared away. Raises TransientError, DefinitionError."""
        with self._making:
            if self._above is None or self._above.is_local:
                return self._folder(None if self._above is None else Path(self._above.location.path))
            if self._held is None:
                self._held = self._prefix(self._above)
            return WorkPlace(self._held, self.setting)

    def following(self) -> LeasedPlace:
        """The run's part wherever it is by then, for what is used for longer than a step."""
        return LeasedPlace(self)

    def close(self) -> None:
        """Removes the run's part. What cannot be removed now is left to the next run."""
        with self._making:
            if self._scratch is not None:
                self._scratch.remove()
                self._scratch = None
            if self._held is not None:
                self._ended.set()
                if self._beating is not None:
                    self._beating.join(_LAST_BEAT_SECONDS)
                with suppress(BaseError, OSError):
                    _remove_run(self._held)
                self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _folder(self, parent: Path | None) -> WorkPlace:
        if self._scratch is not None and not self._scratch.path.is_dir():
            self._scratch.remove()
            self._scratch = None
        if self._scratch is None:
            try:
                self._scratch = Scratch.make("work", parent)
            except OSError as error:
                raise _unusable(Location.of_folder(str(parent or tempfile.gettempdir())), self.setting, error) from error
        return WorkPlace(Place(Location.of_folder(str(self._scratch.path)), _WHAT), self.setting)

    def _prefix(self, above: Place) -> Place:
        held = _run_below(above, f"headrace-work-run-{secrets.token_hex(8)}")
        try:
            _sweep(above, held)
        except (BaseError, OSError) as error:
            raise _unusable(above.location, self.setting, error) from None
        self._ended.clear()
        self._beating = threading.Thread(target=self._stay_alive, args=(above, held), name="headrace-work", daemon=True)
        self._beating.start()
        return held

    def _stay_alive(self, above: Place, held: Place) -> None:
        while not self._ended.wait(_BEAT.total_seconds()):
            # The run's own use of the place tells of one that cannot be reached.
            with suppress(BaseError, OSError):
                _sweep(above, held)


@dataclass(frozen=True)
class LeasedPlace:
    """The work place that a lease has at the moment, for the driver. What a task gets of it is the :class:`WorkPlace` itself.

    A folder that was cleared away is made again, so what was written may be gone: :meth:`keys` tells what is there.
    """

    lease: WorkLease

    def __reduce__(self) -> tuple[type[WorkPlace], tuple[Place, str]]:
        place = self.lease.place()
        return WorkPlace, (place.folder, place.setting)

    def write(self, key: str, *parts: bytes | pa.Buffer) -> None:
        """See :meth:`WorkPlace.write`."""
        self.lease.place().write(key, *parts)

    def read(self, key: str) -> pa.Buffer:
        """See :meth:`WorkPlace.read`."""
        return self.lease.place().read(key)

    def keys(self, below: str = "") -> list[str]:
        """See :meth:`WorkPlace.keys`."""
        return self.lease.place().keys(below)

    def remove(self, below: str) -> None:
        """See :meth:`WorkPlace.remove`."""
        self.lease.place().remove(below)


def open_work(location: str | None, setting: str = SETTING) -> WorkLease:
    """The work place that a path or a URL names, the temporary folder where none is named. Opens nothing yet.

    ``setting`` is what the user named it with. Raises DefinitionError.
    """
    return WorkLease(named_place(location, _WHAT) if location is not None else None, setting)


def _run_below(above: Place, name: str) -> Place:
    return Place(replace(above.location, path=f"{above.location.path}/{name}"), _WHAT)


def _sweep(above: Place, held: Place) -> None:
    """Shows that the run of ``held`` lives, and removes what runs left that have not done so for long."""
    held.put(_ALIVE, b"")
    now = _last_beat(held)
    if now is None:  # another run has just removed it, and will not twice
        return
    found = obstore.list_with_delimiter(above.store(create=True))["common_prefixes"]
    for name in (prefix.rstrip("/").rpartition("/")[2] for prefix in found):
        if _RUN.fullmatch(name) and not held.location.path.endswith(f"/{name}"):
            run = _run_below(above, name)
            last = _last_beat(run)
            if last is None or now - last > _SILENCE:
                _remove_run(run)


def _last_beat(run: Place) -> datetime | None:
    """By the store's clock."""
    with suppress(NotFoundError, FileNotFoundError):
        last: datetime = obstore.head(run.store(create=True), _ALIVE)["last_modified"]
        return last
    return None


def _remove_run(run: Place) -> None:
    _delete(run, [key for key in run.keys("") if key != _ALIVE])
    _delete(run, [_ALIVE])


def _delete(place: Place, keys: list[str]) -> None:
    with suppress(NotFoundError, FileNotFoundError):
        if keys:
            obstore.delete(place.store(create=True), keys)


def _require_key(key: str) -> None:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not a key of the work place")


def _unusable(location: Location, setting: str, error: Exception) -> TransientError:
    """With the first line of what a client says: the rest is a dump of its state."""
    reason = location.masked((str(error).splitlines() or [type(error).__name__])[0]).rstrip(".")
    mend = "Make room there" if location.is_local else "Check the store"
    return TransientError(
        f"Rows cannot be handed over in {location.place}: {reason}.", f"{mend}, or name another place with {setting}."
    )
