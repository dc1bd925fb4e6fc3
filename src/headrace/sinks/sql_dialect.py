"""What the SQL ledger needs of a SQL system: a session, and how the system spells what differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class SqlSession(Protocol):
    """One connection, in a transaction that the caller opened and will commit."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Runs one statement with ``?`` placeholders; the rows of a query, an empty list for anything else."""
        ...


@dataclass(frozen=True)
class LedgerDialect:
    """What differs between SQL systems.

    ``name_type`` holds names and compares them with case, ``identifier_type`` those of databases and tables where a key has many
    of them, and ``text_type`` holds text of any length. ``primary_keys`` is off
    where DELETE and INSERT of one key in one transaction trip over the index. ``replace`` begins the statement that writes rows in
    place of those of the same primary key; without one, a DELETE goes before. ``for_update`` locks the rows of a SELECT.
    ``setting`` is the URI's parameter that names the ledger's namespace, and ``folds_case`` says that names which differ in case
    only are one.
    """

    setting: str
    folds_case: bool = False

    quote: str = '"'
    name_type: str = "VARCHAR"
    identifier_type: str = "VARCHAR"
    text_type: str = "VARCHAR"
    float_type: str = "DOUBLE"
    for_update: str = ""
    primary_keys: bool = False
    replace: str = ""
    namespace_options: str = ""
    table_options: str = ""

    def quoted(self, name: str) -> str:
        """A name as the system's statements spell it."""
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"


DUCKDB = LedgerDialect("ledger-schema", folds_case=True)
MYSQL = LedgerDialect(
    "ledger-database",
    quote="`",
    name_type="VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    # A key of InnoDB has 3072 bytes at most, and a name has 64 characters at most.
    identifier_type="VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    text_type="LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    for_update=" FOR UPDATE",
    primary_keys=True,
    replace="REPLACE INTO",
    namespace_options=" DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    table_options=" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
)


def integer(value: object) -> int:
    """A number that the ledger holds."""
    if not isinstance(value, int):
        raise TypeError(f"the ledger holds {value!r} where a number belongs")
    return value
