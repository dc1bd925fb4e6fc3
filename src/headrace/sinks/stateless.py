"""A base for sinks that keep nothing between rounds: no own ledger, no open cut, no connection."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from headrace.model.table import SourceTable, TableId
from headrace.sinks.base import Check, Ledger
from headrace.sinks.table_marks import TableMarks


class StatelessSink:
    """The methods of a :class:`headrace.sinks.base.DataSink` that such a sink need not implement."""

    ledger: Ledger | None = None
    table_marks: TableMarks | None = None

    def spark_conf(self) -> Mapping[str, str]:
        return {}

    def check_tables(self, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
        """There are no tables."""
        return []

    def begin_cut(self) -> None:
        """Nothing to open."""

    def interrupt(self) -> None:
        """Nothing runs long on the driver."""

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """There are no tables."""

    def abandon_cut(self) -> None:
        """Nothing to roll back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        return None
