"""What the SQL ledger needs from a SQL system: a session, and the system's dialect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class SqlSession(Protocol):
    """One connection, in a transaction that the caller has opened and will commit."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Runs one statement with ``?`` placeholders. Returns the rows of a query, otherwise an empty list."""
        ...


@dataclass(frozen=True)
class LedgerDialect:
    """The differences between SQL systems."""

    setting: str
    """The URI parameter that names the ledger's namespace."""
    folds_case: bool = False
    """Names that differ only in case are the same."""

    quote: str = '"'
    name_type: str = "VARCHAR"
    """For names, compared with case."""
    identifier_type: str = "VARCHAR"
    """For names of databases and tables where a key holds several of them."""
    text_type: str = "VARCHAR"
    """For text of any length."""
    float_type: str = "DOUBLE"
    for_update: str = ""
    """Locks the rows of a SELECT."""
    primary_keys: bool = False
    """Off for a system in which DELETE and INSERT of one key in one transaction violate the primary key's index."""
    replace: str = ""
    """The beginning of the statement that writes rows in place of those with the same primary key. Empty: a DELETE comes first."""
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
    # An InnoDB key may have up to 3072 bytes, and a name up to 64 characters.
    identifier_type="VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    text_type="LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    for_update=" FOR UPDATE",
    primary_keys=True,
    replace="REPLACE INTO",
    namespace_options=" DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    table_options=" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
)


def integer(value: object) -> int:
    """A number read from the ledger. Raises TypeError for any other value."""
    if not isinstance(value, int):
        raise TypeError(f"the ledger holds {value!r} where a number belongs")
    return value
