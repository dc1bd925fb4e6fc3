"""A table's partitioning as text, for the ledger (``TableShape.partitioning``). Its statements come only once from some sources."""

from __future__ import annotations

import json

from headrace.ddl.partitions import Method, Partition, Partitioning


def partitioning_to_text(partitioning: Partitioning | None) -> str:
    """The text; empty for ``None``. Equal partitionings give equal texts."""
    if partitioning is None:
        return ""
    partitions = [[p.name, p.values, *([True] if p.is_default else ())] for p in partitioning.partitions]
    return json.dumps([partitioning.method, partitioning.keys, partitions], separators=(",", ":"))


def partitioning_from_text(text: str) -> Partitioning | None:
    """What :func:`partitioning_to_text` was given. Raises ValueError."""
    if not text:
        return None
    method, keys, partitions = json.loads(text)
    found = (Partition(name, tuple(map(tuple, values)), bool(default)) for name, values, *default in partitions)
    return Partitioning(Method(method), tuple(keys), tuple(found))
