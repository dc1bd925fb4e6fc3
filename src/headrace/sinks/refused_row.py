"""Which row a sink could not write: by its key, since rows have lost their file and line once they are netted."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_SHOWN = 40


def row_name(rows: pa.Table, number: int, key: Sequence[str]) -> str:
    """The key of a row, as ``id=3, day=2024-05-01``; binary values in hex. Empty without a key."""
    names = [name for name in key if name in rows.column_names]
    return ", ".join(f"{name}={_shown(rows.column(name)[number].as_py())}" for name in names)


def _shown(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
