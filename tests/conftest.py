"""Makes the tests independent of the machine, and starts the servers they ask for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from servers import MariaDb, S3Server, running_mariadb, running_s3

_FOREIGN_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "HEADRACE_", "MYSQL_", "PYSPARK_", "SPARK_")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
_OURS = "HEADRACE_WRITE_DOCS"  # asks tests/support to write its page

# At import, before any test module is: Spark, pyarrow's S3 client and rich read some of these only once.
for _name in list(os.environ):
    if _name != _OURS and (_name.startswith(_FOREIGN_PREFIXES) or _name.lower() in _PROXIES):
        del os.environ[_name]
os.environ.update(
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
    COLUMNS="120",
    LC_ALL="C.UTF-8",
    NO_COLOR="1",
    SPARK_LOCAL_IP="127.0.0.1",
    TERM="dumb",
    TZ="UTC",
)
time.tzset()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    """The session's MariaDB as the last test left it; most tests want ``mariadb``."""
    with running_mariadb() as server:
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
