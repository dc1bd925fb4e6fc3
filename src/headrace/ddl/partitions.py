"""Follows a table's partitioning through its statements, and gives conditions for the rows of a partition.

The partitioning is read from the texts of statements alone. It is therefore known only if Headrace has read the statement that
created or partitioned the table. ``None`` stands for a table without partitions, and for one whose partitions are not known: KEY,
LINEAR HASH, subpartitions, TiDB's INTERVAL, and partitionings above the limits below. In both cases there is no condition for the
rows of a partition. There is none either if it would be too long: a condition is kept for each statement, and even a short
statement can need a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from headrace.ddl.lexer import Cursor, Word, rendered, split_at_commas, words
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.events import DeletePartitionRowsEvent, ExchangePartitionEvent, OtherEvent, SchemaChangeEvent
from headrace.model.table import TableId, folded_name

MAXVALUE = "MAXVALUE"
NULL = "NULL"
_EVERY_ROW = "1 = 1"
MOST_PARTITIONS = 8_192
"""The most partitions of a table in TiDB."""
_MOST_KEYS = 64  # MySQL allows 16
_LONGEST_KEYS = 4_096  # characters of all keys together
LONGEST_CONDITIONS = 65_536
"""The most characters of all conditions for the partitions that one statement names."""
_MOST_CLAUSES = 64  # about partitions, in one statement; TiDB allows one
_MOST_DIGITS = 6  # of a number of partitions
_SIGNED_LIMIT, _UNSIGNED_RANGE = 2**63 - 1, 2**64
_NAME_LISTS = frozenset({"DROP", "TRUNCATE", "REORGANIZE"})  # clauses with a list of partition names
_OF_INTERVALS = (("SPLIT", "MAXVALUE"), ("MERGE", "FIRST"))
# Clauses about partitions that leave the definitions as they are.
_KEEPING = frozenset({"TRUNCATE", "EXCHANGE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "PARTITION"})


class Method(StrEnum):
    """How rows are assigned to partitions. The COLUMNS forms of RANGE and LIST differ from them only in the number of keys."""

    RANGE = "RANGE"
    LIST = "LIST"
    HASH = "HASH"


@dataclass(frozen=True)
class Partition:
    """One partition of a table."""

    name: str
    values: tuple[tuple[str, ...], ...] = ()
    """For RANGE one tuple, the bound that all rows are below; for LIST the tuples that rows have; for HASH empty. A tuple has one
    value for each key, as MySQL text; ``MAXVALUE`` and ``NULL`` stand for themselves."""
    is_default: bool = False
    """Whether this is the LIST partition for the rows that no other partition lists."""

    @cached_property
    def length(self) -> int:
        """The number of characters of its values, with an allowance for what stands between them."""
        return sum(len(value) + len(" = ") for values in self.values for value in values)


@dataclass(frozen=True)
class Partitioning:
    """The partitions of a table, in order. ``keys`` are the partitioning expression or columns, as MySQL text."""

    method: Method
    keys: tuple[str, ...]
    partitions: tuple[Partition, ...]

    def condition(self, names: Sequence[str]) -> str | None:
        """A boolean expression in MySQL's SQL: true for the rows of these partitions, false for all others, never NULL.

        ``None`` if one of the names is not a partition, if there are no names, and if the expression would be longer than
        :data:`LONGEST_CONDITIONS`. Names compare without case.
        """
        if not (places := self.places(names)) or None in places:
            return None
        chosen = sorted({place for place in places if place is not None})
        rules = {Method.RANGE: self._in_ranges, Method.LIST: self._in_lists, Method.HASH: self._of_remainders}
        if self._length(chosen) > LONGEST_CONDITIONS:
            return None
        found = rules[self.method](chosen)
        return found if len(found) <= LONGEST_CONDITIONS else None

    def places(self, names: Sequence[str]) -> list[int | None]:
        """The place of each named partition, from 0; ``None`` for an unknown name. If two have one name, the first counts."""
        if len(names) == 1:
            wanted = folded_name(names[0])
            return [next((i for i, p in enumerate(self.partitions) if folded_name(p.name) == wanted), None)]
        by_name = {folded_name(p.name): i for i, p in reversed([*enumerate(self.partitions)])}
        return [by_name.get(folded_name(name)) for name in names]

    def depends_on(self, columns: Iterable[str]) -> bool:
        """Whether one of the columns appears in the keys. Names compare without case."""
        asked = {folded_name(column) for column in columns}
        return bool(asked) and any(
            folded_name(word.text) in asked for key in self.keys for word in words(key) or () if not word.is_literal
        )

    def _length(self, chosen: Sequence[int]) -> int:
        """About how long the condition for these places will be, so that no text of that length has to be built first."""
        of_keys, count = sum(map(len, self.keys)), len(chosen)
        if self.method is Method.HASH:
            return 5 * of_keys + 6 * count if count < len(self.partitions) else len(_EVERY_ROW)
        if self.method is Method.RANGE:
            bounds = {place for first, last in _runs(chosen) for place in (first - 1, last) if place >= 0}
            return sum(self.partitions[place].length + 3 * of_keys for place in bounds)
        listing = self._not_chosen(chosen) if self._has_default(chosen) else chosen
        copies = sum(len(self.partitions[place].values) for place in listing) if len(self.keys) > 1 else 1
        return sum(self.partitions[place].length for place in listing) + 2 * of_keys * copies

    def _has_default(self, chosen: Sequence[int]) -> bool:
        return any(self.partitions[place].is_default for place in chosen)

    def _not_chosen(self, chosen: Sequence[int]) -> list[int]:
        left = {*chosen}
        return [place for place in range(len(self.partitions)) if place not in left]

    def _in_ranges(self, chosen: Sequence[int]) -> str:
        """Adjacent partitions become one range."""
        return _either([self._in_range(first, last) for first, last in _runs(chosen)])

    def _in_range(self, first: int, last: int) -> str:
        below = _below(self.keys, self.partitions[last].values[0])
        if first == 0:
            return below
        return f"NOT {_below(self.keys, self.partitions[first - 1].values[0])} AND {below}"

    def _in_lists(self, chosen: Sequence[int]) -> str:
        if not self._has_default(chosen):
            return self._listed([values for place in chosen for values in self.partitions[place].values])
        others = [values for place in self._not_chosen(chosen) for values in self.partitions[place].values]
        return f"NOT ({self._listed(others)})" if others else _EVERY_ROW

    def _listed(self, tuples: Sequence[tuple[str, ...]]) -> str:
        if len(self.keys) > 1:
            return _either([_equal(self.keys, values) for values in tuples])
        (key,) = self.keys
        plain = ", ".join(value for (value,) in tuples if value != NULL)
        parts = [f"({key}) IS NOT NULL AND ({key}) IN ({plain})"] if plain else []
        if (NULL,) in tuples:
            parts.append(f"({key}) IS NULL")
        return _either(parts)

    def _of_remainders(self, chosen: Sequence[int]) -> str:
        """The rows whose remainder, by TiDB's rules, is one of these places.

        TiDB takes the value as a signed number, and uses the absolute value of its remainder. NULL counts as 0; MySQL can place it
        in another partition.
        """
        if len(chosen) == len(self.partitions):
            return _EVERY_ROW
        (key,) = self.keys
        signed = f"CASE WHEN ({key}) > {_SIGNED_LIMIT} THEN ({key}) - {_UNSIGNED_RANGE} ELSE ({key}) END"
        remainders = f"= {chosen[0]}" if len(chosen) == 1 else f"IN ({', '.join(map(str, chosen))})"
        same = f"ABS(MOD({signed}, {len(self.partitions)})) {remainders}"
        return f"({key}) IS NULL OR {same}" if 0 in chosen else f"({key}) IS NOT NULL AND {same}"


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last place of each run of adjacent places. ``places`` is sorted."""
    breaks = [at for at, (before, place) in enumerate(pairwise(places), 1) if place > before + 1]
    return [(places[first], places[last - 1]) for first, last in pairwise([0, *breaks, len(places)])]


def _below(keys: Sequence[str], bound: Sequence[str]) -> str:
    """A condition: the keys, compared in order, are less than the bound. NULL is less than every value."""
    (key, *keys_left), (value, *bound_left) = keys, bound
    if value == MAXVALUE:
        return f"({_EVERY_ROW})"
    test = f"({key}) IS NULL OR ({key}) < ({value})"
    # NULL is below every bound, so the remaining keys matter only if this key has a value.
    return f"({test} OR ({key}) = ({value}) AND {_below(keys_left, bound_left)})" if keys_left else f"({test})"


def _equal(keys: Sequence[str], values: Sequence[str]) -> str:
    tests = (
        f"({key}) IS NULL" if value == NULL else f"({key}) IS NOT NULL AND ({key}) = ({value})"
        for key, value in zip(keys, values, strict=True)
    )
    return " AND ".join(tests)


def _either(conditions: Sequence[str]) -> str:
    """Joins conditions by OR, as halves in parentheses: a chain of thousands would nest too deeply in parsers."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return f"({_either(conditions[:middle])}) OR ({_either(conditions[middle:])})"


# --- statements -----------------------------------------------------------------------------------------------------------------


def partitioning_after(
    before: Partitioning | None, statement: str, database: str, pattern: Partitioning | None = None
) -> Partitioning | None:
    """The partitioning of a statement's table after the statement; never raises.

    ``before`` is the table's partitioning before the statement, ``pattern`` that of the table after LIKE in CREATE TABLE … LIKE.
    """
    read = read_statement(statement, database)
    if read.kind is StatementKind.CREATE_TABLE:
        return pattern if read.like is not None else _defined(read.options)
    if read.kind in (StatementKind.UNKNOWN, StatementKind.DROP_TABLE):
        return None
    clauses = _clauses(read)
    if before is None and not any(_defines(clause) for clause in clauses):
        return None
    if sum(map(_is_about_partitions, clauses)) > _MOST_CLAUSES:
        return None
    for clause in clauses:
        before = _altered(before, clause)
    if before is not None and before.depends_on(old for old, _ in read.column_renames):
        return None
    return before


def row_events(statement: str, database: str, table_id: TableId, before: Partitioning | None) -> tuple[SchemaChangeEvent, ...]:
    """The changes that a statement makes to rows without row events; empty if it makes none; never raises.

    An OtherEvent stands for rows that cannot be determined. ``before`` is the table's partitioning before the statement.
    """
    read = read_statement(statement, database)
    if read.brings_back:
        return (OtherEvent(table_id),)
    # A condition with a column's old name does not fit the table's rows after the column is renamed.
    follows = partitioning_after(before, statement, database) is not None
    clauses = _clauses(read)
    follows = follows and sum(map(_is_about_partitions, clauses)) <= _MOST_CLAUSES
    events: list[SchemaChangeEvent] = []
    left = LONGEST_CONDITIONS
    for clause in clauses:
        event = _event(clause, read, table_id, before if follows else None)
        if isinstance(event, DeletePartitionRowsEvent | ExchangePartitionEvent):
            left -= len(event.condition)
            event = event if left >= 0 else OtherEvent(table_id)
        events.extend([event] if event is not None else [])
        before = _altered(before, clause) if follows else None
    return tuple(events)


def _event(clause: tuple[Word, ...], read: Statement, table_id: TableId, before: Partitioning | None) -> SchemaChangeEvent | None:
    cursor = Cursor(clause)
    if cursor.accept("FIRST", "PARTITION"):
        return OtherEvent(table_id)
    if cursor.accept("DROP", "PARTITION") or cursor.accept("TRUNCATE", "PARTITION"):
        cursor.accept("IF", "EXISTS")
        names = _names(cursor)
        condition = _EVERY_ROW if cursor.peek().says("ALL") else _condition(before, names)
        return OtherEvent(table_id) if condition is None else DeletePartitionRowsEvent(table_id, names, condition)
    if cursor.accept("EXCHANGE", "PARTITION"):
        name = cursor.next().text
        condition = _condition(before, (name,))
        if condition is None or len(read.tables) < 2:
            return OtherEvent(table_id)
        return ExchangePartitionEvent(table_id, read.tables[1], name, condition)
    return None


def _condition(before: Partitioning | None, names: tuple[str, ...]) -> str | None:
    return before.condition(names) if before is not None else None


def _clauses(read: Statement) -> list[tuple[Word, ...]]:
    """The clauses of ALTER TABLE. Corrects the statement's ``actions``, which were split at every comma.

    A list of partition names contains commas, so its parts are joined again. PARTITION BY and REMOVE PARTITIONING follow another
    clause without a comma, so they are split off.
    """
    found: list[list[Word]] = []
    for action in read.actions if read.kind is StatementKind.ALTER_TABLE else ():
        if found and _is_list(found[-1]) and (len(action) == 1 or action[1].says("INTO")):
            found[-1] += [Word(","), *action]
            continue
        found.extend([*part] for part in _parted(action) if part)
    return [tuple(clause) for clause in found]


def _is_list(clause: Sequence[Word]) -> bool:
    return len(clause) > 2 and clause[0].text.upper() in _NAME_LISTS and clause[1].says("PARTITION")


def _parted(action: tuple[Word, ...]) -> tuple[tuple[Word, ...], ...]:
    at = _outside(action, ("PARTITION", "BY")) or _outside(action, ("REMOVE", "PARTITIONING"))
    return (action[:at], action[at:]) if at else (action,)


def _outside(found: tuple[Word, ...], keywords: tuple[str, str]) -> int | None:
    """The place of the first of two keywords that follow each other outside of parentheses; ``None`` if they do not occur."""
    depth = 0
    for at, (word, following) in enumerate(pairwise(found)):
        depth += word.says("(") - word.says(")")
        if depth == 0 and word.says(keywords[0]) and following.says(keywords[1]):
            return at
    return None


def _keywords(clause: tuple[Word, ...]) -> tuple[str, str]:
    """The first two words, in upper case; empty for a missing word and for a name in backquotes."""
    first, second = (clause[i].text.upper() if i < len(clause) and not clause[i].is_name else "" for i in (0, 1))
    return first, second


def _defines(clause: tuple[Word, ...]) -> bool:
    return _keywords(clause) == ("PARTITION", "BY")


def _is_about_partitions(clause: tuple[Word, ...]) -> bool:
    first, second = _keywords(clause)
    return second in ("PARTITION", "PARTITIONING") or first == "PARTITION" or (first, second) in _OF_INTERVALS


def _altered(before: Partitioning | None, clause: tuple[Word, ...]) -> Partitioning | None:
    """The partitioning after one clause."""
    first, second = _keywords(clause)
    if _defines(clause):
        return _defined(clause)
    if second == "PARTITIONING":
        return None
    about_partitions = second == "PARTITION" or (first, second) in (("PARTITION", ""), *_OF_INTERVALS)
    if before is None or not about_partitions or first in _KEEPING:
        return before
    changes: dict[str, Callable[[Partitioning, Cursor], Partitioning | None]] = {
        "ADD": _with_more,
        "DROP": _with_fewer,
        "COALESCE": _coalesced,
        "REORGANIZE": _reorganized,
    }
    cursor = Cursor(clause[2:])
    cursor.skip_any("NO_WRITE_TO_BINLOG", "LOCAL")
    change = changes.get(first)
    changed = change(before, cursor) if change else None
    return changed if changed is not None and len(changed.partitions) <= MOST_PARTITIONS else None


def _with_more(before: Partitioning, cursor: Cursor) -> Partitioning | None:
    cursor.accept("IF", "NOT", "EXISTS")
    if cursor.accept("PARTITIONS"):
        count = _number(cursor)
        if count is None or before.method is not Method.HASH:
            return None
        more: tuple[Partition, ...] | None = _numbered(len(before.partitions), min(count, MOST_PARTITIONS + 1))
    else:
        more = _definitions(cursor.group(), before.method, len(before.keys))
    return replace(before, partitions=(*before.partitions, *more)) if more else None


def _with_fewer(before: Partitioning, cursor: Cursor) -> Partitioning | None:
    lenient = cursor.accept("IF", "EXISTS")
    places = {*before.places(_names(cursor))}
    if None in places and not lenient:
        return None
    return replace(before, partitions=tuple(p for i, p in enumerate(before.partitions) if i not in places))


def _coalesced(before: Partitioning, cursor: Cursor) -> Partitioning | None:
    count = _number(cursor)
    left = before.partitions[:-count] if count else ()
    return replace(before, partitions=left) if left and before.method is Method.HASH else None


def _reorganized(before: Partitioning, cursor: Cursor) -> Partitioning | None:
    if cursor.done:
        return before
    places = before.places(_names(cursor))
    known = [place for place in places if place is not None]
    into = _definitions(cursor.group(), before.method, len(before.keys)) if cursor.accept("INTO") else None
    if into is None or len(known) < len(places):
        return None
    at, replaced = min(known), {*known}
    kept = [p for i, p in enumerate(before.partitions) if i not in replaced]
    return replace(before, partitions=(*kept[:at], *into, *kept[at:]))


def _names(cursor: Cursor) -> tuple[str, ...]:
    """Reads ``a, b``. Leaves the word ALL unread and then returns no names."""
    if cursor.peek().says("ALL"):
        return ()
    names = [cursor.next().text]
    while cursor.accept(","):
        names.append(cursor.next().text)
    return tuple(names)


def _number(cursor: Cursor) -> int | None:
    text = cursor.next().text
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


# --- definitions ----------------------------------------------------------------------------------------------------------------


def _defined(found: tuple[Word, ...]) -> Partitioning | None:
    """The partitioning that PARTITION BY in these words defines; ``None`` if it is not known."""
    at = _outside(found, ("PARTITION", "BY"))
    if at is None or any(word.says("SUBPARTITION") for word in found):
        return None
    cursor = Cursor(found[at + 2 :])
    method = next((method for method in Method if cursor.accept(method.value)), None)
    by_columns = method is not Method.HASH and cursor.accept("COLUMNS")
    group = cursor.group()
    if method is None or not group or cursor.peek().says("INTERVAL"):
        return None
    keys = tuple(rendered(part) for part in (split_at_commas(group) if by_columns else [group]))
    counted = cursor.accept("PARTITIONS")
    count = _number(cursor) if counted else 1
    partitions = _definitions(cursor.group(), method, len(keys))
    if partitions == () and method is Method.HASH:
        partitions = _numbered(0, min(count or 0, MOST_PARTITIONS + 1))
    are_keys = len(keys) <= _MOST_KEYS and sum(map(len, keys)) <= _LONGEST_KEYS
    is_known = bool(partitions) and are_keys and sum(p.is_default for p in partitions or ()) <= 1
    return Partitioning(method, keys, partitions) if partitions and is_known and len(partitions) <= MOST_PARTITIONS else None


def _numbered(first: int, count: int) -> tuple[Partition, ...]:
    return tuple(Partition(f"p{number}") for number in range(first, first + count))


def _definitions(group: tuple[Word, ...], method: Method, width: int) -> tuple[Partition, ...] | None:
    """The partitions that ``PARTITION name VALUES …, …`` defines; ``None`` if one of them is not understood."""
    found = [_definition(Cursor(part), method, width) for part in split_at_commas(group)]
    known = tuple(partition for partition in found if partition is not None)
    return known if len(known) == len(found) else None


def _definition(cursor: Cursor, method: Method, width: int) -> Partition | None:
    if not cursor.accept("PARTITION"):
        return None
    name = cursor.next().text
    if method is Method.HASH:
        return Partition(name)
    if method is Method.LIST and cursor.accept("DEFAULT"):
        return Partition(name, is_default=True)
    if method is Method.RANGE and cursor.accept("VALUES", "LESS", "THAN"):
        bound = (MAXVALUE,) if cursor.accept(MAXVALUE) else _tuple(cursor.group())
        return Partition(name, (bound,)) if len(bound) == width else None
    if method is Method.LIST and cursor.accept("VALUES", "IN"):
        parts = split_at_commas(cursor.group())
        listed = tuple(_listed_values(part, width) for part in parts if not _is_default(part))
        fits = bool(parts) and all(len(values) == width for values in listed)
        return Partition(name, listed, any(map(_is_default, parts))) if fits else None
    return None


def _listed_values(part: tuple[Word, ...], width: int) -> tuple[str, ...]:
    inner = Cursor(part).group()
    bracketed = bool(inner) and len(inner) == len(part) - 2
    return _tuple(inner if bracketed or width > 1 else part)


def _is_default(part: tuple[Word, ...]) -> bool:
    return len(part) == 1 and part[0].says("DEFAULT")


def _tuple(found: tuple[Word, ...]) -> tuple[str, ...]:
    """The values between commas, with MAXVALUE and NULL in upper case."""
    texts = []
    for part in split_at_commas(found):
        keyword = next((keyword for keyword in (MAXVALUE, NULL) if len(part) == 1 and part[0].says(keyword)), "")
        texts.append(keyword or rendered(part))
    return tuple(texts)
