"""Checks that the query of a view only reads tables, and finds these tables.

Each word is checked like a word of an expression. sqlglot finds the tables. The words then show whether it found all of them: each
table after FROM or JOIN, and each name before a dot, must be among the names that sqlglot found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.ddl.bounded_parser import parse
from headrace.ddl.grammar.effort import Effort
from headrace.ddl.grammar.expressions import count, look_at
from headrace.ddl.grammar.reader import NotAcceptedError, Reader, is_name
from headrace.ddl.grammar.vocabulary import OF_QUERIES
from headrace.ddl.lexer import Cursor, Word, rendered
from headrace.model.table import TableId, folded_name

_WITHOUT_TEXT = Word("", is_literal=True, written="''")
"""In place of each text: no table is named in one, and sqlglot would parse some of them."""
MOST_READ = 200
"""The most SELECTs and tables of a view, with those of each common table expression (CTE) and view as often as it is named. The
server copies a CTE for each use: if 15 of them each name the former one twice, MariaDB needs 7.5 GB for CREATE VIEW."""
_MOST_WORDS = 10_000
_NO_TABLE_BEHIND = frozenset({"SUBSTRING", "SUBSTR", "MID", "TRIM", "EXTRACT"})
_OPTIONS_OF_CHECK = (("WITH", "CASCADED", "CHECK", "OPTION"), ("WITH", "LOCAL", "CHECK", "OPTION"), ("WITH", "CHECK", "OPTION"))


def query(reader: Reader) -> None:
    """Reads the rest of the statement as a query, with or without ``WITH CHECK OPTION``. Raises NotAcceptedError."""
    rest = reader.rest()
    if len(rest) > _MOST_WORDS:
        reader.fail(f"the query of the view has more than {_MOST_WORDS:,} words")
    found = _without_check_option(rest)
    checked, depth, effort = len(rest) - len(found), 0, Effort()
    while not reader.done:
        word = reader.next()
        if why := effort.read(word, reader.peek()):
            reader.fail(why)
        depth += word.says("(") - word.says(")")
        if depth < 0:
            reader.fail("its parentheses do not match")
        of_query = reader.length - reader.at >= checked  # WITH CHECK OPTION after it has other words
        if of_query and not _names_columns(reader, found, checked):
            look_at(reader, word, OF_QUERIES)
        if word.says("FOR") and not reader.peek().is_literal:
            reader.fail("the query of the view has FOR")
    count(reader, effort.of_searches)
    tree = _parsed(rendered([_WITHOUT_TEXT if word.is_text else word for word in found]))
    tables, known = _tables(tree, reader.database)
    _check_qualifiers(found, known)
    _check_sources(found, known)
    times = _times(tree)
    reader.queries = sum(times[id(select)] for select in tree.find_all(exp.Select))
    if reader.queries + sum(times[id(table)] for table, _ in tables) > MOST_READ:
        reader.fail(
            f"the query of the view has more than {MOST_READ} tables and SELECTs, with those of each CTE as often as it is named"
        )
    reader.reads = tuple(table_id for table, table_id in tables for _ in range(times[id(table)]))


def _names_columns(reader: Reader, found: tuple[Word, ...], checked: int) -> bool:
    """Whether the word that was just read is the name of a common table expression, followed by the names of its columns."""
    at = len(found) + checked - (reader.length - reader.at) - 1
    if not reader.peek().says("(") or at < 1 or not any(found[at - 1].says(k) for k in ("WITH", "RECURSIVE", ",")):
        return False
    columns = Cursor(found, at + 1)
    inside = columns.group()
    are_names = all(word.says(",") if place % 2 else is_name(word) for place, word in enumerate(inside))
    return bool(inside) and are_names and columns.accept("AS", "(")


def _without_check_option(found: tuple[Word, ...]) -> tuple[Word, ...]:
    for option in _OPTIONS_OF_CHECK:
        if len(found) > len(option) and all(w.says(k) for w, k in zip(found[-len(option) :], option, strict=True)):
            return found[: -len(option)]
    return found


def _parsed(text: str) -> exp.Expression:
    """The query, if it only reads. Raises NotAcceptedError."""
    try:
        parsed = parse(text)
    except SqlglotError:
        raise NotAcceptedError("the query of the view cannot be read") from None
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise NotAcceptedError("the definition of the view is not a query")
    tree = parsed[0].unnest()
    if tree.find(exp.Command, exp.Into, exp.Lock):
        raise NotAcceptedError("the query of the view does more than read")
    if sum(1 for _ in tree.find_all(exp.With)) > (tree.args.get("with_") is not None):
        raise NotAcceptedError("the query of the view has WITH in a part of it")
    return tree


def _times(tree: exp.Expression) -> Mapping[int, int]:
    """For each SELECT and table, by its ``id``: how often the server reads it, if it copies each CTE for each use.

    More than :data:`MOST_READ` counts as one more. With RECURSIVE, servers let a CTE name later ones. Raises NotAcceptedError.
    """
    with_ = tree.root().args.get("with_")
    parts = {folded_name(cte.alias): cte for cte in with_.expressions} if with_ is not None else {}
    if with_ is not None and len(parts) < len(with_.expressions):
        raise NotAcceptedError("two common table expressions of the view have the same name")
    named = {name: _named_by(cte) for name, cte in parts.items()}
    inside = {id(table) for cte in parts.values() for table in cte.find_all(exp.Table)}
    outer = Counter(folded_name(table.name) for table in tree.root().find_all(exp.Table) if id(table) not in inside)
    used_by: dict[str, list[str]] = {name: [] for name in parts}
    for name, names in named.items():
        for other in names.keys() & parts.keys() - {name}:
            used_by[other].append(name)
    found, uses = Counter[int](), dict[str, int]()
    for part in tree.root().find_all(exp.Select, exp.Table):
        found[id(part)] = 1
    try:
        for name in TopologicalSorter(used_by).static_order():
            times = outer[name] + sum(uses[other] * named[other][name] for other in used_by[name])
            uses[name] = min(max(1, times), MOST_READ + 1)
            found.update({id(part): uses[name] - 1 for part in parts[name].find_all(exp.Select, exp.Table)})
    except CycleError:
        raise NotAcceptedError("common table expressions of the view name one another") from None
    return found


def _named_by(cte: exp.Expression) -> Counter[str]:
    return Counter(folded_name(table.name) for table in cte.find_all(exp.Table))


def _tables(tree: exp.Expression, database: str) -> tuple[list[tuple[exp.Table, TableId]], frozenset[str]]:
    """The tables of a query, each as often as it is named, and every folded name that may stand before a dot or after FROM in it.

    Raises NotAcceptedError.
    """
    visible = _visible_names(tree)
    tables: list[tuple[exp.Table, TableId]] = []
    known = {folded_name(cte.alias) for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if table.args.get("catalog") or not table.name:
            raise NotAcceptedError("the query of the view names a table by more than database and name")
        known |= {folded_name(name) for name in (table.db, table.name, table.alias) if name}
        if not TableId(table.db, table.name).is_possible:
            raise NotAcceptedError("the query of the view names a table by a name that no table can have")
        if table.db or table.name not in visible.get(id(table), ()):
            tables.append((table, TableId(table.db or database, table.name)))
    known |= {folded_name(named.alias) for named in tree.find_all(exp.Subquery) if named.alias}
    return tables, frozenset(known)


def _visible_names(tree: exp.Expression) -> dict[int, Container[str]]:
    """For each table, by its ``id``: the names of the common table expressions (CTEs) that the table's name may refer to.

    Inside a CTE these are the earlier ones, and with RECURSIVE also the CTE itself. Names are compared as they are spelled, because
    servers differ in how they fold letters outside of ASCII.
    """
    with_ = tree.root().args.get("with_")
    if with_ is None:
        return {}
    places: dict[str, int] = {}
    for at, cte in enumerate(with_.expressions):
        places.setdefault(cte.alias, at)
    of_recursive = bool(with_.recursive)
    found: dict[int, Container[str]] = {id(table): places for table in tree.root().find_all(exp.Table)}
    for at, cte in enumerate(with_.expressions):
        earlier = _Earlier(places, at + of_recursive)
        found.update((id(table), earlier) for table in cte.find_all(exp.Table))
    return found


@dataclass(frozen=True)
class _Earlier:
    """The names whose places are before ``end``."""

    places: Mapping[str, int]
    end: int

    def __contains__(self, name: object) -> bool:
        return self.places.get(str(name), self.end) < self.end


def _check_qualifiers(found: tuple[Word, ...], known: frozenset[str]) -> None:
    for at, word in enumerate(found[:-1]):
        if found[at + 1].says(".") and folded_name(word.text) not in known and not (at and found[at - 1].says(".")):
            raise NotAcceptedError(f"the query of the view names {word.text}, which is none of its tables")


def _check_sources(found: tuple[Word, ...], known: frozenset[str]) -> None:
    for word in _behind_from(found):
        if not word.says("(") and not word.says("LATERAL") and not word.says("DUAL") and folded_name(word.text) not in known:
            raise NotAcceptedError(f"the query of the view reads {word.text}, which is none of its tables")


def _behind_from(found: tuple[Word, ...]) -> Iterator[Word]:
    """The first word after each FROM and JOIN, except after the FROM of a function such as TRIM."""
    called: list[str] = []
    for at, word in enumerate(found[:-1]):
        if word.says("("):
            called.append(found[at - 1].text.upper() if at else "")
        elif word.says(")") and called:
            called.pop()
        is_of_function = word.says("FROM") and bool(called) and called[-1] in _NO_TABLE_BEHIND
        if (word.says("FROM") or word.says("JOIN") or word.says("STRAIGHT_JOIN")) and not is_of_function:
            yield found[at + 1]
