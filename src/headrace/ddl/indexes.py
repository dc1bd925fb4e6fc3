"""The indexes that DDL text creates, and the names that TiDB gives to indexes without a name.

CREATE TABLE: TiDB names the indexes of the table first, in order, and then those in column definitions. MySQL and MariaDB follow
the order of the text. A name is taken if any index, primary key or check has it (``setEmptyConstraintName``).
ALTER TABLE: a name is taken if any index has it before the statement (``GetName4AnonymousIndex``), even one that the statement
drops.

The names matter because otherwise a later DROP INDEX could drop another index in the target than in the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from headrace.ddl.lexer import Cursor, Word, split_at_commas, unqualified
from headrace.ddl.statement import Statement, StatementKind
from headrace.model.table import folded_name

CONSTRAINTS = ("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "FOREIGN", "CHECK", "CONSTRAINT")
_INDEXES = ("INDEX", "KEY")
_KINDS_OF_INDEX = ("FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
_OF_EXPRESSION = "expression_index"


@dataclass(frozen=True)
class NewIndex:
    """An index that a text creates."""

    name: str
    columns: tuple[str, ...]
    """The columns of its parts. An empty name stands for an expression."""
    unique: bool = False
    """Whether it is a unique key over whole columns."""
    primary: bool = False
    """Whether it takes a name but is not an index of that name: a primary key, or a check."""
    place: tuple[int, int] = (0, 0)
    """Start and end of the name in the text, or the position where the name would be."""
    removed: tuple[int, int] | None = None
    """Start and end of the words in a column's definition that define it, if there are any."""
    instead: str = ""
    """What stands in place of these words if the index is defined apart from the column."""
    plain: bool = True
    """Whether a server that follows the order of the text chooses the same name by itself."""


@dataclass(frozen=True)
class ChangedNames:
    """Folded names of indexes that a statement drops or renames, and of columns that it drops, renames or defines anew.

    ``texts``: the statement defines all text columns anew, by converting the table to another character set.
    """

    indexes: frozenset[str]
    columns: frozenset[str]
    texts: bool


def changed_names(read: Statement) -> ChangedNames:
    """The names that ALTER TABLE or DROP INDEX drops or changes. A renamed index counts too, because a later DROP INDEX has its new
    name.

    The primary key is the index ``primary``. A dropped constraint counts as an index, because it may be one.
    """
    indexes: set[str] = set()
    columns: set[str] = set()
    texts = False
    for action in read.actions:
        cursor = Cursor(action)
        if cursor.accept("CONVERT", "TO"):
            texts = True
            continue
        if cursor.accept("RENAME"):
            is_index = cursor.accept("INDEX") or cursor.accept("KEY")
            if not is_index and not cursor.accept("COLUMN"):
                continue
            found = indexes if is_index else columns
        elif cursor.accept("DROP"):
            found = columns if _drops_column(cursor) else indexes
        elif cursor.accept("MODIFY") or cursor.accept("CHANGE"):
            cursor.accept("COLUMN")
            found = columns
        else:
            continue
        cursor.accept("IF", "EXISTS")
        found.add(folded_name(cursor.column_name()))
    return ChangedNames(frozenset(indexes), frozenset(columns), texts)


def _drops_column(cursor: Cursor) -> bool:
    """Whether the name after DROP is that of a column. Steps to the name, which for the primary key is PRIMARY itself."""
    if cursor.accept("COLUMN"):
        return True
    return not (cursor.peek().says("PRIMARY") or any(cursor.accept(keyword) for keyword in (*_INDEXES, "CONSTRAINT")))


def new_indexes(read: Statement, taken: Collection[str]) -> list[NewIndex]:
    """The indexes that a statement creates, with the names that TiDB gives them. ``taken`` are the table's earlier index names."""
    if read.kind is StatementKind.CREATE_TABLE:
        found = [list(_of_part(part)) for part in read.definitions]
        inline = [index for part in found for index in part if index.removed]
        return _named([index for part in found for index in part if not index.removed] + inline, (), ahead=True)
    return _named(list(chain.from_iterable(map(_of_action, read.actions))), taken, ahead=False)


def with_index_names(text: str, read: Statement, taken: Collection[str]) -> str:
    """The text with TiDB's names of indexes inserted where another server would choose other names."""
    if read.kind not in (StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE):
        return text
    edits: list[tuple[int, int, str]] = []
    for index in new_indexes(read, taken):
        if index.plain or index.primary:
            continue
        name = _quoted(index.name)
        if not index.removed:
            edits.append((*index.place, name if index.place[1] > index.place[0] else f" {name} "))
        elif read.kind is StatementKind.CREATE_TABLE:  # a column's own key has no name; TiDB's ALTER TABLE allows none
            start = read.definitions[0][0].start
            edits += [(*index.removed, index.instead), (start, start, f"UNIQUE KEY {name} ({_quoted(index.columns[0])}), ")]
    kept, at = [], 0
    edits.reverse()  # of several edits at one place, the last one comes first
    edits.sort(key=lambda edit: edit[0])
    for start, end, name in edits:
        kept += [text[at:start], name]
        at = end
    return "".join([*kept, text[at:]])


def _named(indexes: list[NewIndex], taken: Collection[str], *, ahead: bool) -> list[NewIndex]:
    """The indexes with names. With ``ahead``, names further on in the text are taken too."""
    names = {folded_name(name) for name in taken}
    names |= {folded_name(index.name) for index in indexes if index.name and ahead}
    found = []
    tried: Counter[str] = Counter()
    for index in indexes:
        name = index.name or _free_name(index.columns, names, tried)
        names.add(folded_name(name))
        # The names that are taken for an ALTER TABLE depend on the other indexes of the target's table.
        plain = index.plain if index.name else ahead and folded_name(name) == folded_name(index.columns[0])
        found.append(replace(index, name=name, plain=plain))
    return found


def _free_name(columns: tuple[str, ...], taken: set[str], tried: Counter[str]) -> str:
    """The first column's name, with a number if that name is taken or means the primary key.

    ``tried`` has the last number tried for each name. Lower numbers stay taken.
    """
    first = columns[0] if all(columns) else _OF_EXPRESSION
    while True:
        tried[first] += 1
        name = first if tried[first] == 1 else f"{first}_{tried[first]}"
        if folded_name(name) not in taken and folded_name(name) != "primary":
            return name


def _of_action(action: tuple[Word, ...]) -> Iterator[NewIndex]:
    """One clause of ALTER TABLE, or the one of CREATE INDEX."""
    cursor = Cursor(action)
    if any(cursor.peek().says(keyword) for keyword in ("UNIQUE", "INDEX")):
        yield from _of_part(action)
        return
    if not (cursor.accept("ADD") or cursor.accept("MODIFY") or cursor.accept("CHANGE")):
        return
    cursor.accept("COLUMN")
    if not cursor.accept("IF", "NOT", "EXISTS"):
        cursor.accept("IF", "EXISTS")
    if action[0].says("CHANGE"):
        cursor.column_name()
    for part in split_at_commas(cursor.group()) if cursor.peek().says("(") else (cursor.rest(),):
        yield from _of_part(part)


def is_constraint(part: tuple[Word, ...]) -> bool:
    """Whether a part of CREATE TABLE's parenthesis, or what ADD adds, is a constraint or an index and not a column."""
    return any(part[0].says(keyword) for keyword in CONSTRAINTS)


def _of_part(part: tuple[Word, ...]) -> Iterator[NewIndex]:
    """One part of CREATE TABLE's parenthesis: a column, or a constraint."""
    if not part:
        return
    if is_constraint(part):
        yield from _of_constraint(Cursor(part))
    else:
        name, *attributes = unqualified(part)
        yield from _of_column(name.text, Cursor(tuple(attributes)))


def _of_column(name: str, cursor: Cursor) -> Iterator[NewIndex]:
    """The keys in a column's attributes, each kind once."""
    unique = primary = False
    while not cursor.done:
        word = cursor.peek()
        if word.says("("):
            cursor.group()
        elif (instead := _accepts_unique(cursor)) is not None:
            if not unique:
                yield NewIndex("", (name,), unique=True, removed=(word.start, cursor.last.end), instead=instead)
            unique = True
        elif cursor.accept("PRIMARY", "KEY") or cursor.accept("KEY"):
            if not primary:
                yield NewIndex("", (name,), primary=True, removed=(word.start, cursor.last.end))
            primary = True
        else:
            cursor.next()


def _accepts_unique(cursor: Cursor) -> str | None:
    """Steps over words of a column's definition (from its type on) that give it a unique key.

    Returns what these words say without the key; ``None`` if it did not step.
    """
    if cursor.accept("UNIQUE"):
        cursor.accept("KEY")
        return ""
    if cursor.at == 0 and cursor.accept("SERIAL"):
        return "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"
    return "NOT NULL AUTO_INCREMENT" if cursor.accept("SERIAL", "DEFAULT", "VALUE") else None


def _of_constraint(cursor: Cursor) -> Iterator[NewIndex]:
    """``[CONSTRAINT [symbol]] [kind] [INDEX | KEY] [name] [USING …] (columns)``; in TiDB the symbol overrides the name."""
    symbol = ""
    if cursor.accept("CONSTRAINT") and not any(cursor.peek().says(keyword) for keyword in CONSTRAINTS):
        symbol = cursor.next().text
    if cursor.accept("CHECK"):
        if symbol:
            yield NewIndex(symbol, (), primary=True)
        return
    unique, primary = cursor.accept("UNIQUE"), cursor.accept("PRIMARY")
    cursor.skip_any(*_KINDS_OF_INDEX)
    if cursor.peek().says("FOREIGN"):
        return
    cursor.skip_any(*_INDEXES)
    cursor.accept("IF", "NOT", "EXISTS")
    word = cursor.peek()
    named = not any(word.says(sign) for sign in ("(", "USING", "TYPE"))
    name = cursor.next().text if named else ""
    while not cursor.done and not cursor.peek().says("("):
        cursor.next()
    parts = [unqualified(part) for part in split_at_commas(cursor.group())]
    if not parts:
        return
    # A part with more than a name and a direction is a prefix or an expression. The column's values are then not unique.
    whole = all(part[0].text != "(" and (len(part) == 1 or part[1].says("ASC") or part[1].says("DESC")) for part in parts)
    columns = tuple("" if part[0].says("(") else part[0].text for part in parts)
    place = (word.start, word.end if named else word.start)
    overridden = bool(symbol and name) and folded_name(symbol) != folded_name(name)
    yield NewIndex(symbol or name, columns, unique and whole, primary, place, plain=not overridden)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
