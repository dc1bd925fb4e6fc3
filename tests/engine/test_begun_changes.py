"""A schema change whose application fails in a way that nobody has foreseen concerns its own tables."""

from __future__ import annotations

import pytest

from headrace.engine import begun_changes
from headrace.errors import SinkUnreachableError
from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import SchemaChangeRefused, SchemaChangeUnclear
from headrace.testing.memory_metadata import MemoryMetadataApplier

T = TableId("shop", "t")
CHANGE = SchemaChange(7, T, (), "ALTER TABLE t ADD x INT", "shop", frozenset({T}))


class Failing(MemoryMetadataApplier):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        raise self.error

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        raise self.error


@pytest.mark.parametrize("instead", [None, "ALTER TABLE t ADD y INT"])
@pytest.mark.parametrize("rolls_back", [True, False])
def test_an_unforeseen_error_is_the_changes_own_problem(instead: str | None, rolls_back: bool) -> None:
    with pytest.raises(SchemaChangeRefused) as found:
        begun_changes.run(Failing(OverflowError("date value out of range")), CHANGE, instead, rolls_back=rolls_back)
    assert isinstance(found.value, SchemaChangeUnclear) is not rolls_back, "it may have run where nothing undoes it"
    assert found.value.problem.table_id == T
    assert "OverflowError: date value out of range" in found.value.problem.message


def test_an_error_of_the_target_is_no_problem_of_the_change() -> None:
    with pytest.raises(SinkUnreachableError):
        begun_changes.run(Failing(SinkUnreachableError("it is down")), CHANGE, None, rolls_back=True)
