"""Statements that must not run, and those that must although they look odd: ``golden/hostile/*.yaml`` as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import yaml

from headrace.model.table import TableId

FOLDER = Path(__file__).parent / "golden" / "hostile"
FILTER = "shop.*,!shop.secrets,!private.*"
"""The filter of the pipeline that the hostile statements are put before."""
LEDGER_DATABASE = "headrace"
KNOWN = (TableId("shop", "orders"), TableId("shop", "customers"))
"""The tables that exist before a statement, in the source and in the target."""


class Ends(StrEnum):
    """What has to become of a hostile statement; the head of the file says it in full."""

    REFUSED = "refused"
    CLEANED = "cleaned"
    BOUNDED = "bounded"
    EITHER = "either"


@dataclass(frozen=True)
class Statement:
    """A statement, and the object whose schema file it stands in (a database is ``TableId(database)``)."""

    group: str
    idea: str
    sql: str
    own: TableId

    @property
    def name(self) -> str:
        """What a test calls it."""
        return f"{self.group}: {self.idea}"


@dataclass(frozen=True)
class HostileStatement(Statement):
    """One that must not do what it says. ``never`` is the text that must not reach a target, where it may run without it."""

    ends: Ends
    never: str

    def is_cleaned(self, sent: str) -> bool:
        """Whether a statement that goes to a target in place of this one lacks what it must lack."""
        return self.ends is Ends.EITHER or (self.ends is Ends.CLEANED and self.never.lower() not in sent.lower())


@cache
def hostile_statements() -> tuple[HostileStatement, ...]:
    found = []
    for group, entry in _entries("statements.yaml"):
        ends = Ends(entry.get("ends", Ends.REFUSED))
        found.append(HostileStatement(group, entry["idea"], entry["sql"], _own(entry), ends, entry.get("never", "")))
    return tuple(found)


@cache
def benign_statements() -> tuple[Statement, ...]:
    return tuple(Statement(group, entry["idea"], entry["sql"], _own(entry)) for group, entry in _entries("benign.yaml"))


def _entries(name: str) -> list[tuple[str, dict[str, str]]]:
    document = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return [(part["group"], entry) for part in document for entry in part["statements"]]


def _own(entry: dict[str, str]) -> TableId:
    database, _, table = entry.get("own", "shop.orders").partition(".")
    return TableId(database, table)
