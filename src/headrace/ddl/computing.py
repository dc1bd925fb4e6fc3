"""Bounds what a server computes for each row: how deep expressions nest, how many operations they have, how long texts become, and
how long regular expressions search them (:mod:`headrace.ddl.patterns`).

A few words can create a text that is a million times longer than the row (``REPEAT(v, 1000000)``), and a few more can search it for
hours. In MariaDB the time of REPLACE and REGEXP_REPLACE grows with the square of the text's length (10.11, measured: 64 KB take a
second, 256 KB a minute), and KILL does not end them.

Each word of an expression is read once. What is not known to be short counts as a value of the row. Lengths of operands are added
up, since the result of an operator is a number, or one of them. Lengths are in characters, of up to four bytes each. Numbers of
characters, paths in JSON and patterns have to be literals, since nothing else bounds them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

from headrace.ddl.defaults import defined_columns
from headrace.ddl.function_costs import COSTS, DIGITS, SHORT, Cost
from headrace.ddl.grammar.effort import BY_PATTERN, MOST_NESTED, MOST_OPERATIONS, effort_of, too_deep, too_many_operations
from headrace.ddl.grammar.statements import judge
from headrace.ddl.grammar.vocabulary import FUNCTIONS
from headrace.ddl.lexer import Cursor, Word, rendered, words
from headrace.ddl.patterns import LENGTH, MOST_PATTERNS, MOST_STEPS, PatternNotReadError, steps_of_pattern
from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import INTEGER_KINDS, TypeKind

_MOST = 65_536
_MOST_TIMES = 2_000
_MOST_SEARCHED = 2_048
_MOST_TIMES_SEARCHED = 16
_MOST_IN_ALL = 262_144
_MOST_TIMES_IN_ALL = 20_000
_MOST_DEPTH = 2 * MOST_NESTED
_MOST_APART = 64
"""The most columns that are counted separately. More count as one; else the time would grow with the square of their number."""
_ENDLESS = 1 << 62
"""Larger lengths count as this."""
_MOST_DIGITS = 9
_SHOWN = 80
_SEARCHING = frozenset({"LIKE", "REGEXP", "RLIKE"})
"""Operators that search one text in another."""
_OPERATORS = frozenset(
    {"AND", "BETWEEN", "CASE", "DIV", "ELSE", "IN", "IS", "MOD", "NOT", "OR", "THEN", "WHEN", "XOR"} | _SEARCHING
)
"""Reserved words between operands. The result is a number or one of the operands."""
_BESIDE = frozenset({"AS", "BOTH", "COLLATE", "FOR", "FROM", "INTERVAL", "LEADING", "TRAILING"})
"""Reserved words that only say what an operand is for."""
_RECODES = frozenset({"BINARY", "CHARACTER", "USING"})
"""Reserved words after which each of the four bytes of a character may become one, or a character four bytes."""
_OF_LENGTH = {"REPEAT": 1, "SPACE": 0, "LPAD": 1, "RPAD": 1}
"""Functions with a number of characters or repetitions, and which argument it is."""
_SETS_VALUES = frozenset({"JSON_ARRAY_APPEND", "JSON_ARRAY_INSERT", "JSON_INSERT", "JSON_REPLACE", "JSON_SET"})
"""Functions that put values into a JSON document: each text is quoted there."""
_FIRST_PATH = {
    "JSON_CONTAINS": 2,
    "JSON_CONTAINS_PATH": 2,
    "JSON_EXTRACT": 1,
    "JSON_KEYS": 1,
    "JSON_LENGTH": 1,
    "JSON_REMOVE": 1,
    "JSON_SEARCH": 4,
    "JSON_VALUE": 1,
}
"""Functions with paths that may have ``**``, and from which argument on. A document may be searched once for each way to reach a
place, which grows exponentially with the number of ``**``."""
_NESTED_VALUES = 200
"""How many times as long as a document the values at a path with ``**`` may be: nested values, each with those in it."""
_OF_AES = 3
"""The most arguments of AES_ENCRYPT without a function that derives the key."""
_IN_JSON = 6
"""How many times longer a text may be in JSON: ``\\u0001``."""

_SCHEMA_WITH_PATTERN = re.compile(r"pattern|\\")
"""JSON text that may contain the keys ``pattern`` or ``patternProperties`` of a JSON schema, also with escapes."""


def excess(statement: str, schema: TableSchema | None) -> str:
    """Why the statement computes too much, for each row or at once, as a clause; empty if it does not.

    ``schema`` is the table's shape after the statement. Its generated columns count too, because the statement may change the
    length of columns that they read. A view counts like an expression: CREATE VIEW already computes some of its constants, such as
    members of IN.
    """
    read = read_statement(statement, schema.table_id.database if schema else "")
    is_view = read.kind is StatementKind.CREATE_VIEW
    judged = judge(statement, schema.table_id.database if schema else "")
    defined, found = list(defined_columns(read)), words(statement) or ()
    if not (defined or judged.expressions or judged.objection or is_view):  # existing expressions compute no more than before
        return ""
    generated = {folded_name(c.name): words(c.expression) or () for c in (schema.columns if schema else ()) if c.expression}
    generated |= {folded_name(Cursor(column).column_name()): inner for column in defined if (inner := _expression(column))}
    read_by = {name: _columns(inner).keys() & generated.keys() - {name} for name, inner in generated.items()}
    of_columns, of_statement = _Reading(schema, {}), _Efforts()
    try:
        for name in TopologicalSorter(read_by).static_order():
            of_columns.column(name, generated[name])
            of_statement.column(name, generated[name])
        of_statement.begin()
        for expression in judged.expressions:
            of_statement.expression(expression)
        _Reading(schema, of_columns.lengths).statement(found)
    except _TooMuchError as error:
        return str(error)
    except CycleError:
        return "its generated columns depend on one another"
    return ""


def _expression(definition: tuple[Word, ...]) -> tuple[Word, ...]:
    """The expression of a generated column; empty for any other column. The AS in a CAST is never followed by a parenthesis."""
    for at in range(1, len(definition)):
        if definition[at].says("(") and definition[at - 1].says("AS"):
            return Cursor(definition, at).group()
    return ()


def _columns(expression: tuple[Word, ...]) -> Counter[str]:
    """How often the expression reads each column, by their folded names. All words that are neither function nor value count."""
    behind = (*expression[1:], Word(""))
    return Counter(
        folded_name(word.text)
        for word, following in zip(expression, behind, strict=True)
        if word.is_name or not (word.is_literal or following.says("("))
    )


class _TooMuchError(Exception):
    """The statement computes too much. The message is a clause."""


class _Efforts:
    """Depth and operations of expressions, with those of the generated columns that they read.

    MariaDB walks into a generated column for each expression that reads it, whether it is stored or not.
    """

    def __init__(self) -> None:
        self._of_columns: dict[str, tuple[int, int]] = {}
        self._operations = 0

    def begin(self) -> None:
        """Begins to count the operations anew."""
        self._operations = 0

    def column(self, name: str, expression: tuple[Word, ...]) -> None:
        """Reads the expression of a generated column. The generated columns that it reads must have been read before."""
        self._of_columns[name] = self.expression(expression)

    def expression(self, expression: tuple[Word, ...]) -> tuple[int, int]:
        """Returns its depth and its operations. Raises _TooMuchError."""
        effort, names = effort_of(expression), _columns(expression)
        read = [(count, *self._of_columns[name]) for name, count in names.items() if name in self._of_columns]
        depth = effort.depth + max((depth for _, depth, _ in read), default=0)
        operations = effort.operations + sum(count * operations for count, _, operations in read)
        self._operations += operations
        if depth > MOST_NESTED:
            raise _TooMuchError(f"{too_deep()}, with the generated columns that it reads")
        if self._operations > MOST_OPERATIONS:
            raise _TooMuchError(too_many_operations())
        return depth, operations


@dataclass(frozen=True)
class _Length:
    """The maximum length of a text in characters: ``fixed``, and for each column a multiple of its value's length."""

    fixed: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)

    @property
    def times(self) -> int:
        return max(self.columns.values(), default=0)

    def repeated(self, times: int) -> _Length:
        return _Length(_capped(self.fixed * times), {name: _capped(count * times) for name, count in self.columns.items()})

    def longer(self, by: int) -> _Length:
        return _Length(_capped(self.fixed + by), self.columns)


def _capped(number: int) -> int:
    return min(number, _ENDLESS)


def _together(lengths: Iterable[_Length]) -> _Length:
    fixed, columns = 0, dict[str, int]()
    for length in lengths:
        fixed += length.fixed
        for name, times in length.columns.items():
            columns[name] = columns.get(name, 0) + times
        if len(columns) > _MOST_APART:
            columns = {"": sum(columns.values())}
    return _Length(_capped(fixed), {name: _capped(times) for name, times in columns.items()})


@dataclass(frozen=True)
class _Value:
    """What is known of the value of an expression."""

    length: _Length
    literal: Word | None = None
    """The only word of the expression, if it is a literal."""

    @property
    def text(self) -> str | None:
        """The text of a single string literal; ``None`` for anything else."""
        return self.literal.text if self.literal is not None and self.literal.is_text else None

    @property
    def number(self) -> int | None:
        """The value of a single literal of digits; ``None`` for anything else."""
        written = self.literal.written if self.literal is not None else ""
        return int(written) if written.isascii() and written.isdecimal() and len(written) <= _MOST_DIGITS else None


class _Reading:
    """Adds up texts and searches of expressions. ``lengths`` are those of generated columns. Its methods raise _TooMuchError."""

    def __init__(self, schema: TableSchema | None, lengths: dict[str, _Length]) -> None:
        self._schema = schema
        self.lengths = lengths
        self._fixed = self._times = self._patterns = self._steps = 0
        self._cursor, self._words, self._depth = Cursor(()), tuple[Word, ...](), 0

    def column(self, name: str, expression: tuple[Word, ...]) -> None:
        """Reads the expression of a generated column. The generated columns that it reads must have been read before."""
        self.lengths[name] = self.statement(expression)

    def statement(self, found: tuple[Word, ...]) -> _Length:
        """Reads a statement, or an expression that may not have been checked by the grammar. Returns the length of all parts."""
        self._cursor, self._words, self._depth = Cursor(found), found, 0
        parts = self._values()
        while not self._cursor.done:
            self._cursor.next()  # a parenthesis too many
            parts += self._values()
        return _together(part.length for part in parts)

    def _values(self) -> list[_Value]:
        """Reads the expressions between commas, up to the parenthesis that closes after them."""
        found = list[_Value]()
        while not self._cursor.done and not self._cursor.peek().says(")"):
            found.append(self._value())
            self._cursor.accept(",")
        return found

    def _in_parentheses(self) -> list[_Value]:
        self._cursor.next()
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _TooMuchError(f"its parentheses are nested more than {_MOST_DEPTH} deep")
        found = self._values()
        self._cursor.accept(")")
        self._depth -= 1
        return found

    def _value(self) -> _Value:
        """Reads an expression up to the comma or the parenthesis after it."""
        begin, operands = self._cursor.at, list[_Value]()
        times, has_operators, is_search = 1, False, False
        while not (self._cursor.done or self._cursor.peek().says(",") or self._cursor.peek().says(")")):
            word = self._cursor.next()
            text = "" if word.is_name or word.is_literal or self._cursor.before.says(".") else word.text.upper()
            if text in _RECODES and not (text == "BINARY" and self._cursor.peek().says("(")):
                times *= 4
            elif text in _OPERATORS or (word.is_sign and text not in ("(", ".")):
                has_operators, is_search = True, is_search or text in _SEARCHING
                if text in BY_PATTERN:
                    self._require_tame(self._text_here(), begin)
                if text in ("->", "->>"):
                    times *= self._times_of_path(self._text_here(), begin)
            elif text not in _BESIDE and text != ".":
                operands.append(self._operand(word, text))
        if is_search:
            self._require_short(operands, begin)
        if len(operands) == 1 and not has_operators and times == 1:
            return operands[0]
        length = _together(operand.length for operand in operands).repeated(times)
        return _Value(length.longer(SHORT if has_operators else 0))

    def _operand(self, word: Word, text: str) -> _Value:
        """``text`` is the word in upper case; empty for a name and a literal."""
        following = self._cursor.peek()
        if text.startswith("_") and following.is_literal:  # the character set of a text
            word = self._cursor.next()
        if word.is_literal:
            return _Value(_Length(len(word.text.encode(errors="replace")) + 1), word)
        if text == "(":
            self._cursor.back()
            inner = self._in_parentheses()
            if len(inner) == 1:
                return replace(inner[0], literal=None)
            return _Value(_together(value.length for value in inner))
        if text in ("BINARY", "VARBINARY") and following.says("("):  # CAST pads a value to this length
            return self._binary()
        if text in FUNCTIONS and following.says("("):
            return self._called(text)
        return self._column(word, text)

    def _binary(self) -> _Value:
        """Reads what follows BINARY as a type, ``(9)``, or as an operator, ``(v)``."""
        begin = self._cursor.at - 1
        inner = self._in_parentheses()
        if len(inner) == 1 and inner[0].number is not None:
            return _Value(_Length(inner[0].number))
        if any(value.literal is not None and value.text is None for value in inner):
            raise _TooMuchError(f"the length in {self._shown(begin)} is not written in digits")
        return _Value(_together(value.length.repeated(4) for value in inner))

    def _column(self, word: Word, text: str) -> _Value:
        """A column, or any other word of which it is not known that it is none."""
        name = folded_name(word.text)
        fixed = SHORT if text in FUNCTIONS else 1  # CURRENT_TIMESTAMP without parentheses
        if name in self.lengths:
            return _Value(self.lengths[name])
        if self._schema is None or not self._schema.has_column(name):
            return _Value(_Length(fixed, {name: 1}))
        return _Value(_longest(name, self._schema.column(name), fixed))

    def _called(self, name: str) -> _Value:
        cost, begin = COSTS.get(name), self._cursor.at - 1
        if cost is None:
            raise _TooMuchError(f"it is not known how much {name} computes")
        arguments = self._in_parentheses()
        if name in BY_PATTERN and len(arguments) > 1:
            self._require_tame(arguments[1].literal, begin)
        if cost.searches:
            self._require_short(arguments, begin)
        made = self._made(name, cost, arguments, begin)
        self._add(made, begin)
        return _Value(made)

    def _made(self, name: str, cost: Cost, arguments: Sequence[_Value], begin: int) -> _Length:
        """The length of the result."""
        lengths = [argument.length for argument in arguments]
        if name in ("REPLACE", "REGEXP_REPLACE") and len(arguments) > 2:
            return self._replaced(name, arguments, begin)
        if len(arguments) > _OF_LENGTH.get(name, len(arguments)):
            number = arguments[_OF_LENGTH[name]].number
            if number is None:
                raise _TooMuchError(f"the number in {self._shown(begin)} is not a literal of a few digits")
            return lengths[0].repeated(number) if name == "REPEAT" else _Length(number)
        if name == "JSON_SCHEMA_VALID" and arguments:
            schema = arguments[0].text
            if schema is None or _SCHEMA_WITH_PATTERN.search(schema):
                raise _TooMuchError(f"{self._shown(begin)} may search by a regular expression of the JSON schema")
        if name in ("AES_DECRYPT", "AES_ENCRYPT") and len(arguments) > _OF_AES:
            raise _TooMuchError(f"{self._shown(begin)} may derive a key in thousands of steps")
        paths = [self._times_of_path(path.literal, begin) for path in arguments[_FIRST_PATH.get(name, len(arguments)) :]]
        if name == "CONCAT_WS" and arguments:
            lengths.append(lengths[0].repeated(len(arguments)))
        elif name in _SETS_VALUES and arguments:
            lengths[1:] = [length.repeated(_IN_JSON) for length in lengths[1:]]
        elif name == "JSON_EXTRACT" and arguments:
            lengths = [lengths[0].repeated(sum(paths)), *lengths[1:]]
        elif name == "JSON_SEARCH" and arguments:
            if len(arguments) < 2 or (arguments[1].text or "").lower() != "one":
                raise _TooMuchError(f"{self._shown(begin)} may list all places in a document")
            lengths = [lengths[0].repeated(_IN_JSON).longer(_NESTED_VALUES)]
        return _together(lengths).repeated(cost.times).longer(cost.extra)

    def _replaced(self, name: str, arguments: Sequence[_Value], begin: int) -> _Length:
        searched, pattern, replacement = arguments[0].length, arguments[1].text, arguments[2].text
        if replacement is None:
            raise _TooMuchError(f"the replacement in {self._shown(begin)} is not a literal text")
        if name == "REPLACE" and pattern:
            return searched.repeated(max(1, -(-len(replacement) // len(pattern))))
        return searched.longer(1).repeated(1 + len(replacement))  # also if each character of it repeats what was found

    def _add(self, made: _Length, begin: int) -> None:
        if made.fixed > _MOST or made.times > _MOST_TIMES:
            raise _TooMuchError(
                f"{self._shown(begin)} may make a text of more than {_MOST:,} characters, or one {_MOST_TIMES:,} times as long as"
                " the row's values"
            )
        self._fixed += made.fixed if made.fixed > 2 * SHORT else 0  # the bounds of 8,192 partitions are dates
        self._times += made.times
        if self._fixed > _MOST_IN_ALL or self._times > _MOST_TIMES_IN_ALL:
            raise _TooMuchError(
                f"its expressions may make texts of more than {_MOST_IN_ALL:,} characters together, or {_MOST_TIMES_IN_ALL:,} times"
                " as long as the row's values"
            )

    def _require_short(self, texts: Iterable[_Value], begin: int) -> None:
        """Raises _TooMuchError unless all texts are short. They are the texts of a search, and those searched for."""
        if any(text.length.fixed > _MOST_SEARCHED or text.length.times > _MOST_TIMES_SEARCHED for text in texts):
            raise _TooMuchError(
                f"{self._shown(begin)} may search a text with more than {_MOST_SEARCHED:,} characters beside the row's, or"
                f" {_MOST_TIMES_SEARCHED} times as long as they are"
            )

    def _text_here(self) -> Word | None:
        """The text that comes next; ``None`` for anything else, or if another text stands beside it."""
        cursor = self._cursor
        has_set = cursor.peek().text.startswith("_") and not (cursor.peek().is_name or cursor.peek().is_literal)
        return None if cursor.peek(has_set + 1).is_text else cursor.peek(has_set)

    def _require_tame(self, pattern: Word | None, begin: int) -> None:
        """Raises _TooMuchError unless it is a literal pattern that needs, with the former ones, few steps."""
        if pattern is None or not pattern.is_text:
            shown = rendered(self._words[begin : begin + _SHOWN])[:_SHOWN]
            raise _TooMuchError(f"the pattern of a regular expression is not a literal text: {shown}")
        self._patterns += 1
        if self._patterns > MOST_PATTERNS:
            raise _TooMuchError(f"it has more than {MOST_PATTERNS} regular expressions")
        try:
            self._steps += steps_of_pattern(pattern.text)
        except PatternNotReadError as error:
            raise _TooMuchError(f"the regular expression {pattern.written[:_SHOWN]} {error}") from None
        if self._steps > MOST_STEPS:
            raise _TooMuchError(
                f"the regular expressions to {pattern.written[:_SHOWN]} may take more than {MOST_STEPS:,} steps on a text of"
                f" {LENGTH:,} characters"
            )

    def _times_of_path(self, path: Word | None, begin: int) -> int:
        """How many times as long as a JSON document the values at a path may be."""
        if path is None or not path.is_text or path.text.count("**") > 1:
            raise _TooMuchError(f"the path in {self._shown(begin)} is not a literal text with at most one **")
        return _NESTED_VALUES if "**" in path.text else 2 if "*" in path.text else 1

    def _shown(self, begin: int) -> str:
        """What was read since this place, shortened for a message."""
        return rendered(self._words[begin : min(self._cursor.at, begin + _SHOWN)])[:_SHOWN]


def _longest(name: str, column: Column, fixed: int) -> _Length:
    """The length of a column's value. A row may have the number of an ENUM's member, and a number with fewer digits."""
    elements = column.type.elements
    if column.type.kind is TypeKind.ENUM and elements:
        return _Length(max(map(len, elements)) + fixed)
    if column.type.kind is TypeKind.SET and elements:
        return _Length(sum(len(element) + 1 for element in elements) + fixed)
    if column.type.kind in INTEGER_KINDS:
        fixed += column.type.length or 0
    if column.type.kind in (TypeKind.FLOAT, TypeKind.DOUBLE) and column.type.scale:
        fixed += DIGITS
    return _Length(fixed, {name: 1})
