"""Of which tables the ledger says that rows may be missing: those that bear the rows now, and only while they lack them."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket, ledger
from test_damaged_repeats import late_by_its_number

from headrace.model.policy import SchemaChangePolicies
from quick import without_pauses

pytestmark = pytest.mark.pipeline


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """One whose table ``t`` is applied up to 150."""
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
    bucket.at(150)
    return bucket


def lacking(bucket: Bucket, part: str) -> set[str]:
    return {str(t) for t, own in ledger(bucket).tables.items() if part in own.lacks}


@pytest.mark.parametrize("same_cut", [False, True])
@pytest.mark.parametrize("statement", ["TRUNCATE TABLE `t`", "DROP TABLE `t`"])
def test_a_statement_that_is_skipped_empties_nothing(bucket: Bucket, statement: str, same_cut: bool) -> None:
    part = late_by_its_number(bucket)
    if not same_cut:
        bucket.at(220)
    bucket.schema("t", 250, "id,v", statement, 11 if statement.startswith("T") else 4)
    bucket.at(300, policies=SchemaChangePolicies.parse_text("truncate-table=skip,drop-table=skip"))
    assert lacking(bucket, part) == {"test.t"}
