"""Whatever a person writes as a URI, each connector takes it or refuses it with an error of Headrace's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest

from fuzzing import PIECES, fuzz, mutated, tokens_of
from headrace.errors import DefinitionError
from headrace.model.uri import escape_variables, parse_uri, time_zone_of, without_secrets
from headrace.sinks.blackhole import open_sink as open_blackhole
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sinks.duckdb import open_sink as open_duckdb
from headrace.sinks.mysql import open_sink as open_mysql
from headrace.sinks.printing import open_sink as open_print
from headrace.sources.ticdc_storage import open_source

pytestmark = pytest.mark.long

URIS = (
    "file:///data/changefeed?protocol=csv&terminator=%0A&null=NULL&delimiter=%7C&quote=%27&date-separator=day",
    "file:///data/changefeed?protocol=canal-json&strict=true&include-commit-ts=true&output-old-value=false&time-zone=Asia%2FShanghai",
    "s3://bucket/prefix?protocol=csv&access-key=a&secret-access-key=b&session-token=c&endpoint=http://127.0.0.1:9000&force-path-style=true",
    "s3://bucket/prefix?region=eu-central-1&provider=aws&acl=private&role-arn=r&external-id=x&storage-class=STANDARD",
    "gcs://bucket/prefix?credentials-file=/x.json&endpoint=http://127.0.0.1&predefined-acl=private",
    "azblob://container/prefix?account-name=a&account-key=YQ==&sas-token=b&endpoint=http://127.0.0.1&access-tier=hot",
    "hdfs://namenode:8020/prefix",
    "mysql://user:p%40ss@db.example.org:3306/?worker-count=4&ssl-ca=/ca.pem&ssl-verify=ca&time-zone=%2B08:00&timeout=10s&silence-timeout=2m",
    "tidb://root:${FUZZ_PASSWORD}@[::1]:4000/?ledger-database=headrace&local-infile=auto&batch-dml-enable=true&safe-mode=true",
    "mysql://${file:/nonexistent/headrace}@127.0.0.1/",
    "duckdb:///headrace-fuzz.duckdb?unsupported=text&zero-dates=null&memory-limit=1GB&threads=2&spool=/spool&ledger-schema=l&time-zone=UTC",
    "print://",
    "blackhole://",
    "/data/changefeed",
)
TOKENS = [tokens_of(uri) for uri in URIS]
OPENERS: tuple[Callable[[str], object], ...] = (
    parse_uri,
    without_secrets,
    escape_variables,
    time_zone_of,
    open_source,
    open_mysql,
    open_print,
    open_blackhole,
    lambda uri: open_dead_letters(uri, "fuzz", 10),
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_PASSWORD", "p@ss:/?#[word]")
    monkeypatch.chdir(tmp_path)


def uri(chance: Random) -> str:
    text = mutated(chance, chance.choice(TOKENS), TOKENS)
    if chance.random() < 0.2:  # decoded, a sign stands where no splitting sees it
        text += chance.choice("?&") + chance.choice(("protocol=", "time-zone=", "worker-count=", "terminator=", "x="))
        text += quote(chance.choice(PIECES), safe="", errors="surrogatepass")
    return text


def refused_or_taken(open_it: Callable[[str], object], text: str) -> None:
    try:
        opened = open_it(text)
    except DefinitionError as error:
        str(error).encode("utf-8", "surrogatepass")
        return
    repr(opened)


def test_a_uri_is_taken_or_refused() -> None:
    fuzz(4000, lambda chance: (chance.choice(OPENERS), uri(chance)), lambda made: refused_or_taken(*made))


def test_a_uri_of_a_database_file_is_taken_or_refused() -> None:
    """By itself, since DuckDB tries its own settings."""
    ours = [tokens for tokens in TOKENS if tokens[0] == "duckdb"]
    fuzz(60, lambda chance: mutated(chance, chance.choice(ours), TOKENS), lambda text: refused_or_taken(open_duckdb, text))


def test_a_password_never_shows_in_what_is_printed_of_a_uri() -> None:
    def check(text: str) -> None:
        try:
            parsed = parse_uri(f"mysql://user:{quote('s3cret-' + text, safe='', errors='surrogatepass')}@db:3306/")
            shown = parsed.redacted() + repr(parsed)
        except DefinitionError as error:
            shown = str(error)
        assert "s3cret-" not in shown

    fuzz(3000, uri, check)
