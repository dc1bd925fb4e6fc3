"""Estimates, from the text of expressions, what a server must compute for each row: how long the texts become, and how long
regular expressions search them (:mod:`headrace.ddl.patterns`).

A few words can create a text that is a million times longer than the row (``REPEAT(v, 1000000)``), and a few more can search it for
hours. In MariaDB the time of REPLACE and REGEXP_REPLACE grows with the square of the text's length (10.11, measured: 64 KB take a
second, 256 KB a minute), and KILL does not end them.

Each word of an expression is read once. What is not known to be short counts as a value of the row. Lengths of operands are added
up, since the result of an operator is a number, or one of them. Lengths are in characters, of up to four bytes each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from headrace.ddl.defaults import defined_columns
from headrace.ddl.function_costs import COSTS, DIGITS, SHORT, Cost
from headrace.ddl.grammar.vocabulary import FUNCTIONS
from headrace.ddl.lexer import Cursor, Word, rendered, words
from headrace.ddl.patterns import excess_of_pattern
from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import INTEGER_KINDS, TypeKind

_MOST = 65_536
_MOST_TIMES = 2_000
_MOST_SEARCHED = 2_048
_MOST_TIMES_SEARCHED = 16
_MOST_IN_ALL = 262_144
_MOST_TIMES_IN_ALL = 20_000
_MOST_DEPTH = 100
_MOST_APART = 64
"""The most columns that are counted separately. More count as one; else the time would grow with the square of their number."""
_ENDLESS = 1 << 62
"""Larger lengths and numbers count as this."""
_SHOWN = 80
_SEARCHING = frozenset({"LIKE", "REGEXP", "RLIKE"})
"""Operators that search one text in another."""
_BY_PATTERN = frozenset({"REGEXP", "RLIKE", "REGEXP_INSTR", "REGEXP_LIKE", "REGEXP_REPLACE", "REGEXP_SUBSTR"})
"""Operators and functions that search by a regular expression: the right operand, or the second argument."""
_OPERATORS = frozenset(
    {"AND", "BETWEEN", "CASE", "DIV", "ELSE", "IN", "IS", "MOD", "NOT", "OR", "THEN", "WHEN", "XOR"} | _SEARCHING
)
"""Reserved words between operands. The result is a number or one of the operands."""
_BESIDE = frozenset({"AS", "BOTH", "COLLATE", "FOR", "FROM", "INTERVAL", "LEADING", "TRAILING"})
"""Reserved words that only say what an operand is for."""
_RECODES = frozenset({"BINARY", "CHARACTER", "USING"})
"""Reserved words after which each of the four bytes of a character may become one, or a character four bytes."""
_ARITHMETIC = frozenset({"+", "-", "*", "/", "DIV"})
_LENGTHS = {"CHAR_LENGTH": 1, "CHARACTER_LENGTH": 1, "LENGTH": 4, "OCTET_LENGTH": 4, "BIT_LENGTH": 32}
_OF_NUMBERS = frozenset({"ABS", "CEIL", "CEILING", "COALESCE", "FLOOR", "GREATEST", "IFNULL", "ROUND"})
_SETS_VALUES = frozenset({"JSON_ARRAY_APPEND", "JSON_ARRAY_INSERT", "JSON_INSERT", "JSON_REPLACE", "JSON_SET"})
"""Functions that put values into a JSON document: each text is quoted there."""
_IN_JSON = 6
"""How many times longer a text may be in JSON: ``\\u0001``."""
_LOOKS_AROUND = re.compile(r"\(\?<?[=!]")
"""Only with such a group can the text that a replacement repeats be longer than the text that it replaces."""
_SCHEMA_WITH_PATTERN = re.compile(r"pattern|\\")
"""JSON text that may contain the keys ``pattern`` or ``patternProperties`` of a JSON schema, also with escapes."""


def excess(statement: str, schema: TableSchema | None) -> str:
    """Why the statement computes too much for each row, as a clause; empty if it does not.

    ``schema`` is the table's shape after the statement. Its generated columns count too, because the statement may change the
    length of columns that they read.
    """
    read = read_statement(statement, schema.table_id.database if schema else "")
    if read.kind is StatementKind.CREATE_VIEW:  # computed only when the view is read
        return ""
    defined, found = list(defined_columns(read)), words(statement) or ()
    if not defined and not _computes(found):  # existing expressions compute no more than before
        return ""
    generated = {folded_name(c.name): words(c.expression) or () for c in (schema.columns if schema else ()) if c.expression}
    generated |= {folded_name(Cursor(column).column_name()): inner for column in defined if (inner := _expression(column))}
    read_by = {name: _columns(inner) & generated.keys() - {name} for name, inner in generated.items()}
    reading = _Reading(schema)
    try:
        for name in TopologicalSorter(read_by).static_order():
            reading.column(name, generated[name])
        reading.statement(found)
    except _TooMuchError as error:
        return str(error)
    except CycleError:
        return "its generated columns depend on one another"
    return ""


def _computes(found: tuple[Word, ...]) -> bool:
    """Whether the words contain a call of a function, or a searching operator."""
    behind = chain(found[1:], (Word(""),))
    pairs = (
        (word.text.upper(), after) for word, after in zip(found, behind, strict=False) if not (word.is_name or word.is_literal)
    )
    return any(text in _SEARCHING or (text in FUNCTIONS and after.says("(")) for text, after in pairs)


def _expression(definition: tuple[Word, ...]) -> tuple[Word, ...]:
    """The expression of a generated column; empty for any other column. The AS in a CAST is never followed by a parenthesis."""
    for at in range(1, len(definition)):
        if definition[at].says("(") and definition[at - 1].says("AS"):
            return Cursor(definition, at).group()
    return ()


def _columns(expression: tuple[Word, ...]) -> set[str]:
    """The folded names of all columns that the expression reads, and of all other words that are neither function nor value."""
    behind = (*expression[1:], Word(""))
    return {
        folded_name(word.text)
        for word, following in zip(expression, behind, strict=True)
        if word.is_name or not (word.is_literal or following.says("("))
    }


class _TooMuchError(Exception):
    """The statement computes too much. The message is a clause."""


@dataclass(frozen=True)
class _Length:
    """The maximum length of a text in characters: ``fixed``, and for each column a multiple of its value's length.

    For a number: its maximum value.
    """

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
    number: _Length | None = None
    """The greatest number that it may be; ``None`` if nothing bounds it."""
    may_be_below: bool = False
    """Whether it may be a number that is further below 0 than ``number`` is above."""
    is_whole: bool = False
    """Whether it is certainly a whole number. LEAST of a DATE and 101 is a date in MariaDB, and 20000101 as a number."""
    literal: Word | None = None
    """The only word of the expression, if it is a literal."""

    @property
    def text(self) -> str | None:
        """The text of a single string literal; ``None`` for anything else."""
        return self.literal.text if self.literal is not None and self.literal.is_text else None


class _Reading:
    """Adds up what all expressions of a table compute. Its methods raise _TooMuchError."""

    def __init__(self, schema: TableSchema | None) -> None:
        self._schema = schema
        self._generated: dict[str, _Length] = {}
        self._fixed = self._times = 0
        self._cursor, self._words, self._depth = Cursor(()), tuple[Word, ...](), 0

    def column(self, name: str, expression: tuple[Word, ...]) -> None:
        """Reads the expression of a generated column. The generated columns that it reads must have been read before."""
        self._generated[name] = self.statement(expression)

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
        begin, found = self._cursor.at, list[_Value | str]()
        times, is_search = 1, False
        while not (self._cursor.done or self._cursor.peek().says(",") or self._cursor.peek().says(")")):
            word = self._cursor.next()
            text = "" if word.is_name or word.is_literal or self._cursor.before.says(".") else word.text.upper()
            if text in _RECODES and not (text == "BINARY" and self._cursor.peek().says("(")):
                times *= 4
            elif text in _OPERATORS or (word.is_sign and text not in ("(", ".")):
                is_search |= text in _SEARCHING
                if text in _BY_PATTERN:
                    self._require_tame(self._cursor.at)
                if text in ("->", "->>"):
                    times *= _times_of_path(self._cursor.peek())
                found.append(text)
            elif text not in _BESIDE and text != ".":
                found.append(self._operand(word, text))
        operands = [item for item in found if isinstance(item, _Value)]
        if is_search:
            self._require_short(operands, begin)
        if len(found) == 1 and operands and times == 1:
            return operands[0]
        length = _together(operand.length for operand in operands).repeated(times)
        return _calculated(found, length.longer(SHORT if len(operands) < len(found) else 0))

    def _operand(self, word: Word, text: str) -> _Value:
        """``text`` is the word in upper case; empty for a name and a literal."""
        following = self._cursor.peek()
        if text.startswith("_") and following.is_literal:  # the character set of a text
            word = self._cursor.next()
        if word.is_literal:
            number = _number(word)
            length = _Length(len(word.text.encode(errors="replace")) + 1)
            return _Value(length, number, is_whole=number is not None, literal=word)
        if text == "(":
            self._cursor.back()
            inner = self._in_parentheses()
            if len(inner) == 1:
                return replace(inner[0], literal=None)
            return _Value(_together(value.length for value in inner))
        if text in ("BINARY", "VARBINARY") and following.says("("):  # CAST pads a value to this length
            inner = self._in_parentheses()
            return _Value(_together(value.number or value.length.repeated(4) for value in inner))
        if text in FUNCTIONS and following.says("("):
            return self._called(text)
        return self._column(word, text)

    def _column(self, word: Word, text: str) -> _Value:
        """A column, or any other word of which it is not known that it is none."""
        name = folded_name(word.text)
        fixed = SHORT if text in FUNCTIONS else 1  # CURRENT_TIMESTAMP without parentheses
        if self._schema is None or not self._schema.has_column(name):
            return _Value(self._generated.get(name, _Length(fixed, {name: 1})))
        column = self._schema.column(name)
        length = self._generated[name] if name in self._generated else _longest(name, column, fixed)
        return _Value(length, is_whole=column.type.kind in INTEGER_KINDS)

    def _called(self, name: str) -> _Value:
        cost, begin = COSTS.get(name), self._cursor.at - 1
        if cost is None:
            raise _TooMuchError(f"it is not known how much {name} computes")
        arguments = self._in_parentheses()
        if name in _BY_PATTERN and len(arguments) > 1:
            _require_tame(arguments[1].literal, self._shown(begin))
        if cost.searches:
            self._require_short(arguments, begin)
        made = self._made(name, cost, arguments, begin)
        if name == "WEIGHT_STRING":  # AS CHAR(20)
            made = _together([made, *filter(None, map(_number, self._words[begin : self._cursor.at]))])
        self._add(made, begin)
        return _of_numbers(name, arguments, made)

    def _made(self, name: str, cost: Cost, arguments: Sequence[_Value], begin: int) -> _Length:
        """The length of the result."""
        lengths = [argument.length for argument in arguments]
        if name in ("REPLACE", "REGEXP_REPLACE") and len(arguments) > 2:
            return self._replaced(name, arguments, begin)
        if name in ("REPEAT", "SPACE", "LPAD", "RPAD"):
            return self._filled(name, arguments, begin)
        if name == "CONCAT_WS" and arguments:
            lengths.append(lengths[0].repeated(len(arguments)))
        elif name in _SETS_VALUES and arguments:
            lengths[1:] = [length.repeated(_IN_JSON) for length in lengths[1:]]
        elif name == "JSON_EXTRACT" and arguments:
            times = sum(_times_of_path(path.literal) for path in arguments[1:])
            lengths = [lengths[0].repeated(times), *lengths[1:]]
        elif name == "JSON_SEARCH" and arguments:
            is_one = len(arguments) > 1 and (arguments[1].text or "").lower() == "one"
            path = lengths[0].repeated(_IN_JSON).longer(4 * _MOST_DEPTH)
            lengths = [path if is_one else _product(name, path, path)]
        elif name == "JSON_SCHEMA_VALID" and arguments:
            schema = arguments[0].text
            if schema is None or _SCHEMA_WITH_PATTERN.search(schema):
                raise _TooMuchError(f"{self._shown(begin)} may search by a regular expression of the JSON schema")
        return _together(lengths).repeated(cost.times).longer(cost.extra)

    def _filled(self, name: str, arguments: Sequence[_Value], begin: int) -> _Length:
        """REPEAT, SPACE, LPAD and RPAD, which have a number of characters or repetitions as an argument."""
        of_number = 0 if name == "SPACE" else 1
        if len(arguments) <= of_number:
            return _together(argument.length for argument in arguments)  # no server accepts such a call
        number = arguments[of_number].number
        if number is None:
            raise _TooMuchError(f"nothing bounds the number in {self._shown(begin)}")
        return number if name != "REPEAT" else _product(name, arguments[0].length, number)

    def _replaced(self, name: str, arguments: Sequence[_Value], begin: int) -> _Length:
        searched, by = arguments[0].length, arguments[2].length
        pattern, replacement = arguments[1].text, arguments[2].text
        if name == "REPLACE" and pattern and replacement is not None:
            return searched.repeated(max(1, -(-len(replacement) // len(pattern))))
        repeats = replacement is None or "\\" in replacement or "$" in replacement
        if name != "REPLACE" and repeats and (pattern is None or _LOOKS_AROUND.search(pattern)):
            raise _TooMuchError(f"{self._shown(begin)} may repeat more than it replaces")
        return _together([searched, _product(name, searched.longer(1), by)])

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

    def _require_tame(self, at: int) -> None:
        """Raises _TooMuchError unless a pattern that needs few steps stands at this place."""
        pattern, behind, further = (*self._words[at : at + 3], Word(""), Word(""), Word(""))[:3]
        if pattern.text.startswith("_") and not (pattern.is_name or pattern.is_literal):  # the character set of a text
            pattern, behind = behind, further
        _require_tame(None if behind.is_text else pattern, rendered(self._words[at : at + _SHOWN]))

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


def _calculated(found: Sequence[_Value | str], length: _Length) -> _Value:
    """The value of operands and the operators between them."""
    parts, operators, before = list[_Value](), set[str](), ""
    for item in found:
        if isinstance(item, str):
            is_divided = before in ("/", "DIV")
            if item not in _ARITHMETIC or is_divided:  # by something with a sign
                return _Value(length)
            operators.add(item)
            before = item
            continue
        if before in ("/", "DIV"):
            if item.literal is None or item.number is None or not item.number.fixed:
                return _Value(length)
        elif item.number is None or (item.may_be_below and before == "-"):
            return _Value(length, is_whole=_is_whole(found))
        else:
            parts.append(item)
        before = ""
    below = [part for part in parts if part.may_be_below]
    if below and "*" in operators and (len(below) > 1 or "-" in operators):
        return _Value(length, is_whole=_is_whole(found))
    numbers = [part.number for part in parts if part.number is not None]
    total = _multiplied(numbers) if "*" in operators else _together(numbers)
    return _Value(length, total, may_be_below=bool(below), is_whole=_is_whole(found))


def _is_whole(found: Iterable[_Value | str]) -> bool:
    return all(item in _ARITHMETIC - {"/"} if isinstance(item, str) else item.is_whole for item in found)


def _multiplied(numbers: Iterable[_Length]) -> _Length | None:
    """The product, also where some of the numbers are added; ``None`` if it is one of the row's values."""
    product = _Length(1)
    for number in numbers:
        if product.columns and number.columns:
            return None
        product, by = (number.longer(1), product.fixed) if number.columns else (product, number.fixed + 1)
        product = product.repeated(by)
    return product


def _of_numbers(name: str, arguments: Sequence[_Value], made: _Length) -> _Value:
    """The value of a function whose result has this length."""
    if name in _LENGTHS and arguments:
        return _Value(made, arguments[0].length.repeated(_LENGTHS[name]), is_whole=True)
    are_whole = all(argument.is_whole for argument in arguments)
    numbers = [argument.number for argument in arguments if argument.number is not None]
    are_bounded = len(numbers) == len(arguments)
    below = [argument.may_be_below for argument in arguments]
    if name == "LEAST" and are_whole:
        bounds = [argument.number for argument in arguments if argument.literal is not None and argument.number is not None]
        least = min(bounds, key=lambda bound: bound.fixed, default=None)
        return _Value(made, least, may_be_below=any(below) or not are_bounded, is_whole=True)
    if name == "GREATEST" and are_whole and are_bounded:
        return _Value(made, _together(numbers), may_be_below=all(below), is_whole=True)
    is_of_numbers = name in _OF_NUMBERS - {"GREATEST"} and are_bounded and not (name == "ABS" and any(below))
    if is_of_numbers and (name != "ROUND" or len(arguments) == 1 or arguments[1].literal is not None):
        return _Value(made, _together(numbers), may_be_below=any(below), is_whole=are_whole)
    return _Value(made, is_whole=are_whole and name in _OF_NUMBERS)


def _product(name: str, text: _Length, number: _Length) -> _Length:
    if not text.columns:
        text, number = number, text
    if number.columns:
        raise _TooMuchError(f"{name} may make a text as long as the product of two of the row's values")
    return text.repeated(number.fixed)


def _times_of_path(path: Word | None) -> int:
    """How many times as long as a JSON document the values at a path may be. ``**`` gives nested values, each with those in it."""
    if path is None or not path.is_text or "**" in path.text:
        return 2 * _MOST_DEPTH
    return 2 if "*" in path.text else 1


def _require_tame(pattern: Word | None, shown: str) -> None:
    """Raises _TooMuchError unless it is a literal pattern that needs few steps."""
    if pattern is None or not pattern.is_text:
        raise _TooMuchError(f"the pattern of a regular expression is not a literal text: {shown[:_SHOWN]}")
    if why := excess_of_pattern(pattern.text):
        raise _TooMuchError(f"the regular expression {pattern.written[:_SHOWN]} {why}")


def _number(word: Word) -> _Length | None:
    """The value of a literal integer; ``None`` for any other word."""
    return _Length(int(word.written)) if word.is_literal and word.written.isdecimal() and len(word.written) <= 18 else None
