"""Makes the tests independent of the machine, and starts the servers they ask for."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from class_archive import submit_options
from sampling import IS_SAMPLE, left_out
from servers import MariaDb, S3Server, running_mariadb, running_s3

if TYPE_CHECKING:
    from kafka_server import KafkaBroker
    from places import Place
    from schema_registry import Registry

_FOREIGN_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "HEADRACE_", "MYSQL_", "PYSPARK_", "SPARK_")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
# Asks tests/support to write its page, tests/formats/test_fuzz.py and tests/fuzz for more examples, tests/test_differential.py and
# tests/test_fault_model.py for more time.
_LONGER = frozenset({"HEADRACE_FUZZ_EXAMPLES", "HEADRACE_DIFFERENTIAL_SECONDS", "HEADRACE_FAULTS_SECONDS"})
_OURS = _LONGER | {"HEADRACE_WRITE_DOCS", "HEADRACE_TEST_SAMPLE"}

# Tests draw the same examples each time, so that a run says something of the code and not of luck; longer runs draw others.
settings.register_profile("headrace", derandomize=_LONGER.isdisjoint(os.environ), deadline=None)  # a busy machine is no failure
settings.load_profile("headrace")

# At import, before any test module is: Spark, pyarrow's S3 client and rich read some of these only once.
for _name in list(os.environ):
    if _name not in _OURS and (_name.startswith(_FOREIGN_PREFIXES) or _name.lower() in _PROXIES):
        del os.environ[_name]
os.environ.update(
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
    COLUMNS="120",
    HEADRACE_CONTAINER="no",
    LC_ALL="C.UTF-8",
    NO_COLOR="1",
    SPARK_LOCAL_IP="127.0.0.1",
    SPARK_SUBMIT_OPTS=submit_options(),
    TERM="dumb",
    TZ="UTC",
)
time.tzset()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--mysql-server``: which server the fixture ``mariadb`` gives."""
    parser.addoption("--mysql-server", choices=("mariadb", "tidb"), default="mariadb", help="what the fixture mariadb gives")


@pytest.fixture(autouse=True)
def _no_secrets() -> Iterator[None]:
    """A test's secrets are not hidden from the next one: one of them may be an ``x``."""
    yield
    if "headrace.cli.output" in sys.modules:
        sys.modules["headrace.cli.output"]._HIDDEN.clear()


@pytest.fixture(scope="session")
def mariadb_server(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
    """The session's MariaDB as the last test left it; most tests want ``mariadb``. With ``--mysql-server tidb`` it is a TiDB."""
    if request.config.getoption("--mysql-server") == "tidb":
        from tidb_server import running_tidb

        starting = running_tidb()
    else:
        starting = running_mariadb()
    with starting as server:
        yield server


@pytest.fixture
def mariadb(mariadb_server: MariaDb) -> MariaDb:
    """The session's MariaDB, without any database of an earlier test."""
    mariadb_server.fresh()
    return mariadb_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """The session's S3 store; take a bucket of your own from it with ``make_bucket()``."""
    with running_s3() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """The session's Kafka broker; take a topic of your own from it with ``make_topic()``."""
    from kafka_server import running_kafka

    with running_kafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """The session's schema registry; put schemas under a path of your own with ``holding()``."""
    from schema_registry import running_registry

    with running_registry() as running:
        yield running


@pytest.fixture(params=["duckdb", pytest.param("mariadb", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Both kinds of target in turn."""
    from places import Place

    server = request.getfixturevalue("mariadb_server") if request.param == "mariadb" else None
    return Place(tmp_path, server)


@pytest.fixture
def many_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small rounds are written like large ones: by several tasks, each in transactions of two rows."""
    from large_rounds import as_if_large

    as_if_large(monkeypatch)


@pytest.fixture(autouse=True)
def _runs_end() -> Iterator[None]:
    """No run that follows a changefeed outlives its test."""
    yield
    if (following := sys.modules.get("following")) is not None:
        following.end_all()


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest) -> None:
    """Tests of many short runs share what a process of its own would do once."""
    if request.node.get_closest_marker("pipeline") is not None:
        from quick import make_quick

        make_quick(request.getfixturevalue("monkeypatch"))


@pytest.fixture(autouse=True)
def _own_garbage_only(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is measured for growth is not charged for looking through what the tests before it left in memory."""
    if not request.path.name.endswith("growth.py"):
        yield
        return
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """For ``-n auto``: half as many again as there are cores, since many tests wait for a server."""
    return (os.cpu_count() or 1) * 3 // 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest in one piece comes first, so that workers end together. A sample leaves tests out.

    ``-k`` chooses the tests of a reading case, too.
    """
    for item in items:
        item.extra_keyword_matches.update(number for mark in item.iter_markers("reading_case") for number in mark.args)
    items.sort(key=lambda item: item.path.name != "test_random_kills.py")
    out = set(left_out(items)) if IS_SAMPLE else set()
    if config.getoption("--mysql-server") != "tidb":
        out |= {item for item in items if "tidb" in getattr(item, "fixturenames", ())}  # `make test-tidb` has these
    if out:
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=list(out))
