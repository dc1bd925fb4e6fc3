"""Detects two rows of the source whose keys differ in their bytes but are equal by a collation of the target.

A source with new collations never has two such rows: before ``a`` is inserted, ``A`` is deleted. A TiDB without new collations
compares bytes, whatever collation a statement names, and can have both rows. The target would keep only the last one written. So if
the source's definition does not say which kind it is, a table stops as soon as two such rows are found.

``headrace.model.block.SIGHT`` has what a cut shows about a key that may be a former spelling of another one. An update without its
old row (CSV without old values) may have changed the key, and only then does a spelling disappear without a deletion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import BORN, DIED, KIND, SIGHT, UPDATED_ALONE
from headrace.model.collation import fold_text
from headrace.model.events import RowKind
from headrace.model.outcome import Problem
from headrace.model.table import Column, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, TypeKind
from headrace.sinks.base import SpellingWatch, TableChange, UniqueTexts
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.refusal import Refused
from headrace.sinks.mysql.text import literals, quote_name
from headrace.sinks.mysql.types import qualified

_LOOK_UPS = 100
"""The number of look-ups in one statement."""
_IN_LIST = 900
"""The number of values in one IN list; see the writer's deletes."""
_NUMBERS = frozenset({TypeKind.BIT, TypeKind.YEAR})
_ASK = "SELECT VARIABLE_VALUE FROM mysql.tidb WHERE VARIABLE_NAME = 'new_collation_enabled'"
_TELL = (
    f"Ask the source: {_ASK}. If that is False, set new-collations=false in the source's URI and run the ALTER TABLE that headrace "
    "validate then names. If it is True, look up the column's collation in the source with SHOW FULL COLUMNS FROM {table}: if it "
    "is {collation}, set new-collations=true, which ends this check; else alter the target's column to the source's."
)
_ALTER = "The source compares bytes (new-collations=false): run the ALTER TABLE that headrace validate names."

Values = tuple[str | None, ...]


@dataclass(frozen=True)
class _State:
    """The final state of a handle key in the change: its sight, and its row (``None``: deleted).

    ``place`` gives the commit order of keys that a target may consider equal, some of which end deleted and some alive.
    """

    place: int
    sight: int
    row: dict[str, str | None] | None


@dataclass(frozen=True)
class _Other:
    """A row of the target that row ``number`` would replace: its handle key, and the texts that differ.

    ``is_alike``: the target considers the handle keys of both equal.
    """

    number: int
    is_alike: bool
    handle: Values
    texts: Values


class Spellings:
    """The check of one table change, on the connection that writes it."""

    def __init__(self, session: MySqlSession, change: TableChange) -> None:
        assert change.watch is not None
        self._session, self._change = session, change
        self._watch: SpellingWatch = change.watch
        self._schema = change.target_schema
        self._handle = [self._schema.column(name) for name in self._schema.handle_key]
        carried = {folded_name(name) for name in change.upserts.column_names}
        # Nothing is known about a key with a column that rows do not carry.
        self._keys = [key for key in self._watch.keys if carried >= {name for name, _ in key.parts}]

    def expectations(self, rows: pa.Table, *, last_spellings: bool) -> Iterator[tuple[pa.Table, Collection[int] | None]]:
        """The rows in parts to be written one after another, each with the counts of replaced rows for which no check is needed.

        New keys replace nothing; any other row replaces itself. But for the last of several spellings, a deletion may have removed
        that row before. ``None``: no count needs a check.
        """
        if not self._keys:
            yield rows, None
            return
        if last_spellings:
            yield rows, (0,)
            return
        born = (_sights(rows) & BORN) != 0
        known = rows if not born.any() else rows.filter(pa.array(~born))
        if known.num_rows:
            yield known, (0, known.num_rows) if any(not self._is_handle(key) for key in self._keys) else None
        if born.any():
            yield rows if born.all() else rows.filter(pa.array(born)), (0,)

    def expected_deletes(self, rows: pa.Table) -> Iterator[tuple[pa.Table, bool]]:
        """The keys in two parts, each with whether all of its keys came and went in the cut: then the target has none of them."""
        born = (_sights(rows) & BORN) != 0
        for part, is_born in ((rows.filter(pa.array(~born)), False), (rows.filter(pa.array(born)), True)):
            if part.num_rows:
                yield part, is_born

    def turns(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Groups the rows so that rows whose keys may be equal are written one after another, in their order."""
        free: list[dict[Values, int]] = [defaultdict(int) for _ in self._keys]
        turn = np.zeros(rows.num_rows, dtype=np.int64)
        texts = _texts(rows, self._columns(self._keys))
        for number in range(rows.num_rows):
            row = {name: values[number] for name, values in texts.items()}
            groups = [(of_key, group) for of_key, key in zip(free, self._keys, strict=True) if (group := self._group(row, key))]
            turn[number] = max((of_key[group] for of_key, group in groups), default=0)
            for of_key, group in groups:
                of_key[group] = int(turn[number]) + 1
        for number in range(int(turn.max(initial=-1)) + 1):
            yield rows.filter(pa.array(turn == number))

    def refuse(self, rows: pa.Table) -> None:
        """Raises Refused if one of the rows would replace another row of the source. No two of the rows may have equal keys."""
        sights = _sights(rows)
        for key in self._keys:
            for other in self._others(rows, key):
                if not other.is_alike:
                    self._judge_other(rows, other, int(sights[other.number]), key)
                elif self._is_handle(key):  # any other key finds the row itself
                    self._judge_handle(self._handle_of(rows, other.number), other.handle, key)

    def refuse_overtaken(self, overtaken: Mapping[int, int]) -> None:
        """Raises Refused if an ordered row that is alive is not a former state of the row that overtakes it.

        ``overtaken`` has the numbers of such rows, each with that of the next row whose handle key the target considers equal.
        """
        key = self._handle_texts()
        if key is None or not overtaken:
            return
        handles = list(zip(*_texts(self._change.ordered, self._handle).values(), strict=True))
        for number, next_number in overtaken.items():
            former, own = handles[number], handles[next_number]
            if self._states[own].row is not None:
                self._judge_handle(own, former, key)
            elif not self._states[own].sight & UPDATED_ALONE and not self._third(own, former):
                raise self._refused(own, former, key)

    def refuse_deletes(self, rows: pa.Table) -> None:
        """Raises Refused if a key that was created and removed in the cut would delete a row with another spelling."""
        key = self._handle_texts()
        if key is None:
            return
        # Two of these keys may be equal. They could only hide a row of the change from each other, which does not matter.
        for other in self._others(rows, key):
            own = self._handle_of(rows, other.number)
            if self._states[own].sight & UPDATED_ALONE or other.handle in self._states or not other.is_alike:
                continue
            if not self._third(own, other.handle):
                raise self._refused(own, other.handle, key)

    def _judge_handle(self, own: Values, other: Values, key: UniqueTexts) -> None:
        sight = self._states[own].sight
        if (sight & UPDATED_ALONE and not sight & BORN) or self._third(own, other):
            return
        former = self._states.get(other)
        if former is not None and former.sight & UPDATED_ALONE:  # noqa: SIM102 -- the comment belongs to the second
            # Since the insert, updates without old rows may have changed one spelling into the other and back.
            if sight & UPDATED_ALONE or former.sight & DIED or former.place > self._states[own].place:
                return
        raise self._refused(own, other, key)

    def _third(self, one: Values, other: Values) -> bool:
        """Whether the row may have had a third spelling in between, through an update without its old row."""
        return any(self._states[v].sight & UPDATED_ALONE for v in self._alike(one) if v not in (one, other))

    def _judge_other(self, rows: pa.Table, other: _Other, sight: int, key: UniqueTexts) -> None:
        own = self._handle_of(rows, other.number)
        changed = self._states.get(other.handle)
        if changed is not None and (changed.row is None or self._texts_of(changed.row, key) != other.texts):
            return
        if sight & UPDATED_ALONE and not self._is_there(rows, other.number):
            return  # the other row may have been changed into this one
        if changed is None and not self._watch.whole:
            raise Refused(Problem(self._schema.table_id, "all of its changes are needed at once.", needs_whole=True))
        mine = {name: values[0] for name, values in _texts(rows.slice(other.number, 1), self._columns(self._keys)).items()}
        raise self._refused(self._texts_of(mine, key), other.texts, key, own, other.handle)

    def _refused(self, one: Values, other: Values, key: UniqueTexts, *rows: Values) -> Refused:
        names = ", ".join(self._schema.column(name).name for name, _ in key.parts if rows == () or name in key.texts)
        of_rows = f" (rows {_shown(rows[0])} and {_shown(rows[1])})" if rows else ""
        message = (
            f"two rows have the keys {_shown(other)} and {_shown(one)}{of_rows}, which the target's collation treats as equal, so "
            "one would replace the other."
        )
        table = self._schema.table_id
        collations = " or ".join(catalogue.collations(self._session, table, key.texts))
        hint = _ALTER if self._watch.new_collations is False else _TELL.format(table=qualified(table), collation=collations)
        return Refused(Problem(self._schema.table_id, message, column=names, hint=hint))

    def _others(self, rows: pa.Table, key: UniqueTexts) -> Iterator[_Other]:
        """The target's rows whose key is equal to that of one of these rows but differs from it in its bytes."""
        table = qualified(self._schema.table_id)
        literal = {folded_name(c.name): self._literals(rows, c) for c in self._columns([key])}
        size = dict(key.parts)
        handle = [_as_text(column) for column in self._handle]
        differing = [_cut(quote_name(self._schema.column(name).name), size[name]) for name, _ in key.parts if name in key.texts]
        wanted = ", ".join([*handle, *(f"CONVERT({text} USING utf8mb4)" for text in differing)])
        numbers = [n for n in range(rows.num_rows) if all(literal[name][n] != "NULL" for name, _ in key.parts)]
        if len(key.parts) == 1 and not key.parts[0][1]:
            numbers = self._suspects(rows, numbers, literal, key.parts[0][0])
        for start in range(0, len(numbers), _LOOK_UPS):
            branches = []
            for n in numbers[start : start + _LOOK_UPS]:
                equal, same = [], []
                for name, length in key.parts:
                    column, value = _cut(quote_name(self._schema.column(name).name), length), _cut(literal[name][n], length)
                    equal.append(f"{column} = {value}")
                    if name in key.texts:
                        same.append(f"CAST(CONVERT({column} USING utf8mb4) AS BINARY) = CAST({value} AS BINARY)")
                condition = f"{' AND '.join(equal)} AND NOT ({' AND '.join(same)})"
                branches.append(f"SELECT {n}, {self._own(literal, n)}, {wanted} FROM {table} WHERE {condition}")
            for number, is_alike, *values in self._session.find(branches, columns=2 + len(handle) + len(differing)):
                texts = tuple(None if value is None else str(value) for value in values)
                yield _Other(int(str(number)), bool(is_alike), texts[: len(handle)], texts[len(handle) :])

    def _suspects(self, rows: pa.Table, numbers: list[int], literal: dict[str, list[str]], name: str) -> list[int]:
        """The rows for which the target has a differing row, found many at a time: no two of them have equal keys."""
        column = quote_name(self._schema.column(name).name)
        texts = rows.column(self._schema.column(name).name).to_pylist()
        found = []
        for start in range(0, len(numbers), _IN_LIST):
            some = numbers[start : start + _IN_LIST]
            equal = ", ".join(literal[name][n] for n in some)
            same = ", ".join(f"x'{texts[n].encode().hex()}'" for n in some)
            differing = f"CAST(CONVERT({column} USING utf8mb4) AS BINARY) NOT IN ({same})"
            table = qualified(self._schema.table_id)
            if self._session.finds(f"SELECT 1 FROM {table} WHERE {column} IN ({equal}) AND {differing} LIMIT 1"):
                found += some
        return found

    def _is_there(self, rows: pa.Table, number: int) -> bool:
        """Whether the target has a row with this handle key."""
        literal = {folded_name(c.name): self._literals(rows, c) for c in self._handle}
        table = qualified(self._schema.table_id)
        return self._session.finds(f"SELECT 1 FROM {table} WHERE {self._own(literal, number)}")

    def _own(self, literal: dict[str, list[str]], number: int) -> str:
        return " AND ".join(f"{quote_name(c.name)} = {literal[folded_name(c.name)][number]}" for c in self._handle)

    def _literals(self, rows: pa.Table, column: Column) -> list[str]:
        found: list[str] = literals(rows, rows.column_names.index(column.name), column).to_pylist()
        return found

    def _handle_texts(self) -> UniqueTexts | None:
        return next((key for key in self._keys if self._is_handle(key)), None)

    def _is_handle(self, key: UniqueTexts) -> bool:
        """Whether it is the key on the handle's columns, or on prefixes of them."""
        return {name for name, _ in key.parts} == {folded_name(name) for name in self._schema.handle_key}

    def _columns(self, keys: Sequence[UniqueTexts]) -> list[Column]:
        """The columns of the handle key and of these keys."""
        names = {folded_name(c.name) for c in self._handle} | {name for key in keys for name, _ in key.parts}
        return [column for column in self._schema.columns if folded_name(column.name) in names]

    def _group(self, row: dict[str, str | None], key: UniqueTexts) -> Values:
        """One value for all keys that the target may consider equal; empty if a NULL makes the row distinct."""
        found = []
        for name, size in key.parts:
            text = row[name]
            if text is None:
                return ()
            if name in key.texts:
                text = fold_text(text[:size] if size else text, weighs_supplementary=name in self._watch.weighed)
            elif size:
                text = ""
            found.append(text)
        return tuple(found)

    def _texts_of(self, row: dict[str, str | None], key: UniqueTexts) -> Values:
        cut = ((row[name], size) for name, size in key.parts if name in key.texts)
        return tuple(text[:size] if text is not None and size else text for text, size in cut)

    def _handle_of(self, rows: pa.Table, number: int) -> Values:
        return tuple(values[0] for values in _texts(rows.slice(number, 1), self._handle).values())

    def _alike(self, handle: Values) -> list[Values]:
        """The handle keys of the change that the target may consider equal to this one."""
        return self._groups.get(self._folded(handle), [])

    def _folded(self, handle: Values) -> Values:
        names = [folded_name(column.name) for column in self._handle]
        of_text = [column.type.kind in CHARACTER_KINDS for column in self._handle]
        return tuple(
            fold_text(text, weighs_supplementary=name in self._watch.weighed) if folds and text is not None else text
            for text, name, folds in zip(handle, names, of_text, strict=True)
        )

    @cached_property
    def _groups(self) -> dict[Values, list[Values]]:
        groups: dict[Values, list[Values]] = defaultdict(list)
        for handle in self._states:
            groups[self._folded(handle)].append(handle)
        return groups

    @cached_property
    def _states(self) -> dict[Values, _State]:
        """The final state of each handle key of the change. Needed only if rows replace others."""
        change, states = self._change, dict[Values, _State]()
        upserts = change.ordered.column(KIND).to_pylist() if change.ordered.num_rows else []
        parts: Sequence[tuple[pa.Table, Callable[[int], bool]]] = (
            (change.deletes, lambda _: False),
            (change.ordered, lambda n: RowKind(upserts[n]).is_upsert),
            (change.upserts, lambda _: True),
        )
        for rows, is_alive in parts:
            if not rows.num_rows:
                continue
            handles = list(zip(*_texts(rows, self._handle).values(), strict=True))
            sights = _sights(rows)
            texts = _texts(rows, self._columns(self._keys)) if rows is not change.deletes else {}
            for number, handle in enumerate(handles):
                row = {name: values[number] for name, values in texts.items()} if is_alive(number) else None
                states[handle] = _State(len(states), int(sights[number]), row)
        return states


def _sights(rows: pa.Table) -> npt.NDArray[np.int8]:
    return np.asarray(rows.column(SIGHT).to_numpy(), dtype=np.int8)


def _texts(rows: pa.Table, columns: Sequence[Column]) -> dict[str, list[str | None]]:
    """The values in the form in which the server writes them as text (:func:`_as_text`), by folded column names."""
    found = {}
    for column in columns:
        values = rows.column(column.name)
        if column.type.kind in BINARY_KINDS:
            found[folded_name(column.name)] = [None if value is None else value.hex() for value in values.to_pylist()]
        else:
            found[folded_name(column.name)] = pc.cast(values, pa.large_string()).to_pylist()
    return found


def _as_text(column: Column) -> str:
    name = quote_name(column.name)
    if column.type.kind in BINARY_KINDS:
        return f"LOWER(HEX({name}))"
    if column.type.kind in _NUMBERS:
        return f"CAST({name} + 0 AS CHAR)"
    return f"CONVERT({name} USING utf8mb4)"


def _cut(text: str, length: int) -> str:
    return f"LEFT({text}, {length})" if length else text


def _shown(values: Values) -> str:
    return ", ".join(repr(value) for value in values)
