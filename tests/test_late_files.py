"""Files that arrive in any order, while ``metadata`` says as much as TiCDC may say of those that are there."""

from __future__ import annotations

import csv
import random
import re
import shutil
from pathlib import Path

import duckdb
import pytest

from following import Following, run_once
from harness import assert_state
from headrace.cli.main import main
from headrace.errors import EXIT_OK
from headrace.testing.upstream import Insert
from targets import DuckDbTarget
from upstreams import KEY, NAME, ORDERS, Changefeed, shop, shop_closes, shop_ends, shop_goes_on, shop_reopens

pytestmark = pytest.mark.pipeline

PATIENCE = 120.0
_COMMIT_TS = 3
_SCHEMA_FILE = re.compile(r"schema_(\d+)_\d+\.json")


def begins(path: Path) -> int | None:
    """The commit ts of what is first in a file; none for a file that tells nothing."""
    schema_file = _SCHEMA_FILE.fullmatch(path.name)
    if schema_file:
        return int(schema_file[1])
    if path.suffix != ".csv":
        return None
    with path.open(encoding="utf-8", newline="") as file:
        return min(int(row[_COMMIT_TS]) for row in csv.reader(file))


class Arriving(Changefeed):
    """A changefeed of which a consumer is given the files one by one, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.given = folder / "given"
        self.given.mkdir()

    @property
    def uri(self) -> str:
        return super().uri.replace(str(self.writer.root), str(self.given))

    def give(self, path: Path) -> None:
        there = self.given / path.relative_to(self.writer.root)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)

    def promise(self, checkpoint: int) -> None:
        (self.given / "metadata").write_text(f'{{"checkpoint-ts":{checkpoint}}}', encoding="utf-8")


@pytest.mark.parametrize("seed", range(1, 3))
def test_files_that_arrive_in_any_order_give_the_same_state(seed: int, tmp_path: Path) -> None:
    """Data before their schema file, an index before its data, and gaps that close later: a run looks after each file.

    Data whose schema file is missing stop their table until it is looked for again: at the latest by the next run.
    """
    changefeed = Arriving(tmp_path / "feed")
    for part in (shop, shop_reopens, shop_goes_on):
        part(changefeed, with_bag=True)
    shop_ends(changefeed)
    shop_closes(changefeed)
    shop(changefeed, with_bag=True)
    files = [path for path in sorted(changefeed.writer.root.rglob("*")) if path.is_file() and path.name != "metadata"]
    first = {path: begins(path) for path in files}
    random.Random(seed).shuffle(files)
    target = DuckDbTarget(tmp_path / "target.duckdb")
    promised = min(ts for ts in first.values() if ts is not None) - 1
    changefeed.promise(promised)
    run = Following(changefeed, target.uri)
    try:
        for number, path in enumerate(files, 1):
            changefeed.give(path)
            missing = [ts for late in files[number:] if (ts := first[late]) is not None]
            promised = max(promised, min([changefeed.watermark, *(ts - 1 for ts in missing)]))
            changefeed.promise(promised)
            polls = run.display.polls
            run.wait_until(lambda polls=polls: run.display.polls > polls, PATIENCE)  # type: ignore[misc]
        run.wait_for(changefeed.watermark, PATIENCE)
    finally:
        run.interrupt()
        run.ended()
    assert run_once(changefeed, target.uri) == EXIT_OK  # no table is stopped any more
    assert_state(target, changefeed.state())


@pytest.mark.parametrize("number", [1, 2], ids=["between others", "last"])
def test_a_late_file_is_not_noticed_until_metadata_moves_and_a_reset_reads_it(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rows count as repetitions, and a notice comes only if files with larger numbers were applied."""
    changefeed = Changefeed(tmp_path / "feed")
    changefeed.upstream.create_table(ORDERS, [KEY, NAME])
    for key in range(3):
        changefeed.upstream.execute(Insert(ORDERS, {"id": key, "name": f"number {key}"}))
        changefeed.upstream.checkpoint()
    file = sorted(changefeed.writer.root.rglob("CDC*.csv"))[number]
    content = file.read_bytes()
    file.unlink()
    target = DuckDbTarget(tmp_path / "target.duckdb")
    others = [(str(key), f"number {key}") for key in range(3) if key != number]

    def rows() -> list[tuple[str | None, ...]]:
        return sorted(target.rows("shop", "orders", {"id": "int", "name": "varchar"}))

    assert run_once(changefeed, target.uri) == EXIT_OK
    file.write_bytes(content)
    capsys.readouterr()
    assert run_once(changefeed, target.uri) == EXIT_OK
    assert run_once(changefeed, target.uri, until_end=True, quiet=0.1) == EXIT_OK
    assert (rows(), capsys.readouterr().err) == (others, "")  # metadata stands still
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, target.uri) == EXIT_OK
    assert rows() == others
    assert ("after others with larger numbers were applied" in capsys.readouterr().err) is (number == 1)
    with duckdb.connect(str(tmp_path / "target.duckdb")) as connection:
        connection.execute("DROP TABLE shop.orders")
    assert main(["reset", "--table", "shop.orders", "--yes", "--sink", target.uri]) == 0
    assert run_once(changefeed, target.uri) == EXIT_OK
    assert_state(target, changefeed.state())
