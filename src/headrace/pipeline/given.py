"""The definitions that tables had when a pipeline began (``--schema-from``): from files of SQL, or from a server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from stat import S_ISREG
from urllib.parse import unquote

from headrace.ddl.scripts import Definition, definitions
from headrace.errors import DefinitionError
from headrace.model.outcome import Notice
from headrace.model.stream import GivenDefinitions, StreamStatement
from headrace.model.table import SYSTEM_DATABASES, TableId, folded_name
from headrace.upstream.settings import upstream_of

_SETTING = "schema-from"
_MOST_BYTES = 64 << 20
_MOST_SPELLINGS = 4
_IN_A_FILE = "If the pipeline needs it, write the definitions to a file, and name that instead."
_DATABASES_OF_DUMP, _TABLES_OF_DUMP = "*-schema-create.sql", "*-schema.sql"
"""What Dumpling calls its files: ``shop-schema-create.sql``, and ``shop.orders-schema.sql``, which has no USE."""
_IN_NAME = re.compile(r"(?P<database>[^.]+)\..*-schema\.sql", re.DOTALL)


def definitions_from(place: str) -> Callable[[int], GivenDefinitions]:
    """A function that gives the definitions that tables had at a commit ts (TSO): databases and tables, in their order.

    Their notices say which tables' definitions are not used.

    ``place`` is a file with SQL (``mysqldump --no-data``), a folder of such files (a dump of Dumpling), or
    ``mysql://user:password@host:port/``. A TiDB shows the definitions of that commit ts, another server those of now. Raises
    DefinitionError for a URI of something else; the function raises DefinitionError, SourceUnreachableError.
    """
    if "://" in place:
        upstream = upstream_of(place, _SETTING)

        def of_server(at: int) -> GivenDefinitions:
            from headrace.upstream.definitions import NotShown, definitions_at  # PyMySQL is an extra

            shown: list[tuple[str, str, str]] = []
            notices: list[Notice] = []
            for found in definitions_at(upstream, at):
                if isinstance(found, NotShown):
                    message = f"{_SETTING}: its definition is not used, because on {upstream.place} it {found.reason}. {_IN_A_FILE}"
                    notices.append(Notice(message, found.table_id))
                else:
                    shown.append(found)
            return _given(shown, at, notices)

        return of_server
    return lambda at: _given(_of_files(Path(place)), at)


def _given(scripts: Iterable[tuple[str, str, str]], at: int, notices: Sequence[Notice] = ()) -> GivenDefinitions:
    """The definitions in scripts. Each script is given with its place for messages, and the current database at its beginning.

    ``notices`` are those of definitions that are not among them.
    """
    read = _Read()
    for place, database, script in scripts:
        try:
            for definition in definitions(script, database):
                read.take(definition)
        except ValueError as error:
            raise DefinitionError(f"{_SETTING}: {place}, {error}") from None
    found = read.found
    if not any(definition.table_id.table for definition in found.values()) and not read.namesakes:
        if notices:
            raise DefinitionError(f"{_SETTING} gives no table: {notices[0].sentence()}")
        raise DefinitionError(f"{_SETTING} has no CREATE TABLE.", "Write the definitions with mysqldump --no-data, or Dumpling.")
    statements = (StreamStatement(at, d.database, d.text, d.table_id, None, "", number) for number, d in found.items())
    return GivenDefinitions(tuple(statements), (*notices, *map(_notice, read.namesakes), *map(_notice_of_dropped, read.dropped)))


def _notice(spelled: Sequence[TableId]) -> Notice:
    """The notice of tables whose names differ only in case."""
    others = " and ".join(str(table_id) for table_id in spelled[1:_MOST_SPELLINGS])
    message = (
        f"{_SETTING}: its definition is not used, because the name of {others} differs from its name only in case. For TiDB "
        "this is one table: keep the definition of the one that the source has."
    )
    return Notice(message, spelled[0])


def _notice_of_dropped(table_id: TableId) -> Notice:
    """The notice of a table whose definition went with one whose name differs only in case."""
    message = (
        f"{_SETTING}: its definition is not used, because a name that differs from its name only in case is dropped behind it. "
        "For TiDB this is one table: keep the definition of the one that the source has."
    )
    return Notice(message, table_id)


class _Read:
    """The definitions that were read so far. A name may have any case, as in TiDB."""

    def __init__(self) -> None:
        self.found: dict[int, Definition] = {}
        """What was not dropped since, by numbers in the order of the definitions."""
        self._following = count()
        self._numbers: dict[TableId, list[int]] = {}
        self._of_databases: dict[str, dict[TableId, None]] = {}
        self._spelled: dict[TableId, list[TableId]] = {}
        """The names of tables that were created, as they were written."""

    @property
    def namesakes(self) -> list[list[TableId]]:
        """The names of tables that differ only in case. A server that tells them apart has several such tables."""
        return [spelled for spelled in self._spelled.values() if len(spelled) > 1]

    @property
    def dropped(self) -> list[TableId]:
        """Tables that were created and not dropped, and have no definition: one of another spelling was dropped."""
        return [spelled[0] for folded, spelled in self._spelled.items() if len(spelled) == 1 and folded not in self._numbers]

    def take(self, read: Definition) -> None:
        """Raises ValueError for a second CREATE of a table, and for a change of one without a CREATE."""
        table_id, folded = read.table_id, read.table_id.folded
        if read.drops:
            dropped = [folded] if table_id.table else list(self._of_databases.get(folded.database, ()))
            for name in dropped:
                self._drop(name, table_id)
            return
        if folded_name(table_id.database) in SYSTEM_DATABASES:
            return
        if table_id.table:
            spelled = self._spelled.get(folded, [])
            if read.creates and table_id in spelled and folded in self._numbers:
                raise ValueError(f"line {read.line}: {table_id} is there twice. Keep its definition at --start.")
            if read.creates and table_id not in spelled:
                self._spelled[folded] = spelled = [*spelled, table_id]
                if len(spelled) > 1:
                    self._forget(folded)
            if len(spelled) > 1:
                return
            if not read.creates and folded not in self._numbers:
                raise ValueError(f"line {read.line}: there is no CREATE TABLE of {table_id} before this statement.")
            read = replace(read, table_id=spelled[0])
        number = next(self._following)
        self.found[number] = read
        self._numbers.setdefault(folded, []).append(number)
        self._of_databases.setdefault(folded.database, {})[folded] = None

    def _drop(self, folded: TableId, dropped: TableId) -> None:
        """Drops a table, also of another spelling. Then its name stays known: the CREATE that follows may be of another table."""
        self._forget(folded)
        left = [t for t in self._spelled.pop(folded, ()) if t != dropped and (dropped.table or t.database != dropped.database)]
        if left:
            self._spelled[folded] = left

    def _forget(self, folded: TableId) -> None:
        for number in self._numbers.pop(folded, ()):
            del self.found[number]


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
