"""Opens DuckDB so that it loads no extensions, and seals it so that its statements cannot access other files."""

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
"""Headrace needs only what DuckDB itself contains. An extension is a library that would be downloaded, or loaded from the home
folder. Replacement scans are off because a name in a statement must never refer to a variable of Headrace's own code."""

_SEAL = ("SET enable_external_access = false", "SET lock_configuration = true")


def open_duckdb(path: Path | str = ":memory:", settings: Mapping[str, Any] | None = None, *, read_only: bool = False) -> Any:
    """Opens a connection that loads no extensions. Raises ``duckdb.Error``."""
    return duckdb.connect(str(path), read_only=read_only, config={**(settings or {}), **_SEALED})


def seal(connection: Any) -> None:
    """After this call, statements can access only the files of the open databases, and no setting can be changed.

    Raises ``duckdb.Error``.
    """
    for statement in _SEAL:
        connection.execute(statement)
