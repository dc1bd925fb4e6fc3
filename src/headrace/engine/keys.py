"""Keys declared in a definition, for tables without a primary key whose rows are identified by some columns.

TiCDC uses a unique key over NOT NULL columns as the handle of such a table, but does not record it in its files. A declared key
replaces the handle key in everything that a source offers, so it works for every source and sink. Pure.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from headrace.errors import DefinitionError
from headrace.model.events import (
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
)
from headrace.model.ledger import LedgerState
from headrace.model.offer import Offer
from headrace.model.outcome import Notice, Problem
from headrace.model.table import Generated, TableId, TableSchema, folded_name
from headrace.model.uri import near_match

Key = tuple[str, ...]

_NAME = r"`(?:[^`]|``)+`|[^`.,=\s][^`.,=]*"
_TABLE = re.compile(rf"\s*(?P<database>{_NAME})\s*\.\s*(?P<table>`(?:[^`]|``)+`|[^`,=\s][^`,=]*)\s*")
_COLUMN = re.compile(rf"\s*(?P<name>{_NAME})\s*(?:,|$)")
_CLOSE = 0.8
_NULLABLE = (
    "Make the column NOT NULL in the source, declare other columns, or remove the declared key: equal rows are then counted."
)
_HOW_TO_WRITE = "Write it as shop.orders=order_no,line; names with other signs go in backquotes."


@dataclass(frozen=True)
class DeclaredKeys:
    """The columns that identify a row, by table. Names of tables and columns are compared without case, as in TiDB."""

    by_table: Mapping[TableId, Key] = field(default_factory=dict)

    @classmethod
    def parse(cls, settings: Mapping[str, Sequence[str]]) -> DeclaredKeys:
        """From ``{"shop.orders": ["order_no"]}``. Raises DefinitionError."""
        found: dict[TableId, Key] = {}
        for text, columns in settings.items():
            table_id = _table(text)
            names = tuple(columns)
            folded = [folded_name(name) for name in names]
            if not names or not all(names) or len(set(folded)) < len(folded):
                raise DefinitionError(f"The key of {text} must name at least one column, and each only once.", _HOW_TO_WRITE)
            if _folded(table_id) in {_folded(other) for other in found}:
                raise DefinitionError(f"The key of {table_id} is declared twice.", "Declare all of its columns at once.")
            found[table_id] = names
        return cls(found)

    @classmethod
    def parse_texts(cls, texts: Iterable[str]) -> DeclaredKeys:
        """From ``shop.orders=order_no,line``, one text for each table. Raises DefinitionError."""
        found: dict[str, list[str]] = {}
        for text in texts:
            table, columns = _parts(text)
            if table in found:
                raise DefinitionError(f"The key of {table} is declared twice.", "Declare all of its columns at once.")
            found[table] = columns
        return cls.parse(found)

    def over(self, others: DeclaredKeys) -> DeclaredKeys:
        """These keys, and the others' keys for tables without one here."""
        return DeclaredKeys({**{t: key for t, key in others.by_table.items() if not self.of(t)}, **self.by_table})

    def of(self, table_id: TableId) -> Key:
        """The key declared for the table; empty if there is none."""
        wanted = _folded(table_id)
        return next((key for declared, key in self.by_table.items() if _folded(declared) == wanted), ())

    def without(self, others: DeclaredKeys) -> tuple[TableId, ...]:
        """The tables that have a key here and none in ``others``, sorted."""
        return tuple(sorted(table_id for table_id in self.by_table if not others.of(table_id)))

    def __bool__(self) -> bool:
        return bool(self.by_table)

    def __str__(self) -> str:
        return "; ".join(f"{table_id}: {', '.join(key)}" for table_id, key in sorted(self.by_table.items())) or "none"


def fingerprint_of(filter_text: str, keys: DeclaredKeys) -> str:
    """The part of a definition that the ledger keeps to detect changes: the table filter and, on a second line, the keys."""
    if not keys:
        return filter_text
    named = {json.dumps([t.database, t.table], ensure_ascii=False): list(key) for t, key in sorted(keys.by_table.items())}
    return f"{filter_text}\n{json.dumps(named, ensure_ascii=False)}"


def read_fingerprint(text: str) -> tuple[str, DeclaredKeys]:
    """The table filter and the keys in a fingerprint of :func:`fingerprint_of`."""
    filter_text, _, named = text.partition("\n")
    keys = json.loads(named) if named else {}
    return filter_text, DeclaredKeys({TableId(*json.loads(name)): tuple(columns) for name, columns in keys.items()})


def changed_definition(known: LedgerState, filter_text: str, keys: DeclaredKeys) -> tuple[Notice, ...]:
    """The notices about a changed definition. Raises DefinitionError if the pipeline cannot continue with it."""
    former_filter, former_keys = read_fingerprint(known.fingerprint)
    notices = []
    if former_filter != filter_text:
        text = (
            f"--tables was {former_filter or 'not set'} before. A table that was never included is filled from the files that are "
            "still there, as far back as they go; one that was left out goes on from where it stood; what is excluded now stays in "
            "the target as it is."
        )
        notices.append(Notice(text))
    if former_keys != keys:
        lost = former_keys.without(keys)
        if lost and known.attempted > known.checkpoint:
            raise DefinitionError(
                f"The key of {lost[0]} was taken out of the definition while a cut is unfinished: without it, rows that were "
                "written already would be counted again.",
                "Run once with the key, until everything is applied, and take it out then.",
            )
        notices.append(Notice(f"The declared keys were {former_keys} before and are {keys} now; the new ones apply from here on."))
        twice = (
            "it stopped while its key was declared. If it has no primary key, rows that were written before it stopped may be "
            "written twice: compare it with its source when it goes on."
        )
        notices.extend(Notice(twice, t) for t in lost if t in known.tables and known.tables[t].status.is_stopped)
    return tuple(notices)


def with_declared_keys(offer: Offer, keys: DeclaredKeys) -> Offer:
    """The offer with the declared keys as handle keys of its shapes, and a problem for each table that cannot have its key.

    A key follows renames of its table and columns. A version of the table without the key's columns has none. A version with a
    primary key keeps that: the declared key applies from the schema change on that makes it the handle.
    """
    if not keys or not (offer.schema_changes or offer.splits):
        return offer
    history = _History(keys)
    changes = tuple(history.take(change) for change in offer.schema_changes)
    splits = tuple(replace(s, schema=history.at(s.table_id, s.version, s.schema)) for s in offer.splits)
    found = history.findings()
    return replace(
        offer,
        schema_changes=changes,
        splits=splits,
        problems=(*offer.problems, *(f for f in found if isinstance(f, Problem))),
        notices=(*offer.notices, *(f for f in found if isinstance(f, Notice))),
    )


class _History:
    """Processes the schema changes in order and keeps each table's key, version by version."""

    def __init__(self, keys: DeclaredKeys) -> None:
        self._keys = keys
        self._now: dict[TableId, Key] = {}
        self._versions: dict[TableId, list[tuple[int, Key]]] = defaultdict(list)
        self._newest: dict[TableId, TableSchema] = {}
        self._seen: set[TableId] = set()

    def take(self, change: SchemaChange) -> SchemaChange:
        """The change with the key in its shapes."""
        for event in change.events:
            self._follow(event)
        if change.schema is None:
            return change
        schema = self._keyed(change.table_id, change.schema)
        self._newest[change.table_id] = schema
        self._seen.add(change.table_id)
        self._versions[change.table_id].append((change.commit_ts, self._now.get(change.table_id, ())))
        if schema == change.schema:
            return change
        return replace(change, schema=schema, events=tuple(_shaped(event, schema) for event in change.events))

    def at(self, table_id: TableId, version: int, schema: TableSchema) -> TableSchema:
        """The shape of a split, with the key that its table has in that version."""
        versions = self._versions.get(table_id)
        if versions is None:
            return self._keyed(table_id, schema)
        place = bisect_right(versions, version, key=lambda entry: entry[0])
        key = versions[place - 1][1] if place else self._keys.of(table_id)
        usable = _usable(key, schema)
        return replace(schema, handle_key=usable) if usable else schema

    def findings(self) -> list[Problem | Notice]:
        """Why declared keys have no effect."""
        found: list[Problem | Notice] = []
        for declared, key in self._keys.by_table.items():
            table_id = next((t for t in self._seen if _folded(t) == _folded(declared)), None)
            if table_id is None:
                close = get_close_matches(str(declared), [str(t) for t in self._newest], n=1, cutoff=_CLOSE)
                hint = f" Did you mean {close[0]}?" if close else ""
                found.append(Notice(f"A key is declared for {declared}, which the source does not have.{hint}"))
            elif table_id in self._newest and not self._now.get(table_id):
                had_key = any(known for _, known in self._versions[table_id])
                problem = _why_not(table_id, key, self._newest[table_id], had_key=had_key)
                found.extend([problem] if problem else [])
        return found

    def _keyed(self, table_id: TableId, schema: TableSchema) -> TableSchema:
        declared, former = self._keys.of(table_id), self._now.pop(table_id, ())
        key = _usable(declared, schema) or _usable(former, schema)
        if not key:
            return schema
        self._now[table_id] = key
        return replace(schema, handle_key=key)

    def _follow(self, event: SchemaChangeEvent) -> None:
        match event:
            case CreateTableEvent(table_id=table_id) | DropTableEvent(table_id=table_id):
                self._forget(table_id)
            case DropDatabaseEvent(database=database):
                for table_id in [t for t in self._newest if t.database == database]:
                    self._forget(table_id)
            case RenameTableEvent(table_id=old, new_table_id=new):
                key = self._now.pop(old, ())
                self._newest.pop(old, None)
                if key:
                    self._now[new] = key
            case RenameColumnEvent(table_id=table_id, old_name=old_name, new_name=new_name):
                key = self._now.get(table_id, ())
                if key:
                    self._now[table_id] = tuple(new_name if folded_name(name) == folded_name(old_name) else name for name in key)
            case _:
                pass

    def _forget(self, table_id: TableId) -> None:
        self._now.pop(table_id, None)
        self._newest.pop(table_id, None)


def _shaped(event: SchemaChangeEvent, schema: TableSchema) -> SchemaChangeEvent:
    creates = isinstance(event, CreateTableEvent) and event.table_id == schema.table_id
    return CreateTableEvent(schema.table_id, schema) if creates else event


def _usable(key: Key, schema: TableSchema) -> Key:
    """The key in the shape's spelling; empty if the shape lacks its columns or has a primary key."""
    if any(column.primary_key for column in schema.columns) or not all(schema.has_column(name) for name in key):
        return ()
    columns = [schema.column(name) for name in key]
    if any(c.nullable or c.hidden or c.generated is Generated.VIRTUAL for c in columns):
        return ()
    return tuple(column.name for column in columns)


def _why_not(table_id: TableId, key: Key, schema: TableSchema, *, had_key: bool) -> Problem | None:
    """The problem with the key declared for a table of this shape; none if a primary key has replaced it."""
    primary = [column.name for column in schema.columns if column.primary_key]
    if primary:
        message = f"a key is declared for it, but it has a primary key ({', '.join(primary)})."
        return None if had_key else Problem(table_id, message, hint="Take the key out of the definition.")
    for name in key:
        if not schema.has_column(name):
            known = [column.name for column in schema.row_columns]
            message = "the key declared for it names a column that it does not have."
            return Problem(table_id, message, column=name, hint=near_match(name, known))
        column = schema.column(name)
        if column.generated is Generated.VIRTUAL or column.hidden:
            message = "the key declared for it names a virtual generated column, which rows do not carry."
            return Problem(table_id, message, column=name, hint="Declare the columns that it is made of, if they identify a row.")
        if column.nullable:
            message = "the key declared for it names a nullable column: rows with NULL could not be told apart."
            return Problem(table_id, message, column=name, hint=_NULLABLE)
    return None


def _parts(text: str) -> tuple[str, list[str]]:
    found = _TABLE.match(text)
    if found is None or text[found.end() : found.end() + 1] != "=":
        raise DefinitionError(f"The key {text!r} cannot be read.", _HOW_TO_WRITE)
    columns: list[str] = []
    place = found.end() + 1
    while place < len(text):
        column = _COLUMN.match(text, place)
        if column is None:
            raise DefinitionError(f"The key {text!r} cannot be read.", _HOW_TO_WRITE)
        columns.append(_unquoted(column["name"]))
        place = column.end()
    return found[0], columns


def _table(text: str) -> TableId:
    found = _TABLE.fullmatch(text)
    if found is None:
        raise DefinitionError(f"{text!r} is no table's name.", "Write it as database.table, each in backquotes if it holds a dot.")
    return TableId(_unquoted(found["database"]), _unquoted(found["table"]))


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _folded(table_id: TableId) -> tuple[str, str]:
    return folded_name(table_id.database), folded_name(table_id.table)
