"""A DDL statement that is being rewritten: its text, a view of the text without strings and names, and the changes so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from headrace.ddl.mask import edited, masked

_PARENTHESIS = re.compile(r"[()]")
_PARENTHESIS_OR_COMMA = re.compile(r"[(),]")
_CREATE_TABLE = re.compile(r"\s*CREATE\s+(?:(?:GLOBAL|LOCAL)?\s*TEMPORARY\s+)?TABLE\b", re.IGNORECASE)
_ALTER_TABLE = re.compile(r"\s*ALTER\s+(?:IGNORE\s+)?TABLE\s+[^\s,;]+", re.IGNORECASE)
_GROUP = re.compile(r"\s*ADD(?:\s+COLUMN)?(?:\s+IF\s+NOT\s+EXISTS)?\s*\(", re.IGNORECASE)
_INDEX_STATEMENT = re.compile(r"\s*(?:CREATE|DROP)\s+(?:\w+\s+){0,2}INDEX\b", re.IGNORECASE)
_ALTER_DATABASE = re.compile(r"\s*ALTER\s+(?:DATABASE|SCHEMA)(?:\s+\S+)?\s*;?\s*$", re.IGNORECASE)
_EMPTY = re.compile(r"\s*(?:ADD(?:\s+CONSTRAINT(?:\s+\S+)?)?)?\s*;?\s*", re.IGNORECASE)
_SHOWN = 80


class UnadaptableError(Exception):
    """A statement cannot be expressed for this server with the same meaning. ``hint`` is what a person can do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class Draft:
    """The statement being rewritten. A clause is one of ALTER TABLE, a part in CREATE TABLE's parentheses, or a whole CREATE INDEX.

    In ``ADD COLUMN (a INT, b INT)``, each part is a clause, so that a clause never has more than one definition.
    Notices may contain ``{clause}`` for the text that they are about.
    """

    def __init__(self, text: str) -> None:
        self._text, self._masked = text, masked(text)
        self._notices: dict[str, None] = {}

    @property
    def text(self) -> str:
        return self._text

    @property
    def notices(self) -> list[str]:
        return list(self._notices)

    @property
    def masked(self) -> str:
        """The text as :func:`headrace.ddl.mask.masked` shows it, without strings and names. Positions do not change."""
        return self._masked

    @property
    def is_create_table(self) -> bool:
        return bool(_CREATE_TABLE.match(self.masked))

    def tell(self, notice: str, clause: str = "") -> None:
        """Adds a notice, once."""
        shown = " ".join(clause.split())
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        self._notices[notice.replace("{clause}", shown)] = None

    def edit(self, edits: Iterable[tuple[int, int, str]]) -> None:
        """Replaces parts of the text by other text, each given as (start, end, text), in one pass.

        All positions are those before the call. The parts must not overlap, and must not begin or end inside a name or string.
        """
        known = list(edits)
        self._text = edited(self._text, known)
        self._masked = edited(self._masked, [(start, end, masked(text)) for start, end, text in known])

    def replace(self, pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str], notice: str) -> None:
        """Replaces every match in the masked text. An empty notice adds none."""
        matches = list(pattern.finditer(self._masked))
        if notice:
            for match in reversed(matches):
                self.tell(notice, self._text[match.start() : match.end()])
        self.edit(
            (*match.span(), match.expand(replacement) if isinstance(replacement, str) else replacement(match)) for match in matches
        )

    def clauses(self) -> list[tuple[int, int]]:
        """The bounds of the clauses, in the order of the text; empty for statements without clauses."""
        return [part for whole, parts in self._clauses() for part in parts or [whole]]

    def _clauses(self) -> list[tuple[tuple[int, int], list[tuple[int, int]]]]:
        """The bounds of each clause, with those of the parts that ``ADD COLUMN (…)`` has in its parentheses."""
        masked = self.masked
        if _INDEX_STATEMENT.match(masked):
            return [((0, len(masked)), [])]
        if _CREATE_TABLE.match(masked):
            start = masked.find("(") + 1
            return [(part, []) for part in _parts(masked, start)] if start else []
        head = _ALTER_TABLE.match(masked)
        found = []
        for whole in _parts(masked, head.end()) if head else ():
            group = _GROUP.match(masked, *whole)
            found.append((whole, list(_parts(masked, group.end())) if group else []))
        return found

    def drop_clauses(self, wanted: Callable[[str, str], bool], notice: str) -> None:
        """Removes the clauses for which ``wanted(text, masked text)`` holds. A statement with no other clauses becomes empty."""
        masked, dropped = self.masked, []
        for start, end in reversed(self.clauses()):
            if wanted(self.text[start:end], masked[start:end]):
                if notice:
                    self.tell(notice, self.text[start:end])
                dropped.append((start, end, ""))
        self.edit(dropped)
        self.tidy()

    def tidy(self) -> None:
        """Removes clauses that became empty. A statement that has no effect any more becomes empty."""
        clauses = self._clauses()
        if not clauses:
            if _ALTER_DATABASE.match(self.masked):
                self._text = self._masked = ""
            return
        edits, kept = [], []
        for whole, parts in clauses:
            kept_parts = self._not_empty(parts or [whole])
            if kept_parts:
                kept.append(whole)
                edits += _without_others(parts, kept_parts) if parts else []
        if kept:
            self.edit([*edits, *_without_others([whole for whole, _ in clauses], kept)])
        else:
            self._text = self._masked = ""

    def _not_empty(self, clauses: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(start, end) for start, end in clauses if not _EMPTY.fullmatch(self.masked, start, end)]


def closing(masked: str, opening: int) -> int:
    """The position after the parenthesis that closes the one at ``opening``."""
    depth = 0
    for found in _PARENTHESIS.finditer(masked, opening):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    return len(masked)


def _without_others(clauses: list[tuple[int, int]], kept: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """The edits that leave only some of the clauses beside each other, with commas between them."""
    if len(kept) == len(clauses):
        return []
    between = [(end, start, ",") for (_, end), (start, _) in pairwise(kept)]
    return [(clauses[0][0], kept[0][0], ""), *between, (kept[-1][1], clauses[-1][1], "")]


def _parts(masked: str, start: int) -> Iterator[tuple[int, int]]:
    """The bounds of the parts between commas, up to the end or to the parenthesis that closes them."""
    depth, begin = 0, start
    for found in _PARENTHESIS_OR_COMMA.finditer(masked, start):
        sign, at = found[0], found.start()
        if sign == ")" and depth == 0:
            yield begin, at
            return
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            yield begin, at
            begin = at + 1
    yield begin, len(masked)
