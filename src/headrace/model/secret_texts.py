"""Removes secrets from texts of servers and libraries, which may spell them in another way than the user did. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

HIDDEN = "***"
_URL_QUERY = re.compile(r"(://[^\s?'\"<>]*)\?[^\s'\"<>]*")
_URL_LOGIN = re.compile(r"://[^/\s?'\"<>]*@")


@lru_cache(maxsize=256)
def spellings(secret: str) -> re.Pattern[str]:
    """Matches a secret value as it is, with any of its characters percent-quoted, and as a form encodes it (a blank as ``+``)."""
    return re.compile("".join(map(_spelled, secret)))


def _spelled(sign: str) -> str:
    if sign.isalnum() and sign.isascii():
        return sign
    quoted = "".join(f"%{byte:02x}" for byte in sign.encode("utf-8", "surrogatepass"))
    return f"(?:(?i:{quoted})|{re.escape(sign)}{r'|[+]' if sign == ' ' else ''})"  # a % may also stand for itself


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with ``***`` in place of each of these values."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = spellings(secret).sub(HIDDEN, text)
    return text


def without_parts_of_urls(text: str) -> str:
    """The text in which no URL has user, password or parameters.

    A client sorts and escapes the parameters of a signed URL, so the user's token is not found in it. And the token may come from
    the environment, which no URI of the user shows.
    """
    return _URL_LOGIN.sub(f"://{HIDDEN}@", _URL_QUERY.sub(rf"\1?{HIDDEN}", text))
