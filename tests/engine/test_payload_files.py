"""Large payloads of the exchange go through files where all tasks run on one machine."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pyarrow as pa
import pytest

import round_cases
from harness import spark_engine
from headrace.engine import exchange, payload_files
from headrace.engine.payload_files import PayloadFile, payload_folder, read_payload
from headrace.errors import JobFailedError
from headrace.model.events import RowKind
from headrace.testing.engine import LocalEngine
from round_cases import BAG, LOG, NET, Change, TellingWriter, bags, history, round_of, splits_of, streamed

MIB = 1 << 20


def test_payloads_are_read_as_they_were_written(tmp_path: Path) -> None:
    batches = [pa.record_batch({"n": list(range(n))}) for n in (1, 1000, 0, 5)]
    with PayloadFile(str(tmp_path)) as file:
        places = [file.put(batch) for batch in batches]
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = [list(pa.ipc.open_stream(read_payload(place))) for place in reversed(places)]
    assert found == [[batch] for batch in reversed(batches)]


def test_the_folder_of_a_job_is_private_and_gone_when_the_job_ends(tmp_path: Path) -> None:
    with payload_folder(tmp_path) as folder:
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
        (Path(folder) / "left").write_bytes(b"rows")
    assert list(tmp_path.iterdir()) == []
    with payload_folder(None) as folder:
        assert folder == ""


def test_a_folder_that_takes_no_rows_fails_the_job_and_no_table(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with pytest.raises(JobFailedError, match=f"Rows for the write tasks cannot be written to {folder}: No such file or directory."):
        PayloadFile(str(folder)).put(pa.record_batch({"n": [1]}))
    with pytest.raises(JobFailedError, match="Rows for the write tasks cannot be written"), payload_folder(folder):
        pass
    splits = splits_of(NET, large(), size=20 * MIB)
    with pytest.raises(JobFailedError, match="Rows for the write tasks"):
        round_of(LocalEngine(payload_folder=str(folder)), splits).write_in_tasks(TellingWriter())


@pytest.mark.parametrize("damage", ["removed", "cut off"])
def test_payloads_that_are_damaged_fail_the_job(damage: str, tmp_path: Path) -> None:
    with PayloadFile(str(tmp_path)) as file:
        place = file.put(pa.record_batch({"n": list(range(100))}))
    if damage == "removed":
        Path(place.file).unlink()
    else:
        os.truncate(place.file, place.size - 8)
    with pytest.raises(JobFailedError, match=f"Rows for the write tasks cannot be read from {place.file}"):
        read_payload(place)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fails() -> None:
        with PayloadFile(str(tmp_path)) as file:
            file.put(pa.record_batch({"n": [1]}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_many_files_are_not_held_open(tmp_path: Path) -> None:
    places = []
    for _ in range(50):
        with PayloadFile(str(tmp_path)) as file:
            places.append(file.put(pa.record_batch({"n": [1]})))
    before = len(list(Path("/proc/self/fd").iterdir()))
    payloads = [read_payload(place) for place in places]
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 10
    assert all(next(pa.ipc.open_stream(payload)).num_rows == 1 for payload in payloads)


@pytest.mark.parametrize("damage", ["removed", "cut off"])
def test_a_run_whose_payloads_are_damaged_tries_again_and_tells_no_bug(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error passes what contains the failures of one table."""
    monkeypatch.setattr(payload_files, "LEAST_BYTES", 0)
    read = payload_files.read_payload

    def damaged(place: payload_files.PayloadPlace) -> pa.Buffer:
        os.truncate(place.file, 8) if damage == "cut off" else Path(place.file).unlink(missing_ok=True)
        return read(place)

    monkeypatch.setattr(exchange, "read_payload", damaged)
    splits = [*splits_of(NET, history(1), size=20 * MIB), *splits_of(LOG, history(2), size=20 * MIB)]
    with pytest.raises(JobFailedError, match="Rows for the write tasks cannot be read"):
        streamed(round_of(LocalEngine(payload_folder=str(tmp_path)), splits))


def test_a_round_is_the_same_with_its_payloads_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_files, "LEAST_BYTES", 0)
    splits = [
        *splits_of(NET, history(1), size=20 * MIB),
        *splits_of(LOG, history(2), size=20 * MIB),
        *splits_of(BAG, bags(3), size=20 * MIB),
    ]
    here, _ = streamed(round_of(LocalEngine(payload_folder=str(tmp_path)), splits))
    assert list(tmp_path.iterdir())
    through_memory, _ = streamed(round_of(LocalEngine(), splits))
    assert (here.rows, here.logs, here.inserted) == (through_memory.rows, through_memory.logs, through_memory.inserted)


def large() -> list[list[Change]]:
    """Files of which each has more than goes through Spark."""
    text = "x" * 1000
    size = 4 * payload_files.LEAST_BYTES // len(text)
    return [[(ts, RowKind.INSERT, ts, text) for ts in range(start, start + size)] for start in (10, 10 + size)]


@pytest.mark.spark
def test_spark_carries_the_places_of_large_payloads_and_leaves_no_file() -> None:
    spark = spark_engine()
    spark.start().sparkContext.addPyFile(round_cases.__file__)  # its workers know no module of tests
    folder = spark._local_folder()
    assert folder is not None
    splits = splits_of(NET, large(), size=40 * MIB)
    made: list[Path] = []
    make = shutil.rmtree
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_files.shutil, "rmtree", lambda path, **told: (made.extend(Path(path).iterdir()), make(path, **told)))
        found, _ = streamed(round_of(spark, splits))
    assert made
    assert sum(map(len, found.rows.values())) == sum(map(len, large()))
    assert not list(folder.glob("payloads-*"))
