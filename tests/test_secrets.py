"""Passwords and keys stay where they are: no output, log, ledger, temporary file or command line shows one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from following import Recorder
from harness import spark_engine
from headrace.cli.main import main
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_USAGE
from headrace.model.table import TableId, TableSchema
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from processes import running
from servers import MariaDb, S3Server, documented
from upstreams import KEY, Changefeed, shop, shop_goes_on

pytestmark = pytest.mark.server

PASSWORD = "pw-Dk3/9@q:Z%2#x?y'"
ACCESS_KEY = "ak-Ty81mmPzQ0"
SECRET_KEY = "sk-Rv55/uu+Jw=7a"
TOKEN = "st-Bn29//xx+Qe="
SPARK_SECRET = "sp-Gh64LqVd2s"
UNKNOWN = "un-Zz81kkQ"
SAS = "sv=2026&sig=az-Kk77pPq"
SECRETS = (PASSWORD, ACCESS_KEY, SECRET_KEY, TOKEN, SPARK_SECRET, SAS)
FORMS = tuple({form.encode() for secret in SECRETS for form in (secret, quote(secret), quote(secret, safe=""), repr(secret)[1:-1])})
VIEW = TableSchema(TableId("shop", "v"), (KEY,))


def found_in(data: bytes) -> list[bytes]:
    return [form for form in FORMS if form in data]


class Watch:
    """Looks at every command line of the machine, and at every file in some folders, until it is stopped."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.leaks: set[str] = set()
        self.command_lines: set[bytes] = set()
        self.files: set[str] = set()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stopped.wait(0.1):
            self._look()

    def _look(self) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            line = _read(path)
            self.command_lines.add(line)
            self._note(str(path), line)
        for folder in self._folders:
            for inner, folders, files in os.walk(folder):  # which passes over what is removed meanwhile
                for name in (*folders, *files):
                    self._note(f"{inner}/{name}", f"{inner}/{name}".encode())
                for path in (Path(inner, name) for name in files):
                    self.files.add(path.name)
                    self._note(str(path), _read(path))

    def _note(self, where: str, data: bytes) -> None:
        self.leaks.update(f"{form!r} in {where}: {data[:200]!r}" for form in found_in(data))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or was removed
        return b""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline with a secret wherever one can be: in the environment, in a file, and in the URI itself."""

    folder: Path
    source: str
    sink: str
    changefeed: Changefeed
    bucket: str

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def events(self) -> Path:
        return self.folder / "events"

    def definition(self) -> Path:
        path = self.folder / "pipeline.yaml"
        path.write_text(f"""
source:
  uri: "{self.source}"
  changefeed: "{self.changefeed.toml}"
sink:
  uri: "{self.sink}"
pipeline:
  spark:
    spark.eventLog.enabled: "true"
    spark.eventLog.dir: "{self.events.as_uri()}"
    spark.eventLog.compress: "false"
    spark.local.dir: "{self.temporary}"
    spark.hadoop.fs.s3a.secret.key: "${{SPARK_SECRET}}"
    spark.hadoop.fs.azure.sas.jars.account.blob.core.windows.net: "{SAS}"
    spark.ssl.trustStorePassword: "${{SPARK_SECRET}}"
    spark.unknown.to.headrace: "{UNKNOWN}"
""")
        return path


@pytest.fixture
def pipeline(tmp_path: Path, mariadb: MariaDb, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    changefeed = Changefeed(tmp_path / "feed")
    shop(changefeed, with_bag=True)
    bucket = s3.make_bucket()
    s3.upload(changefeed.writer.root, bucket, "feed")
    folder = tmp_path / "work"
    for name in ("tmp", "events", "secrets"):
        (folder / name).mkdir(parents=True)
    (tmp_path / "s3-key").write_text(f"{SECRET_KEY}\n")
    monkeypatch.setenv("DB_PASSWORD", PASSWORD)
    monkeypatch.setenv("SPARK_SECRET", SPARK_SECRET)
    monkeypatch.setenv("S3_TOKEN", TOKEN)
    monkeypatch.setenv("S3_ACCESS", ACCESS_KEY)
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    source = (
        f"s3://{bucket}/feed?protocol=csv&endpoint={s3.endpoint}&region=us-east-1&force-path-style=true"
        f"&access-key=${{S3_ACCESS}}&secret-access-key=${{file:{tmp_path}/s3-key}}&session-token=${{S3_TOKEN}}"
    )
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER secretive@'%%' IDENTIFIED BY %s", (PASSWORD,))
        for statement in documented().on_databases("secretive@'%'", ["shop"]):
            cursor.execute(statement)
    yield Pipeline(folder, source, f"mysql://secretive:${{DB_PASSWORD}}@127.0.0.1:{mariadb.port}/", changefeed, bucket)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP USER secretive@'%'")


def everything_in(server: MariaDb, database: str) -> bytes:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (database,))
        held = []
        for (name,) in cursor.fetchall():
            cursor.execute(f"SELECT * FROM `{database}`.`{name}`")
            held.append(str(cursor.fetchall()))
    return "\n".join(held).encode()


@pytest.mark.spark
def test_a_run_that_goes_wrong_in_parts_shows_none_of_its_secrets(pipeline: Pipeline, mariadb: MariaDb, s3: S3Server) -> None:
    changefeed = pipeline.changefeed
    definition = pipeline.definition()
    with mariadb.connect() as connection, connection.cursor() as cursor:  # one table is refused, and one statement
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO shop.orders VALUES (1)")
    changefeed.writer.schema_change(
        VIEW.table_id, changefeed.upstream._commit(), "CREATE VIEW `shop`.`v` AS SELECT TIDB_VERSION() AS `id`", VIEW, 21
    )
    shop_goes_on(changefeed, with_bag=True)
    s3.upload(changefeed.writer.root, pipeline.bucket, "feed")
    with Watch(pipeline.temporary, pipeline.events) as watch, running(["run", str(definition), "--once"], pipeline.folder) as run:
        assert run.exit_code(180) == 3, run.output + run.errors
    told = (run.output + run.errors).encode()
    assert b"TIDB_VERSION" in told
    assert b"shop.orders" in told
    assert found_in(told) == []
    assert not watch.leaks
    assert any(b"java" in line and b"spark.driver.memory" in line for line in watch.command_lines)
    assert not any(b"spark.eventLog" in line or UNKNOWN.encode() in line for line in watch.command_lines)
    assert any(b"pyspark.daemon" in line or b"pyspark/daemon" in line for line in watch.command_lines)
    (log,) = [path for path in pipeline.events.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert b"spark.hadoop.fs.s3a.secret.key" in log.read_bytes()
    assert b"spark.hadoop.fs.azure.sas" in log.read_bytes()
    ledger = everything_in(mariadb, "headrace")
    assert pipeline.bucket.encode() in ledger
    assert found_in(ledger) == []


@pytest.mark.spark
def test_what_tasks_are_told_is_in_no_file_however_much_it_is() -> None:
    """As for a cut of many thousand files: PySpark lays what is longer than its threshold down in a file."""
    context = spark_engine().start().sparkContext
    told = [PASSWORD.encode() + os.urandom(1000) for _ in range(3000)]
    with Watch(Path(context._temp_dir)) as watch:
        assert context.parallelize(range(2), 2).map(lambda number: number + len(told)).collect() == [3000, 3001]
    assert not watch.leaks


def run_here(pipeline: Pipeline, sink: str, **more: str) -> int:
    """A run to the watermark without Spark, in this process."""
    definition = Definition(pipeline.source, sink, changefeed=str(pipeline.changefeed.toml), options=RunOptions(once=True), **more)
    return PipelineRun(definition, Recorder(), LocalEngine()).run()  # type: ignore[arg-type]


def run_all(folder: Path, lines: list[list[str]]) -> list[tuple[int, bytes]]:
    """All commands at once, as processes: the exit code of each, and everything that it printed."""
    started = [
        subprocess.Popen([sys.executable, "-m", "headrace", *line], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in lines
    ]
    outputs = [process.communicate(timeout=180)[0] for process in started]
    return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]


def test_commands_that_succeed_and_that_fail_show_none_of_their_secrets(pipeline: Pipeline) -> None:
    """What stands in a URI itself is on the command line by the user's own hand, so it is left out of the look at those."""
    assert run_here(pipeline, pipeline.sink) == 0
    spelled = quote(PASSWORD, safe="")
    unreachable = re.sub(r"endpoint=[^&]+", "endpoint=http://127.0.0.1:1", pipeline.source)
    source, sink, toml = pipeline.source, pipeline.sink, str(pipeline.changefeed.toml)
    host = sink.rpartition("@")[2]
    lines = [
        (0, ["inspect", source, "--changefeed", toml, "--json"]),
        (0, ["validate", "--source", source, "--sink", sink, "--changefeed", toml, "--no-spark"]),
        (0, ["status", "--sink", sink]),
        (0, ["ddl", "list", "--sink", sink, "--json"]),
        (4, ["inspect", unreachable]),
        (4, ["status", "--sink", f"mysql://secretive:{spelled}@127.0.0.1:1/"]),
        (4, ["status", "--sink", f"mysql://secretive:{spelled}{spelled}@{host}", "--json"]),
        (2, ["validate", "--no-spark", "--source", unreachable, "--sink", f"mysql://nobody:{spelled}@{host}"]),
        (2, ["run", "--source", source, "--sink", f"mysql://secretive:{PASSWORD}@{host}"]),
        (2, ["run", "--source", f"{source}&protocoll=csv", "--sink", f"mysql://secretive:{spelled}@{host}", "--once"]),
        (2, ["status", "--sinks", f"mysql://secretive:{spelled}@{host}"]),
    ]
    with Watch(pipeline.temporary) as watch:
        ended = run_all(pipeline.folder, [line for _, line in lines])
    for (expected, line), (code, output) in zip(lines, ended, strict=True):
        assert found_in(output) == [], (line, output)
        assert code == expected, (line, output)
        assert b"Traceback" not in output
        assert output
    own = [leak for leak in watch.leaks if spelled not in leak and PASSWORD not in leak]
    assert not own


def test_a_ledger_in_an_object_store_holds_none_of_its_secrets(pipeline: Pipeline, s3: S3Server) -> None:
    ledger = pipeline.source.replace("/feed?protocol=csv&", "/ledger?")
    assert run_here(pipeline, "blackhole://", ledger=ledger) == 0
    client = s3.client()
    written = [entry["Key"] for entry in client.list_objects_v2(Bucket=pipeline.bucket, Prefix="ledger/")["Contents"]]
    assert written
    for key in written:
        assert found_in(client.get_object(Bucket=pipeline.bucket, Key=key)["Body"].read()) == []


@pytest.mark.parametrize(
    "uri",
    [
        "s3://b/p#secret-access-key=@",
        "s3://b/p;secret-access-key=@",
        "s3://b;secret_access_key=@",
        "s3://b/p?protocol=csv;secret-access-key=@",
        "s3://b/p?protocol=csv;SECRET_ACCESS_KEY=@#x",
        "s3;secret-access-key=@://b/p",
        "s3#secret-access-key=@://b/p",
        "s3?secret-access-key=@://b/p",
        "s3:b;secret-access-key=@",
        "s3:b#secret-access-key=@",
        "s3:b?secret-access-key=@",
        "s3://[b;secret-access-key=@",
        "s3://u:@#x@b/p",
        "s3:u:@#x@b/p",
    ],
)
def test_a_uri_with_a_secret_in_the_wrong_place_is_refused_without_it(
    uri: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    uri = uri.replace("=@", f"={SECRET_KEY}").replace(":@#", f":{SECRET_KEY}#")
    definition = tmp_path / "pipeline.yaml"
    for source in (json.dumps(uri), f"{{{json.dumps(uri)}: 1}}", f"{{uri: {json.dumps(uri)}}}"):
        definition.write_text(f"source: {source}\nsink: blackhole://\npipeline: {{name: p}}\n", encoding="utf-8")
        assert main(["run", str(definition), "--once"]) == EXIT_USAGE
    for arguments in (["inspect", uri], ["status", "--sink", uri], ["run", "--once", "--source", uri, "--sink", "blackhole://"]):
        assert main(arguments) == EXIT_USAGE
    definition.write_text(f"{json.dumps(uri)}: 1\nsink: {{{json.dumps(uri)}: {{a: 1}}}}\n", encoding="utf-8")
    assert main(["run", str(definition)]) == EXIT_USAGE
    shown = capsys.readouterr()
    assert SECRET_KEY not in shown.out + shown.err
