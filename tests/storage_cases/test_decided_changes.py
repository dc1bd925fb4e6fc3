"""A schema file is replaced after a person has decided about its change: the decision counts for what was shown."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, decide, ledger

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.events import SchemaChange
from headrace.model.ledger import JournalState, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from quick import without_pauses
from storage_folder import ID, V

pytestmark = pytest.mark.pipeline

ASKS = {"policies": SchemaChangePolicies.parse_text("drop-column=approve,drop-table=approve")}
DROP_C = "ALTER TABLE `t` DROP COLUMN `c`"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t", 100, "id,v,c")
    bucket.rows("t/100/1", "I 110 1 a 3")
    bucket.at(120)
    return bucket


def waits(bucket: Bucket) -> str:
    (entry,) = [entry for entry in ledger(bucket).journal.values() if entry.state is JournalState.WAITING]
    return entry.identity


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.SKIP])
@pytest.mark.parametrize(
    ("shown", "statement", "then", "instead"),
    [
        ("id,v", DROP_C, "id,v", "DROP TABLE `t`"),
        ("id,v", "", "id", ""),
        ("id,v", DROP_C, (ID, V | {"ColumnPrecision": "40"}), DROP_C),
    ],
    ids=["another statement", "another shape", "another shape beside the statement"],
)
def test_what_came_in_its_place_waits_for_a_decision_of_its_own(
    bucket: Bucket, shown: str, statement: str, then: str | tuple[dict[str, str], ...], instead: str, verdict: Verdict
) -> None:
    path = bucket.schema("t", 200, shown, statement)
    assert bucket.at(300, **ASKS).code == EXIT_TABLE_STOPPED
    decided = waits(bucket)
    decide(bucket, verdict)
    (bucket.root / path).unlink()
    bucket.schema("t", 200, then, instead)
    ran = bucket.at(310, **ASKS)
    assert (ran.code, bucket.state("t")) == (EXIT_TABLE_STOPPED, [(1, "a", 3)])
    assert waits(bucket) != decided
    assert ledger(bucket).decisions == {}
    assert [n.message for n in ran.notices if decided in n.message] == [
        f"the decision to {verdict} {decided} was not used: the source now has another schema change in its place, or none."
    ]
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(320, **ASKS).code == EXIT_OK
    assert bucket.state("t") != [(1, "a", 3)]


def test_a_shape_is_shown_with_its_columns(bucket: Bucket) -> None:
    bucket.schema("t", 200, "id,v", "")
    (problem,) = bucket.at(300, **ASKS).problems
    assert problem.message == "its schema change waits for approval: a change of shape to (id INT, v VARCHAR)."


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.SKIP])
def test_an_identity_of_a_former_version_goes_on_working(bucket: Bucket, verdict: Verdict) -> None:
    bucket.schema("t", 200, "id,v", DROP_C)
    bucket.at(300, **ASKS)
    changes = frozenset({TableId("test", "t")})
    former = SchemaChange(200, TableId("test", "t"), (), DROP_C, "test", changes).former_identity
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("UPDATE headrace.ddl_journal SET change_identity = ? WHERE commit_ts = 200", [former])
    assert bucket.at(310, **ASKS).code == EXIT_TABLE_STOPPED
    assert waits(bucket) == former
    decide(bucket, verdict)
    assert bucket.at(320, **ASKS).code == EXIT_OK
    assert ledger(bucket).journal[former].state.is_settled
    assert bucket.at(330, **ASKS).code == EXIT_OK
    assert bucket.state("t") == ([(1, "a")] if verdict is Verdict.APPROVE else [(1, "a", 3)])
