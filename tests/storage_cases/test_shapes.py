"""The ledger keeps shapes of tables for a source that asks for it, and costs nothing for one that does not."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, decide, ledger, ledger_at

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.model.tso import tso_from_ms
from headrace.sources.ticdc_storage.source import StorageEventSource
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from servers import MariaDb

pytestmark = pytest.mark.pipeline

T, U = TableId("test", "t"), TableId("test", "u")


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source says that it can tell schema changes only once."""
    monkeypatch.setattr(StorageEventSource, "needs_shapes", True)


def ms(number: int) -> int:
    return tso_from_ms(number)


def altered(bucket: Bucket) -> None:
    """A table of two columns that gets a third."""
    bucket.create("t", ms(100))
    bucket.rows(f"t/{ms(100)}/1", f"I {ms(110)} 1 a")
    bucket.schema("t", ms(200), "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.rows(f"t/{ms(200)}/1", f"I {ms(210)} 2 b 8")


def kept(uri: str) -> dict[tuple[str, int, int], list[str]]:
    """The columns of each shape that the ledger has, by table, incarnation and version (milliseconds)."""
    shapes = ledger_at(uri).shapes
    return {(k.table_id.table, k.incarnation >> 18, k.version >> 18): [c.name for c in s.schema.columns] for k, s in shapes.items()}


def test_a_source_that_can_tell_its_history_again_pays_nothing(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    altered(bucket)
    assert bucket.at(ms(300)).code == EXIT_OK
    assert ledger(bucket).shapes == {}
    with duckdb.connect(str(bucket.database), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'headrace'").fetchall()
    assert names
    assert not {("shapes",), ("routed_tables",)} & set(names)


@pytest.mark.usefixtures("asking")
def test_shapes_are_kept_as_long_as_a_row_may_need_them(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    altered(bucket)
    bucket.checkpoint(ms(150))
    assert bucket.run().code == EXIT_OK
    assert kept(bucket.sink) == {("t", 100, 100): ["id", "v"]}
    assert bucket.at(ms(300), policies=SchemaChangePolicies.parse({"add-column": "approve"})).code == EXIT_TABLE_STOPPED
    assert kept(bucket.sink) == {("t", 100, 100): ["id", "v"], ("t", 100, 200): ["id", "v", "c"]}
    decide(bucket, Verdict.APPROVE)
    assert bucket.run().code == EXIT_OK
    bucket.rows(f"t/{ms(200)}/2", f"I {ms(310)} 3 c 9")
    assert bucket.at(ms(400)).code == EXIT_OK
    assert kept(bucket.sink) == {("t", 100, 200): ["id", "v", "c"]}


@pytest.mark.usefixtures("asking")
def test_a_table_that_is_renamed_and_then_dropped_leaves_no_shape(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    altered(bucket)
    bucket.schema("u", ms(300), "id,v,c", "RENAME TABLE `t` TO `u`", 14)
    assert bucket.at(ms(350)).code == EXIT_OK
    bucket.rows(f"u/{ms(300)}/1", f"I {ms(360)} 3 c 9")
    assert bucket.at(ms(400)).code == EXIT_OK
    assert kept(bucket.sink) == {("u", 300, 300): ["id", "v", "c"]}
    bucket.schema("u", ms(410), "id,v,c", "DROP TABLE `u`", 4)
    bucket.create("s", ms(420))
    for end in (450, 500):
        bucket.rows(f"s/{ms(420)}/{end}", f"I {ms(end - 10)} {end} a")
        assert bucket.at(ms(end)).code == EXIT_OK
    assert kept(bucket.sink) == {("s", 420, 420): ["id", "v"]}


@pytest.mark.server
@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("step", [Step.JOURNAL_PENDING, Step.JOURNAL_SETTLED, Step.CHECKPOINT])
@pytest.mark.parametrize("moment", list(Moment))
def test_a_run_that_dies_at_a_schema_change_leaves_the_shape_with_the_journal(
    tmp_path: Path, mariadb: MariaDb, moment: Moment, step: Step
) -> None:
    bucket = Bucket(tmp_path)
    altered(bucket)
    bucket.checkpoint(ms(150))
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    bucket.checkpoint(ms(300))
    with armed(crash_at(moment, step)), pytest.raises(Crashed):
        bucket.run(mariadb.uri())
    state = ledger_at(mariadb.uri())
    settled = {entry.commit_ts for entry in state.journal.values() if entry.state.is_settled and T in entry.tables}
    versions = {key.version for key in state.shapes}
    assert max(settled) in versions  # a stream does not tell again what is settled
    assert versions <= settled
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    assert kept(mariadb.uri())["t", 100, 200] == ["id", "v", "c"]
