"""Rounds of a few rows that are written like large ones."""

from __future__ import annotations

import pytest


def as_if_large(patch: pytest.MonkeyPatch) -> None:
    """From now on small rounds are written like large ones: by several tasks, each in transactions of two rows.

    Columns of a few texts are combined like those that hold gigabytes, and of two consumed files of a directory the position
    tells each by itself.
    """
    for name, value in {
        "engine.round.ONE_TASK_BYTES": 0,
        "engine.round._BUCKET_BYTES": 64,
        "sinks.mysql.sink.ATOMIC_BYTES": 0,
        "sinks.mysql.writer.TRANSACTION_ROWS": 2,
        "model.block.WIDE_BYTES": 64,
        "sources.ticdc_storage.position_update._MARKS_PER_DIRECTORY": 2,
    }.items():
        patch.setattr(f"headrace.{name}", value)
