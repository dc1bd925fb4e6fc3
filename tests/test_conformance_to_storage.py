"""Every conformance case of TiCDC's storage sink goes through Headrace's own storage sink, and from there into MariaDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Case, all_cases, assert_state, reveal, run_once, three_steps
from headrace.errors import EXIT_TABLE_STOPPED
from headrace.testing.engine import LocalEngine
from servers import MariaDb
from targets import MariaDbTarget
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
