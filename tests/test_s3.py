"""The whole way from an S3 bucket: listing on the driver, reading in Spark tasks, into DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Case, assert_state, run_once
from servers import S3Server
from targets import DuckDbTarget

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_a_bucket_is_applied_and_followed(s3: S3Server, tmp_path: Path) -> None:
    case = Case("csv-basic")
    bucket = s3.make_bucket()
    s3.upload(case.data, bucket, "cdc")
    target = DuckDbTarget(tmp_path / "target.duckdb")
    uri = s3.uri(bucket, "cdc", protocol="csv")
    assert run_once(uri, target.uri, case.write_changefeed(tmp_path), "bucket") == 0
    assert_state(target, case.final)
    assert run_once(uri, target.uri, case.write_changefeed(tmp_path), "bucket") == 0
    assert_state(target, case.final)


def test_a_bucket_that_is_not_there_is_one_sentence(s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = s3.uri("no-such-bucket", "cdc", protocol="csv")
    assert run_once(uri, f"duckdb://{tmp_path}/t.duckdb") == 4
    assert "no-such-bucket" in capsys.readouterr().err
