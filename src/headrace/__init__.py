"""Headrace applies the change data that TiDB emits to another system, effectively once, on Spark.

The names in ``__all__`` here and the package ``headrace.testing`` are public and stable. Everything else may change without
notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.api import Moment, Pipeline, PipelineState, Progress, RunResult, TableState, run
    from headrace.errors import (
        DefinitionError,
        FencedError,
        HeadraceError,
        JobFailedError,
        LedgerUnreadableError,
        MissingPartError,
        NoWatermarkError,
        SinkUnreachableError,
        SourceLostError,
        SourceNotReadyError,
        SourceUnreachableError,
        TransientError,
    )
    from headrace.model.ledger import CutRecord, TableStatus
    from headrace.model.outcome import Notice, Problem

__version__ = "0.1.0"

__all__ = [
    "CutRecord",
    "DefinitionError",
    "FencedError",
    "HeadraceError",
    "JobFailedError",
    "LedgerUnreadableError",
    "MissingPartError",
    "Moment",
    "NoWatermarkError",
    "Notice",
    "Pipeline",
    "PipelineState",
    "Problem",
    "Progress",
    "RunResult",
    "SinkUnreachableError",
    "SourceLostError",
    "SourceNotReadyError",
    "SourceUnreachableError",
    "TableState",
    "TableStatus",
    "TransientError",
    "__version__",
    "run",
]

_HOMES = {
    "headrace.api": ("Moment", "Pipeline", "PipelineState", "Progress", "RunResult", "TableState", "run"),
    "headrace.model.ledger": ("CutRecord", "TableStatus"),
    "headrace.model.outcome": ("Notice", "Problem"),
}


def __getattr__(name: str) -> object:
    """Imports a public name on first use, because every command and every Spark task imports this package."""
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    from importlib import import_module

    home = next((module for module, names in _HOMES.items() if name in names), "headrace.errors")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
