"""The storage sink in an S3 bucket, and the way back from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Case, assert_state, reveal, run_once, three_steps
from headrace.testing.engine import LocalEngine
from servers import S3Server
from targets import DuckDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]


@pytest.mark.parametrize("output", ["csv", "canal-json"])
@pytest.mark.parametrize("name", ["csv-basic", "csv-ddl-table-lifecycle", "csv-names"])
def test_a_changefeed_goes_through_a_bucket(name: str, output: str, s3: S3Server, tmp_path: Path) -> None:
    case, target = Case(name), DuckDbTarget(tmp_path / "target.duckdb")
    uri = s3.uri(s3.make_bucket(), "changes", protocol=output)
    for state in three_steps(case):
        reveal(case, tmp_path / "data", state.checkpoint_ts)
        changefeed = case.write_changefeed(tmp_path)
        assert run_once(case.source_uri(tmp_path / "data"), uri, changefeed, name, LocalEngine()) == 0
        assert run_once(uri, target.uri, None, "again", LocalEngine()) == 0
        assert_state(target, state)


def test_a_bucket_that_is_not_there_is_one_sentence(s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = s3.uri("no-such-bucket", "changes", protocol="csv")
    assert run_once(Case("csv-basic").source_uri(), uri, engine=LocalEngine()) == 4
    told = capsys.readouterr().err
    assert "no-such-bucket" in told
    assert s3.secret_key not in told
