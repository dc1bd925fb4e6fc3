r"""Texts that may quote input, in a form that every ledger, file, message and terminal accepts.

JSON can write half of a surrogate pair (``"\ud800"``), and undecodable bytes of command lines become such halves. UTF-8 has no form
for them, so ``str.encode`` raises for a text that has one.
"""

from __future__ import annotations

from typing import TypeVar

_Text = TypeVar("_Text", str, None, str | None)


def is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def writable(text: _Text) -> _Text:
    r"""The text with lone surrogates escaped: ``\ud800``, as in JSON. Never raises."""
    return text if text is None or text.isascii() else as_utf8(text).decode()


def as_utf8(text: str) -> bytes:
    """The text as UTF-8, as :func:`writable` writes it. Reasons why a record cannot be used go through it. Never raises."""
    return text.encode("utf-8", "backslashreplace")
