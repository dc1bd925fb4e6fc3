"""The grants that docs/connectors/mysql.md tells people to make. The tests' pipelines have exactly these: where Headrace needs
another right, tests fail until the page names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "connectors" / "mysql.md"
_BLOCK = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
_GRANT = re.compile(r"GRANT (?P<rights>[A-Z, ]+) ON (?P<place>\S+) TO repl@'10\.0\.0\.%';")


@dataclass(frozen=True)
class Documented:
    """What the page grants, by where it does."""

    ledger: tuple[str, ...]
    database: tuple[str, ...]
    whole_databases: tuple[str, ...]
    """What a DROP DATABASE needs beyond that."""
    pattern: tuple[str, ...]
    everywhere: tuple[str, ...]

    def on_databases(self, user: str, databases: Iterable[str], ledgers: Iterable[str] = ("headrace",)) -> Iterator[str]:
        """The statements for an account that writes these databases, with its ledger in one of those."""
        for ledger in ledgers:
            yield grant(self.ledger, place(ledger), user)
        for database in databases:
            yield grant(self.database, place(database), user)
            yield grant(self.whole_databases, place(database), user)


@cache
def documented() -> Documented:
    """What the page says now."""
    section = PAGE.read_text().partition("\n### Rights\n")[2].partition("\n## ")[0]
    found = [
        (match["place"], tuple(match["rights"].split(", ")))
        for block in _BLOCK.findall(section)
        for match in _GRANT.finditer(block)
    ]
    places = [place for place, _ in found]
    assert places == ["`headrace`.*", "`shop`.*", "`shop`.*", r"`shop\_%`.*", "*.*"], f"{PAGE} grants on {places}"
    return Documented(*(rights for _, rights in found))


def grant(rights: Iterable[str], place: str, user: str) -> str:
    return f"GRANT {', '.join(rights)} ON {place} TO {user}"


def place(database: str) -> str:
    """This one database: the name in a grant is a pattern."""
    name = re.sub(r"([\\_%])", r"\\\1", database).replace("`", "``")
    return f"`{name}`.*"
