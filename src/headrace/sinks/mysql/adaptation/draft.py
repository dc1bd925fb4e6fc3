"""A DDL statement that is being rewritten: its text, a view of the text without strings and names, and the changes so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from headrace.ddl.lexer import NO_SYNTAX

_NO_SYNTAX = re.compile(rf"{NO_SYNTAX}|/\*T!.*?\*/", re.DOTALL)
_CREATE_TABLE = re.compile(r"\s*CREATE\s+(?:(?:GLOBAL|LOCAL)?\s*TEMPORARY\s+)?TABLE\b", re.IGNORECASE)
_ALTER_TABLE = re.compile(r"\s*ALTER\s+(?:IGNORE\s+)?TABLE\s+[^\s,;]+", re.IGNORECASE)
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

    Notices may contain ``{clause}`` for the text that they are about.
    """

    def __init__(self, text: str) -> None:
        self._text, self._masked = text, _masked(text)
        self._notices: dict[str, None] = {}

    @property
    def text(self) -> str:
        return self._text

    @property
    def notices(self) -> list[str]:
        return list(self._notices)

    @property
    def masked(self) -> str:
        """The text with dots for names, strings and TiDB's comments, and spaces for other comments. Positions do not change."""
        return self._masked

    @property
    def is_create_table(self) -> bool:
        return bool(_CREATE_TABLE.match(self.masked))

    def tell(self, notice: str, clause: str = "") -> None:
        """Adds a notice, once."""
        shown = " ".join(clause.split())
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        self._notices[notice.replace("{clause}", shown)] = None

    def put(self, start: int, end: int, text: str = "") -> None:
        """Replaces a part of the text. It must not begin or end inside a name or string."""
        self._text = self._text[:start] + text + self._text[end:]
        self._masked = self._masked[:start] + _masked(text) + self._masked[end:]

    def replace(self, pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str], notice: str) -> None:
        """Replaces every match in the masked text. An empty notice adds none."""
        pieces, at = [], 0
        matches = list(pattern.finditer(self._masked))
        if notice:
            for match in reversed(matches):
                self.tell(notice, self._text[match.start() : match.end()])
        for match in matches:
            new = match.expand(replacement) if isinstance(replacement, str) else replacement(match)
            pieces += [(self._text[at : match.start()], self._masked[at : match.start()]), (new, _masked(new))]
            at = match.end()
        if matches:
            pieces.append((self._text[at:], self._masked[at:]))
            self._text, self._masked = ("".join(part) for part in zip(*pieces, strict=True))

    def set(self, text: str) -> None:
        """Starts over with another text."""
        self._text, self._masked = text, _masked(text)

    def clauses(self) -> list[tuple[int, int]]:
        """The bounds of the clauses; empty for statements without clauses."""
        masked = self.masked
        if _INDEX_STATEMENT.match(masked):
            return [(0, len(masked))]
        if _CREATE_TABLE.match(masked):
            start = masked.find("(") + 1
            return list(_parts(masked, start)) if start else []
        head = _ALTER_TABLE.match(masked)
        return list(_parts(masked, head.end())) if head else []

    def drop_clauses(self, wanted: Callable[[str, str], bool], notice: str) -> None:
        """Removes the clauses for which ``wanted(text, masked text)`` holds. A statement with no other clauses becomes empty."""
        masked = self.masked
        for start, end in reversed(self.clauses()):
            if wanted(self.text[start:end], masked[start:end]):
                if notice:
                    self.tell(notice, self.text[start:end])
                self.put(start, end)
        self.tidy()

    def tidy(self) -> None:
        """Removes clauses that became empty. A statement that has no effect any more becomes empty."""
        masked, clauses = self.masked, self.clauses()
        if not clauses:
            if _ALTER_DATABASE.match(masked):
                self.set("")
            return
        kept = [(start, end) for start, end in clauses if not _EMPTY.fullmatch(masked[start:end])]
        if len(kept) < len(clauses):
            parts = ",".join(self.text[start:end] for start, end in kept)
            self.set(self.text[: clauses[0][0]] + parts + self.text[clauses[-1][1] :] if kept else "")


def _masked(text: str) -> str:
    return _NO_SYNTAX.sub(_mask, text)


def _mask(found: re.Match[str]) -> str:
    is_comment = found[0][0] in "/-#" and not found[0].startswith("/*T!")
    return (" " if is_comment else ".") * len(found[0])


def closing(masked: str, opening: int) -> int:
    """The position after the parenthesis that closes the one at ``opening``."""
    depth = 0
    for at in range(opening, len(masked)):
        depth += (masked[at] == "(") - (masked[at] == ")")
        if depth == 0:
            return at + 1
    return len(masked)


def _parts(masked: str, start: int) -> Iterator[tuple[int, int]]:
    """The bounds of the parts between commas, up to the end or to the parenthesis that closes them."""
    depth, begin = 0, start
    for at in range(start, len(masked)):
        if masked[at] == ")" and depth == 0:
            yield begin, at
            return
        depth += (masked[at] == "(") - (masked[at] == ")")
        if masked[at] == "," and depth == 0:
            yield begin, at
            begin = at + 1
    yield begin, len(masked)
