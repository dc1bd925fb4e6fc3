"""Collations and character sets that a server lacks, and those of the server that treat the same texts as equal."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from headrace.ddl.mask import name_found
from headrace.sinks.mysql.adaptation.draft import Draft, UnadaptableError
from headrace.sinks.mysql.collation import CHARSET

_COLLATE = re.compile(r"\bCOLLATE\b\s*=?\s*(?P<name>\w+|\.+)", re.IGNORECASE)
# Unicode 14 instead of 9, and what MariaDB itself substitutes since 11.4.5.
_NEAREST = {
    "utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci",
    "utf8mb4_0900_as_ci": "utf8mb4_uca1400_nopad_as_ci",
    "utf8mb4_0900_as_cs": "utf8mb4_uca1400_nopad_as_cs",
}
EQUAL = {"utf8mb4_0900_bin": "utf8mb4_nopad_bin", "gb18030_bin": "utf8mb4_bin", **_NEAREST}
"""A server's substitute for a collation that it lacks. For :data:`COARSER` it is only the nearest one, for columns outside unique
keys."""
COARSER = frozenset(_NEAREST) | frozenset(_NEAREST.values())
"""Collations by which all servers except TiDB treat texts as equal that TiDB distinguishes. TiDB weighs each character separately.
Other servers have contractions (``l·`` as ``l``, Thai vowels and consonants in either order) and, in MariaDB, newer letters."""


def replace_unknown(draft: Draft, server: str, knows: Callable[[str], bool]) -> None:
    """Replaces a collation that the server lacks by the server's own. ``knows`` tells whether the server has a collation.

    Raises UnadaptableError if there is none that treats the same, or nearly the same, texts as equal: see :data:`EQUAL`.
    """
    knows, edits = cache(knows), []
    for found in reversed(list(_COLLATE.finditer(draft.masked))):
        name = name_found(draft.text, found)
        if not name or knows(name):
            continue
        equal = EQUAL.get(name)
        if equal is None or not knows(equal):
            raise UnadaptableError(
                f"{server} has no collation {name}, and none that treats the same texts as equal.",
                "Make the change by hand with a collation of your choice, and skip it; or edit it.",
            )
        draft.tell(f"collation {name} became {equal}, since {server} does not have it.")
        edits.append((*found.span("name"), equal))
    draft.edit(edits)
    charsets = [found for found in CHARSET.finditer(draft.masked) if name_found(draft.text, found) == "gb18030"]
    if charsets and not knows("gb18030_bin"):
        draft.tell(f"character set gb18030 became utf8mb4, since {server} does not have it.")
        draft.edit((*found.span("name"), "utf8mb4") for found in charsets)
