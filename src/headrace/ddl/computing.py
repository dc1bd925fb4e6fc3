"""Estimates, from the text of expressions, what a server must compute for each row: how long the texts become, and how long
regular expressions search them (:mod:`headrace.ddl.patterns`).

A few words can create a text that is a million times longer than the row (``REPEAT(v, 1000000)``), and a few more can search it for
hours. In MariaDB the time of REPLACE and REGEXP_REPLACE grows with the square of the text's length (10.11, measured: 64 KB take a
second, 256 KB a minute), and KILL does not end them.

The expressions are not parsed. The result of operators and keywords is never longer than all their operands together, so lengths
are added up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from headrace.ddl.defaults import defined_columns
from headrace.ddl.grammar.vocabulary import FUNCTIONS, RESERVED
from headrace.ddl.lexer import Cursor, Word, rendered, split_at_commas, words
from headrace.ddl.patterns import excess_of_pattern
from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.table import TableSchema, folded_name

_MOST = 65_536
_MOST_TIMES = 2_000
_MOST_SEARCHED = 2_048
_MOST_TIMES_SEARCHED = 16
_MOST_IN_ALL = 262_144
_MOST_TIMES_IN_ALL = 20_000
_MOST_DEPTH = 100
_MOST_APART = 64
"""The most columns that are counted separately. More count as one; else the time would grow with the square of their number."""
_SHORT = 32
"""The approximate length of a number, a date or a hash: the result of functions that do not return texts."""
_SHOWN = 80
_REPLACES = frozenset({"REPLACE", "REGEXP_REPLACE"})
_SEARCHES = frozenset(
    {"FIND_IN_SET", "INSTR", "JSON_CONTAINS", "JSON_OVERLAPS", "JSON_SEARCH", "LOCATE", "POSITION", "REGEXP_INSTR", "REGEXP_LIKE"}
    | {"REGEXP_SUBSTR", "SUBSTRING_INDEX", "TRANSLATE", "TRIM", "LTRIM", "RTRIM"}
)
"""Functions that search one text in another. Their time may grow with the product of the lengths."""
_SEARCHING = frozenset({"LIKE", "REGEXP", "RLIKE"})
"""Operators that search one text in another."""
_BY_PATTERN = frozenset({"REGEXP", "RLIKE", "REGEXP_INSTR", "REGEXP_LIKE", "REGEXP_REPLACE", "REGEXP_SUBSTR"})
"""Operators and functions that search by a regular expression: the right operand, or the second argument."""
_PASSING = frozenset(
    {"CAST", "COALESCE", "CONCAT", "CONVERT", "ELT", "GREATEST", "IF", "IFNULL", "INSERT", "JSON_UNQUOTE", "LCASE", "LEAST", "LEFT"}
    | {"LOWER", "LTRIM", "MID", "NULLIF", "REVERSE", "RIGHT", "RTRIM", "SUBSTR", "SUBSTRING", "SUBSTRING_INDEX", "TRIM", "UCASE"}
    | {"UPPER"}
)
"""Functions that return their arguments, or parts of them."""
_TIMES = {
    **dict.fromkeys(("HEX", "TO_BASE64", "QUOTE", "LOWER", "UPPER", "LCASE", "UCASE"), 2),
    **dict.fromkeys(("CONVERT", "CHAR", "WEIGHT_STRING", "AES_ENCRYPT", "COMPRESS"), 4),
    **dict.fromkeys(("DATE_FORMAT", "TIME_FORMAT", "JSON_QUOTE", "JSON_OBJECT", "JSON_ARRAY"), 6),
    "EXPORT_SET": 64,
    "JSON_PRETTY": 100,
    "UNCOMPRESS": 1_032,  # the most bytes that zlib expands one byte to
}
"""How many times longer than all its arguments together a function's result may be."""
_LENGTHS = {"CHAR_LENGTH": 1, "CHARACTER_LENGTH": 1, "LENGTH": 4, "OCTET_LENGTH": 4, "BIT_LENGTH": 32}
_OF_NUMBERS = frozenset({"ABS", "CEIL", "CEILING", "COALESCE", "FLOOR", "GREATEST", "IFNULL", "ROUND"})
_LOOKS_AROUND = re.compile(r"\(\?<?[=!]")
"""Only with such a group can the text that a replacement repeats be longer than the text that it replaces."""


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
    generated |= {folded_name(column[0].text): inner for column in defined if (inner := _expression(column))}
    read_by = {name: _columns(inner) & generated.keys() - {name} for name, inner in generated.items()}
    reading = _Reading()
    try:
        for name in TopologicalSorter(read_by).static_order():
            reading.column(name, generated[name])
        reading.whole(found)
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
        return _Length(self.fixed * times, {name: count * times for name, count in self.columns.items()})


def _together(lengths: Iterable[_Length]) -> _Length:
    fixed, columns = 0, dict[str, int]()
    for length in lengths:
        fixed += length.fixed
        for name, times in length.columns.items():
            columns[name] = columns.get(name, 0) + times
        if len(columns) > _MOST_APART:
            columns = {"": sum(columns.values())}
    return _Length(fixed, columns)


class _Reading:
    """Adds up what all expressions of a table compute. Its methods raise _TooMuchError."""

    def __init__(self) -> None:
        self._generated: dict[str, _Length] = {}
        self._fixed = self._times = 0

    def column(self, name: str, expression: tuple[Word, ...]) -> None:
        """Reads the expression of a generated column. The generated columns that it reads must have been read before."""
        self._generated[name] = self.whole(expression)

    def whole(self, found: tuple[Word, ...]) -> _Length:
        """Reads a statement, or an expression that may not have been checked by the grammar."""
        depth = 0
        for word in found:
            depth += word.says("(") - word.says(")")
            if depth > _MOST_DEPTH:
                raise _TooMuchError(f"its parentheses are nested more than {_MOST_DEPTH} deep")
        return self._length(found)

    def _length(self, found: tuple[Word, ...]) -> _Length:
        """The length of all parts, added up."""
        cursor, parts, fixed, searches = Cursor(found), list[_Length](), 0, False
        while not cursor.done:
            word = cursor.next()
            is_operator = not (word.is_name or word.is_literal) and word.text.upper() in _SEARCHING
            searches |= is_operator
            if is_operator and word.text.upper() in _BY_PATTERN:
                _require_tame(cursor.rest())
            if word.is_literal:
                fixed += len(word.text)
            elif word.says("("):
                cursor.back()
                parts.append(self._length(cursor.group()))
            elif not word.is_name and cursor.peek().says("("):
                parts.append(self._called(word.text.upper(), cursor.group()))
            elif word.is_name or (word.text[0].isalnum() and word.text.upper() not in RESERVED):
                name = folded_name(word.text)
                parts.append(self._generated.get(name) or _Length(columns={name: 1}))
        if searches:
            _require_short(parts, rendered(found))
        return _together([_Length(fixed), *parts])

    def _called(self, name: str, inner: tuple[Word, ...]) -> _Length:
        if name in ("BINARY", "VARBINARY") and len(inner) == 1:  # CAST pads a value to this length
            return _number(inner[0]) or _Length()
        if name not in FUNCTIONS:  # AND (…), IN (…), a type
            return self._length(inner)
        arguments = split_at_commas(inner)
        if name in _BY_PATTERN and len(arguments) > 1:
            _require_tame(arguments[1])
        if name in _SEARCHES:
            _require_short((self._length(argument) for argument in arguments), _shown(name, arguments))
        if name in _REPLACES and len(arguments) > 2:
            made = self._replaced(name, arguments)
        elif name in ("REPEAT", "SPACE", "LPAD", "RPAD"):
            made = self._filled(name, arguments)
        else:
            made = self._length(inner).repeated(_TIMES.get(name, 1))
            if name == "WEIGHT_STRING":  # AS CHAR(20)
                made = _together([made, *filter(None, map(_number, inner))])
            if name == "CONCAT_WS" and arguments:
                made = _together([made, self._length(arguments[0]).repeated(len(arguments))])
            if name.startswith("JSON") and any(word.is_text and "**" in word.text for word in inner):
                made = made.repeated(_MOST_DEPTH)  # of nested values, each with those in it
            if name not in _PASSING:
                made = _together([made, _Length(_SHORT)])
        self._add(name, inner, made)
        return made

    def _filled(self, name: str, arguments: list[tuple[Word, ...]]) -> _Length:
        """REPEAT, SPACE, LPAD and RPAD, which have a number of characters or repetitions as an argument."""
        lengths = [self._length(argument) for argument in arguments]
        of_number = 0 if name == "SPACE" else 1
        if len(arguments) <= of_number:
            return _together(lengths)  # no server accepts such a call
        number = self._number(name, arguments[of_number])
        return number if name != "REPEAT" else self._product(name, lengths[0], number)

    def _replaced(self, name: str, arguments: list[tuple[Word, ...]]) -> _Length:
        searched, by = self._length(arguments[0]), self._length(arguments[2])
        others = [self._length(argument) for argument in (arguments[1], *arguments[3:])]
        _require_short((searched, *others), _shown(name, arguments))
        pattern, replacement = (_literal(argument) for argument in arguments[1:3])
        if name == "REPLACE" and pattern and replacement is not None:
            return searched.repeated(max(1, -(-len(replacement) // len(pattern))))
        repeats = replacement is None or "\\" in replacement or "$" in replacement
        if name != "REPLACE" and repeats and (pattern is None or _LOOKS_AROUND.search(pattern)):
            raise _TooMuchError(f"{_shown(name, arguments)} may repeat more than it replaces")
        places = _together([searched, _Length(1)])
        return _together([searched, self._product(name, places, by)])

    def _number(self, name: str, found: tuple[Word, ...]) -> _Length:
        """The maximum of a numeric expression, whatever the signs in it."""
        cursor = Cursor(found)
        if cursor.accept("LEAST"):
            arguments = split_at_commas(cursor.group())
            bounds = [number for argument in arguments if len(argument) == 1 and (number := _number(argument[0]))]
            if bounds and cursor.done:
                return min(bounds, key=lambda bound: bound.fixed)
            cursor = Cursor(found)
        parts = list[_Length]()
        while not cursor.done:
            word = cursor.next()
            text = word.text.upper()
            if (number := _number(word)) is not None:
                parts.append(number)
            elif (word.says("/") or word.says("DIV")) and (number := _number(cursor.peek())) and number.fixed:
                cursor.next()
            elif word.says("("):
                cursor.back()
                parts.append(self._number(name, cursor.group()))
            elif text in _LENGTHS and not word.is_name and cursor.peek().says("("):
                parts.append(self._length(cursor.group()).repeated(_LENGTHS[text]))
            elif text in _OF_NUMBERS and not word.is_name and cursor.peek().says("("):
                parts.extend(self._number(name, argument) for argument in split_at_commas(cursor.group()))
            elif text not in ("+", "-", "*") or word.is_name or word.is_literal:
                raise _TooMuchError(f"nothing bounds the number {rendered(found)[:_SHOWN]} in {name}")
        if not any(word.says("*") for word in found):
            return _together(parts)
        product = _Length(1)
        for part in parts:
            product = self._product(name, product, _together([part, _Length(1)]))
        return product

    def _product(self, name: str, text: _Length, number: _Length) -> _Length:
        if not text.columns:
            text, number = number, text
        if number.columns:
            raise _TooMuchError(f"{name} may make a text as long as the product of two of the row's values")
        return text.repeated(number.fixed)

    def _add(self, name: str, inner: tuple[Word, ...], made: _Length) -> None:
        shown = f"{name}({rendered(inner)[:_SHOWN]})"
        if made.fixed > _MOST or made.times > _MOST_TIMES:
            raise _TooMuchError(
                f"{shown} may make a text of more than {_MOST:,} characters, or one {_MOST_TIMES:,} times as long as the row's"
                " values"
            )
        self._fixed += made.fixed if made.fixed > 2 * _SHORT else 0  # the bounds of 8,192 partitions are dates
        self._times += made.times
        if self._fixed > _MOST_IN_ALL or self._times > _MOST_TIMES_IN_ALL:
            raise _TooMuchError(
                f"its expressions may make texts of more than {_MOST_IN_ALL:,} characters together, or {_MOST_TIMES_IN_ALL:,} times"
                " as long as the row's values"
            )


def _require_short(texts: Iterable[_Length], shown: str) -> None:
    """Raises _TooMuchError unless all texts are short. They are the texts of a search, and those searched for."""
    if any(text.fixed > _MOST_SEARCHED or text.times > _MOST_TIMES_SEARCHED for text in texts):
        raise _TooMuchError(
            f"{shown[:_SHOWN]} may search a text with more than {_MOST_SEARCHED:,} characters beside the row's, or"
            f" {_MOST_TIMES_SEARCHED} times as long as they are"
        )


def _require_tame(found: tuple[Word, ...]) -> None:
    """Raises _TooMuchError unless the words begin with a pattern that needs few steps."""
    cursor = Cursor(found)
    if cursor.peek().text.startswith("_") and not cursor.peek().is_name:  # the character set of a text
        cursor.next()
    pattern = cursor.next()
    if not pattern.is_text or cursor.peek().is_text:
        raise _TooMuchError(f"the pattern of a regular expression is not a literal text: {rendered(found)[:_SHOWN]}")
    if why := excess_of_pattern(pattern.text):
        raise _TooMuchError(f"the regular expression {pattern.written[:_SHOWN]} {why}")


def _number(word: Word) -> _Length | None:
    """The value of a literal integer; ``None`` for any other word."""
    return _Length(int(word.written)) if word.is_literal and word.written.isdecimal() and len(word.written) <= 18 else None


def _literal(found: tuple[Word, ...]) -> str | None:
    """The text of a single string literal; ``None`` for anything else."""
    return found[0].text if len(found) == 1 and found[0].is_text else None


def _shown(name: str, arguments: list[tuple[Word, ...]]) -> str:
    return f"{name}({', '.join(map(rendered, arguments))[:_SHOWN]})"
