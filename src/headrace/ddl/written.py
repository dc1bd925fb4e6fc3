"""The text that words were read from, with TiDB's own comments opened once: a part of it costs no more than its length."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ddl.lexer import Word, text_of, words


@dataclass(frozen=True)
class WrittenText:
    """A statement as :func:`headrace.ddl.lexer.text_of` gives it, from its first word (at ``start``) to its last."""

    text: str
    start: int

    @classmethod
    def of(cls, statement: str) -> WrittenText:
        found = words(statement) or ()
        return cls(text_of(found, statement), found[0].start if found else 0)

    def said(self, found: tuple[Word, ...]) -> str:
        """What the statement says in these consecutive words, as it was written."""
        return self.text[found[0].start - self.start : found[-1].end - self.start] if found else ""
