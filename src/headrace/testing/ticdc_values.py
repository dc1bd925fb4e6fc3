"""The text of canonical values (``headrace.model.types``) as TiCDC, a Go program, prints them."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import numpy as np

# Outside of these decimal exponents Go's format "g" with the shortest precision writes an exponent.
_PLAIN_EXPONENTS = range(-4, 6)
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e6
_SECONDS_TEXT_LENGTH = 19


def exponent_float(value: float, single: bool) -> str:
    """A FLOAT (``single``) or DOUBLE in CSV: the shortest text that gives the value back, with Go's rule for exponents."""
    if not single and _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(value).removesuffix(".0")  # the same text as numpy's, in a tenth of the time
    text = np.format_float_scientific(_number(value, single), unique=True, trim="-", exp_digits=2)
    exponent = int(text.split("e")[1])
    if exponent in _PLAIN_EXPONENTS:
        return plain_float(value, single)
    return text


def plain_float(value: float, single: bool) -> str:
    """A FLOAT (``single``) or DOUBLE in canal-JSON: the shortest text, never with an exponent."""
    if not single and _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(value).removesuffix(".0")
    return np.format_float_positional(_number(value, single), unique=True, trim="-")


def as_float(value: object) -> float:
    """The value of a FLOAT or DOUBLE column."""
    if not isinstance(value, int | float):
        raise TypeError(f"a FLOAT or DOUBLE column holds numbers, not {type(value).__name__}")
    return float(value)


def _number(value: float, single: bool) -> np.floating:
    return np.float32(value) if single else np.float64(value)


def timestamp_in_zone(text: str, zone: tzinfo) -> str:
    """A UTC TIMESTAMP as a server in that zone writes it. The zero timestamp stays unchanged."""
    if zone is UTC or text.startswith("0000-00-00"):
        return text
    seconds, fraction = text[:_SECONDS_TEXT_LENGTH], text[_SECONDS_TEXT_LENGTH:]
    moment = datetime.fromisoformat(seconds).replace(tzinfo=UTC).astimezone(zone)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + fraction
