"""Names and values full of signs that mean something in SQL reach both targets as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from following import Recorder
from harness import assert_state
from headrace.engine.run_options import RunOptions
from headrace.model.table import Column, TableId
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from headrace.testing.upstream import Delete, Insert, Update
from places import Place
from upstreams import INT, TEXT, Changefeed

pytestmark = pytest.mark.pipeline

HOSTILE = ("a`b``c", "a'b\\'c", 'a"b;--', "#50%s%(x)s", "?{file}{}", "\\", "*//*$1", ":x''")
NAMES = tuple(name.replace("/", "") for name in HOSTILE)
PIPELINES = ("p'; DROP TABLE headrace.pipelines; --", '"`%s?\\', "%", "'", "{}")
VALUES = (*HOSTILE, "'); DROP TABLE x; --", "\\'); --", "x\tx\\N", "\0", "\n", "${HOME}", "\\\\'")


def run(changefeed: Changefeed, uri: str, name: str) -> None:
    options = RunOptions(once=True)
    definition = Definition(changefeed.uri, uri, name=name, changefeed=str(changefeed.toml), options=options)
    assert PipelineRun(definition, Recorder(), LocalEngine()).run() == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("database", ["d`b", "d'\"b;--%s?{}\\"])
def test_names_of_any_signs_go_through_every_kind_of_statement(database: str, place: Place, tmp_path: Path) -> None:
    changefeed = Changefeed(tmp_path)
    upstream = changefeed.upstream
    target, uri = place.fresh()
    upstream.create_database(database)
    tables = [TableId(database, name) for name in NAMES]
    for number, table_id in enumerate(tables):
        key, other = NAMES[number - 1], NAMES[number - 2]
        upstream.create_table(table_id, [Column(key, INT, nullable=False, primary_key=True), Column(other, TEXT)])
        upstream.execute(*(Insert(table_id, {key: n, other: value}) for n, value in enumerate(VALUES)))
    upstream.checkpoint()
    run(changefeed, uri, PIPELINES[0])
    assert_state(target, changefeed.state())
    for number, table_id in enumerate(tables):
        key, other, added = NAMES[number - 1], NAMES[number - 2], f"{NAMES[number - 3]} 3"
        upstream.add_column(table_id, Column(added, INT, default="7"))
        upstream.execute(Delete(table_id, (1,)), Update(table_id, (2,), {other: "'`\"", added: 8}))
        upstream.drop_column(table_id, other)
        upstream.execute(Update(table_id, (3,), {added: 9}))
        upstream.rename_table(table_id, TableId(database, f"{table_id.table} again"))
    upstream.truncate_table(TableId(database, f"{NAMES[0]} again"))
    upstream.drop_table(TableId(database, f"{NAMES[1]} again"))
    upstream.checkpoint()
    run(changefeed, uri, PIPELINES[0])
    assert_state(target, changefeed.state())


def test_pipelines_of_any_name_keep_their_ledgers_apart(place: Place, tmp_path: Path) -> None:
    _, uri = place.fresh()
    for number, name in enumerate(PIPELINES):
        changefeed = Changefeed(tmp_path / str(number))
        changefeed.upstream.create_database(f"of{number}")
        table_id = TableId(f"of{number}", "t")
        changefeed.upstream.create_table(table_id, [Column("id", TEXT, nullable=False, primary_key=True)])
        changefeed.upstream.execute(*(Insert(table_id, {"id": value}) for value in VALUES if value != "\0"))
        changefeed.upstream.checkpoint()
        run(changefeed, uri, name)
        changefeed.upstream.execute(*(Delete(table_id, (value,)) for value in HOSTILE))
        changefeed.upstream.checkpoint()
        run(changefeed, uri, name)
    with open_sink(uri) as sink:
        assert sink.ledger is not None
        assert sink.ledger.pipelines() == sorted(PIPELINES)
