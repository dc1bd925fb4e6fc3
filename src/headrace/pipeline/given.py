"""The definitions that tables had when a pipeline began (``--schema-from``): from files of SQL, or from a server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from stat import S_ISREG
from urllib.parse import unquote

from headrace.ddl.scripts import Definition, definitions
from headrace.errors import DefinitionError
from headrace.model.stream import StreamStatement
from headrace.model.table import SYSTEM_DATABASES, TableId, folded_name
from headrace.upstream.settings import upstream_of

_SETTING = "schema-from"
_MOST_BYTES = 64 << 20
_DATABASES_OF_DUMP, _TABLES_OF_DUMP = "*-schema-create.sql", "*-schema.sql"
"""What Dumpling calls its files: ``shop-schema-create.sql``, and ``shop.orders-schema.sql``, which has no USE."""
_IN_NAME = re.compile(r"(?P<database>[^.]+)\..*-schema\.sql", re.DOTALL)


def definitions_from(place: str) -> Callable[[int], Sequence[StreamStatement]]:
    """A function that gives the definitions that tables had at a commit ts (TSO): databases and tables, in their order.

    ``place`` is a file with SQL (``mysqldump --no-data``), a folder of such files (a dump of Dumpling), or
    ``mysql://user:password@host:port/``. A TiDB shows the definitions of that commit ts, another server those of now. Raises
    DefinitionError for a URI of something else; the function raises DefinitionError, SourceUnreachableError.
    """
    if "://" in place:
        upstream = upstream_of(place, _SETTING)

        def of_server(at: int) -> Sequence[StreamStatement]:
            from headrace.upstream.definitions import definitions_at  # PyMySQL is an extra

            return _as_statements(definitions_at(upstream, at), at)

        return of_server
    return lambda at: _as_statements(_of_files(Path(place)), at)


def _as_statements(scripts: Iterator[tuple[str, str, str]], at: int) -> list[StreamStatement]:
    """The statements of scripts. Each is given with its place for messages, and the current database at its beginning."""
    found: dict[int, Definition] = {}
    names: dict[TableId, TableId] = {}
    numbers: dict[TableId, list[int]] = {}
    following = count()
    for place, database, script in scripts:
        try:
            for read in definitions(script, database):
                folded = read.table_id.folded
                if read.drops:
                    names.pop(folded, None)
                    for number in numbers.pop(folded, ()):
                        del found[number]
                elif folded_name(read.table_id.database) not in SYSTEM_DATABASES:
                    number = next(following)
                    found[number] = _of_one_name(read, names)
                    numbers.setdefault(folded, []).append(number)
        except ValueError as error:
            raise DefinitionError(f"{_SETTING}: {place}, {error}") from None
    if not any(read.table_id.table for read in found.values()):
        raise DefinitionError(f"{_SETTING} has no CREATE TABLE.", "Write the definitions with mysqldump --no-data, or Dumpling.")
    return [
        StreamStatement(at, read.database, read.text, read.table_id, None, "", number) for number, read in enumerate(found.values())
    ]


def _of_one_name(read: Definition, names: dict[TableId, TableId]) -> Definition:
    """The definition with its table's name as the CREATE has it.

    Raises ValueError for a second CREATE of a table, and for a change of one without a CREATE.
    """
    if not read.table_id.table:
        return read
    known = names.get(read.table_id.folded)
    if read.creates and known is not None:
        raise ValueError(f"line {read.line}: {read.table_id} is there twice. Keep its definition at --start.")
    if not read.creates and known is None:
        raise ValueError(f"line {read.line}: there is no CREATE TABLE of {read.table_id} before this statement.")
    return replace(read, table_id=names.setdefault(read.table_id.folded, read.table_id))


def _of_files(place: Path) -> Iterator[tuple[str, str, str]]:
    if not place.is_dir():
        yield str(place), "", _text(place)
        return
    tables = [path for path in sorted(place.glob(_TABLES_OF_DUMP)) if not _is_of_view(path)]
    for path in [*sorted(place.glob(_DATABASES_OF_DUMP)), *tables] if tables else sorted(place.glob("*.sql")):
        named = _IN_NAME.fullmatch(path.name)
        yield str(path), unquote(named["database"]) if named else "", _text(path)


def _is_of_view(path: Path) -> bool:
    """Whether Dumpling wrote a table in the place of a view: the view has a file of its own."""
    return path.with_name(path.name.removesuffix(".sql") + "-view.sql").exists()


def _text(path: Path) -> str:
    """The text of a regular file. Nothing else is read: a pipe may wait for ever, and a device has no end."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DefinitionError(f"{_SETTING}: {path} is not a regular file.", "Write the definitions to a file first.")
            read = file.read(_MOST_BYTES + 1)
        if len(read) > _MOST_BYTES:
            message = f"{_SETTING}: {path} has more than {_MOST_BYTES >> 20} MiB."
            raise DefinitionError(message, "Write the definitions without rows: mysqldump --no-data.")
        return read.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise DefinitionError(f"{_SETTING}: {path} is not UTF-8.") from None
    except OSError as error:
        raise DefinitionError(f"{_SETTING}: {path} cannot be read: {error.strerror}.") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
