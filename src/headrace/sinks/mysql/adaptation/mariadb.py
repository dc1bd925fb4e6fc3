"""MySQL syntax that MariaDB lacks (tested with 10.11): rewritten for MariaDB, or left out."""

from __future__ import annotations

import re
from itertools import pairwise

from headrace.ddl.lexer import INTRODUCERS_OF_UTF8, Cursor, is_introducer, words
from headrace.sinks.mysql.adaptation.draft import Draft, UnadaptableError, closing
from headrace.sinks.mysql.adaptation.parentheses import refuse_lost_parentheses

_GENERATED = re.compile(r"\s(?:GENERATED\s+ALWAYS\s+)?AS\s*(?=\()", re.IGNORECASE)
_NULL = re.compile(r"\s+(?P<not>NOT\s+)?NULL\b", re.IGNORECASE)
_COLLATE = re.compile(r"\s+COLLATE\s+(?:\w+|\.+)", re.IGNORECASE)
# A string is masked by dots, like a name, and would be scanned to its end from each dot.
_ARROW = re.compile(r"(?<![\w$.])(?P<column>[\w$.]++)\s*+(?P<arrow>->>?)\s*+(?P<path>\.+)")
_INDEX = re.compile(
    r"\s*(?:ADD\s+|CREATE\s+)?(?:CONSTRAINT\s+(?:(?!UNIQUE\b)\S+\s+)?)?(?:UNIQUE\s+)?(?:INDEX|KEY|UNIQUE)\b", re.IGNORECASE
)
_INDEX_OF_EXPRESSION = re.compile(r"[(,]\s*\(")
_ALTER_INDEX = re.compile(r"\s*ALTER\s+INDEX\b", re.IGNORECASE)
_VISIBILITY = re.compile(r"\b(?P<hidden>IN)?VISIBLE\b", re.IGNORECASE)
_VALIDATION = re.compile(r"\bWITH(?:OUT)?\s+VALIDATION\b", re.IGNORECASE)
_COLUMN_HINTS = re.compile(r"\b(?:COLUMN_FORMAT\s+\w+|STORAGE\s+(?:DISK|MEMORY|DEFAULT))\b", re.IGNORECASE)
_DEFAULT_PARTITION = re.compile(r"\bVALUES\s+IN\s*\(\s*DEFAULT\s*\)", re.IGNORECASE)
_DEFAULT = re.compile(r"\bDEFAULT\s*(?=\()", re.IGNORECASE)
_UNKNOWN_FUNCTIONS = re.compile(r"\b(?:UUID_TO_BIN|BIN_TO_UUID|UUID_V\d|NEXTVAL|NEXT\s+VALUE|VEC_\w+)\b", re.IGNORECASE)


def rewrite(draft: Draft) -> None:
    """Rewrites the statement for MariaDB. Raises UnadaptableError."""
    _null_of_generated_columns(draft)
    _collations_of_generated_columns(draft)
    _introducers(draft)
    _arrows(draft)
    draft.drop_clauses(
        lambda _, masked: bool(_INDEX.match(masked) and _INDEX_OF_EXPRESSION.search(masked)),
        "an index over an expression was left out, which MariaDB does not know: {clause}.",
    )
    _visibility(draft)
    draft.replace(_VALIDATION, "", "{clause} was left out, which MariaDB does not know.")
    draft.replace(_COLUMN_HINTS, "", "{clause} was left out, which MariaDB does not know.")
    draft.replace(_DEFAULT_PARTITION, "DEFAULT", "")
    _comments_of_partitions(draft)
    _defaults(draft)
    refuse_lost_parentheses(draft.text)


def rewrite_view(draft: Draft) -> None:
    """Rewrites the query of a view for MariaDB. Raises UnadaptableError."""
    _introducers(draft)
    _arrows(draft)
    refuse_lost_parentheses(draft.text)


def _null_of_generated_columns(draft: Draft) -> None:
    """TiDB accepts NULL and NOT NULL anywhere among the attributes, also before the expression."""
    edits = []
    for start, end in reversed(draft.clauses()):
        masked = draft.masked
        generated = _GENERATED.search(masked, start, end)
        if generated is None:
            continue
        expression = range(generated.start(), closing(masked, generated.end()))
        for found in reversed([found for found in _NULL.finditer(masked, start, end) if found.start() not in expression]):
            if found["not"]:
                draft.tell("NOT NULL of a generated column was left out, which MariaDB does not know.")
            edits.append((*found.span(), ""))
    draft.edit(edits)


def _collations_of_generated_columns(draft: Draft) -> None:
    """MariaDB requires the collation after the type, while TiDB also accepts it after the expression."""
    edits = []
    for start, end in reversed(draft.clauses()):
        masked = draft.masked
        found = _GENERATED.search(masked, start, end)
        named = _COLLATE.search(masked, closing(masked, found.end()), end) if found else None
        if found is not None and named is not None:
            text = draft.text[named.start() : named.end()]
            edits += [(found.start(), found.start(), text), (*named.span(), "")]
    draft.edit(edits)


def _arrows(draft: Draft) -> None:
    text = draft.text

    def call(found: re.Match[str]) -> str:
        column, path = (text[slice(*found.span(part))] for part in ("column", "path"))
        extracted = f"JSON_EXTRACT({column}, {path})"
        return f"JSON_UNQUOTE({extracted})" if found["arrow"] == "->>" else extracted

    draft.replace(_ARROW, call, "")


def _introducers(draft: Draft) -> None:
    """Removes the character sets that TiDB writes before the texts of expressions. The connection is utf8mb4 anyway.

    MariaDB stores a text with one as it is, without escapes, or as hexadecimal digits without their prefix.
    """
    found, edits = words(draft.text) or (), []
    for former, word, literal in zip(found, found[1:], found[2:], strict=False):
        is_name = former.says(".")
        if is_introducer(word, literal) and not is_name and word.text.upper() in INTRODUCERS_OF_UTF8 and literal.is_text:
            edits.append((word.start, literal.start, ""))
    draft.edit(edits)


def require_no_introducer(statement: str) -> None:
    """Raises UnadaptableError for an adapted statement that has a literal with a character set.

    MariaDB would store an expression with it as another one, in which what follows a quote in the literal is SQL.
    """
    for word, literal in pairwise(words(statement) or ()):
        if is_introducer(word, literal):
            raise UnadaptableError(
                f"Its statement as adapted for MariaDB has a literal with the character set {word.text}, which MariaDB stores as"
                " another one.",
                "Make the change by hand and skip it, or edit it: write the literal without the character set.",
            )


def _visibility(draft: Draft) -> None:
    edits = []
    for start, end in reversed(draft.clauses()):
        masked = draft.masked[start:end]
        found = _VISIBILITY.search(masked)
        if found is None or not (_INDEX.match(masked) or _ALTER_INDEX.match(masked)):
            continue
        word = "IGNORED" if found["hidden"] else "NOT IGNORED"
        draft.tell(f"{found[0].upper()} of an index became {word}, as MariaDB calls it.")
        edits.append((start + found.start(), start + found.end(), word))
    draft.edit(edits)


def _comments_of_partitions(draft: Draft) -> None:
    """Leaves out comments with a quote or another character that needs an escape, such as a backslash.

    MariaDB (10.11) stores the definitions of partitions as SQL with escapes, and reads it by the ``sql_mode`` of the session that
    opens the table. A session with NO_BACKSLASH_ESCAPES could not open it, or would read the rest of the comment as SQL.
    """
    cursor, edits, of_partition = Cursor(words(draft.text) or ()), [], [False]
    while not cursor.done:
        word = cursor.next()
        if word.says("("):
            of_partition.append(False)
        elif word.says(")") and len(of_partition) > 1:
            of_partition.pop()
        elif word.says(","):
            of_partition[-1] = False
        elif word.says("PARTITION") or word.says("SUBPARTITION"):
            of_partition[-1] = len(of_partition) > 1  # definitions are in parentheses
        elif word.says("COMMENT") and of_partition[-1]:
            cursor.accept("=")
            comment = cursor.next()
            if comment.written != f"'{comment.text}'":
                text = draft.text[word.start : comment.end]
                draft.tell("{clause} of a partition was left out, which MariaDB would not read in every SQL mode.", text)
                edits.append((word.start, comment.end, ""))
    draft.edit(edits)


def _defaults(draft: Draft) -> None:
    """Rows from the source are complete, so an unsupported default is not needed."""
    masked, edits, at = draft.masked, [], 0
    while (found := _DEFAULT.search(masked, at)) is not None:
        at = closing(masked, found.end())
        if _UNKNOWN_FUNCTIONS.search(masked, found.end(), at):
            draft.tell("{clause} was left out, which MariaDB does not know.", draft.text[found.start() : at])
            edits.append((found.start(), at, ""))
    draft.edit(edits)
