"""Whatever stands in a definition file or behind an option, it is taken or refused with an error of Headrace's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fuzzing import PIECES, fuzz, mutated, tokens_of
from headrace.engine.keys import DeclaredKeys
from headrace.engine.run_options import RunOptions
from headrace.errors import DefinitionError
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.pipeline.definition import parse_bytes, parse_count, parse_name, parse_on_error, parse_seconds, read_settings
from headrace.transform.filters import TableFilter

pytestmark = pytest.mark.long

LINES = {
    "source": (
        *('uri: "file:///data/changefeed?protocol=csv"', "uri: s3://bucket/${FUZZ_PASSWORD}", "changefeed: changefeed.toml"),
        *("type: tidb", "hostname: ~nobody", "changefeed: ~nobody/x"),
    ),
    "sink": (
        "uri: mysql://user:${FUZZ_PASSWORD}@db:3306/",
        "adopt: true",
        "allow-non-transactional: no",
        "type: mysql",
        "port: 3306",
    ),
    "pipeline": (
        *("name: shop", "tables: shop.*,!shop.tmp_*", "poll-interval: 500ms", "max-cut: 1GiB", "ledger: ./ledger", "strict: false"),
        *("on-error: dead-letter", "dead-letters: s3://bucket/letters?region=eu", 'max-dead-letters: "1000"', "keys: &k {}"),
        *(
            "keys:\n    shop.orders: [order_no, line]",
            'keys: {"`a.b`.`c``d`": [e]}',
            "schema-changes: {drop-table: approve, index: skip}",
        ),
        *("spark:\n    spark.executor.memory: 2g", "<<: *a", "? [a, b]\n  : !!python/object:os.system x", "name: !!binary eA=="),
    ),
    "route": ("- a", "b: c"),
}


def definition(chance: Random) -> str:
    """A file of some lines, short since YAML takes its time, and then damaged."""
    parts = []
    for section in ("source", *chance.sample(("sink", "pipeline", "route"), chance.randrange(3))):
        anchor = chance.choice(("", "", " &a", " !!map"))
        lines = chance.sample(LINES[section], min(len(LINES[section]), chance.randrange(4)))
        parts.append(f"{section}:{anchor}\n" + "".join(f"  {line}\n" for line in lines))
    text = "".join(parts)
    return mutated(chance, tokens_of(text), LAYOUTS) if chance.random() < 0.8 else text


LAYOUTS = [tokens_of(line) for lines in LINES.values() for line in lines]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZ_PASSWORD", "p@ss: [word]\n#")


def taken_or_refused(read: Callable[[], object]) -> None:
    try:
        repr(read())
    except DefinitionError as error:
        str(error).encode("utf-8", "surrogatepass")


def test_a_definition_is_taken_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"

    def read() -> object:
        settings = read_settings(path)
        return settings.over(settings).definition(RunOptions())

    def check(text: str) -> None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        taken_or_refused(read)

    fuzz(500, definition, check)


VALUES = [
    tokens_of(text)
    for text in (
        *(
            "500ms",
            "1.5 s",
            "2m",
            "1GiB",
            "512 mib",
            "1000",
            "stop",
            "dead-letter",
            "shop",
            "shop.*,!shop.tmp_*",
            "*.*",
            "[a-z]*.t?",
        ),
        *("shop.orders=order_no,line", "`a.b`.`c``d`=`e`", "drop-table=approve,index=skip", "!shop.[!a]*"),
    )
]
READERS: tuple[Callable[[str], object], ...] = (
    parse_seconds,
    parse_bytes,
    parse_on_error,
    parse_count,
    parse_name,
    SchemaChangePolicies.parse_text,
    lambda text: DeclaredKeys.parse_texts([text]),
    lambda text: DeclaredKeys.parse({text: [text]}).of(TableId("shop", "orders")),
    lambda text: TableFilter.parse(text).includes(TableId("shop", "orders")),
)


def value(chance: Random) -> tuple[Callable[[str], object], str]:
    if chance.random() < 0.1:
        return chance.choice(READERS), "".join(chance.choices(PIECES, k=chance.randrange(4)))
    return chance.choice(READERS), mutated(chance, chance.choice(VALUES), VALUES)


def test_the_value_of_an_option_is_taken_or_refused() -> None:
    fuzz(10_000, value, lambda made: taken_or_refused(lambda: made[0](made[1])))
