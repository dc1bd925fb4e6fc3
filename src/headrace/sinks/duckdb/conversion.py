"""Converts a column's values when MODIFY COLUMN changes its type: TiDB's conversions in DuckDB's SQL.

TiDB emits no rows for it. ``CONVERSIONS`` has an expression for each pair of kinds that DuckDB can follow; all other pairs are
refused. An expression gives exactly TiDB's value, or NULL if it cannot determine it; the schema change is then refused because of
that value. ``tests/sinks/test_duckdb_conversion.py`` compares all of them with a TiDB's results
(``tests/support/modify_column.tsv``).

Values that do not fit are treated as by a TiDB without strict SQL mode (numbers are clamped, texts are cut). In strict mode, its
default, TiDB refuses such a statement, so that none arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each
from headrace.sinks.duckdb.types import (
    MAX_DECIMAL_DIGITS,
    UnsupportedPolicy,
    duckdb_type,
    integer_range,
    literal,
    own_name,
    quoted,
    spelled,
)

BY_HAND = "Convert the column by hand: headrace ddl edit with DuckDB's own statement; or load the table anew and skip this one."
_NAME_THE_ZONE = "Set time-zone in the sink's URI to the time zone of the session that ran the statement, also when that is UTC."


class Group(StrEnum):
    """Kinds of types whose values TiDB converts in the same way."""

    INTEGER = "integer"
    BIT = "BIT"
    YEAR = "YEAR"
    FLOAT = "FLOAT, DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "text"
    BINARY = "binary"
    DATE = "DATE"
    TIME = "TIME"
    DATETIME = "DATETIME"
    TIMESTAMP = "TIMESTAMP"
    ENUM = "ENUM"
    SET = "SET"
    JSON = "JSON"
    VECTOR = "VECTOR"


_GROUPS = TypeMap(
    "conversions at MODIFY COLUMN",
    each(INTEGER_KINDS, Group.INTEGER),
    each(CHARACTER_KINDS, Group.TEXT),
    each(BINARY_KINDS, Group.BINARY),
    each((TypeKind.FLOAT, TypeKind.DOUBLE), Group.FLOAT),
    {kind: Group(kind.value) for kind in TypeKind if kind.value in {group.value for group in Group}},
)


def group_of(column_type: ColumnType) -> Group:
    return _GROUPS[column_type.kind]


class ConversionRefusedError(Exception):
    """The values cannot be converted as in TiDB. The message is a sentence."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class TypeChange:
    """How a column's values are converted when its type changes.

    ``expression`` gives the new value, and NULL for a value that cannot be converted; it is empty if values do not change.
    ``refusal`` is raised instead if there is any value.
    """

    target: str
    expression: str
    changes_type: bool
    refusal: ConversionRefusedError | None = None


def type_change(name: str, old: ColumnType, new: ColumnType, unsupported: UnsupportedPolicy, time_zone: str = "") -> TypeChange:
    """The work of ALTER COLUMN TYPE. ``time_zone`` is that of the session that ran the statement; empty if unknown.

    Raises UnsupportedTypeError for a type that DuckDB lacks.
    """
    source, target = duckdb_type(old, unsupported), duckdb_type(new, unsupported)
    column = quoted(name)
    try:
        expression = _converted(_Pair(column, old, new, target, time_zone))
    except ConversionRefusedError as refusal:
        return TypeChange(target, f"CAST(NULL AS {target})", source != target, refusal)
    return TypeChange(target, "" if expression == column and source == target else expression, source != target)


@dataclass(frozen=True)
class _Pair:
    """The inputs of an expression: the column (quoted), its types, and the new type's name in DuckDB."""

    column: str
    old: ColumnType
    new: ColumnType
    target: str
    time_zone: str


def _converted(pair: _Pair) -> str:
    source, target = group_of(pair.old), group_of(pair.new)
    if pair.old == pair.new:
        return pair.column
    long = [t for t in (pair.old, pair.new) if t.kind is TypeKind.DECIMAL and (t.length or 10) > MAX_DECIMAL_DIGITS]
    if (source is Group.TIMESTAMP) != (target is Group.TIMESTAMP) and (source, target) in CONVERSIONS and not pair.time_zone:
        message = f"TiDB converts {pair.old} to {pair.new} in the time zone of the session, which no file records."
        raise ConversionRefusedError(message, _NAME_THE_ZONE)
    make = CONVERSIONS.get((source, target))
    if make is None or long:
        message = f"DuckDB cannot convert {spelled(pair.old)} to {spelled(pair.new)} as TiDB does."
        raise ConversionRefusedError(message, BY_HAND)
    return make(pair)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _integer(number: str, pair: _Pair) -> str:
    """The value of the new integer type that is nearest to a HUGEINT (an expression)."""
    low, high = integer_range(pair.new)
    # Not greatest() and least(), because they ignore NULL.
    return f"CAST(CASE WHEN {number} < {low} THEN {low} WHEN {number} > {high} THEN {high} ELSE {number} END AS {pair.target})"


def _huge(pair: _Pair) -> str:
    return f"{pair.column}::HUGEINT"


def _rounded_float(pair: _Pair) -> str:
    """A FLOAT or DOUBLE, rounded half to even, as HUGEINT; clamped to the range of all integer types."""
    rounded = f"round_even({pair.column}::DOUBLE, 0)"
    bounded = f"CASE WHEN {rounded} > 1e30 THEN 1e30 WHEN {rounded} < -1e30 THEN -1e30 ELSE {rounded} END"
    return f"CAST({bounded} AS HUGEINT)"


def _rounded_decimal(pair: _Pair) -> str:
    return f"CAST({pair.column} AS HUGEINT)"  # rounds half away from zero, as in TiDB


def _float(number: str, pair: _Pair) -> str:
    """A DOUBLE (an expression) as FLOAT or DOUBLE. With a scale, it is rounded, and clamped to its digits."""
    fitted = number
    if pair.new.scale is not None and pair.new.length is not None:
        unit = f"1e{pair.new.scale}::DOUBLE"
        most = f"(1e{pair.new.length - pair.new.scale}::DOUBLE - 1 / {unit})"
        rounded = f"(round_even({number} * {unit}, 0) / {unit})"
        fitted = f"CASE WHEN {rounded} > {most} THEN {most} WHEN {rounded} < -{most} THEN -{most} ELSE {rounded} END"
    if pair.new.unsigned:
        fitted = f"CASE WHEN {fitted} < 0 THEN 0 ELSE {fitted} END"
    if pair.new.kind is TypeKind.DOUBLE:
        return f"CAST({fitted} AS DOUBLE)"
    limit = "3.4028234663852886e38::DOUBLE"
    return f"CAST(CASE WHEN {fitted} > {limit} THEN {limit} WHEN {fitted} < -{limit} THEN -{limit} ELSE {fitted} END AS FLOAT)"


def _decimal(value: str, number: str, pair: _Pair) -> str:
    """A number (an expression, and a DOUBLE near it) as DECIMAL, rounded half away from zero, and clamped to its digits."""
    digits, scale = pair.new.length or 10, pair.new.scale or 0
    most = "9" * (digits - scale) + ("." + "9" * scale if scale else "")
    lowest = "0" if pair.new.unsigned else f"-{most}"
    fitted = f"TRY_CAST({value} AS {pair.target})"
    clamped = f"CAST(CASE WHEN {number} < 0 THEN '{lowest}' ELSE '{most}' END AS {pair.target})"
    cut = f"CASE WHEN {number} IS NOT NULL THEN coalesce({fitted}, {clamped}) END"
    return f"CASE WHEN {number} < 0 THEN CAST(0 AS {pair.target}) ELSE {cut} END" if pair.new.unsigned else cut


def _bits(number: str, pair: _Pair) -> str:
    """A HUGEINT as BIT. Negative and too large numbers have every bit set, but 64 bits hold a negative one's own."""
    width = pair.new.length or 1
    most = 2**width - 1
    negative = f"{number} + {2**64}" if width == 64 else str(most)
    return f"CAST(CASE WHEN {number} < 0 THEN {negative} WHEN {number} > {most} THEN {most} ELSE {number} END AS {pair.target})"


def _year(number: str) -> str:
    """An integer as YEAR. Two digits mean a year of this century or the last one."""
    return (
        f"CAST(CASE WHEN {number} BETWEEN 1 AND 69 THEN {number} + 2000 WHEN {number} BETWEEN 70 AND 99 THEN {number} + 1900"
        f" WHEN {number} = 0 OR {number} BETWEEN 1901 AND 2155 THEN {number} END AS SMALLINT)"
    )


# --- texts ------------------------------------------------------------------------------------------------------------


def _float_text(pair: _Pair) -> str:
    """A FLOAT or DOUBLE without exponent, as the shortest text that gives the number back."""
    text = f"CAST({pair.column} AS VARCHAR)"
    mantissa, exponent = f"split_part({text}, 'e', 1)", f"CAST(split_part({text}, 'e', 2) AS INTEGER)"
    sign = f"CASE WHEN starts_with({text}, '-') THEN '-' ELSE '' END"
    whole = f"ltrim(split_part({mantissa}, '.', 1), '-')"
    fraction = f"split_part({mantissa}, '.', 2)"
    large = f"{sign} || {whole} || rpad({fraction}, {exponent}, '0')"  # up to seventeen digits, and exponents from 16 on
    small = f"{sign} || '0.' || repeat('0', -{exponent} - 1) || {whole} || {fraction}"
    mixed = f"{sign} || {whole} || left({fraction}, {exponent}) || '.' || substr({fraction}, {exponent} + 1)"
    spread = f"CASE WHEN {exponent} < 0 THEN {small} WHEN length({fraction}) > {exponent} THEN {mixed} ELSE {large} END"
    return f"CASE WHEN contains({text}, 'e') THEN {spread} ELSE regexp_replace({text}, '\\.0$', '') END"


def _date_text(value: str) -> str:
    return f"strftime({value}, '%Y-%m-%d')"


def _moment_text(value: str, digits: int) -> str:
    """A TIMESTAMP (an expression) with its column's number of fractional digits."""
    fraction = f" || '.' || left(strftime({value}, '%f'), {digits})" if digits else ""
    return f"strftime({value}, '%Y-%m-%d %H:%M:%S'){fraction}"


def _time_text(pair: _Pair) -> str:
    digits = pair.old.scale or 0
    micros = f"abs(epoch_us({pair.column}))"
    sign = f"CASE WHEN epoch_us({pair.column}) < 0 THEN '-' ELSE '' END"
    clock = f"printf('%02d:%02d:%02d', {micros} // 3600000000, {micros} // 60000000 % 60, {micros} // 1000000 % 60)"
    fraction = f" || '.' || left(printf('%06d', {micros} % 1000000), {digits})" if digits else ""
    return f"{sign} || {clock}{fraction}"


def _text_of(pair: _Pair) -> str:
    """The old value as TiDB converts it to a text."""
    digits = pair.old.scale or 0
    texts: Mapping[Group, Callable[[], str]] = {
        Group.FLOAT: lambda: _float_text(pair),
        Group.DATE: lambda: _date_text(pair.column),
        Group.TIME: lambda: _time_text(pair),
        Group.DATETIME: lambda: _moment_text(pair.column, digits),
        Group.TIMESTAMP: lambda: _moment_text(_local(pair), digits),
        **dict.fromkeys((Group.TEXT, Group.ENUM, Group.SET), lambda: pair.column),
    }
    make = texts.get(group_of(pair.old))
    return make() if make else f"CAST({pair.column} AS VARCHAR)"


def _to_text(pair: _Pair) -> str:
    return _fitted_text(_text_of(pair), pair)


def _fitted_text(text: str, pair: _Pair) -> str:
    """A text in the new type: CHAR and VARCHAR are cut to characters, CHAR loses trailing spaces, TEXT is never cut."""
    old, new = pair.old, pair.new
    longer = old.kind in CHARACTER_KINDS and old.length is not None and new.length is not None and old.length <= new.length
    if new.length is None:
        return text
    if new.kind in (TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.VAR_STRING):
        of_characters = old.kind in (TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.VAR_STRING)
        cut = text if longer and of_characters else f"left({text}, {new.length})"
        return f"rtrim({cut}, ' ')" if new.kind is TypeKind.CHAR and old.kind is not TypeKind.CHAR else cut
    if longer and old.kind not in (TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.VAR_STRING):
        return text
    return f"CASE WHEN strlen({text}) <= {new.length} THEN {text} END"


def _to_binary(pair: _Pair) -> str:
    return _fitted_bytes(f"encode({_text_of(pair)})", pair)


def _fitted_bytes(data: str, pair: _Pair) -> str:
    """Bytes in the new type: cut to its length; BINARY is padded with zero bytes."""
    length = pair.new.length
    if length is None:
        return data
    if pair.new.kind not in (TypeKind.BINARY, TypeKind.VARBINARY):
        return f"CASE WHEN octet_length({data}) <= {length} THEN {data} END"
    cut = f"CASE WHEN octet_length({data}) > {length} THEN array_slice({data}, 1, {length}) ELSE {data} END"
    if pair.new.kind is TypeKind.VARBINARY:
        return cut
    return f"{cut} || repeat('\\x00'::BLOB, greatest({length} - octet_length({data}), 0))"


def _from_binary(pair: _Pair) -> str:
    return _fitted_text(f"TRY(decode({pair.column}))", pair)


# --- dates and times --------------------------------------------------------------------------------------------------

_LAST_MOMENT = "TIMESTAMP '10000-01-01 00:00:00'"
_TIMESTAMPS = ("TIMESTAMP '1970-01-01 00:00:01'", "TIMESTAMP '2038-01-19 03:14:08'")  # in UTC; the second is exclusive
_LONGEST_TIME = 838 * 3600 + 59 * 60 + 59


def _local(pair: _Pair) -> str:
    """A TIMESTAMP in the session's time zone, as a TIMESTAMP without one."""
    if pair.time_zone[:1] in ("+", "-"):
        return f"(timezone('UTC', {pair.column}) + INTERVAL '{_offset_minutes(pair.time_zone)} minutes')"
    return f"timezone({literal(pair.time_zone)}, {pair.column})"


def _offset_minutes(zone: str) -> int:
    hours, _, minutes = zone[1:].partition(":")
    return (-1 if zone[0] == "-" else 1) * (int(hours) * 60 + int(minutes or 0))


def _absolute(moment: str, pair: _Pair) -> str:
    """A TIMESTAMP without time zone (an expression), in the session's zone, as one with time zone.

    NULL for values outside TiDB's TIMESTAMP, and for the hours that a clock change skips or repeats.
    """
    if pair.time_zone[:1] in ("+", "-"):
        found = f"timezone('UTC', {moment} - INTERVAL '{_offset_minutes(pair.time_zone)} minutes')"
        certain = "TRUE"
    else:
        zone = literal(pair.time_zone)
        found = f"timezone({zone}, {moment})"
        shifts = ("-60", "-30", "30", "60")
        certain = f"timezone({zone}, {found}) = {moment}" + "".join(
            f" AND timezone({zone}, {found} + INTERVAL '{shift} minutes') <> {moment}" for shift in shifts
        )
    low, high = _TIMESTAMPS
    return f"CASE WHEN timezone('UTC', {found}) >= {low} AND timezone('UTC', {found}) < {high} AND {certain} THEN {found} END"


def _rounded(moment: str, old_digits: int, digits: int) -> str:
    """A TIMESTAMP (an expression) rounded to fewer fractional digits, half up; NULL beyond the year 9999."""
    if digits >= old_digits:
        return moment
    unit = 10 ** (6 - digits)
    rounded = f"make_timestamp(CAST(floor((epoch_us({moment}) + {unit // 2}) / {unit}::DOUBLE) AS BIGINT) * {unit})"
    return f"CASE WHEN {rounded} < {_LAST_MOMENT} THEN {rounded} END"


def _whole_if_unsigned(micros: str, pair: _Pair) -> str:
    """The condition that a moment has no fraction if it becomes UNSIGNED: TiDB does not carry into minutes then (``235960``)."""
    return f"{micros} % 1000000 = 0" if pair.new.unsigned and pair.old.scale else "TRUE"


def _utc(pair: _Pair) -> str:
    return f"timezone('UTC', {pair.column})"


def _rounded_time(micros: str, old_digits: int, digits: int) -> str:
    """Microseconds (an expression) as INTERVAL, rounded to fewer digits (:func:`_nearest`), clamped to TiDB's longest TIME."""
    if digits < old_digits:
        most = _LONGEST_TIME * 1_000_000
        nearest = _nearest(micros, 10 ** (6 - digits))
        micros = f"CASE WHEN {nearest} > {most} THEN {most} WHEN {nearest} < -{most} THEN -{most} ELSE {nearest} END"
    return f"to_microseconds({micros})"


def _nearest(micros: str, unit: int) -> str:
    """Microseconds (an expression) rounded to a unit. NULL for a negative half, which TiDB rounds depending on its origin."""
    size = f"((abs({micros}) + {unit // 2}) // {unit} * {unit})"
    half = f"{micros} < 0 AND abs({micros}) % {unit} = {unit // 2}"
    return f"(CASE WHEN {half} THEN NULL WHEN {micros} < 0 THEN -{size} ELSE {size} END)"


def _clock_number(micros: str, pair: _Pair) -> str:
    """Microseconds (an expression) as hours, minutes and seconds in one number, rounded."""
    seconds = f"(abs({_nearest(micros, 1_000_000)}) // 1000000)"
    number = f"({seconds} // 3600 * 10000 + {seconds} // 60 % 60 * 100 + {seconds} % 60)::HUGEINT"
    known = _whole_if_unsigned(micros, pair)
    return f"CASE WHEN {known} THEN CASE WHEN {micros} < 0 THEN -{number} ELSE {number} END END"


def _moment_number(moment: str, pair: _Pair) -> str:
    number = f"CAST(strftime({_rounded(moment, pair.old.scale or 0, 0)}, '%Y%m%d%H%M%S') AS HUGEINT)"
    return f"CASE WHEN {_whole_if_unsigned(f'epoch_us({moment})', pair)} THEN {number} END"


# --- from texts -------------------------------------------------------------------------------------------------------

# Only texts for which TiDB's lenient parsing rules do not matter.
_NUMBER = "^[+-]?[0-9]{1,18}([.][0-9]{1,18})?$"
_LONG_NUMBER = "^[+-]?[0-9]{1,300}([.][0-9]{1,300})?$"
_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?)?$"
_CLOCK = "^-?[0-9]{2,3}:[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?$"


def _word(pair: _Pair) -> str:
    return pair.column if group_of(pair.old) is not Group.BINARY else f"TRY(decode({pair.column}))"


def _matching(pattern: str, pair: _Pair) -> str:
    word = _word(pair)
    return f"CASE WHEN regexp_matches({word}, {literal(pattern)}) THEN {word} END"


def _word_as(type_name: str, pattern: str, pair: _Pair) -> str:
    return f"TRY_CAST({_matching(pattern, pair)} AS {type_name})"


def _word_date(pattern: str, pair: _Pair) -> str:
    """A DATE or TIMESTAMP. Not for the year 0, which DuckDB would read as 1 BC."""
    word = _word(pair)
    return f"CASE WHEN NOT starts_with({word}, '0000') THEN {_word_as('TIMESTAMP', pattern, pair)} END"


def _word_micros(pair: _Pair) -> str:
    return f"epoch_us({_word_as('INTERVAL', _CLOCK, pair)})"


def _word_year(pair: _Pair) -> str:
    number, word = _word_as("INTEGER", "^[0-9]{1,4}$", pair), _word(pair)
    return (
        f"CAST(CASE WHEN length({word}) = 4 AND ({number} = 0 OR {number} BETWEEN 1901 AND 2155) THEN {number}"
        f" WHEN length({word}) <= 2 THEN {number} + CASE WHEN {number} < 70 THEN 2000 ELSE 1900 END END AS SMALLINT)"
    )


# --- members ----------------------------------------------------------------------------------------------------------


def _listed(elements: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(literal, elements)) + "]::VARCHAR[]"


def _member(text: str, pair: _Pair) -> str:
    """A text that is exactly a member of the new ENUM."""
    return f"CASE WHEN list_contains({_listed(pair.new.elements)}, {text}) THEN {text} END"


def _members(text: str, pair: _Pair) -> str:
    """A list of members in the new SET's order; NULL if one is not a member."""
    listed = _listed(pair.new.elements)
    word, member = own_name("word"), own_name("member")
    told = f"list_filter(string_split({text}, ','), lambda {word}: {word} <> '')"
    kept = f"list_filter({listed}, lambda {member}: list_contains({told}, {member}))"
    return f"CASE WHEN list_has_all({listed}, {told}) THEN array_to_string({kept}, ',') END"


def _place(pair: _Pair) -> str:
    """The number of an ENUM's member, from 1."""
    return f"list_position({_listed(pair.old.elements)}, {pair.column})::HUGEINT"


# --- what added columns get -------------------------------------------------------------------------------------------


def from_default(text: str, new: ColumnType, target: str) -> str:
    """A default's text converted to the column's value as in TiDB: like a VARCHAR with that text.

    NULL if that is not known. Not for TIMESTAMP, JSON, VECTOR, ENUM and SET.
    """
    pair = _Pair(literal(text), ColumnType(TypeKind.VARCHAR), new, target, "")
    return CONVERSIONS[Group.TEXT, group_of(new)](pair)


# --- the table --------------------------------------------------------------------------------------------------------

_G = Group
_Make = Callable[[_Pair], str]


def _decimal_of(value: str, pair: _Pair) -> str:
    return _decimal(value, f"TRY_CAST({value} AS DOUBLE)", pair)


CONVERSIONS: Mapping[tuple[Group, Group], _Make] = {
    (_G.INTEGER, _G.INTEGER): lambda p: _integer(_huge(p), p),
    (_G.INTEGER, _G.BIT): lambda p: _bits(_huge(p), p),
    (_G.INTEGER, _G.YEAR): lambda p: _year(p.column),
    (_G.INTEGER, _G.FLOAT): lambda p: _float(f"{p.column}::DOUBLE", p),
    (_G.INTEGER, _G.DECIMAL): lambda p: _decimal_of(_huge(p), p),
    (_G.INTEGER, _G.JSON): lambda p: f"CAST({p.column} AS VARCHAR)",
    (_G.BIT, _G.BIT): lambda p: _bits(_huge(p), p),
    (_G.BIT, _G.INTEGER): lambda p: _integer(_huge(p), p),
    (_G.BIT, _G.FLOAT): lambda p: _float(f"{p.column}::DOUBLE", p),
    (_G.BIT, _G.DECIMAL): lambda p: _decimal_of(_huge(p), p),
    (_G.YEAR, _G.YEAR): lambda p: p.column,
    (_G.YEAR, _G.INTEGER): lambda p: _integer(_huge(p), p),
    (_G.YEAR, _G.FLOAT): lambda p: _float(f"{p.column}::DOUBLE", p),
    (_G.YEAR, _G.DECIMAL): lambda p: _decimal_of(_huge(p), p),
    (_G.FLOAT, _G.INTEGER): lambda p: _integer(_rounded_float(p), p),
    (_G.FLOAT, _G.FLOAT): lambda p: _float(f"{p.column}::DOUBLE", p),
    (_G.FLOAT, _G.DECIMAL): lambda p: _decimal_of(f"CAST({p.column}::DOUBLE AS VARCHAR)", p),
    (_G.DECIMAL, _G.INTEGER): lambda p: _integer(_rounded_decimal(p), p),
    (_G.DECIMAL, _G.FLOAT): lambda p: _float(f"CAST(CAST({p.column} AS VARCHAR) AS DOUBLE)", p),
    (_G.DECIMAL, _G.DECIMAL): lambda p: _decimal(p.column, p.column, p),
    (_G.TEXT, _G.INTEGER): lambda p: _integer(f"CAST({_word_as('DECIMAL(38,18)', _NUMBER, p)} AS HUGEINT)", p),
    (_G.TEXT, _G.FLOAT): lambda p: _float(_word_as("DOUBLE", _LONG_NUMBER, p), p),
    (_G.TEXT, _G.DECIMAL): lambda p: _decimal_of(_matching(_NUMBER, p), p),
    (_G.TEXT, _G.YEAR): _word_year,
    (_G.TEXT, _G.DATE): lambda p: f"CAST({_word_date(_DATE, p)} AS DATE)",
    (_G.TEXT, _G.DATETIME): lambda p: _rounded(_word_date(_MOMENT, p), 6, p.new.scale or 0),
    (_G.TEXT, _G.TIMESTAMP): lambda p: _absolute(_rounded(_word_date(_MOMENT, p), 6, p.new.scale or 0), p),
    (_G.TEXT, _G.TIME): lambda p: _rounded_time(_word_micros(p), 6, p.new.scale or 0),
    (_G.TEXT, _G.TEXT): _to_text,
    (_G.TEXT, _G.ENUM): lambda p: _member(p.column, p),
    (_G.TEXT, _G.SET): lambda p: _members(p.column, p),
    (_G.BINARY, _G.TEXT): _from_binary,
    (_G.BINARY, _G.BINARY): lambda p: _fitted_bytes(p.column, p),
    (_G.DATE, _G.DATETIME): lambda p: f"CAST({p.column} AS TIMESTAMP)",
    (_G.DATE, _G.TIMESTAMP): lambda p: _absolute(f"CAST({p.column} AS TIMESTAMP)", p),
    (_G.DATE, _G.INTEGER): lambda p: _integer(f"CAST(strftime({p.column}, '%Y%m%d') AS HUGEINT)", p),
    (_G.DATETIME, _G.DATE): lambda p: f"CAST({p.column} AS DATE)",
    (_G.DATETIME, _G.DATETIME): lambda p: _rounded(p.column, p.old.scale or 0, p.new.scale or 0),
    (_G.DATETIME, _G.TIMESTAMP): lambda p: _absolute(_rounded(p.column, p.old.scale or 0, p.new.scale or 0), p),
    (_G.DATETIME, _G.INTEGER): lambda p: _integer(_moment_number(p.column, p), p),
    (_G.TIMESTAMP, _G.DATE): lambda p: f"CAST({_local(p)} AS DATE)",
    (_G.TIMESTAMP, _G.DATETIME): lambda p: _rounded(_local(p), p.old.scale or 0, p.new.scale or 0),
    (_G.TIMESTAMP, _G.TIMESTAMP): lambda p: f"timezone('UTC', {_rounded(_utc(p), p.old.scale or 0, p.new.scale or 0)})",
    (_G.TIMESTAMP, _G.INTEGER): lambda p: _integer(_moment_number(_local(p), p), p),
    (_G.TIME, _G.TIME): lambda p: _rounded_time(f"epoch_us({p.column})", p.old.scale or 0, p.new.scale or 0),
    (_G.TIME, _G.INTEGER): lambda p: _integer(_clock_number(f"epoch_us({p.column})", p), p),
    (_G.ENUM, _G.ENUM): lambda p: _member(p.column, p),
    (_G.ENUM, _G.INTEGER): lambda p: _integer(_place(p), p),
    (_G.SET, _G.SET): lambda p: _members(p.column, p),
    (_G.JSON, _G.JSON): lambda p: p.column,
    (_G.VECTOR, _G.VECTOR): lambda p: p.column,
    **{(source, _G.TEXT): _to_text for source in set(Group) - {_G.BINARY, _G.VECTOR}},
    **{(source, _G.BINARY): _to_binary for source in set(Group) - {_G.BINARY, _G.VECTOR}},
}
"""An expression for each pair that DuckDB can follow. All other pairs are refused."""
