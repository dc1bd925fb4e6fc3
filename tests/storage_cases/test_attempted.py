"""A cut that broke off on a server that commits it in parts, and a watermark that lies before its end by then."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket, ledger_at

from headrace.engine import loop
from headrace.errors import EXIT_OK, EXIT_UNREACHABLE, SourceNotReadyError
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from servers import MariaDb

pytestmark = [pytest.mark.pipeline, pytest.mark.server]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.01)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.checkpoint(120)
    return bucket


def broken_off(bucket: Bucket, uri: str) -> None:
    """A cut up to 300 dies when a part of it is committed."""
    assert bucket.run(uri).code == EXIT_OK
    bucket.rows("t/100/2", "I 150 2 b")
    bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT", 5)
    bucket.rows("t/200/1", "U 250 2 c 7")
    bucket.checkpoint(300)
    with armed(crash_at(Moment.AFTER, Step.ROUND)), pytest.raises(Crashed):
        bucket.run(uri)
    assert ledger_at(uri).attempted == 300


def test_a_run_to_the_watermark_has_not_caught_up_before_that(bucket: Bucket, mariadb: MariaDb) -> None:
    uri = mariadb.uri()
    broken_off(bucket, uri)
    bucket.checkpoint(220)
    with pytest.raises(SourceNotReadyError, match=r"rows up to .* may have been written before") as caught:
        bucket.run(uri)
    assert caught.value.exit_code == EXIT_UNREACHABLE
    assert ledger_at(uri).checkpoint == 120
    bucket.checkpoint(300)
    assert bucket.run(uri).code == EXIT_OK
