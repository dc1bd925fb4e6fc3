"""A run's work place: whoever reaches it reads what was left there, and nothing of it outlives the run for long."""

from __future__ import annotations

import pickle
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import DefinitionError, TransientError
from headrace.places import work_place
from headrace.places.work_place import WorkLease, WorkPlace, open_work
from servers import S3Server

HOLD = """
import sys
import time
from headrace.places.work_place import open_work
work = open_work(sys.argv[1]).place()
work.write("spool/round-1/a.arrow", b"rows")
print(work.folder.location.url, flush=True)
sys.stdin.read()
"""


class Above:
    """A folder or a prefix in a store that runs have their work places in."""

    def __init__(self, location: str, everything: Callable[[], list[str]]) -> None:
        self.location, self.everything = location, everything


def a_folder(parent: Path) -> Above:
    return Above(str(parent), lambda: [path.relative_to(parent).as_posix() for path in parent.rglob("*") if path.is_file()])


@pytest.fixture(params=["folder", pytest.param("store", marks=pytest.mark.server)])
def above(request: pytest.FixtureRequest, tmp_path: Path) -> Above:
    if request.param == "folder":
        return a_folder(tmp_path / "work")
    server: S3Server = request.getfixturevalue("s3")
    bucket = server.make_bucket()

    def everything() -> list[str]:
        found = server.client().list_objects_v2(Bucket=bucket).get("Contents", ())
        return [item["Key"] for item in found]

    return Above(server.uri(bucket, "some/work"), everything)


@pytest.fixture
def lease(above: Above) -> Iterator[WorkLease]:
    with closing(open_work(above.location)) as lease:
        yield lease


@pytest.fixture
def work(lease: WorkLease) -> WorkPlace:
    return lease.place()


def test_what_one_process_writes_another_one_reads(work: WorkPlace) -> None:
    elsewhere: WorkPlace = pickle.loads(pickle.dumps(work))
    elsewhere.write("spool/round-1/1.upserts.x.arrow", b"ab", pa.py_buffer(b"cd"))
    assert work.read("spool/round-1/1.upserts.x.arrow").to_pybytes() == b"abcd"
    with work.open("spool/round-1/1.upserts.x.arrow") as file:
        file.seek(2)
        assert file.read() == b"cd"


def test_a_file_of_arrow_batches_is_read_where_it_lies(tmp_path: Path) -> None:
    table = pa.table({"v": list(range(100_000))})
    with closing(open_work(str(tmp_path))) as lease:
        with lease.place().writing("t.arrow") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        allocated = pa.total_allocated_bytes()
        found = pa.ipc.open_file(lease.place().open("t.arrow")).read_all()
        assert found.equals(table)
        assert pa.total_allocated_bytes() - allocated < table.nbytes / 10


def test_arrow_files_come_back_from_a_store_too(work: WorkPlace) -> None:
    table = pa.table({"v": ["a", None, "ü"]})
    with work.writing("t.arrow") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_file(work.open("t.arrow")).read_all().equals(table)


def test_an_empty_file_is_a_file(work: WorkPlace) -> None:
    work.write("empty")
    assert work.keys() == ["empty"]
    assert work.read("empty").size == 0


def test_files_are_listed_and_removed_by_folder(work: WorkPlace) -> None:
    for key in ("spool/round-1/b", "spool/round-1/a", "spool/round-2/a", "stage/a"):
        work.write(key, b"x")
    assert work.keys() == ["spool/round-1/a", "spool/round-1/b", "spool/round-2/a", "stage/a"]
    assert work.keys("spool") == ["spool/round-1/a", "spool/round-1/b", "spool/round-2/a"]
    work.remove("spool/round-1")
    work.remove("never/made")
    assert work.keys() == ["spool/round-2/a", "stage/a"]


def test_what_breaks_off_leaves_nothing_and_what_is_there_stays(work: WorkPlace) -> None:
    work.write("a", b"former")
    with suppress(ZeroDivisionError), work.writing("a") as file:
        file.write(b"half of the ")
        file.write(1 // 0)
    assert work.keys() == ["a"]
    assert work.read("a").to_pybytes() == b"former"
    work.write("a", b"repeated")
    assert work.read("a").to_pybytes() == b"repeated"


def test_a_file_that_is_gone_lets_the_cut_be_taken_again(work: WorkPlace) -> None:
    with pytest.raises(TransientError, match="Rows cannot be handed over in"):
        work.open("spool/gone")


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "Shop", "a b", "#a", ".headrace", "a\n"])
def test_keys_are_the_programs_own(key: str, work: WorkPlace) -> None:
    for act in (work.write, work.open, work.remove):
        with pytest.raises(ValueError, match="not a key"):
            act(key)


def test_nothing_is_made_before_it_is_asked_for(above: Above) -> None:
    open_work(above.location).close()
    assert above.everything() == []


def test_the_end_of_a_run_leaves_nothing(above: Above) -> None:
    with open_work(above.location) as lease:
        lease.place().write("spool/a", b"x")
        assert above.everything()
    assert above.everything() == []


def test_a_folder_that_was_cleared_away_is_made_again(tmp_path: Path) -> None:
    with open_work(str(tmp_path)) as lease:
        (made,) = (Path(lease.place().folder.location.path),)
        for path in made.iterdir():
            path.unlink()
        made.rmdir()
        lease.place().write("a", b"x")
        assert lease.place().keys() == ["a"]


def test_a_task_of_a_killed_run_does_not_make_its_folder_again(tmp_path: Path) -> None:
    lease = open_work(str(tmp_path))
    late = lease.place()
    lease.close()
    with pytest.raises(TransientError):
        late.write("spool/round-1/a", b"x")
    assert not list(tmp_path.iterdir())


def test_a_sticky_folder_that_everybody_can_write_to_will_do_and_no_other(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with open_work(str(tmp_path)) as lease:
        lease.place().write("a", b"x")
    tmp_path.chmod(0o777)
    with open_work(str(tmp_path)) as lease, pytest.raises(DefinitionError, match="other users can replace"):
        lease.place()


def test_files_and_folders_are_for_their_user_alone(tmp_path: Path) -> None:
    with open_work(str(tmp_path / "new")) as lease:
        lease.place().write("spool/round-1/a", b"x")
        modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "new").rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


@pytest.fixture
def killed_run(above: Above) -> str:
    """What a run left that was killed: the URL of its part."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, above.location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        made = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    assert any(key.endswith("spool/round-1/a.arrow") for key in above.everything())
    return made


def test_the_next_run_removes_what_a_killed_one_left(above: Above, killed_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_place, "_BEAT", timedelta(milliseconds=100))
    monkeypatch.setattr(work_place, "_SILENCE", timedelta(seconds=1))
    name = killed_run.rpartition("/")[2]
    with open_work(above.location) as lease:
        work = lease.place()
        work.write("a", b"x")
        wait_until(lambda: not any(name in key for key in above.everything()), "the leftovers to be removed")
        assert work.keys() == ["a"]
    assert above.everything() == []


@pytest.mark.server
def test_a_run_that_lives_is_left_alone_however_long_it_takes(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_place, "_BEAT", timedelta(milliseconds=100))
    monkeypatch.setattr(work_place, "_SILENCE", timedelta(seconds=2))
    location = s3.uri(s3.make_bucket(), "work")
    with open_work(location) as first:
        first.place().write("a", b"first")
        began = _now(s3, location)
        with open_work(location) as second:
            second.place().write("a", b"second")
            wait_until(lambda: _now(s3, location) - began > 4, "time to pass")
            assert first.place().read("a").to_pybytes() == b"first"
            assert second.place().read("a").to_pybytes() == b"second"


def _now(s3: S3Server, location: str) -> float:
    """The time of the store, in seconds."""
    bucket = location.removeprefix("s3://").partition("/")[0]
    found = s3.client().list_objects_v2(Bucket=bucket).get("Contents", ())
    return max((item["LastModified"].timestamp() for item in found), default=0.0)


@pytest.mark.server
def test_what_headrace_did_not_make_stays(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_place, "_SILENCE", timedelta(seconds=-1))
    bucket = s3.make_bucket()
    foreign = ["work/precious", "work/headrace-work-run-x/rows", "work/other/headrace-work-run-0123456789abcdef/rows"]
    for key in foreign:
        s3.client().put_object(Bucket=bucket, Key=key, Body=b"x")
    s3.client().put_object(Bucket=bucket, Key="work/headrace-work-run-0123456789abcdef/rows", Body=b"x")
    with open_work(s3.uri(bucket, "work")) as lease:
        lease.place()
    assert sorted(item["Key"] for item in s3.client().list_objects_v2(Bucket=bucket)["Contents"]) == sorted(foreign)


@pytest.mark.server
def test_a_store_that_refuses_is_told_in_a_sentence_without_secrets(s3: S3Server) -> None:
    location = s3.uri("no-such-bucket", "work")
    with suppress(TransientError):
        open_work(location).place().write("a", b"x")
        pytest.fail("there is no such bucket")
    with pytest.raises(TransientError) as told:
        open_work(location).place()
    assert f"Rows cannot be handed over in s3://no-such-bucket/work at {s3.endpoint.partition('//')[2]}: " in str(told.value)
    assert "--work" in str(told.value)
    assert s3.secret_key not in str(told.value)


@pytest.mark.parametrize("location", ["hdfs://name/work", "ftp://h/work", "s3:///work", "s3://bucket/work?role-arn=x"])
def test_places_that_cannot_be_are_refused(location: str) -> None:
    with pytest.raises(DefinitionError):
        open_work(location)
