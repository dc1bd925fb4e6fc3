"""The rules of a changefeed file: which columns of a table it writes into rows, and to which topics it dispatches tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from headrace.errors import DefinitionError
from headrace.model.table import TableId
from headrace.sources.changefeed_file import ChangefeedFile


@dataclass(frozen=True)
class ColumnSelector:
    """One ``[[sink.column-selectors]]``: table rules as in TiDB's table filter, and column rules, with ``!`` for exclusion."""

    matcher: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class ColumnSelectors:
    """All selectors of a changefeed. Calling the object tells whether rows of the table carry the column.

    The first selector whose matcher matches the table decides; a table without a match keeps all columns. Within a selector, the
    last matching rule decides. ``case_sensitive`` is the changefeed's setting for table names; column names never depend on case.
    """

    selectors: tuple[ColumnSelector, ...] = ()
    case_sensitive: bool = False

    def __call__(self, table_id: TableId, column: str) -> bool:
        for selector in self.selectors:
            if _last_match(selector.matcher, lambda rule: _table_matches(rule, table_id, self.case_sensitive)):
                return _last_match(selector.columns, lambda rule: glob(rule, True).fullmatch(column) is not None)
        return True


def read_selectors(file: ChangefeedFile) -> ColumnSelectors:
    """The column selectors of a changefeed file. Raises DefinitionError for rules that would be misinterpreted."""
    entries = file.sink.get("column-selectors", [])
    selectors = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), list) for key in ("matcher", "columns")):
            raise DefinitionError(
                f"A column selector in the changefeed file {file.path} lacks its lists.", "Write matcher = […] and columns = […]."
            )
        rules = [str(rule) for key in ("matcher", "columns") for rule in entry[key]]
        if unread := next((rule for rule in rules if not is_plain(rule)), None):
            raise DefinitionError(
                f"The rule {unread!r} of a column selector in the changefeed file {file.path} is a regular expression, or has "
                "escapes, which Headrace does not read.",
                "Name the tables and columns, or use * and ?: the selector that TiCDC uses for a table has to be the same.",
            )
        selectors.append(ColumnSelector(tuple(map(str, entry["matcher"])), tuple(map(str, entry["columns"]))))
    return ColumnSelectors(tuple(selectors), file.case_sensitive)


def _last_match(rules: Sequence[str], holds: Callable[[str], bool]) -> bool:
    for rule in reversed(rules):
        if holds(rule.removeprefix("!")):
            return not rule.startswith("!")
    return False


def _table_matches(rule: str, table_id: TableId, case_sensitive: bool) -> bool:
    database, table = split_rule(rule)
    return bool(
        glob(database, not case_sensitive).fullmatch(table_id.database)
        and glob(table, not case_sensitive).fullmatch(table_id.table)
    )


def is_plain(rule: str) -> bool:
    """Whether a rule has only wildcards. Regular expressions, escapes and ``[^…]`` would be misinterpreted."""
    bare = re.sub(r'`[^`]*`|"[^"]*"', "", rule.removeprefix("!"))
    return not re.search(r"\\|\[\^|(?:^|\.)\s*/", bare)


@lru_cache(maxsize=1024)
def split_rule(rule: str) -> tuple[str, str]:
    """``database.table`` of a table rule, split at the first dot outside quotes, without the quotes."""
    match = re.fullmatch(r'\s*(`[^`]*`|"[^"]*"|[^.`"]*)\.(`[^`]*`|"[^"]*"|.*?)\s*', rule)
    if match is None:
        return rule, "*"
    return match.group(1).strip('`"'), match.group(2).strip('`"')


@lru_cache(maxsize=4096)
def glob(pattern: str, fold: bool) -> re.Pattern[str]:
    """What a pattern with ``*``, ``?`` and ``[…]`` matches, with ``fold`` in any case."""
    return re.compile(translate(pattern), re.IGNORECASE if fold else 0)
