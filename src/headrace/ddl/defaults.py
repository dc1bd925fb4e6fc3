"""Reads default values from the text of a statement, where schema files have them wrong or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import ClassVar
from zoneinfo import ZoneInfo

from headrace.ddl.lexer import Cursor, Word, split_at_commas
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.ddl.stored_defaults import normal_moment, text_at, words_of_default
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, TypeKind

_OF_THE_TIME = frozenset({"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURDATE", "LOCALTIME", "LOCALTIMESTAMP", "NOW"})
_TIME_KINDS = frozenset({TypeKind.DATE, TypeKind.DATETIME, TypeKind.TIMESTAMP, TypeKind.TIME})
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_BASES = {"b": 2, "x": 16}
_MOST_BITS = 64  # of a column, so of digits of its default


class _Additions:
    """The columns that a statement adds, by folded name. The last result is cached: callers query one column after another."""

    def __init__(self) -> None:
        self._kept: tuple[Statement, Mapping[str, tuple[Word, ...]]] = Statement(StatementKind.EMPTY), {}

    def of(self, read: Statement) -> Mapping[str, tuple[Word, ...]]:
        statement, found = self._kept
        if statement is not read:
            named = ((folded_name(Cursor(words).column_name()), words) for words in _added(read) if words)
            found = dict(reversed([*named]))  # of two columns of one name the first counts
            self._kept = read, found
        return found


_ADDITIONS = _Additions()


def added_column(read: Statement, column: str) -> tuple[Word, ...]:
    """The words with which the statement adds this column, its name first; empty if it does not add it."""
    return _ADDITIONS.of(read).get(folded_name(column), ())


def defined_columns(read: Statement) -> Iterator[tuple[Word, ...]]:
    """All definitions of columns: those of CREATE TABLE, and those of ADD, MODIFY and CHANGE."""
    if read.kind is StatementKind.CREATE_TABLE:
        yield from read.definitions
    yield from _added(read)
    for action in read.actions:
        cursor = Cursor(action)
        changed = cursor.accept("CHANGE")
        if changed or cursor.accept("MODIFY"):
            cursor.accept("COLUMN")
            cursor.accept("IF", "EXISTS")
            if changed:
                cursor.next()
            yield cursor.rest()


def computed_default(read: Statement, column: str) -> str:
    """The first function in the default with which the statement adds this column; empty for a value, and for the current time.

    The current time is known, because it is about that of the statement. A text in parentheses always counts as an expression.
    """
    return _function(Cursor(words_of_default(added_column(read, column)) or ()))


def is_time_of_statement(column: Column) -> bool:
    """Whether existing rows get as default the time at which the source ran the statement.

    It is the time at which the statement began, in the session's time zone. The change's commit ts is slightly later.
    """
    words = (column.default or "").upper().strip("()").partition("(")[0].split()
    return column.type.kind in _TIME_KINDS and words[:1] != [] and words[0] in _OF_THE_TIME


def bit_default(statement: str, database: str, column: Column) -> int | None:
    """The number that is the default of an added BIT column; ``None`` if neither the statement nor the schema file has it.

    A schema file has the bits as bytes in a JSON text, in which bytes that are not UTF-8 are lost.
    """
    word = default_word(added_column(read_statement(statement, database), column.name))
    if word is not None and (word.is_text or word.written != word.text or word.text.isdigit()):
        return _number(statement[word.start : word.end], word.text) if len(word.text) <= _MOST_BITS else None
    if column.default is None or _REPLACED in column.default:
        return None
    return int.from_bytes(column.default.encode(), "big")


def is_mangled(column: Column) -> bool:
    """Whether the default of a binary column lost bytes in TiDB's own JSON. The values in rows then depend on TiDB's release."""
    return column.type.kind in BINARY_KINDS and _REPLACED in (column.default or "")


@dataclass(frozen=True)
class ZoneMismatch:
    """A default of a TIMESTAMP column that differs in a time zone: the text in the statement, and the source's value in UTC."""

    column: str
    told: str
    kept: str
    HINT: ClassVar[str] = "Set time-zone in the sink's URI to the time zone of the source's sessions, such as Asia/Shanghai."

    def sentence(self, time_zone: str) -> str:
        return (
            f"the default is {self.told} in the statement and {self.kept} UTC in the source, which is not the same in {time_zone}."
        )


def zone_mismatch(statement: str, schema: TableSchema | None, time_zone: str) -> ZoneMismatch | None:
    """The first TIMESTAMP default whose text, in this time zone, is not the source's value; ``None`` if there is none.

    TiDB reads the text of the statement in its session's time zone, and stores UTC. ``time_zone`` is a name or an offset.
    """
    if schema is None:
        return None
    read = read_statement(statement, schema.table_id.database)
    for definition in (*defined_columns(read), *_set(read)):
        name = Cursor(definition).column_name() if definition else ""
        if not name or not schema.has_column(name):
            continue
        column, word = schema.column(name), default_word(definition)
        if column.type.kind is not TypeKind.TIMESTAMP or word is None or column.default is None:
            continue
        told = normal_moment(word.text, column.type) or word.text
        if not _means(told, column.default, zone_of(time_zone)):
            return ZoneMismatch(column.name, word.text, column.default)
    return None


def zone_of(time_zone: str) -> tzinfo:
    """The time zone of a name or an offset such as ``+08:00``. Raises ``ZoneInfoNotFoundError`` for an unknown name."""
    if time_zone[:1] not in ("+", "-"):
        return ZoneInfo(time_zone)
    hours, _, minutes = time_zone[1:].partition(":")
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return timezone(-offset if time_zone[0] == "-" else offset)


def _means(told: str, kept: str, zone: tzinfo) -> bool:
    """Whether a text in a time zone equals another text in UTC, to the second. Texts that are not ISO dates count as equal."""
    try:
        local, utc = datetime.fromisoformat(told), datetime.fromisoformat(kept).replace(tzinfo=UTC)
    except ValueError:
        return True
    moments = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return any(abs(moment - utc) <= timedelta(seconds=1) for moment in moments)


def _number(written: str, text: str) -> int:
    """The bits of a literal as a number: of a bit or hex literal, a number, or the bytes of a text."""
    base = _BASES.get(written[:1].lower()) or _BASES.get(written[1:2].lower() if written[:1] == "0" else "")
    if base:
        return int(text or "0", base)
    return int(text) if written.isdigit() else int.from_bytes(text.encode(), "big")


def _added(read: Statement) -> Iterator[tuple[Word, ...]]:
    for action in read.actions:
        cursor = Cursor(action)
        if not cursor.accept("ADD"):
            continue
        cursor.accept("COLUMN")
        cursor.accept("IF", "NOT", "EXISTS")
        yield from split_at_commas(cursor.group()) if cursor.peek().says("(") else [cursor.rest()]


def _set(read: Statement) -> Iterator[tuple[Word, ...]]:
    """Each ALTER COLUMN name SET DEFAULT …, without the words before the name."""
    for action in read.actions:
        cursor = Cursor(action)
        if cursor.accept("ALTER"):
            cursor.accept("COLUMN")
            yield cursor.rest()


def default_word(definition: tuple[Word, ...]) -> Word | None:
    """The literal after DEFAULT, all parts of a text as one; ``None`` without a default, for NULL, functions and signs."""
    cursor = Cursor(words_of_default(definition) or ())
    if cursor.peek().text.startswith("_") and cursor.peek(1).is_literal:
        cursor.next()
    text = text_at(cursor)
    if text is not None or cursor.done:
        return text
    return cursor.peek() if cursor.peek().is_literal else None


def _function(cursor: Cursor) -> str:
    inside = cursor.group() if cursor.peek().says("(") else ()
    first = inside[0] if inside else cursor.peek()
    called = (inside[1:2] or (cursor.peek(1),))[0].says("(")
    if first.is_name or first.is_literal or (first.text.upper() in _OF_THE_TIME and not _goes_on(inside)):
        return ""
    return first.text.upper() if called or inside else ""


def _goes_on(inside: tuple[Word, ...]) -> bool:
    """Whether the parentheses contain more than a function and its arguments."""
    cursor = Cursor(inside[1:])
    cursor.group()
    return not cursor.done
