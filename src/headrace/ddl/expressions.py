"""Translates expressions of generated columns and partitions from MySQL's SQL to DuckDB's.

sqlglot parses and writes the expressions. The rules here ensure that the values are the same, because equal text may mean different
things: DuckDB overflows in narrow integers, rounds integer divisions differently, and fails on a division by zero where TiDB gives
NULL. So a function or an operator is translated only with operands for which both give the same value. Everything else raises
:class:`UntranslatableError`, because a missing column is better than a wrong one.

Comparisons of texts have no rules, because their meaning depends on the collation. The exception is a condition that compares a
column for equality with given texts: it can be checked against the existing values.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from headrace.ddl.bounded_parser import parse, silent_sqlglot
from headrace.ddl.expression_values import (
    EXACT,
    MOMENTS,
    MOST_DIGITS,
    NUMBERS,
    SPELLED_ALIKE,
    TARGETS,
    Family,
    UntranslatableError,
    Value,
    cast,
    common,
    counting,
    days,
    family_of,
    is_long,
    is_text,
    not_zero,
    replaced,
    rounds,
    undressed,
    wide,
    wider,
)
from headrace.model.table import TableSchema
from headrace.model.types import CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind

_CHARACTER_SETS = frozenset({"_utf8mb4", "_utf8", "_ascii"})
_PLAIN_PATH = re.compile(r"\$(\.[A-Za-z_]\w*|\.\"[^\"\\']*\"|\[[1-9]\d*\])*")  # in MySQL [0] also matches a non-array
_DIGITS_OF_QUOTIENT = 9  # the digits after the point that TiDB keeps when it divides an integer by an integer
_WRITTEN_MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
_DAY_0001_01_01 = 366  # as TO_DAYS counts
_SECONDS_OF_DAY = 86400
_LONGEST = 65_536  # characters of an expression, which takes about a second to read
_NO_CHARACTER = "\ufdd0"  # occurs in no text: Unicode reserves it for internal use in programs
# In the text of a JSON value: the part before a comma or colon outside of strings, and that comma or colon.
_JSON_SIGNS = r'((?:"(?:[^"\\]|\\.)*"|[^",:])*)([,:])'


@dataclass(frozen=True)
class Computation:
    """An expression in DuckDB's SQL.

    ``size`` is its number of operators, functions, values and names. ``columns`` is how often it names each column.
    """

    sql: str
    size: int
    columns: Mapping[str, int]


def to_duckdb(expression: str, target: ColumnType, schema: TableSchema) -> Computation:
    """The expression of a column of type ``target``, without the cast to that type.

    ``schema`` has the types of the columns that the expression names. Raises UntranslatableError.
    """
    with _within_reach():
        return _to_duckdb(expression, target, schema)


def _to_duckdb(expression: str, target: ColumnType, schema: TableSchema) -> Computation:
    value = _Translation(schema).value(_read(expression))
    while isinstance(value.node, exp.Paren):
        value = replace(value, node=value.node.this)
    if value.family is Family.TEXT and target.kind not in CHARACTER_KINDS and _names_members(value.node, schema):
        raise UntranslatableError  # the number of a member is its place
    if value.is_mixed and target.kind in CHARACTER_KINDS:
        raise UntranslatableError
    if target.kind not in TARGETS[value.family] or is_long(target) or rounds(value, target, schema):
        raise UntranslatableError
    node = value.node
    if target.kind is TypeKind.CHAR and value.family is Family.TEXT:  # a CHAR is read without trailing spaces
        node = exp.Anonymous(this="rtrim", expressions=[node, exp.Literal.string(" ")])
    return Computation(node.sql(dialect="duckdb"), sum(1 for _ in node.walk()), _columns_in(node))


def _names_members(node: Any, schema: TableSchema) -> bool:
    """Whether the expression contains an ENUM or SET column."""
    kinds = {schema.column(c.name).type.kind for c in node.find_all(exp.Column) if schema.has_column(c.name)}
    return not kinds.isdisjoint((TypeKind.ENUM, TypeKind.SET))


@dataclass(frozen=True)
class Condition:
    """A condition in DuckDB's SQL, and how often it names each column, with the names in the table's shape.

    ``texts`` are the texts that each text column is compared with. DuckDB compares exactly. That is correct only if the column has
    no other value that the source's collation may treat as equal to one of these texts.
    """

    sql: str
    columns: Mapping[str, int]
    texts: Mapping[str, frozenset[str]] = field(default_factory=dict)


def condition_to_duckdb(expression: str, schema: TableSchema) -> Condition:
    """The condition for rows of a table of this shape. Raises UntranslatableError."""
    translation = _Translation(schema, compares_texts=True)
    with _within_reach():
        node = translation.condition(_read(expression))
        texts = {name: frozenset(found) for name, found in translation.texts.items()}
        return Condition(node.sql(dialect="duckdb"), _columns_in(node), texts)


def _columns_in(node: Any) -> Mapping[str, int]:
    return Counter(column.name for column in node.find_all(exp.Column))


@contextmanager
def _within_reach() -> Iterator[None]:
    """Raises UntranslatableError for an expression nested too deeply for sqlglot. DuckDB could hardly handle it either."""
    try:
        with silent_sqlglot():
            yield
    except RecursionError:
        raise UntranslatableError from None


def _read(expression: str) -> Any:
    if len(expression) > _LONGEST:
        raise UntranslatableError
    try:
        # REPLACE(…) without SELECT would be parsed as a statement.
        parsed = parse(f"SELECT {_without_introducers(expression)}")
    except SqlglotError as error:
        raise UntranslatableError from error
    selected = parsed[0].args["expressions"] if len(parsed) == 1 and isinstance(parsed[0], exp.Select) else []
    if len(selected) != 1:
        raise UntranslatableError
    return selected[0]


def _without_introducers(expression: str) -> str:
    """The expression without character set introducers.

    TiDB writes ``_UTF8MB4'x'`` for every text, and sqlglot recognises JSON paths and formats only as plain literals.
    """
    kept, at = [], 0
    for token in MySQL.Tokenizer().tokenize(expression):
        if token.token_type is TokenType.INTRODUCER and token.text.lower() in _CHARACTER_SETS:
            kept.append(expression[at : token.start])
            at = token.end + 1
    return "".join([*kept, expression[at:]])


class _Translation:
    def __init__(self, schema: TableSchema, *, compares_texts: bool = False) -> None:
        """``compares_texts``: a text column may be compared with texts, which are then collected in :attr:`texts`."""
        self._schema = schema
        self._compares_texts = compares_texts
        self.texts: dict[str, set[str]] = defaultdict(set)
        self._rules: dict[Any, Callable[[Any], Value]] = {
            exp.Paren: self._paren,
            exp.Column: self._column,
            exp.Literal: self._literal,
            exp.Null: lambda node: Value(exp.Null(), Family.NULL),
            exp.Boolean: lambda node: Value(exp.Literal.number(int(node.this)), Family.INTEGER),
            exp.Add: self._arithmetic,
            exp.Sub: self._arithmetic,
            exp.Mul: self._arithmetic,
            exp.Neg: self._negative,
            exp.Div: self._quotient,
            exp.IntDiv: self._whole_quotient,
            exp.Mod: self._whole_quotient,
            exp.Abs: self._of_exact_number,
            exp.Ceil: self._of_exact_number,
            exp.Floor: self._of_exact_number,
            exp.EQ: self._comparison,
            exp.NEQ: self._comparison,
            exp.GT: self._comparison,
            exp.GTE: self._comparison,
            exp.LT: self._comparison,
            exp.LTE: self._comparison,
            exp.And: self._connection,
            exp.Or: self._connection,
            exp.In: self._membership,
            exp.Not: lambda node: Value(exp.Not(this=self.condition(node.this)), Family.BOOLEAN),
            exp.Is: self._is_null,
            exp.If: self._if,
            exp.Case: self._case,
            exp.Coalesce: self._coalesce,
            exp.Cast: self._cast,
            exp.Concat: self._concatenation,
            exp.ConcatWs: self._joined,
            exp.Lower: self._of_text,
            exp.Upper: self._upper,
            exp.MD5: self._of_text,
            exp.Length: self._length,
            exp.Trim: self._trim,
            exp.Left: self._end_of_text,
            exp.Right: self._end_of_text,
            exp.Substring: self._substring,
            exp.JSONExtract: self._json_extract,
            exp.JSONExtractScalar: lambda node: self._unquoted(self._json_extract(node)),
            exp.Anonymous: self._anonymous,
            exp.TsOrDsToDate: self._date,
            exp.Year: self._part_of_date,
            exp.Month: self._part_of_date,
            exp.Day: self._part_of_date,
            exp.DayOfMonth: self._part_of_date,
            exp.DayOfYear: self._part_of_date,
            exp.Quarter: self._part_of_date,
            exp.DayOfWeek: lambda node: self._day_of_week(node.this, "dayofweek", 1),
            exp.Hour: self._part_of_time,
            exp.Minute: self._part_of_time,
            exp.Second: self._part_of_time,
            exp.Extract: self._extracted,
            exp.DateDiff: self._days_between,
            exp.TimeToStr: self._formatted,
        }

    def value(self, node: Any) -> Value:
        rule = self._rules.get(type(node))
        if rule is None:
            raise UntranslatableError
        return rule(node)

    def _of(self, node: Any, families: frozenset[Family]) -> Value:
        """The value of a node. Raises UntranslatableError unless it is of one of these families."""
        value = self.value(node)
        if value.family not in families:
            raise UntranslatableError
        return value

    def condition(self, node: Any) -> Any:
        """The DuckDB expression of a node that is a condition."""
        return self._of(node, frozenset({Family.BOOLEAN})).node

    # --- values ---------------------------------------------------------------------------------------------------

    def _paren(self, node: Any) -> Value:
        inner = self.value(node.this)
        return replace(inner, node=exp.Paren(this=inner.node))

    def _column(self, node: Any) -> Value:
        if node.args.get("db") or not self._schema.has_column(node.name):
            raise UntranslatableError
        column = self._schema.column(node.name)
        family = family_of(column.type)
        named = exp.column(exp.to_identifier(column.name, quoted=True))
        # FLOAT is computed as DOUBLE in MySQL.
        return Value(cast(named, "DOUBLE") if column.type.kind is TypeKind.FLOAT else named, family)

    def _literal(self, node: Any) -> Value:
        if node.is_string:
            return Value(exp.Literal.string(node.this), Family.TEXT)
        if "e" in node.this.lower():
            return Value(exp.Literal.number(node.this), Family.DOUBLE)
        return Value(exp.Literal.number(node.this), Family.DECIMAL if "." in node.this else Family.INTEGER)

    # --- numbers --------------------------------------------------------------------------------------------------

    def _arithmetic(self, node: Any) -> Value:
        left, right = self._of(node.this, NUMBERS), self._of(node.expression, NUMBERS)
        first = wide(left)
        if isinstance(node, exp.Mul) and left.family is right.family is Family.DECIMAL:
            # In DuckDB the product of two narrow DECIMAL values overflows at 18 digits.
            first = exp.Paren(this=exp.Mul(this=cast(exp.Literal.number(1), "HUGEINT"), expression=first))
        is_mixed = left.is_mixed or right.is_mixed
        return Value(type(node)(this=first, expression=wide(right)), wider(left.family, right.family), is_mixed)

    def _negative(self, node: Any) -> Value:
        inner = self._of(node.this, NUMBERS)
        return replace(inner, node=exp.Neg(this=wide(inner)))

    def _quotient(self, node: Any) -> Value:
        """The quotient. For integers TiDB keeps nine digits after the point, and truncates the rest."""
        left, right = self._of(node.this, NUMBERS), self._of(node.expression, NUMBERS)
        if Family.DOUBLE in (left.family, right.family):
            divisor = not_zero(cast(right.node, "DOUBLE"))
            divided = exp.Div(this=cast(left.node, "DOUBLE"), expression=divisor, typed=True, safe=False)
            return Value(exp.Paren(this=divided), Family.DOUBLE)
        if not all(self._is_divisible(side) for side in (node.this, node.expression)):
            raise UntranslatableError
        digits = exp.Mul(this=wide(left), expression=exp.Literal.number(10**_DIGITS_OF_QUOTIENT))
        whole = exp.IntDiv(this=exp.Paren(this=digits), expression=not_zero(wide(right)))
        unit = cast(exp.Literal.number(f"0.{1:0{_DIGITS_OF_QUOTIENT}d}"), f"DECIMAL(10, {_DIGITS_OF_QUOTIENT})")
        return Value(exp.Paren(this=exp.Mul(this=cast(whole, "DECIMAL(28, 0)"), expression=unit)), Family.QUOTIENT)

    def _is_divisible(self, node: Any) -> bool:
        """Whether the node is a column or a literal with integers that are small enough for the digits of a quotient."""
        node = node.unnest()
        if isinstance(node, exp.Neg):
            return self._is_divisible(node.this)
        if isinstance(node, exp.Literal):
            return not node.is_string and node.this.isdigit() and len(node.this) <= MOST_DIGITS
        if not isinstance(node, exp.Column) or not self._schema.has_column(node.name):
            return False
        column_type = self._schema.column(node.name).type
        return column_type.kind in INTEGER_KINDS and not (column_type.kind is TypeKind.BIGINT and column_type.unsigned)

    def _whole_quotient(self, node: Any) -> Value:
        """DIV and %. TiDB and DuckDB both truncate towards zero."""
        left, right = (self._of(side, frozenset({Family.INTEGER})) for side in (node.this, node.expression))
        return Value(exp.Paren(this=type(node)(this=wide(left), expression=not_zero(wide(right)))), Family.INTEGER)

    def _of_exact_number(self, node: Any) -> Value:
        if node.args.get("decimals") is not None or node.args.get("to") is not None:
            raise UntranslatableError
        inner = self._of(node.this, EXACT)
        if inner.family is Family.INTEGER and not isinstance(node, exp.Abs):
            return inner  # DuckDB's CEIL and FLOOR would return a DOUBLE
        return replace(inner, node=type(node)(this=wide(inner)))

    # --- conditions -----------------------------------------------------------------------------------------------

    def _comparison(self, node: Any) -> Value:
        if isinstance(node, exp.EQ) and (same := self._same_text(node.this, node.expression)) is not None:
            return Value(exp.EQ(this=same, expression=node.expression.unnest()), Family.BOOLEAN)
        left, (right,) = self._compared(node.this, [node.expression])
        return Value(type(node)(this=left, expression=right), Family.BOOLEAN)

    def _compared(self, left: Any, others: Sequence[Any]) -> tuple[Any, list[Any]]:
        """A value and the values that it is compared with, if TiDB and DuckDB compare them alike.

        A text that is compared with a date or a moment counts as one too.
        """
        sides = [side.unnest() if is_text(side.unnest()) else side for side in (left, *others)]
        if is_text(sides[0]) and any(map(is_text, sides[1:])):
            raise UntranslatableError
        values = [None if is_text(side) else self.value(side) for side in sides]
        moment = any(value is not None and value.family in MOMENTS for value in values)
        first, *known = (
            value or (self._moment(side) if moment else self.value(side)) for value, side in zip(values, sides, strict=True)
        )
        families = {value.family for value in known}
        if len(families) == 1 and families | {first.family} == MOMENTS:
            return cast(first.node, "TIMESTAMP"), [cast(value.node, "TIMESTAMP") for value in known]
        if not (families | {first.family} <= NUMBERS or (families == {first.family} and families <= MOMENTS)):
            raise UntranslatableError
        return first.node, [value.node for value in known]

    def _same_text(self, left: Any, *texts: Any) -> Any:
        """The column, if a text column is compared for equality with these texts; else ``None``. Collects the texts."""
        column, listed = left.unnest(), [text.unnest() for text in texts]
        if not (self._compares_texts and isinstance(column, exp.Column) and listed and all(map(is_text, listed))):
            return None
        named = self.value(column)
        if named.family is not Family.TEXT:
            return None
        self.texts[named.node.name].update(str(text.this) for text in listed)
        return named.node

    def _membership(self, node: Any) -> Value:
        if (same := self._same_text(node.this, *node.expressions)) is not None:
            return Value(exp.In(this=same, expressions=[text.unnest() for text in node.expressions]), Family.BOOLEAN)
        if not node.expressions:
            raise UntranslatableError
        left, listed = self._compared(node.this, node.expressions)
        return Value(exp.In(this=left, expressions=listed), Family.BOOLEAN)

    def _connection(self, node: Any) -> Value:
        sides = self.condition(node.this), self.condition(node.expression)
        return Value(type(node)(this=sides[0], expression=sides[1]), Family.BOOLEAN)

    def _is_null(self, node: Any) -> Value:
        if not isinstance(node.expression, exp.Null):
            raise UntranslatableError
        return Value(exp.Is(this=self.value(node.this).node, expression=exp.Null()), Family.BOOLEAN)

    def _if(self, node: Any) -> Value:
        then, other = self.value(node.args["true"]), self.value(node.args.get("false") or exp.Null())
        branch = exp.If(this=self.condition(node.this), true=then.node)
        return common(exp.Case(ifs=[branch], default=other.node), [then, other])

    def _case(self, node: Any) -> Value:
        if node.this is not None:
            raise UntranslatableError
        results = [self.value(branch.args["true"]) for branch in node.args["ifs"]]
        tests = [self.condition(branch.this) for branch in node.args["ifs"]]
        default = self.value(node.args.get("default") or exp.Null())
        branches = [exp.If(this=test, true=result.node) for test, result in zip(tests, results, strict=True)]
        return common(exp.Case(ifs=branches, default=default.node), [*results, default])

    def _coalesce(self, node: Any) -> Value:
        values = [self.value(part) for part in (node.this, *node.expressions)]
        first, *more = (value.node for value in values)
        return common(exp.Coalesce(this=first, expressions=more), values)

    def _cast(self, node: Any) -> Value:
        to = node.args["to"]
        if to.this is exp.DataType.Type.BIGINT:
            return Value(cast(self._of(node.this, EXACT | {Family.JSON}).node, "BIGINT"), Family.INTEGER)
        if to.this is exp.DataType.Type.UBIGINT:  # TiDB would reinterpret the bits of a negative number
            return Value(cast(self._of(node.this, frozenset({Family.JSON})).node, "UBIGINT"), Family.INTEGER)
        if to.this is exp.DataType.Type.DECIMAL and to.expressions:
            inner = self._of(node.this, EXACT | {Family.JSON})
            return Value(exp.TryCast(this=inner.node, to=to.copy()), Family.DECIMAL)
        if to.this is exp.DataType.Type.DATE:
            return self._date(node)
        if to.this in (exp.DataType.Type.CHAR, exp.DataType.Type.CHARACTER_SET) and not to.expressions:
            return Value(self._spelled(node.this), Family.TEXT)
        raise UntranslatableError

    # --- texts ----------------------------------------------------------------------------------------------------

    def _text(self, node: Any) -> Any:
        return self._of(node, frozenset({Family.TEXT})).node

    def _spelled(self, node: Any) -> Any:
        """The text of a value that TiDB and DuckDB write alike. Not for YEAR, whose year 0 is 0000 as text."""
        value = self._of(node, SPELLED_ALIKE)
        if value.is_mixed:
            raise UntranslatableError
        kinds = {self._schema.column(c.name).type.kind for c in node.find_all(exp.Column) if self._schema.has_column(c.name)}
        if TypeKind.YEAR in kinds:
            raise UntranslatableError
        return cast(value.node, "TEXT")

    def _concatenation(self, node: Any) -> Value:
        """CONCAT. DuckDB's concat() ignores NULL; its ``||`` gives NULL, as MySQL's CONCAT does."""
        parts = [self._spelled(part) for part in node.expressions]
        joined = parts[0]
        for part in parts[1:]:
            joined = exp.DPipe(this=joined, expression=part, safe=False)
        return Value(exp.Paren(this=joined) if len(parts) > 1 else joined, Family.TEXT)

    def _joined(self, node: Any) -> Value:
        parts = [self._spelled(part) for part in node.expressions]
        return Value(exp.Anonymous(this="concat_ws", expressions=parts), Family.TEXT)

    def _of_text(self, node: Any) -> Value:
        return Value(type(node)(this=self._text(node.this)), Family.TEXT)

    def _upper(self, node: Any) -> Value:
        """UPPER. TiDB does not change ``ß``; it is the only character that DuckDB converts differently."""
        hidden = replaced(self._text(node.this), "ß", _NO_CHARACTER)
        return Value(replaced(exp.Upper(this=hidden), _NO_CHARACTER, "ß"), Family.TEXT)

    def _length(self, node: Any) -> Value:
        """LENGTH counts bytes, CHAR_LENGTH characters."""
        name = "strlen" if node.args.get("binary") else "length"
        return Value(exp.Anonymous(this=name, expressions=[self._text(node.this)]), Family.INTEGER)

    def _trim(self, node: Any) -> Value:
        if node.args.get("position") or node.expression:
            raise UntranslatableError
        return Value(exp.Anonymous(this="trim", expressions=[self._text(node.this), exp.Literal.string(" ")]), Family.TEXT)

    def _end_of_text(self, node: Any) -> Value:
        return Value(type(node)(this=self._text(node.this), expression=counting(node.expression)), Family.TEXT)

    def _substring(self, node: Any) -> Value:
        start, length = node.args["start"], node.args.get("length")
        more = {"length": counting(length)} if length is not None else {}
        return Value(exp.Substring(this=self._text(node.this), start=counting(start), **more), Family.TEXT)

    # --- JSON -----------------------------------------------------------------------------------------------------

    def _json_extract(self, node: Any) -> Value:
        document = self._of(node.this, frozenset({Family.JSON}))
        path = node.expression
        written = path.this if isinstance(path, exp.Literal) and path.is_string else ""
        if node.expressions or not _PLAIN_PATH.fullmatch(written):
            raise UntranslatableError
        parts = [document.node, exp.Literal.string(written)]
        return Value(exp.Anonymous(this="json_extract", expressions=parts), Family.JSON)

    def _unquoted(self, document: Value) -> Value:
        """The text of a JSON value. For JSON's null it is ``null`` in TiDB, but NULL in DuckDB.

        In the text of an object or an array, TiDB writes a space after each comma and colon.
        """
        node = document.node
        kind = exp.Anonymous(this="json_type", expressions=[node])
        text = exp.Anonymous(this="json_extract_string", expressions=[node, exp.Literal.string("$")])
        null = exp.If(this=exp.EQ(this=kind, expression=exp.Literal.string("NULL")), true=exp.Literal.string("null"))
        arguments = map(exp.Literal.string, (_JSON_SIGNS, "\\1\\2 ", "g"))
        spaced = exp.Anonymous(this="regexp_replace", expressions=[cast(node, "TEXT"), *arguments])
        nested = exp.In(this=kind, expressions=[exp.Literal.string(name) for name in ("OBJECT", "ARRAY")])
        return Value(exp.Case(ifs=[null, exp.If(this=nested, true=spaced)], default=text), Family.TEXT)

    def _anonymous(self, node: Any) -> Value:
        """The functions that sqlglot does not know."""
        rules: dict[str, Callable[[Any], Value]] = {
            "JSON_UNQUOTE": lambda inner: self._unquoted(self._of(inner, frozenset({Family.JSON}))),
            "TO_SECONDS": self._seconds_since_0000,
            "UNIX_TIMESTAMP": self._unix_timestamp,
            "WEEKDAY": lambda inner: self._day_of_week(inner, "isodow", -1),
        }
        rule = rules.get(node.name.upper())
        if rule is None or len(node.expressions) != 1:
            raise UntranslatableError
        return rule(node.expressions[0])

    # --- dates ----------------------------------------------------------------------------------------------------

    def _moment(self, node: Any) -> Value:
        """A date or a moment. If it is written as a text, it must be complete and valid."""
        if not is_text(node):
            return self._of(node, MOMENTS)
        written = node.this
        try:
            datetime.fromisoformat(written)
        except ValueError:
            raise UntranslatableError from None
        if not _WRITTEN_MOMENT.fullmatch(written):
            raise UntranslatableError
        family = Family.DATETIME if ":" in written else Family.DATE
        return Value(cast(exp.Literal.string(written), "DATE" if family is Family.DATE else "TIMESTAMP"), family)

    def _date(self, node: Any) -> Value:
        return Value(self._date_of(node.this), Family.DATE)

    def _date_of(self, node: Any) -> Any:
        return cast(self._moment(undressed(node)).node, "DATE")

    def _part_of_date(self, node: Any) -> Value:
        return self._part(type(node).__name__, node.this)

    def _part(self, name: str, node: Any) -> Value:
        return Value(exp.Anonymous(this=name.lower(), expressions=[self._date_of(node)]), Family.INTEGER)

    def _day_of_week(self, node: Any, name: str, shift: int) -> Value:
        """The day of the week. MySQL counts from Sunday = 1 or from Monday = 0, DuckDB from Sunday = 0 or from Monday = 1."""
        day = exp.Add(this=self._part(name, node).node, expression=exp.Literal.number(shift))
        return Value(exp.Paren(this=day), Family.INTEGER)

    def _part_of_time(self, node: Any) -> Value:
        moment = cast(self._moment(undressed(node.this)).node, "TIMESTAMP")
        return Value(exp.Anonymous(this=type(node).__name__.lower(), expressions=[moment]), Family.INTEGER)

    def _extracted(self, node: Any) -> Value:
        rule = {
            kind.__name__.upper(): kind for kind in (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second)
        }
        if node.this.name.upper() not in rule:
            raise UntranslatableError
        return self.value(rule[node.this.name.upper()](this=node.expression))

    def _days_between(self, node: Any) -> Value:
        """DATEDIFF and TO_DAYS. sqlglot parses TO_DAYS as days since 0000-01-01, plus 1; DuckDB counts these days differently."""
        unit = node.args.get("unit")
        if unit is not None and unit.name.upper() != "DAY":
            raise UntranslatableError
        end, start = (undressed(side) for side in (node.this, node.expression))
        if is_text(start) and start.this == "0000-01-01":
            since = days(exp.Literal.string("0001-01-01"), self._date_of(end))
            return Value(exp.Paren(this=exp.Add(this=since, expression=exp.Literal.number(_DAY_0001_01_01 - 1))), Family.INTEGER)
        return Value(days(self._date_of(start), self._date_of(end)), Family.INTEGER)

    def _seconds_since_0000(self, node: Any) -> Value:
        moment = cast(self._moment(node).node, "TIMESTAMP")
        since = exp.Anonymous(
            this="date_diff",
            expressions=[exp.Literal.string("second"), cast(exp.Literal.string("0001-01-01"), "TIMESTAMP"), moment],
        )
        before = exp.Literal.number(_DAY_0001_01_01 * _SECONDS_OF_DAY)
        return Value(exp.Paren(this=exp.Add(this=since, expression=before)), Family.INTEGER)

    def _unix_timestamp(self, node: Any) -> Value:
        """UNIX_TIMESTAMP, only of a TIMESTAMP column. A moment without time zone depends on the source's session."""
        if not isinstance(node, exp.Column) or not self._schema.has_column(node.name):
            raise UntranslatableError
        column = self._schema.column(node.name)
        if column.type.kind is not TypeKind.TIMESTAMP:
            raise UntranslatableError
        named = exp.column(exp.to_identifier(column.name, quoted=True))
        micros = exp.Anonymous(this="epoch_us", expressions=[named])
        if not column.type.scale:
            return Value(exp.Paren(this=exp.IntDiv(this=micros, expression=exp.Literal.number(1_000_000))), Family.INTEGER)
        exact = exp.Mul(this=cast(micros, "DECIMAL(20, 0)"), expression=exp.Literal.number("0.000001"))
        return Value(exp.Paren(this=exact), Family.DECIMAL)

    def _formatted(self, node: Any) -> Value:
        """DATE_FORMAT. sqlglot converts its format to the codes of Python's strftime, which DuckDB uses too."""
        written = node.args["format"]
        if not isinstance(node.this, exp.TsOrDsToTimestamp) or not isinstance(written, exp.Literal):
            raise UntranslatableError
        if set(re.findall(r"%(.?)", written.this)) - {"Y", "m", "d", "H", "M", "S"}:
            raise UntranslatableError
        moment = cast(self._of(node.this.this, MOMENTS).node, "TIMESTAMP")
        return Value(exp.Anonymous(this="strftime", expressions=[moment, exp.Literal.string(written.this)]), Family.TEXT)
