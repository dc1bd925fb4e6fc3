"""The text that TiDB stores as the default of a column, which is not always the text of the statement. Pure.

A number is stored in its normal form, a member as the type defines it, a date or time with the digits of its column. Sources: TiDB
documentation, "Data Type Default Values" and "Literal Values"; MySQL documentation, "Date and Time Literals"; what a TiDB stored
(``tests/sinks/fills.py``). A spelling whose value is not certain raises UnreadDefinitionError. Texts of dates and times are then
left as they are: no reader of a default guesses what such a text means.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

from headrace.ddl.lexer import Cursor, Word, bytes_of_digits, quoted_text, rendered
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each

_UTF8 = frozenset({"", "_UTF8", "_UTF8MB3", "_UTF8MB4", "_BINARY"})
"""Character sets before a literal in which the bytes of a statement are its text."""
_MOST_DIGITS = 65
_MOST_FRACTION = 30
"""The most digits of a DECIMAL, and those after its point."""
_MOST_BYTES_OF_NUMBER = 8
_ZERO_DATE = "0000-00-00"
_FRACTION = r"(?:\.([0-9]*))?"
_MOMENT = re.compile(
    rf"([0-9]{{4}})[-/]([0-9]{{1,2}})[-/]([0-9]{{1,2}})(?:[ T]([0-9]{{1,2}}):([0-9]{{1,2}})(?::([0-9]{{1,2}}){_FRACTION})?)?"
)
_DIGITS_OF_MOMENT = re.compile(rf"([0-9]{{4}})([0-9]{{2}})([0-9]{{2}})(?:([0-9]{{2}})([0-9]{{2}})([0-9]{{2}}){_FRACTION})?")
_CLOCK = re.compile(rf"(-?)([0-9]{{1,3}}):([0-9]{{1,2}})(?::([0-9]{{1,2}}){_FRACTION})?")
_DIGITS_OF_CLOCK = re.compile(rf"(-?)([0-9]{{0,3}}?)([0-9]{{0,2}}?)([0-9]{{1,2}}){_FRACTION}")
_LONGEST_TIME = timedelta(hours=838, minutes=59, seconds=59)
_MOMENTS = frozenset({TypeKind.DATE, TypeKind.DATETIME, TypeKind.TIMESTAMP})


class UnreadDefinitionError(ValueError):
    """A column's definition is not understood. ``str()`` is the rest of a sentence about the statement."""


@dataclass(frozen=True)
class _Default:
    """A literal after DEFAULT: a text, a number (its sign in front), or the bytes of a hexadecimal or bit literal."""

    value: str | bytes
    is_number: bool = False

    def __str__(self) -> str:
        shown = self.value if isinstance(self.value, str) else "0x" + self.value.hex()
        return shown[:40] if self.is_number else repr(shown[:40])


def stored_default(definition: tuple[Word, ...], name: str, of: ColumnType) -> str | None:
    """The default in a definition, or in the words after ALTER COLUMN name; ``None`` for no default and for NULL.

    CURRENT_TIMESTAMP and expressions are their text. ``name`` and ``of`` are the column's; ``of`` has the members of ENUM and SET.

    TiDB finds a member by the collation of its column, and refuses the statement if it finds none. So a text that is a member in
    another case shows that the collation ignores case.

    Raises UnreadDefinitionError.
    """
    words = words_of_default(definition)
    if words is None:
        return None
    cursor = Cursor(words)
    if cursor.peek().says("("):
        inside = cursor.group()
        found = _literal(Cursor(inside), len(inside), name)
        if found is None:
            return rendered(inside)
    else:
        found = _literal(cursor, 0, name)
    if found is None:
        return _keyword(cursor, name)
    return _STORED[of.kind](found, name, of)


def words_of_default(definition: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """The words behind DEFAULT, to the end of the definition; ``None`` for a definition without default."""
    cursor = Cursor(definition)
    while not cursor.done:
        if cursor.peek().says("("):
            cursor.group()
        elif any(cursor.accept(*other) for other in _OTHER_DEFAULTS):
            continue
        elif cursor.next().says("DEFAULT"):
            return cursor.rest()
    return None


_OTHER_DEFAULTS = (("SERIAL", "DEFAULT", "VALUE"), ("ON", "DELETE", "SET", "DEFAULT"), ("ON", "UPDATE", "SET", "DEFAULT"))


def text_at(cursor: Cursor) -> Word | None:
    """Steps over a text, with the further parts of it that follow (``'a' 'b'`` is ``ab``); ``None`` if there is none."""
    first = last = cursor.peek()
    if not first.is_text:
        return None
    parts = []
    while cursor.peek().is_text and not cursor.done:
        last = cursor.next()
        parts.append(last.text)
    text = "".join(parts)
    return Word(text, is_literal=True, start=first.start, end=last.end, written=quoted_text(text), spaced=first.spaced)


def _literal(cursor: Cursor, length: int, name: str) -> _Default | None:
    """Steps over a literal; ``None`` if there is none, or if it does not fill all ``length`` words (0: any number of them)."""
    begin = cursor.at
    sign = cursor.next().text if cursor.peek().says("-") or cursor.peek().says("+") else ""
    charset = ""
    if cursor.peek().text.startswith("_") and not cursor.peek().is_literal and cursor.peek(1).is_literal:
        charset = cursor.next().text.upper()
    found: _Default | None = None
    if (text := text_at(cursor)) is not None:
        found = _Default(text.text)
    elif cursor.peek().is_literal and not cursor.done:
        word = cursor.next()
        is_number = word.written == word.text
        found = _Default(_number(sign, word.text, name), True) if is_number else _Default(bytes_of_digits(word))
    elif cursor.accept("TRUE") or cursor.accept("FALSE"):
        found = _Default("1" if cursor.last.says("TRUE") else "0", True)
    if found is None or (length and cursor.at - begin != length):
        return None
    if sign and not found.is_number:
        raise _unread(name, found, "has a sign and is no number")
    if charset not in _UTF8 and not (found.value.isascii() and not found.is_number):
        raise _unread(name, found, f"has the character set {charset[1:]}")
    return found


def _keyword(cursor: Cursor, name: str) -> str | None:
    if cursor.done:
        raise UnreadDefinitionError(f"column {name} has nothing behind DEFAULT.")
    text = cursor.next().text.upper()
    inside = cursor.group() if cursor.peek().says("(") else ()
    if text == "NULL":
        return None
    return f"{text}({rendered(inside)})" if inside else text


def _number(sign: str, digits: str, name: str) -> str:
    """A number in its normal form: an integer without leading zeros, a decimal with its digits, a float without exponent."""
    minus = "-" if sign == "-" else ""
    if "e" in digits.lower():
        number = Decimal(repr(float(digits)))
        if not number.is_finite():
            raise UnreadDefinitionError(f"the default {digits[:40]} of column {name} is too large.")
        text = f"{number:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        whole, _, fraction = digits.partition(".")
        whole = whole.lstrip("0") or "0"
        if len(whole) + len(fraction) > _MOST_DIGITS or len(fraction) > _MOST_FRACTION:
            raise UnreadDefinitionError(f"the default {digits[:40]} of column {name} has too many digits.")
        text = f"{whole}.{fraction}" if fraction else whole
    return text if not text.strip("0.") else minus + text


def _unread(name: str, found: _Default, why: str) -> UnreadDefinitionError:
    return UnreadDefinitionError(f"the default {found} of column {name} {why}.")


def _of_number(found: _Default, name: str, of: ColumnType) -> str:
    """For numeric columns. A text is stored as it is."""
    if isinstance(found.value, str):
        return found.value
    digits = found.value.lstrip(b"\0")
    if len(digits) > _MOST_BYTES_OF_NUMBER:
        raise _unread(name, found, f"does not fit the type {of}")
    return str(int.from_bytes(digits, "big"))


def _of_year(found: _Default, name: str, of: ColumnType) -> str:
    if found.is_number and not str(found.value).isdigit():
        raise _unread(name, found, "is no year")
    return _of_number(found, name, of)


def _of_text(found: _Default, name: str, _of: ColumnType) -> str:
    if isinstance(found.value, bytes):
        try:
            return found.value.decode()
        except UnicodeDecodeError:
            raise _unread(name, found, "is no text in UTF-8") from None
    return found.value


def _of_bytes(found: _Default, _name: str, of: ColumnType) -> str:
    """Bytes that are not UTF-8 are lost, as in TiDB's own JSON. BINARY is padded with zero bytes."""
    data = found.value if isinstance(found.value, bytes) else found.value.encode()
    if of.kind is TypeKind.BINARY:
        data = data.ljust(of.length or 1, b"\0")
    return data.decode("utf-8", "replace")


def _of_bits(found: _Default, name: str, of: ColumnType) -> str:
    """TiDB stores the bytes of a number, without leading zeros."""
    if not found.is_number:
        return _of_bytes(found, name, of)
    digits = str(found.value)
    if not digits.isdigit() or int(digits) >= 1 << 64:
        raise _unread(name, found, f"does not fit the type {of}")
    number = int(digits)
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big").decode("utf-8", "replace")


def _of_moment(found: _Default, name: str, of: ColumnType) -> str:
    if isinstance(found.value, bytes) or (found.is_number and not found.value.isdigit()):
        raise _unread(name, found, f"is no {of}")
    if found.is_number and found.value == "0":
        return _ZERO_DATE if of.kind is TypeKind.DATE else f"{_ZERO_DATE} 00:00:00"
    text = normal_moment(found.value, of)
    if text is None and found.is_number:
        raise _unread(name, found, f"is a number whose {of} is not certain")
    return found.value if text is None else text


def _of_time(found: _Default, name: str, of: ColumnType) -> str:
    if isinstance(found.value, bytes) or (found.is_number and not found.value.lstrip("-").isdigit()):
        raise _unread(name, found, "is no TIME")
    text = _normal_time(found.value, of)
    if text is None and found.is_number:
        raise _unread(name, found, f"is a number whose {of} is not certain")
    return found.value if text is None else text


def normal_moment(text: str, of: ColumnType) -> str | None:
    """A text as DATE, DATETIME or TIMESTAMP, rounded half up to the digits of the column; ``None`` if it is not certain.

    Not certain are years of two digits, dates that do not exist, and the DATE of a text with a time.
    """
    found = _MOMENT.fullmatch(text) or _DIGITS_OF_MOMENT.fullmatch(text)
    if found is None:
        return None
    *numbers, fraction = found.groups()
    try:
        moment = datetime(*(int(number or 0) for number in numbers))  # type: ignore[arg-type]
        moment += timedelta(microseconds=_micros(fraction, of))
    except (ValueError, OverflowError):
        return None
    if of.kind is TypeKind.DATE:
        return moment.date().isoformat() if numbers[3] is None else None
    return moment.isoformat(" ", "seconds") + _fraction_text(moment.microsecond, of)


def _normal_time(text: str, of: ColumnType) -> str | None:
    """A text as TIME, rounded to the digits of the column; ``None`` if it is not certain, as for a negative half."""
    found = _CLOCK.fullmatch(text) or _DIGITS_OF_CLOCK.fullmatch(text)
    if found is None:
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = _micros(fraction, of)
    if int(minutes or 0) > 59 or int(seconds or 0) > 59 or (sign and _is_half(fraction, of)):
        return None
    time = timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=int(seconds or 0), microseconds=micros)
    if time > _LONGEST_TIME:
        return None
    whole = time // timedelta(seconds=1)
    clock = f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{_fraction_text(time.microseconds, of)}"
    return f"-{clock}" if sign and time else clock


def _micros(fraction: str | None, of: ColumnType) -> int:
    """The microseconds of digits behind a point, rounded half up to the digits of the column; up to a whole second."""
    rounded = Decimal(f"0.{(fraction or '0')[:_MOST_FRACTION]}").quantize(Decimal(1).scaleb(-(of.scale or 0)), ROUND_HALF_UP)
    return int(rounded.scaleb(6))


def _is_half(fraction: str | None, of: ColumnType) -> bool:
    return (fraction or "")[of.scale or 0 :].rstrip("0") == "5"


def _fraction_text(micros: int, of: ColumnType) -> str:
    return f".{micros:06d}"[: of.scale + 1] if of.scale else ""


def _of_enum(found: _Default, name: str, of: ColumnType) -> str:
    """A number counts the members from 1."""
    text, number = _choice(found, name, of, len(of.elements))
    return of.elements[number - 1] if number else _member(text, found, name, of)


def _of_set(found: _Default, name: str, of: ColumnType) -> str:
    """A number has a bit for each member, the lowest one for the first."""
    text, number = _choice(found, name, of, (1 << len(of.elements)) - 1)
    if number:
        return ",".join(member for place, member in enumerate(of.elements) if number >> place & 1)
    chosen = {_member(part, found, name, of) for part in text.split(",")} if text else set()
    return ",".join(member for member in of.elements if member in chosen)


def _choice(found: _Default, name: str, of: ColumnType, most: int) -> tuple[str, int]:
    """The text or the number, up to ``most``, that chooses members; the other one is empty."""
    if isinstance(found.value, bytes):
        raise _unread(name, found, f"is no text, and the type is {of.kind}")
    if not of.elements:
        raise _unread(name, found, f"cannot be compared with the members of its {of.kind}, which are not known")
    if not found.is_number:
        return found.value, 0
    if not found.value.isdigit() or not 0 < int(found.value) <= most:
        raise _unread(name, found, f"is no member of its {of.kind}")
    return "", int(found.value)


def _member(text: str, found: _Default, name: str, of: ColumnType) -> str:
    bare = text.rstrip(" ")
    if bare in of.elements:
        return bare
    alike = [member for member in of.elements if _folded(member) == _folded(bare)]
    if len(alike) != 1 or bare[:1].isdigit():  # TiDB may read a text of digits as a number
        raise _unread(name, found, f"is no member of its {of.kind}")
    return alike[0]


def _folded(text: str) -> bytes:
    """The text with ASCII letters in lower case. Collations that ignore case differ in other letters."""
    return text.encode().lower()


_STORED: TypeMap[Callable[[_Default, str, ColumnType], str]] = TypeMap(
    "stored defaults",
    each(INTEGER_KINDS | {TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL}, _of_number),
    each(CHARACTER_KINDS | {TypeKind.JSON, TypeKind.VECTOR}, _of_text),
    each(BINARY_KINDS, _of_bytes),
    each(_MOMENTS, _of_moment),
    {TypeKind.YEAR: _of_year, TypeKind.TIME: _of_time, TypeKind.BIT: _of_bits},
    {TypeKind.ENUM: _of_enum, TypeKind.SET: _of_set},
)
