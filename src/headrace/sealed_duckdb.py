"""DuckDB as Headrace opens it: it loads no extensions, and its statements reach no other files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

_SEALED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
"""What Headrace needs is in DuckDB itself. An extension is a library: it would be fetched from the network, or taken from the home
folder. And a name in a statement must never mean a variable of Headrace's own code."""

_SEAL = ("SET enable_external_access = false", "SET lock_configuration = true")


def open_duckdb(path: Path | str = ":memory:", settings: Mapping[str, Any] | None = None, *, read_only: bool = False) -> Any:
    """A connection that loads no extensions. Raises ``duckdb.Error``."""
    return duckdb.connect(str(path), read_only=read_only, config={**(settings or {}), **_SEALED})


def seal(connection: Any) -> None:
    """From here on statements reach no files but those of the databases that are open, and no setting can be changed.

    Raises ``duckdb.Error``.
    """
    for statement in _SEAL:
        connection.execute(statement)
