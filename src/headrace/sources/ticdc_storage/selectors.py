"""TiCDC's column selectors: which columns of a table the changefeed writes into rows (schema files list all of them)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from headrace.model.table import TableId


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
                return _last_match(selector.columns, lambda rule: _glob(rule, True).fullmatch(column) is not None)
        return True


def _last_match(rules: Sequence[str], holds: Callable[[str], bool]) -> bool:
    for rule in reversed(rules):
        if holds(rule.removeprefix("!")):
            return not rule.startswith("!")
    return False


def _table_matches(rule: str, table_id: TableId, case_sensitive: bool) -> bool:
    database, table = _split_rule(rule)
    return bool(
        _glob(database, not case_sensitive).fullmatch(table_id.database)
        and _glob(table, not case_sensitive).fullmatch(table_id.table)
    )


def is_plain(rule: str) -> bool:
    """Whether a rule has only wildcards. Regular expressions, escapes and ``[^…]`` would be misinterpreted."""
    bare = re.sub(r'`[^`]*`|"[^"]*"', "", rule.removeprefix("!"))
    return not re.search(r"\\|\[\^|(?:^|\.)\s*/", bare)


@lru_cache(maxsize=1024)
def _split_rule(rule: str) -> tuple[str, str]:
    """``database.table`` split at the first dot outside quotes, without the quotes."""
    match = re.fullmatch(r'\s*(`[^`]*`|"[^"]*"|[^.`"]*)\.(`[^`]*`|"[^"]*"|.*?)\s*', rule)
    if match is None:
        return rule, "*"
    return match.group(1).strip('`"'), match.group(2).strip('`"')


@lru_cache(maxsize=4096)
def _glob(pattern: str, fold: bool) -> re.Pattern[str]:
    return re.compile(translate(pattern), re.IGNORECASE if fold else 0)
