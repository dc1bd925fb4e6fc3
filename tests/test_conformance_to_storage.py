"""Every golden case of TiCDC's storage sink and of TiDB Binlog goes through the storage sink, and from there into a database."""

from __future__ import annotations

from pathlib import Path

import pytest

import test_conformance_binlog as binlog
from binlog_cases import records
from harness import Case, all_cases, assert_state, reveal, run_once, three_steps
from headrace.errors import EXIT_TABLE_STOPPED
from headrace.testing.engine import LocalEngine
from kafka_server import KafkaBroker
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget
from test_conformance_storage import state_held

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

OUTPUTS = {
    "csv": "protocol=csv&output-field-header=true",
    "canal-json": "protocol=canal-json&date-separator=none&file-index-digit=6",
}
NEEDS_COMMIT_TS = {("csv-default-no-commit-ts", "canal-json")}
"""The rows of this case tell no time, which CSV may leave out and canal-JSON cannot."""


def replicate(case: Case, data: Path, output: str, changes: Path, sink_uri: str, folder: Path) -> None:
    """One run into storage, and one from there."""
    has_time = case.has_commit_ts or output == "canal-json"
    uri = f"{changes.as_uri()}?{OUTPUTS[output]}{'' if has_time else '&include-commit-ts=false'}"
    assert run_once(case.source_uri(data), uri, case.write_changefeed(folder), case.name, LocalEngine()) == 0
    assert run_once(uri, sink_uri, None, "again", LocalEngine()) == 0


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", [case.name for case in all_cases()])
def test_what_went_through_storage_gives_every_state_on_the_way(name: str, output: str, mariadb: MariaDb, tmp_path: Path) -> None:
    case, target = Case(name), MariaDbTarget(mariadb)
    if (name, output) in NEEDS_COMMIT_TS:
        uri = f"{(tmp_path / 'changes').as_uri()}?{OUTPUTS[output]}"
        assert run_once(case.source_uri(), uri, case.write_changefeed(tmp_path), name, LocalEngine()) == EXIT_TABLE_STOPPED
        return
    for state in three_steps(case):
        data = tmp_path / "data"
        reveal(case, data, state.checkpoint_ts)
        replicate(case, data, output, tmp_path / "changes", mariadb.uri(), tmp_path)
        assert_state(target, state_held(target, state, data), case.unreplicated_columns)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", binlog.CASES)
def test_a_drainers_topic_goes_through_storage(name: str, output: str, kafka: KafkaBroker, tmp_path: Path) -> None:
    """In steps, so that a transaction that changes a row several times meets every bound of a cut."""
    topic, count = kafka.make_topic(), len(records(name))
    uri = f"{(tmp_path / 'changes').as_uri()}?{OUTPUTS[output]}"
    step = count if name == "seek" else max(1, count // 4)  # that case needs all of its records at first
    for begin in range(0, count, step):
        binlog.write(kafka, topic, name, slice(begin, begin + step))
        assert run_once(binlog.source_uri(kafka, topic, name), uri, None, name, LocalEngine()) == 0
    target = DuckDbTarget(tmp_path / "target.duckdb")
    assert run_once(uri, target.uri, None, "again", LocalEngine(), until_end=True, quiet=0.1) == 0
    assert_state(target, binlog.final_state(name, target))
