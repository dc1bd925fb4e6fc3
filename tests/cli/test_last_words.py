"""What a command prints last reaches standard error, also where it ends while Spark is still being started."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import Running
from storage_folder import OPTIONS, StorageFolder

pytestmark = [pytest.mark.pipeline, pytest.mark.long]


def ended(folder: Path, *arguments: str) -> Running:
    running = Running([*arguments], folder)
    running.process.wait(60)
    for reader in running._readers:
        reader.join(10)
    return running


def test_an_error_at_once_is_printed_every_time(tmp_path: Path) -> None:
    for number in range(4):
        sink = f"duckdb://{tmp_path}/{number}.duckdb"
        ran = ended(tmp_path / str(number), "run", "--once", "--source", f"file://{tmp_path}/nope", "--sink", sink)
        assert (ran.process.returncode, ran.errors.count("There is no folder"), len(ran.error_lines)) == (4, 1, 1)


@pytest.mark.parametrize("sink", ["x.duckdb", "nodir/x.duckdb"])
def test_nothing_but_headrace_has_the_last_word(tmp_path: Path, sink: str) -> None:
    folder = StorageFolder(tmp_path / "feed")
    folder.checkpoint(100)
    ran = ended(tmp_path / "at", "run", "--once", "--source", folder.uri(OPTIONS), "--sink", f"duckdb://{tmp_path}/{sink}")
    assert (ran.process.returncode, len(ran.error_lines)) == ((0, 0) if sink == "x.duckdb" else (4, 1)), ran.errors
