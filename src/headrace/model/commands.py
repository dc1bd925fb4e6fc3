"""How names stand in the commands that messages advise, so that a shell takes them as they are."""

from __future__ import annotations

import shlex


def word(name: object) -> str:
    """A name as one word of a shell: in quotes where it needs them."""
    return shlex.quote(str(name))


def in_quotes(text: object) -> str:
    """A text as one word of a shell, always in quotes."""
    return "'" + str(text).replace("'", "'\"'\"'") + "'"
