"""Damaged files: the message names the place, the table keeps its place, the others go on, and a repair loses nothing.

All damages of a format happen to one changefeed, each to a table of its own, so that four runs tell of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from damage import (
    DATABASE,
    HEALTHY,
    NOTE,
    Damage,
    Repair,
    Scene,
    Story,
    assert_kept_its_place,
    assert_others_went_on,
    edit_json,
    edit_line,
    remove,
    rewrite,
    tell,
)
from headrace.model.table import TableId
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget

pytestmark = [pytest.mark.spark, pytest.mark.server]


def in_line(number: int, edit: Callable[[bytes], bytes]) -> Callable[[Scene, TableId], Repair]:
    return in_data(edit_line(number, edit))


def in_data(edit: Callable[[bytes], bytes]) -> Callable[[Scene, TableId], Repair]:
    return lambda scene, table_id: rewrite(scene.data_files(table_id)[-1], edit)


def in_schema(edit: Callable[[bytes], bytes]) -> Callable[[Scene, TableId], Repair]:
    return lambda scene, table_id: rewrite(scene.schema_files(table_id)[-1], edit)


def of_5000_digits(document: dict[str, Any]) -> None:
    document["TableColumns"][2]["ColumnPrecision"] = "9" * 5_000


def of_unknown_type(document: dict[str, Any]) -> None:
    document["TableColumns"][2]["ColumnType"] = "QUATERNION"


CSV_DAMAGES = (
    Damage(
        "too_few_fields",
        in_line(2, lambda line: line.rpartition(b",")[0]),
        ", file {file}, line 2: The record has 6 fields where 7 are expected.",
    ),
    Damage(
        "too_many_fields",
        in_line(2, lambda line: line + b",1"),
        ", file {file}, line 2: The record has 8 fields where 7 are expected.",
    ),
    Damage(
        "too_few_in_the_first_line",
        in_line(1, lambda line: line.rpartition(b",")[0]),
        ", file {file}, line 1: The record has 6 fields where 7 are expected.",
    ),
    Damage(
        "unfit_value",
        in_line(3, lambda line: line.rpartition(b",")[0] + b",lots"),
        ", file {file}, line 3, column amount, value 'lots': The value is not a value of the type INT.",
    ),
    Damage(
        "too_large_value",
        in_line(3, lambda line: line.rpartition(b",")[0] + b",99999999999999999999"),
        ", file {file}, line 3, column amount, value '99999999999999999999': The value is not a value of the type INT.",
    ),
    Damage(
        "no_operation",
        in_line(2, lambda line: line.replace(b'"I"', b'"X"', 1)),
        ", file {file}, line 2, column operation, value 'X': The value is not one of I, U and D.",
    ),
    Damage(
        "no_commit_ts",
        in_line(2, lambda line: line.replace(b',"shop",', b',"shop",x', 1)),
        ", file {file}, line 2, column commit-ts, value 'x",
    ),
    Damage(
        "quotes",
        in_line(2, lambda line: line.replace(b'"row', b'"r"ow', 1)),
        """, file {file}, line 2, value '"r"ow 30",300': The record is not valid CSV: a quoted field is followed by""",
    ),
    Damage(
        "cut_off",
        in_data(lambda raw: raw[:-6]),
        ", file {file}, line 4: the last record is cut off in the middle, and no later file repeats it. Upload the complete file",
    ),
    Damage(
        "schema_cut_off",
        in_schema(lambda raw: raw[:50]),
        ", file {schema}: The schema file is not valid JSON (",
        alters=True,
        of_change=True,
    ),
    Damage(
        "schema_of_unknown_type",
        in_schema(edit_json(of_unknown_type)),
        ", file {schema}: Column amount has the type 'QUATERNION', which is not known.",
        alters=True,
        of_change=True,
    ),
    Damage(
        "schema_with_5000_digits",
        in_schema(edit_json(of_5000_digits)),
        ", file {schema}: ColumnPrecision of column amount in the schema file is not an integer of 64 bits: '999",
        alters=True,
        of_change=True,
    ),
    Damage(
        "no_schema_file",
        lambda scene, table_id: remove(scene.schema_files(table_id)[-1]),
        ", file {file}: There is no schema file for version {version} of the table, which has data files. Restore shop/no_schema",
        alters=True,
        of_change=True,
    ),
    Damage(
        "vanished",
        lambda scene, table_id: remove(scene.data_files(table_id)[1]),
        ", file {early}: The file vanished before all its changes were applied. Restore it, or copy the table anew",
        early=True,
    ),
)


@pytest.fixture(scope="module", params=["duckdb", "mariadb"])
def csv_story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("csv")
    if request.param == "duckdb":
        duckdb = DuckDbTarget(folder / "target.duckdb")
        return tell(Scene(folder / "feed", duckdb.uri, duckdb), CSV_DAMAGES)
    server: MariaDb = request.getfixturevalue("mariadb_server")
    server.fresh()
    return tell(Scene(folder / "feed", server.uri(), MariaDbTarget(server)), CSV_DAMAGES)


@pytest.mark.parametrize("damage", CSV_DAMAGES, ids=lambda d: d.table)
def test_a_damaged_file_of_a_csv_changefeed(csv_story: Story, damage: Damage) -> None:
    assert_kept_its_place(csv_story, damage)


def test_the_other_tables_of_a_csv_changefeed_go_on(csv_story: Story) -> None:
    assert_others_went_on(csv_story)


CANAL_DAMAGES = (
    Damage("broken", in_line(2, lambda line: line.replace(b'"data":[{', b'"data":[[', 1)), ", file {file}, line 2, value '{{"),
    Damage("cut_off", in_data(lambda raw: raw[:-20]), ", file {file}, line 4: the last record is cut off in the middle"),
    Damage(
        "unfit_value",
        in_line(2, lambda line: line.replace(b'"amount":"300"', b'"amount":"x300"')),
        ", file {file}, line 2, column amount, value 'x300': The value is not a value of the type INT.",
    ),
    Damage(
        "no_row",
        in_line(2, lambda line: line.replace(b'"type":"INSERT"', b'"type":"QUERY"', 1)),
        ", file {file}, line 2, column type, value 'QUERY'",
    ),
    Damage(
        "without_commit_ts",
        in_line(2, lambda line: re.sub(rb'"_tidb":.*', b'"_tidb":null}', line)),
        ", file {file}, line 2, column _tidb.commitTs: The message has no commit ts, though others of the file have one.",
    ),
    Damage(
        "commit_ts_of_another_moment",
        in_line(2, lambda line: re.sub(rb'"es":[0-9]+', b'"es":5', line)),
        ", file {file}, line 2, column _tidb.commitTs, value '",
    ),
    Damage("not_json", in_data(lambda raw: b"\x00\x01\x02" + raw), ", file {file}, line 1, value '"),
)


@pytest.fixture(scope="module")
def canal_story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("canal")
    target = DuckDbTarget(folder / "target.duckdb")
    scene = Scene(folder / "feed", target.uri, target, "canal-json", {"enable_tidb_extension": True})
    return tell(scene, CANAL_DAMAGES)


@pytest.mark.parametrize("damage", CANAL_DAMAGES, ids=lambda d: d.table)
def test_a_damaged_file_of_a_canal_json_changefeed(canal_story: Story, damage: Damage) -> None:
    assert_kept_its_place(canal_story, damage)


def test_the_other_tables_of_a_canal_json_changefeed_go_on(canal_story: Story) -> None:
    assert_others_went_on(canal_story)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A changefeed whose tables go to DuckDB."""
    target = DuckDbTarget(tmp_path / "target.duckdb")
    return Scene(tmp_path / "feed", target.uri, target)


def table(name: str) -> TableId:
    return TableId(DATABASE, name)


def next_number(path: Path, step: int = 1) -> Path:
    """The file's place with another number."""
    return path.with_name(f"CDC{int(path.stem.removeprefix('CDC')) + step:020d}{path.suffix}")


def test_what_only_looks_wrong_stops_nothing(scene: Scene) -> None:
    tables = [table(name) for name in ("holes", "cut_off_and_repeated", "repeated", "waiting", "index", "checksum")]
    scene.create(HEALTHY, *tables)
    scene.publish()
    assert scene.run().code == 0
    holes, cut_off, repeated, waiting, index, checksum = tables
    scene.upstream.add_column(checksum, NOTE)
    scene.change(HEALTHY, *tables)
    scene.publish()
    scene.data_files(holes)[-1].rename(next_number(scene.data_files(holes)[-1], 3))
    for table_id in (cut_off, repeated):
        whole = scene.data_files(table_id)[-1]
        next_number(whole).write_bytes(whole.read_bytes())
    rewrite(scene.data_files(cut_off)[-2], lambda raw: raw[:-6])
    mark = next(scene.data_files(index)[-1].parent.glob("meta/*.index"))
    mark.write_text("CDC00000000000000000099.csv\n")
    misnamed = scene.schema_files(checksum)[-1]
    misnamed.rename(misnamed.with_name(misnamed.name.rpartition("_")[0] + "_0000000042.json"))
    scene.change(waiting)
    scene.writer.flush()

    run = scene.run()
    assert run.code == 0
    assert "error:" not in run.told
    assert f"warning: table {holes}: File numbers 2-4 are missing." in run.told
    assert f"warning: table {checksum}: The schema file's content has the checksum" in run.told
    assert scene.differing() == [str(waiting)]
    assert scene.checkpoint_of(waiting) == scene.ledger().checkpoint

    scene.publish()
    assert scene.run().code == 0
    assert not scene.differing()


def test_a_checksum_that_does_not_match_stops_its_table_when_strict(scene: Scene) -> None:
    suspect = table("suspect")
    scene.create(HEALTHY, suspect)
    scene.publish()
    assert scene.run().code == 0
    scene.upstream.add_column(suspect, NOTE)
    scene.change(HEALTHY, suspect)
    scene.publish()
    named = scene.schema_files(suspect)[-1]
    misnamed = named.rename(named.with_name(named.name.rpartition("_")[0] + "_0000000042.json"))
    run = scene.run(source=f"{scene.source}&strict=true")
    assert run.code == 3
    sentence = f"table {suspect}, file {scene.relative(misnamed)}: The schema file's content has the checksum "
    assert run.error_of(suspect).startswith(sentence)
    assert scene.differing() == [str(suspect)]
    misnamed.rename(named)
    assert scene.run(source=f"{scene.source}&strict=true").code == 0
    assert not scene.differing()


def test_a_file_that_is_written_again_after_it_was_applied(scene: Scene) -> None:
    longer, spoilt, touched = tables = [table(name) for name in ("longer", "spoilt", "touched")]
    scene.create(HEALTHY, *tables)
    scene.publish()
    assert scene.run().code == 0
    reached = scene.ledger().checkpoint
    scene.change(HEALTHY, longer)
    scene.writer.flush()
    first, second = scene.data_files(longer)
    rewrite(first, lambda raw: raw + second.read_bytes())
    second.unlink()
    rewrite(scene.data_files(touched)[0], lambda raw: raw)
    repair = rewrite(scene.data_files(spoilt)[0], lambda raw: raw.replace(b",10\r\n", b",ten\r\n"))
    scene.publish()

    run = scene.run()
    assert run.code == 3
    assert f"warning: table {longer}: The file was written again after it was applied; it is read once more." in run.told
    assert "line 1, column amount, value 'ten'" in run.error_of(spoilt)
    assert scene.stopped() == {spoilt}
    assert scene.checkpoint_of(spoilt) == reached
    assert not scene.differing()

    repair()
    scene.change(*tables)
    scene.publish()
    assert scene.run().code == 0
    assert not scene.differing()


def test_a_run_that_goes_on_tells_of_a_stopped_table_once_and_applies_all_other_cuts(scene: Scene) -> None:
    damaged = table("damaged")
    scene.create(HEALTHY, damaged)
    scene.change(damaged)
    scene.publish()
    repair = rewrite(scene.data_files(damaged)[0], edit_line(2, lambda line: line + b",1"))
    with scene.following() as follower:
        for _ in range(3):
            follower.wait_until(lambda: scene.differing() == [str(damaged)] and scene.stopped() == {damaged})
            scene.change(HEALTHY, damaged)
            scene.publish()
    assert follower.ended.code == 3
    assert "line 2: The record has 8 fields" in follower.ended.error_of(damaged)
    assert scene.differing() == [str(damaged)]
    assert scene.checkpoint_of(damaged) < scene.checkpoint_of(HEALTHY)
    repair()
    assert scene.run().code == 0
    assert not scene.differing()
