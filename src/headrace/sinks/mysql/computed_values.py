"""Generated columns that MySQL and MariaDB compute with other values than TiDB, because a conversion differs.

They write a FLOAT as text with six digits, and a DOUBLE with other exponents. MariaDB cuts the fraction of a time off where TiDB
rounds: for a number always, for a time with fewer digits unless the session has TIME_ROUND_FRACTIONAL, as Headrace's sessions have.
In a unique key, two values that become one make a row replace another. For an arbitrary expression only the columns that it reads
and the functions around them are known; so a float counts as converted in every function that is not known to keep numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from headrace.ddl.generated import DifferingColumn, differing_columns, first_defined
from headrace.ddl.lexer import Word
from headrace.model.events import SchemaChange
from headrace.model.outcome import Problem
from headrace.model.table import Column, TableSchema
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.type_changes import converted_otherwise
from headrace.sinks.mysql.zones import way_out

_FLOATS = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_TIMES = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_TEXTS = CHARACTER_KINDS | BINARY_KINDS | {TypeKind.JSON}
_KEEPS_KIND = frozenset({"", "COALESCE", "GREATEST", "IF", "IFNULL", "LEAST", "NULLIF"})
"""Functions, and plain parentheses, whose value may be the argument's."""
_OF_NUMBERS = frozenset(
    {
        *("ABS", "ACOS", "ASIN", "ATAN", "ATAN2", "CEIL", "CEILING", "COS", "COT"),
        *("DEGREES", "EXP", "FLOOR", "LN", "LOG", "LOG10", "LOG2", "MOD", "POW"),
        *("POWER", "RADIANS", "ROUND", "SIGN", "SIN", "SQRT", "TAN", "TRUNCATE"),
    }
)
_CUT_TIMES = _OF_NUMBERS | frozenset(["BIN", "BIT_COUNT", "CHAR", "CONV", "ELT", "MAKE_SET", "OCT", "TIME_TO_SEC"])
"""Functions that make a number of a time; and TIME_TO_SEC, which on MariaDB keeps the fraction."""
_GIVES_TIMES = frozenset(["ADDDATE", "ADDTIME", "DATE_ADD", "DATE_SUB", "SUBDATE", "SUBTIME", "TIME", "TIMEDIFF", "TIMESTAMP"])
_WITHOUT_DIGITS = frozenset(["TIME", "TIMESTAMP"])
"""MariaDB takes their values as times without digits, whatever the argument has."""
_TIME_NAMES = frozenset(["DATETIME", "TIME", "TIMESTAMP"])
_MOST_DIGITS = 6
_MOST_OF_LENGTH = 9
"""The most digits of a type's length that are read."""
_WHOLE_KINDS = INTEGER_KINDS | {TypeKind.DATE, TypeKind.YEAR}
_ADDS_NO_DIGITS = (_KEEPS_KIND - {""}) | {
    *(
        "ADDDATE",
        "AND",
        "CASE",
        "CAST",
        "CONVERT",
        "CONVERT_TZ",
        "DATE",
        "DATE_ADD",
        "DATE_SUB",
        "ELSE",
        "IN",
        "INTERVAL",
        "LAST_DAY",
    ),
    *("NOT", "OR", "SUBDATE", "THEN", "TIME", "TIMESTAMP", "TIMESTAMPADD", "WHEN"),
}
"""Functions, and words before a parenthesis, that give a time no more digits than their arguments have."""
_CASTS = frozenset({"CAST", "CONVERT"})
_AS_TEXT = frozenset({"BINARY", "CHAR", "CHARACTER", "JSON", "NCHAR", "VARCHAR"})
_AS_INTEGER = frozenset({"INT", "INTEGER", "SIGNED", "UNSIGNED"})
_BOUNDS = frozenset({",", "AND", "CASE", "ELSE", "END", "OR", "THEN", "WHEN", "XOR", "&&", "||"})
_COMPARES = frozenset({"!=", "<", "<=", "<=>", "<>", "=", ">", ">=", "BETWEEN", "IN", "IS"})
_MATCHES_TEXT = frozenset({"LIKE", "REGEXP", "RLIKE"})


def computed_otherwise(schema: TableSchema, *, cuts_digits: bool = False) -> list[DifferingColumn]:
    """The generated columns of a table whose values may differ from TiDB's.

    ``cuts_digits``: sessions of other programs cut digits of a time off where TiDB rounds them, as MariaDB's do unless they set
    TIME_ROUND_FRACTIONAL. A virtual column is computed by the session that reads it.
    """
    return list(_computed_otherwise(schema, cuts_digits))


@lru_cache(maxsize=256)
def _computed_otherwise(schema: TableSchema, cuts_digits: bool) -> tuple[DifferingColumn, ...]:
    """The same, remembered, because each cut asks for its tables."""
    return tuple(differing_columns(schema, lambda *column: _cause(*column) or (_cut_digits(*column) if cuts_digits else "")))


def refuse_computed_otherwise(session: MySqlSession, change: SchemaChange) -> None:
    """Raises SchemaChangeRefused for a statement that defines such a column, or a column that one reads."""
    if session.is_tidb or change.by_shape or change.schema is None:  # a shape has no generated columns
        return
    found = first_defined(
        change.statement, change.schema.table_id.database, computed_otherwise(change.schema, cuts_digits=session.is_mariadb)
    )
    if found is None:
        return
    message = (
        f"generated column {found.column.name} converts a value in another way than TiDB ({found.cause}), so that the target would"
        " compute other values than the source."
    )
    hint = way_out(found.column)
    raise SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, column=found.column.name, hint=hint))


def _cause(column: Column, expression: tuple[Word, ...], schema: TableSchema) -> str:
    expression = _without_parentheses(expression)
    if len(expression) == 1 and not expression[0].is_literal and schema.has_column(expression[0].text):
        source = schema.column(expression[0].text)
        differs = converted_otherwise(source.type, column.type, source.name) is not None
        if source.type.kind in _TIMES and column.type.kind != source.type.kind:
            differs = _loses_fraction(source.type, column.type)
        return f"{source.name} is {_with_article(source.type)}, and becomes {_with_article(column.type)}" if differs else ""
    places = _Places(expression)
    for at, word in enumerate(expression):
        is_function = not word.is_name and expression[at + 1 : at + 2] == (Word("("),)
        if word.is_literal or is_function or not schema.has_column(word.text):
            continue
        source = schema.column(word.text)
        if source.type.kind in _FLOATS:
            cause = _as_text(places, at, column.type)
        elif source.type.kind in _TIMES and source.type.scale:
            cause = _as_number(places, at, source.type, column.type)
        else:
            continue
        if cause:
            return f"{source.name} is {_with_article(source.type)}, and {cause}"
    return ""


def _as_text(places: _Places, at: int, target: ColumnType) -> str:
    """What makes a text of the float at this place; empty if nothing does."""
    for start, operators, function in places.around(at):
        if operators & (_MATCHES_TEXT | {"BINARY", "COLLATE"}):
            return "is read as a text"
        if operators & _COMPARES:
            return ""
        if function in _CASTS:
            return f"becomes a text by {function}" if places.cast_type(start)[0] in _AS_TEXT else ""
        if function == "ISNULL":
            return ""
        if function not in _KEEPS_KIND | _OF_NUMBERS:
            return f"is an argument of {function}"
    return f"becomes {_with_article(target)}" if target.kind in _TEXTS else ""


def _as_number(places: _Places, at: int, source: ColumnType, target: ColumnType) -> str:
    """What makes a number without the fraction of the time at this place; empty if nothing does."""
    for start, operators, function in places.around(at):
        if operators & (_COMPARES | _MATCHES_TEXT):
            return ""
        if function in _CASTS:
            kind, (_, digits) = places.cast_type(start)
            cuts = kind in _AS_INTEGER or (kind in ("DEC", "DECIMAL", "NUMERIC") and digits < (source.scale or 0))
            return f"becomes a number by {function}" if cuts else ""
        if function in _CUT_TIMES:
            return f"is an argument of {function}"
        if function not in _KEEPS_KIND | _GIVES_TIMES:
            return ""
    return f"becomes {_with_article(target)}" if _loses_fraction(source, target) else ""


def _cut_digits(column: Column, expression: tuple[Word, ...], schema: TableSchema) -> str:
    """Where a time may lose digits, other than in a conversion to a number; empty if it cannot."""
    lossy_to = (
        [(expression, column.type.scale or 0, f"it becomes {_with_article(column.type)}")] if column.type.kind in _TIMES else []
    )
    places = _Places(expression)
    for at, word in enumerate(expression):
        if word.is_name or word.is_literal or expression[at + 1 : at + 2] != (Word("("),):
            continue
        inner, name = expression[at + 2 : places.closing.get(at + 1, -1)], word.text.upper()
        if name in _CASTS:
            kind, (digits, _) = places.cast_type(at + 1)
            if kind in _TIME_NAMES:
                lossy_to.append((inner, digits, f"{name} makes it a {kind} with {digits} digits"))
        elif name in _WITHOUT_DIGITS:
            lossy_to.append((inner, 0, f"{name} makes it a time without digits"))
    lossy = (
        f"{cause}, and a time of the expression may have more" for words, n, cause in lossy_to if _may_have_more(words, n, schema)
    )
    return next(lossy, "")


def _may_have_more(expression: tuple[Word, ...], digits: int, schema: TableSchema) -> bool:
    """Whether an expression may give a time with more digits than these. Only what is known to give none is let pass."""
    if digits >= _MOST_DIGITS:
        return False
    for at, word in enumerate(expression):
        is_function = not word.is_name and not word.is_literal and expression[at + 1 : at + 2] == (Word("("),)
        if word.is_literal:
            lossy = not word.text.isdigit()
        elif is_function and word.text[:1].isalpha():
            lossy = word.text.upper() not in _ADDS_NO_DIGITS
        elif schema.has_column(word.text):
            source = schema.column(word.text).type
            lossy = (source.scale or 0) > digits if source.kind in _TIMES else source.kind not in _WHOLE_KINDS
        else:
            lossy = word.text.upper().endswith("MICROSECOND")
        if lossy:
            return True
    return False


def _loses_fraction(source: ColumnType, target: ColumnType) -> bool:
    digits = source.scale or 0
    return digits > 0 and (target.kind in INTEGER_KINDS or (target.kind is TypeKind.DECIMAL and max(target.scale or 0, 0) < digits))


def _without_parentheses(expression: tuple[Word, ...]) -> tuple[Word, ...]:
    """The expression without parentheses around all of it."""
    closing, around = _Places(expression).closing, 0
    while closing.get(around) == len(expression) - 1 - around:
        around += 1
    return expression[around : len(expression) - around]


@dataclass(frozen=True, eq=False)
class _Argument:
    """A part of an expression: inside one parenthesis, and between commas, AND, OR and the words of CASE."""

    start: int
    """The place of its opening parenthesis; -1 for the expression itself."""
    outer: _Argument | None
    """The argument that its parenthesis is part of."""
    words: set[str] = field(default_factory=set)
    """Its keywords and signs, without those in parentheses."""


class _Places:
    """The parentheses of an expression. They are read in one pass, since an expression may read thousands of columns."""

    def __init__(self, expression: tuple[Word, ...]) -> None:
        self._expression = expression
        self._arguments: list[_Argument] = []
        """The argument that each word is part of."""
        self._cast_types: dict[int, tuple[str, tuple[int, int]]] = {}
        self.closing: dict[int, int] = {}
        """The place where each parenthesis closes, by that where it opens."""
        argument = _Argument(-1, None)
        for place, word in enumerate(expression):
            if word.says(")") and argument.outer is not None:
                self.closing[argument.start] = place
                argument = argument.outer
            self._arguments.append(argument)
            keyword = "" if word.is_literal or word.is_name else word.text.upper()
            if word.says("("):
                argument = _Argument(place, argument)
            elif keyword in _BOUNDS:
                argument = _Argument(argument.start, argument.outer)
            else:
                argument.words.add(keyword)

    def around(self, at: int) -> Iterator[tuple[int, set[str], str]]:
        """The parentheses around a place, from the inner ones: where they open, the words beside, and the function in upper case.

        The words are those of the same argument and depth. The last one is the expression itself, with -1 and no function.
        """
        argument: _Argument | None = self._arguments[at]
        while argument is not None:
            before = self._expression[argument.start - 1] if argument.start > 0 else None
            called = before is not None and not before.is_literal and not before.is_name and before.text[:1].isalpha()
            name = before.text.upper() if before is not None and called else ""
            is_operator = name in _BOUNDS | _COMPARES | _MATCHES_TEXT | {"NOT", "DIV"}
            yield argument.start, argument.words, "" if is_operator else name
            argument = argument.outer

    def cast_type(self, start: int) -> tuple[str, tuple[int, int]]:
        """The type in ``CAST(… AS DECIMAL(10, 2))`` or ``CONVERT(…, CHAR)``, and the two numbers after it, 0 for none."""
        if start not in self._cast_types:
            self._cast_types[start] = _cast_type(self._expression[start + 1 : self.closing.get(start, -1)])
        return self._cast_types[start]


def _cast_type(inner: tuple[Word, ...]) -> tuple[str, tuple[int, int]]:
    depth, kind = 0, 0
    for place, word in enumerate(inner):
        depth += word.says("(") - word.says(")")
        if depth == 0 and (word.says("AS") or word.says(",") or word.says("USING")):
            kind = place + 1
    using = kind > 0 and inner[kind - 1].says("USING")
    name = "CHAR" if using else inner[kind].text.upper() if kind < len(inner) else ""
    digits = (word.written for word in inner[kind + 1 :] if word.is_literal and word.written.isdecimal())
    numbers = [int(number) for number in digits if len(number) <= _MOST_OF_LENGTH]
    first, second, *_ = *numbers, 0, 0
    return name, (first, second)


def _with_article(column_type: ColumnType) -> str:
    text = str(column_type)
    return f"{'an' if text[0] in 'AEIOU' else 'a'} {text}"
