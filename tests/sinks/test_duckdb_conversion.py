"""MODIFY COLUMN in DuckDB against the answers of a TiDB: every pair of types, with values at their limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pytest

from conversions import SESSION_ZONE, SHAPES, Answer, Conversion, Shape, canonical, conversions
from headrace.model.types import BINARY_KINDS, TypeKind
from headrace.sinks.duckdb.conversion import CONVERSIONS, Group, group_of, type_change
from headrace.sinks.duckdb.types import UnsupportedPolicy, UnsupportedTypeError, duckdb_type, from_canonical, literal
from targets import normal_value, shown_in_duckdb

pytestmark = pytest.mark.long

ERROR = UnsupportedPolicy.ERROR
_WITH_DIGITS = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})


@dataclass(frozen=True)
class Outcome:
    """What DuckDB made of a value beside TiDB's answer; ``held`` is ``None`` where it refuses the value."""

    conversion: Conversion
    value: object
    held: str | None
    answer: Answer

    def __str__(self) -> str:
        pair = f"{self.conversion.old.definition} to {self.conversion.new.definition}"
        return f"{pair}: {self.value!r} becomes {self.held!r}, in TiDB {self.answer}"


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """Of every pair that neither TiDB nor DuckDB refuses."""
    with duckdb.connect(":memory:") as connection:
        return [outcome for conversion in conversions() for outcome in _tried(conversion, connection)]


def _tried(conversion: Conversion, connection: duckdb.DuckDBPyConnection) -> Iterator[Outcome]:
    old, new = conversion.old, conversion.new
    if not _is_followed(conversion):
        return
    step = type_change("v", old.type, new.type, ERROR, SESSION_ZONE)
    rows = ", ".join(f"({number}, {_canonical(value, old)})" for number, value in enumerate(old.values))
    found = connection.execute(
        f"SELECT v IS NULL, {_shown('w', step.target)} FROM (SELECT id, v, CAST({step.expression or 'v'} AS {step.target}) AS w"
        f" FROM (SELECT id, CAST(v AS {duckdb_type(old.type, ERROR)}) AS v FROM (VALUES {rows}) AS rows(id, v))) ORDER BY id"
    ).fetchall()
    for value, answer, (is_zero_date, held) in zip(old.values, conversion.answers, found, strict=True):
        if not is_zero_date:
            text = shown_in_duckdb(_type_text(new), step.target, held)
            yield Outcome(conversion, value, text, answer)


def _is_followed(conversion: Conversion) -> bool:
    try:
        step = type_change("v", conversion.old.type, conversion.new.type, ERROR, SESSION_ZONE)
    except UnsupportedTypeError:
        return False
    return not conversion.refusal and step.refusal is None


def _canonical(value: object, shape: Shape) -> str:
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    return from_canonical(literal(canonical(value)), shape.type, ERROR)


def _shown(name: str, kind: str) -> str:
    if kind == "BLOB":
        return f"lower(hex({name}))"
    return f"epoch_us({name})" if kind.startswith("TIMESTAMP") or kind == "INTERVAL" else f"CAST({name} AS VARCHAR)"


def _type_text(shape: Shape) -> str:
    digits = f"({shape.type.scale})" if shape.type.scale and shape.type.kind in _WITH_DIGITS else ""
    return shape.type.kind.lower() + digits


def _equal(outcome: Outcome) -> bool:
    new = outcome.conversion.new
    if new.type.kind in BINARY_KINDS or outcome.answer.text is None:
        return outcome.held == outcome.answer.text
    return normal_value(_type_text(new), outcome.held) == normal_value(_type_text(new), outcome.answer.text)


def _is_cut_by_charset(outcome: Outcome) -> bool:
    """Only a TiDB without strict mode puts question marks for characters that the new character set lacks."""
    return "CHARACTER SET" in outcome.conversion.new.definition and not outcome.answer.strict


def test_duckdb_holds_what_tidb_makes_of_a_value_or_refuses_it(outcomes: list[Outcome]) -> None:
    wrong = [str(o) for o in outcomes if o.held is not None and not _equal(o) and not _is_cut_by_charset(o)]
    assert not wrong, f"{len(wrong)} of {len(outcomes)}:\n" + "\n".join(wrong[:40])


def test_all_types_were_asked_for() -> None:
    asked = {(c.old.definition, c.new.definition) for c in conversions()}
    olds = [shape for shape in SHAPES if shape.values]
    assert asked == {(old.definition, new.definition) for old in olds for new in SHAPES if old is not new}
    assert {shape.type.kind for shape in SHAPES} >= set(TypeKind) - SAME_AS_OTHERS


SAME_AS_OTHERS = {TypeKind.VAR_STRING, TypeKind.MEDIUMTEXT, TypeKind.TINYBLOB, TypeKind.MEDIUMBLOB, TypeKind.LONGBLOB}


def test_every_conversion_of_the_table_is_tried_and_follows_values_that_strict_mode_lets_pass(outcomes: list[Outcome]) -> None:
    followed: dict[tuple[Group, Group], int] = defaultdict(int)
    for outcome in outcomes:
        pair = group_of(outcome.conversion.old.type), group_of(outcome.conversion.new.type)
        followed[pair] += outcome.held is not None and outcome.answer.strict
    without_variants = {(Group.YEAR, Group.YEAR), (Group.JSON, Group.JSON)}
    assert {pair for pair in CONVERSIONS if not followed[pair]} == without_variants


def test_values_that_strict_mode_lets_pass_are_rarely_refused(outcomes: list[Outcome]) -> None:
    """Those that are: texts and bytes that no rule here is sure of."""
    refused = {(str(o.conversion.old.type.kind), o.value) for o in outcomes if o.held is None and o.answer.strict}
    assert {kind for kind, _ in refused} <= {
        "CHAR",
        "VARCHAR",
        "TEXT",
        "LONGTEXT",
        "BINARY",
        "VARBINARY",
        "BLOB",
        "DATETIME",
        "TIMESTAMP",
        "SET",
        "ENUM",
        "TIME",
    }
