"""Generated columns that MySQL and MariaDB compute with other values than TiDB, because a conversion differs.

They write a FLOAT as text with six digits, and a DOUBLE with other exponents. MariaDB cuts the fraction of a time off where TiDB
rounds: for a number always, for a time with fewer digits unless the session has TIME_ROUND_FRACTIONAL, as Headrace's sessions have.
In a unique key, two values that become one make a row replace another. For an arbitrary expression only the columns that it reads
and the functions around them are known; so a float counts as converted in every function that is not known to keep numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    return differing_columns(schema, lambda *column: _cause(*column) or (_cut_digits(*column) if cuts_digits else ""))


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
    while len(expression) > 1 and expression[0].says("(") and _closing(expression, 0) == len(expression) - 1:
        expression = expression[1:-1]
    if len(expression) == 1 and not expression[0].is_literal and schema.has_column(expression[0].text):
        source = schema.column(expression[0].text)
        differs = converted_otherwise(source.type, column.type, source.name) is not None
        if source.type.kind in _TIMES and column.type.kind != source.type.kind:
            differs = _loses_fraction(source.type, column.type)
        return f"{source.name} is {_with_article(source.type)}, and becomes {_with_article(column.type)}" if differs else ""
    for at, word in enumerate(expression):
        is_function = not word.is_name and expression[at + 1 : at + 2] == (Word("("),)
        if word.is_literal or is_function or not schema.has_column(word.text):
            continue
        source = schema.column(word.text)
        if source.type.kind in _FLOATS:
            cause = _as_text(expression, at, column.type)
        elif source.type.kind in _TIMES and source.type.scale:
            cause = _as_number(expression, at, source.type, column.type)
        else:
            continue
        if cause:
            return f"{source.name} is {_with_article(source.type)}, and {cause}"
    return ""


def _as_text(expression: tuple[Word, ...], at: int, target: ColumnType) -> str:
    """What makes a text of the float at this place; empty if nothing does."""
    for start, operators, function in _around(expression, at):
        if operators & (_MATCHES_TEXT | {"BINARY", "COLLATE"}):
            return "is read as a text"
        if operators & _COMPARES:
            return ""
        if function in _CASTS:
            return f"becomes a text by {function}" if _cast_type(expression, start)[0] in _AS_TEXT else ""
        if function == "ISNULL":
            return ""
        if function not in _KEEPS_KIND | _OF_NUMBERS:
            return f"is an argument of {function}"
    return f"becomes {_with_article(target)}" if target.kind in _TEXTS else ""


def _as_number(expression: tuple[Word, ...], at: int, source: ColumnType, target: ColumnType) -> str:
    """What makes a number without the fraction of the time at this place; empty if nothing does."""
    for start, operators, function in _around(expression, at):
        if operators & (_COMPARES | _MATCHES_TEXT):
            return ""
        if function in _CASTS:
            kind, (_, digits) = _cast_type(expression, start)
            cuts = kind in _AS_INTEGER or (kind in ("DEC", "DECIMAL", "NUMERIC") and digits < (source.scale or 0))
            return f"becomes a number by {function}" if cuts else ""
        if function in _CUT_TIMES:
            return f"is an argument of {function}"
        if function not in _KEEPS_KIND | _GIVES_TIMES:
            return ""
    return f"becomes {_with_article(target)}" if _loses_fraction(source, target) else ""


def _cut_digits(column: Column, expression: tuple[Word, ...], schema: TableSchema) -> str:
    """Where a time may lose digits, other than in a conversion to a number; empty if it cannot."""
    places = (
        [(expression, column.type.scale or 0, f"it becomes {_with_article(column.type)}")] if column.type.kind in _TIMES else []
    )
    for at, word in enumerate(expression):
        if word.is_name or word.is_literal or expression[at + 1 : at + 2] != (Word("("),):
            continue
        inner, name = expression[at + 2 : _closing(expression, at + 1)], word.text.upper()
        if name in _CASTS:
            kind, (digits, _) = _cast_type(expression, at + 1)
            if kind in _TIME_NAMES:
                places.append((inner, digits, f"{name} makes it a {kind} with {digits} digits"))
        elif name in _WITHOUT_DIGITS:
            places.append((inner, 0, f"{name} makes it a time without digits"))
    lossy = (
        f"{cause}, and a time of the expression may have more" for words, n, cause in places if _may_have_more(words, n, schema)
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


def _around(expression: tuple[Word, ...], at: int) -> Iterator[tuple[int, frozenset[str], str]]:
    """The parentheses around a place, from the inner ones: where they open, the words beside, and the function in upper case.

    The words are those of the same argument and depth. The last one is the expression itself, with -1 and no function.
    """
    while at >= 0:
        start, beside = _before(expression, at)
        beside |= _after(expression, at)
        before = expression[start - 1] if start > 0 else None
        called = before is not None and not before.is_literal and not before.is_name and before.text[:1].isalpha()
        name = before.text.upper() if before is not None and called else ""
        is_operator = name in _BOUNDS | _COMPARES | _MATCHES_TEXT | {"NOT", "DIV"}
        yield start, frozenset(beside), "" if is_operator else name
        at = start


def _before(expression: tuple[Word, ...], at: int) -> tuple[int, set[str]]:
    """The opening parenthesis before a place, or -1, and the words between of the same argument."""
    depth, beside, same = 0, set[str](), True
    for place in range(at - 1, -1, -1):
        word = expression[place]
        depth += word.says(")") - word.says("(")
        if depth < 0:
            return place, beside
        keyword = "" if word.is_literal or word.is_name else word.text.upper()
        same = same and not (depth == 0 and keyword in _BOUNDS)
        if same and depth == 0:
            beside.add(keyword)
    return -1, beside


def _after(expression: tuple[Word, ...], at: int) -> set[str]:
    """The words after a place, up to the end of its argument."""
    depth, beside = 0, set[str]()
    for word in expression[at:]:
        depth += word.says("(") - word.says(")")
        keyword = "" if word.is_literal or word.is_name else word.text.upper()
        if depth < 0 or (depth == 0 and keyword in _BOUNDS):
            break
        if depth == 0:
            beside.add(keyword)
    return beside


def _closing(expression: tuple[Word, ...], start: int) -> int:
    depth = 0
    for place in range(start, len(expression)):
        depth += expression[place].says("(") - expression[place].says(")")
        if depth == 0:
            return place
    return -1


def _cast_type(expression: tuple[Word, ...], start: int) -> tuple[str, tuple[int, int]]:
    """The type in ``CAST(… AS DECIMAL(10, 2))`` or ``CONVERT(…, CHAR)``, and the two numbers after it, 0 where there is none."""
    inner = expression[start + 1 : _closing(expression, start)]
    depth, kind = 0, 0
    for place, word in enumerate(inner):
        depth += word.says("(") - word.says(")")
        if depth == 0 and (word.says("AS") or word.says(",") or word.says("USING")):
            kind = place + 1
    using = kind > 0 and inner[kind - 1].says("USING")
    name = "CHAR" if using else inner[kind].text.upper() if kind < len(inner) else ""
    numbers = [int(word.text) for word in inner[kind + 1 :] if word.is_literal and word.text.isdigit()]
    first, second, *_ = *numbers, 0, 0
    return name, (first, second)


def _with_article(column_type: ColumnType) -> str:
    text = str(column_type)
    return f"{'an' if text[0] in 'AEIOU' else 'a'} {text}"
