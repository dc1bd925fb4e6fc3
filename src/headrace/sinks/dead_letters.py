"""The dead-letter folder: one JSON file for each record that cannot be applied, kept until it is replayed.

``<folder>/<pipeline>/<database>/<table>/<name>.json``. A repeated cut writes the same file names again. TSOs are written as
strings, because as numbers they are too large for most JSON readers.

Letters that no longer count are kept for a while in the subfolder ``replayed``, since a restored backup or a failover may bring
back a ledger that counts them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256

import obstore
import pyarrow as pa
from obstore.store import ObjectStore

from headrace import faults
from headrace.errors import DefinitionError, SinkUnreachableError
from headrace.faults import Step
from headrace.model.letters import Letter
from headrace.model.outcome import Problem
from headrace.model.place import fields_of, place_from
from headrace.model.table import TableId, TableSchema
from headrace.model.writable_text import as_utf8, writable
from headrace.places.object_place import Place, folder_name, ignoring_absence, open_place

MOST_LETTERS = 1_000
"""The default maximum of records of a table that a cut may leave out."""
KEPT_REPLAYED = timedelta(days=30)
"""How long replayed letters are kept: a restored ledger may be that old."""
_FORMAT = 1
_SUFFIX = ".json"
_REPLAYED = "replayed"
_MARK = "listed"
"""The name of an object that is in a folder while it is listed to be sure. It is no letter."""
_LONGEST_FOLDER = 200
_THREADS = 16


def open_dead_letters(location: str, pipeline: str, most: int = MOST_LETTERS) -> DeadLetters:
    """The dead letters of a pipeline, in a folder or under a prefix given as for a file ledger. Raises DefinitionError."""
    return DeadLetters(open_place(location, "dead-letter folder"), pipeline, most)


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of one pipeline. Picklable, so that tasks can write them.

    ``most`` is the maximum number of letters for one table in a cut.
    """

    place: Place
    pipeline: str
    most: int

    def location(self, table_id: TableId) -> str:
        """The place of the table's letters, without secrets."""
        return f"{self.place.location.url}/{self._prefix(table_id)}"

    def put(self, letters: Collection[Letter]) -> tuple[str, ...]:
        """Writes letters; returns their names when all are durable. Raises SinkUnreachableError."""
        if not letters:
            return ()
        faults.before(Step.LETTERS_PUT)

        def put(letter: Letter) -> str:
            self.place.put(_path(self._prefix(letter.table_id), letter.name), as_utf8(letter_to_json(letter)))
            return letter.name

        with self.place.reached():
            self.place.store(create=True)  # once, and not by all threads
            with ThreadPoolExecutor(min(_THREADS, len(letters))) as pool:
                names = tuple(pool.map(put, letters))
        faults.after(Step.LETTERS_PUT)
        return names

    def names(self, table_id: TableId) -> list[str]:
        """The names of the table's letters, sorted. Raises SinkUnreachableError."""
        return sorted(self._written(self._prefix(table_id)))

    def confirmed_names(self, table_id: TableId) -> list[str]:
        """As :meth:`names`, of a listing that certainly shows what is there. Raises SinkUnreachableError, also if it does not."""
        return sorted(self._confirmed(self._prefix(table_id)))

    def of(self, table_id: TableId) -> dict[str, Letter]:
        """The table's letters by name.

        Raises SinkUnreachableError, also if the store does not list what is there, and DefinitionError for a file that is not a
        letter.
        """
        return self._read(self._prefix(table_id))

    def replayed(self, table_id: TableId) -> dict[str, Letter]:
        """The kept letters that no longer count, by name. Raises as :meth:`of`."""
        return self._read(self._replayed(table_id))

    def set_aside(self, table_id: TableId, names: Iterable[str]) -> None:
        """Moves letters to the kept ones that no longer count. If a letter is there already, its time starts again.

        Missing letters are ignored. Raises SinkUnreachableError.
        """
        faults.before(Step.LETTERS_REMOVED)
        counted, kept = self._prefix(table_id), self._replayed(table_id)
        with self.place.reached():
            store = self.place.store(create=False)
            for name in names if store else ():
                for folder in (kept, counted):
                    with ignoring_absence():
                        if not self.place.is_file(_path(folder, name)):
                            continue
                        content = obstore.get(store, _path(folder, name)).bytes()
                        self.place.put(_path(kept, name), bytes(content))
                with ignoring_absence():
                    obstore.delete(store, _path(counted, name))
        faults.after(Step.LETTERS_REMOVED)

    def discard(self, table_id: TableId) -> int:
        """Removes all letters of the table, with the replayed ones. Returns how many counted. Raises SinkUnreachableError.

        It is also raised if the store does not list what is there, since letters would stay that no longer count.
        """
        faults.before(Step.LETTERS_REMOVED)
        found = self.confirmed_names(table_id)
        self._remove(self._prefix(table_id), found)
        self._remove(self._replayed(table_id), self._confirmed(self._replayed(table_id)))
        faults.after(Step.LETTERS_REMOVED)
        return len(found)

    def forget_replayed(self, table_id: TableId, before: datetime) -> None:
        """Removes the letters that were replayed before this time. Raises SinkUnreachableError."""
        folder = self._replayed(table_id)
        self._remove(folder, [name for name, written in self._written(folder).items() if written < before])

    def too_many(self, table_id: TableId, count: int, why: Problem | None = None) -> Problem | None:
        """The problem that stops a table with more letters in one cut than allowed; ``None`` if there are not too many."""
        if count <= self.most:
            return None
        message = f"more than {self.most} of its records in one cut cannot be read or written: this is not an isolated bad record."
        hint = "See its dead letters and repair the cause, or raise --max-dead-letters."
        return replace(why, message=f"{message} The last: {why.message}") if why else Problem(table_id, message, hint=hint)

    def _written(self, folder: str) -> dict[str, datetime]:
        """When each letter of a folder was written, by name. Subfolders are not read; nor are links and pipes in a local folder."""
        return self._letters_among(self._listed(folder), folder)

    def _confirmed(self, folder: str) -> dict[str, datetime]:
        """As :meth:`_written`, of a listing that shows an object which was written just before.

        The client of an object store takes a page of HTML for an empty listing.
        """
        if self.place.is_local:
            return self._written(folder)
        mark = f"{folder}/{_MARK}"
        with self.place.reached():
            self.place.put(mark, b"")
            listed = self._listed(folder)
            with ignoring_absence():
                obstore.delete(self.place.store(create=True), mark)
        if _MARK not in listed:
            raise SinkUnreachableError(
                f"The {self.place.what} {self.place.location.url} cannot be used: its listing lacks what was just written.",
                "The run tries again. If this stays, check the store, and the proxy or gateway in front of it.",
            )
        return self._letters_among(listed, folder)

    def _listed(self, folder: str) -> dict[str, datetime]:
        with self.place.reached():
            store = self.place.store(create=False)
            listed = obstore.list_with_delimiter(store, folder)["objects"] if store else ()
        return {item["path"].rpartition("/")[2]: item["last_modified"] for item in listed}

    def _letters_among(self, listed: Mapping[str, datetime], folder: str) -> dict[str, datetime]:
        found = {path.removesuffix(_SUFFIX): written for path, written in listed.items() if path.endswith(_SUFFIX)}
        return {name: written for name, written in found.items() if self.place.is_file(_path(folder, name))}

    def _read(self, folder: str) -> dict[str, Letter]:
        found: dict[str, Letter] = {}
        names = sorted(self._confirmed(folder))
        with self.place.reached():
            store = self.place.store(create=False)
            for name in names:
                path = _path(folder, name)
                with ignoring_absence():
                    try:
                        found[name] = self._letter(store, path)
                    except DefinitionError:  # the answer of a proxy, perhaps
                        found[name] = self._letter(store, path)
        return found

    def _letter(self, store: ObjectStore, path: str) -> Letter:
        return letter_from_json(bytes(obstore.get(store, path).bytes()).decode("utf-8", "replace"), path)

    def _remove(self, folder: str, names: Iterable[str]) -> None:
        with self.place.reached():
            store = self.place.store(create=False)
            for name in names if store else ():
                with ignoring_absence():
                    obstore.delete(store, _path(folder, name))

    def _replayed(self, table_id: TableId) -> str:
        return f"{self._prefix(table_id)}/{_REPLAYED}"

    def _prefix(self, table_id: TableId) -> str:
        return "/".join(map(_folder, (self.pipeline, table_id.database, table_id.table)))


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}{_SUFFIX}"


def _folder(text: str) -> str:
    """A text as the name of one folder. A name too long for a file system (255 bytes) is cut and ends in a digest of the whole.

    For example, 32 Chinese characters take 288 bytes. Only cut names contain a ``=``.
    """
    name = folder_name(text)
    if len(name) <= _LONGEST_FOLDER:
        return name
    whole = re.sub("%.?$", "", name[:_LONGEST_FOLDER])  # drop an escape sequence that was cut in two
    return f"{whole}={sha256(text.encode()).hexdigest()[:16]}"


def no_letters_of_bags(problem: Problem) -> Problem:
    """The problem of a table without key, with the reason why it stops regardless of ``--on-error``."""
    why = "A table without key has no dead letters, because its rows are counted and cannot be applied again."
    return replace(problem, hint=f"{problem.hint} {why}".lstrip())


def row_letters(problems: Mapping[int, Problem], rows: pa.Table, schema: TableSchema, version: int, lo: int) -> Iterator[Letter]:
    """A letter for each refused row, by its number in ``rows``."""
    numbers = sorted(problems)
    for number, row in zip(numbers, _texts(rows.take(pa.array(numbers, pa.int64()))), strict=True):
        problem = problems[number]
        key = {name: row[name] for name in schema.handle_key if name in row}
        yield Letter(schema.table_id, version, lo, problem.message, column=problem.column, value=problem.value, key=key, row=row)


def _texts(rows: pa.Table) -> list[dict[str, str | None]]:
    """Rows with their values as texts; binary values in hex."""

    def texts(column: pa.ChunkedArray) -> list[str | None]:
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return [None if value is None else value.hex() for value in column.to_pylist()]
        return list(column.cast(pa.string()).to_pylist())

    columns = [texts(column) for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def letter_to_json(letter: Letter) -> str:
    """A letter in its file format, which docs/operations.md describes. Lone surrogates are written as JSON's escapes."""
    fields: dict[str, object] = {
        "format": _FORMAT,
        "table": [letter.table_id.database, letter.table_id.table],
        "version": str(letter.version),
        "lo": str(letter.lo),
        "commit_ts": None if letter.commit_ts is None else str(letter.commit_ts),
        "reason": letter.reason,
        **fields_of(letter.place),
        "column": letter.column,
        "value": letter.value,
        "raw": None if letter.raw is None else base64.b64encode(letter.raw).decode(),
        "key": letter.key,
        "row": letter.row,
    }
    told = {name: value for name, value in fields.items() if value not in (None, "")}
    return writable(json.dumps(told, ensure_ascii=False, indent=1))


def letter_from_json(text: str, path: str) -> Letter:
    """The inverse of :func:`letter_to_json`. Raises DefinitionError, which names ``path``."""
    try:
        data = json.loads(text)
        if data["format"] != _FORMAT:
            raise ValueError("another format")
        database, table = data["table"]
        return Letter(
            table_id=TableId(database, table),
            version=int(data["version"]),
            lo=int(data["lo"]),
            reason=data["reason"],
            commit_ts=int(data["commit_ts"]) if "commit_ts" in data else None,
            place=place_from(data),
            column=data.get("column", ""),
            value=data.get("value"),
            raw=base64.b64decode(data["raw"]) if "raw" in data else None,
            key=data.get("key"),
            row=data.get("row"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DefinitionError(f"{path} is no dead letter that this Headrace can read.", "Take it out of the folder.") from None
