"""Checks that the query of a view only reads tables, and finds these tables.

Each word is checked like a word of an expression. sqlglot finds the tables. The words then show whether it found all of them: each
table after FROM or JOIN, and each name before a dot, must be among the names that sqlglot found.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.ddl.bounded_parser import parse
from headrace.ddl.grammar.depth import Depth
from headrace.ddl.grammar.expressions import look_at
from headrace.ddl.grammar.reader import NotAcceptedError, Reader, is_name
from headrace.ddl.grammar.vocabulary import OF_QUERIES
from headrace.ddl.lexer import Cursor, Word, rendered
from headrace.model.table import TableId, folded_name

_WITHOUT_TEXT = Word("", is_literal=True, written="''")
"""In place of each text: no table is named in one, and sqlglot would parse some of them."""
_MOST_DEPTH = 50
_MOST_WORDS = 10_000
_NO_TABLE_BEHIND = frozenset({"SUBSTRING", "SUBSTR", "MID", "TRIM", "EXTRACT"})
_OPTIONS_OF_CHECK = (("WITH", "CASCADED", "CHECK", "OPTION"), ("WITH", "LOCAL", "CHECK", "OPTION"), ("WITH", "CHECK", "OPTION"))


def query(reader: Reader) -> tuple[TableId, ...]:
    """Reads the rest of the statement as a query, with or without ``WITH CHECK OPTION``.

    Returns the tables that the query reads, each as often as it is named. Raises NotAcceptedError.
    """
    rest = reader.rest()
    if len(rest) > _MOST_WORDS:
        reader.fail(f"the query of the view has more than {_MOST_WORDS:,} words")
    found = _without_check_option(rest)
    checked, depth, nested = len(rest) - len(found), 0, Depth()
    while not reader.done:
        word = reader.next()
        if why := nested.excess(word, reader.peek()):
            reader.fail(why)
        depth += word.says("(") - word.says(")")
        if depth < 0 or depth > _MOST_DEPTH:
            reader.fail(f"its parentheses do not match, or are nested more than {_MOST_DEPTH} deep")
        of_query = reader.length - reader.at >= checked  # WITH CHECK OPTION after it has other words
        if of_query and not _names_columns(reader, found, checked):
            look_at(reader, word, OF_QUERIES)
        if word.says("FOR") and not reader.peek().is_literal:
            reader.fail("the query of the view has FOR")
    tables, known = _tables(rendered([_WITHOUT_TEXT if word.is_text else word for word in found]), reader.database)
    _check_qualifiers(found, known)
    _check_sources(found, known)
    return tables


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


def _tables(text: str, database: str) -> tuple[tuple[TableId, ...], frozenset[str]]:
    """The tables of a query, and every folded name that may stand before a dot or after FROM in it. Raises NotAcceptedError."""
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
    visible = _visible_names(tree)
    tables: list[TableId] = []
    known = {folded_name(cte.alias) for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if table.args.get("catalog") or not table.name:
            raise NotAcceptedError("the query of the view names a table by more than database and name")
        known |= {folded_name(name) for name in (table.db, table.name, table.alias) if name}
        if not TableId(table.db, table.name).is_possible:
            raise NotAcceptedError("the query of the view names a table by a name that no table can have")
        if table.db or table.name not in visible.get(id(table), ()):
            tables.append(TableId(table.db or database, table.name))
    known |= {folded_name(named.alias) for named in tree.find_all(exp.Subquery) if named.alias}
    return tuple(tables), frozenset(known)


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
