"""``headrace demo``: replicates a small shop's changes, as TiCDC would write them, with the real pipeline into a DuckDB file."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import quote

from headrace.cli.display import RunDisplay
from headrace.cli.output import Output
from headrace.cli.progress import counted, seconds_text
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_OK, DefinitionError
from headrace.model.tso import format_tso
from headrace.own_paths import make_own_folder
from headrace.pipeline.assembly import Target
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.sealed_duckdb import open_duckdb
from headrace.testing.shop import CUSTOMERS, DATABASE, ORDER_ITEMS, Shop, write_shop

BEST_SELLERS = """\
SELECT p.title, sum(i.quantity) AS sold, sum(i.quantity * i.price) AS revenue
FROM shop.order_items i JOIN shop.products p USING (sku) JOIN shop.orders o ON o.id = i.order_id
WHERE o.state <> 'cancelled'
GROUP BY p.title ORDER BY revenue DESC, p.title LIMIT 5"""
"""The query that the demo shows and runs."""

# Not shop.duckdb: DuckDB names a file's catalogue after it, and "shop.orders" would then be ambiguous.
_DATABASE_FILE = "warehouse.duckdb"
_SAMPLE_LINES = 2
_NAME = "default"


def run_demo(folder: Path, output: Output) -> int:
    """Writes the shop's changefeed into ``folder``, applies it, and prints what arrived. Returns the exit code.

    Raises DefinitionError when the folder holds anything, and what a run raises.
    """
    started = time.monotonic()
    _make_empty(folder)
    shop = write_shop(folder / "changefeed")
    database = folder / _DATABASE_FILE
    sink = f"duckdb://{quote(str(database.absolute()))}"
    _tell_written(shop, folder, output)
    _say(output, "", f"Applying them with Spark to {database}; most of the time goes into starting Spark.")
    definition = Definition(source=shop.source_uri, sink=sink, name=_NAME, options=RunOptions(once=True))
    with RunDisplay(output) as display:
        code = PipelineRun(definition, display).run()
    if code != EXIT_OK:
        return code
    _tell_arrived(shop, database, sink, output)
    for text, meaning in commands(shop.source_uri, database, sink):
        _say(output, "", f"# {meaning}", text)
    _say(output, "", f"All of this took {seconds_text(time.monotonic() - started)}.")
    return EXIT_OK


def _say(output: Output, *lines: str) -> None:
    """Prints lines for people. Machines get events instead."""
    if not output.is_json:
        for line in lines:
            output.line(line)


def _make_empty(folder: Path) -> None:
    """Creates the folder if it is missing. Raises DefinitionError unless it is empty, writable, and belongs to this user."""
    try:
        make_own_folder(folder, "demo")
        occupied = any(folder.iterdir())
    except OSError as error:
        raise DefinitionError(f"The demo cannot use {folder}: {error.strerror}.", "Name another folder with --folder.") from None
    if occupied:
        raise DefinitionError(f"The folder {folder} is not empty.", "Remove it, or name another one with --folder.")


# --- what was written -------------------------------------------------------------------------------------------------


def _tell_written(shop: Shop, folder: Path, output: Output) -> None:
    output.event("demo_written", changefeed=shop.source_uri, changes=shop.changes, schema_changes=shop.schema_changes)
    _say(
        output,
        f"A small shop, as TiCDC writes it to object storage: {shop.changes:,} changes of a day and a half, "
        f"{shop.schema_changes} schema changes.",
        "",
        f"{folder / 'changefeed'}/",
        *(f"  {text:<66}{meaning}" for text, meaning in _tree(shop.root)),
        "",
        f"The statement in the last schema file of {CUSTOMERS}, and two lines of {ORDER_ITEMS}, with their commit ts:",
        f"  {_last_statement(shop.root / CUSTOMERS.database / CUSTOMERS.table)}",
        *(f"  {line}" for line in _sample(shop.root / ORDER_ITEMS.database / ORDER_ITEMS.table)),
    )


def _tree(root: Path) -> list[tuple[str, str]]:
    """The main entries of the changefeed's folder, each with its meaning."""
    metadata = json.loads((root / "metadata").read_text())["checkpoint-ts"]
    lines = [("metadata", f"complete up to {format_tso(metadata)}")]
    for table in sorted(path for path in (root / DATABASE).iterdir() if path.name != "meta"):
        schemas = len(list((table / "meta").glob("schema_*.json")))
        data = sorted(table.rglob("*.csv"))
        lines.append((f"{DATABASE}/{table.name}/", f"{counted(schemas, 'schema file')}, {counted(len(data), 'data file')}"))
        if table.name == ORDER_ITEMS.table:
            lines += [
                (f"  meta/{next((table / 'meta').glob('schema_*.json')).name}", "its shape, since a commit ts"),
                (f"  {data[0].relative_to(table).as_posix()}", "rows of that shape, by day"),
            ]
    return lines


def _last_statement(table: Path) -> str:
    newest = max((table / "meta").glob("schema_*.json"), key=lambda path: int(path.name.split("_")[1]))
    return str(json.loads(newest.read_text())["Query"])


def _sample(table: Path) -> list[str]:
    first = min(table.rglob("*.csv"))
    return first.read_text().splitlines()[:_SAMPLE_LINES]


# --- what arrived -----------------------------------------------------------------------------------------------------


def _tell_arrived(shop: Shop, database: Path, sink: str, output: Output) -> None:
    # One connection, closed before anything else: while it is open no run can write the file.
    with open_duckdb(database, read_only=True) as connection:
        counts = [
            (str(table_id), int(connection.sql(f"SELECT count(*) FROM {table_id}").fetchall()[0][0])) for table_id in shop.rows
        ]
        found = connection.sql(BEST_SELLERS)
        columns, sellers = list(found.columns), [tuple(map(str, row)) for row in found.fetchall()]
    checkpoint = _checkpoint(sink)
    output.event("demo_arrived", rows=dict(counts), checkpoint=checkpoint, duckdb=str(database))
    _say(output, "")
    output.table("what arrived", ("table", "rows"), counts)
    _say(output, "", *BEST_SELLERS.splitlines())
    output.table("best sellers", columns, sellers)
    _say(output, "", f"The ledger in the same file says: everything up to {format_tso(checkpoint)} is applied (TSO {checkpoint}).")


def _checkpoint(sink_uri: str) -> int:
    with Target(sink_uri).assembled().opened() as ledger:
        state = ledger.peek(_NAME)
    return state.checkpoint if state else 0


def commands(source: str, database: Path, sink: str) -> list[tuple[str, str]]:
    """Command lines to try next, quoted for a shell in the current folder, each with what it does."""
    headrace = _program("headrace")
    python = _program(Path(sys.executable).name)
    # Double quotes inside, because the shell's quotes around it are single ones; a JSON string is a Python string too.
    path = json.dumps(str(database), ensure_ascii=False)
    query = f'import duckdb; duckdb.connect({path}, read_only=True).sql("FROM shop.orders LIMIT 5").show()'
    source_text, sink_text = shlex.quote(source), shlex.quote(sink)
    return [
        (f"{headrace} status --sink {sink_text}", "what the ledger says: checkpoint, tables, last cuts"),
        (f"{headrace} inspect {source_text}", "what is in the changefeed's folder, and what is wrong in there"),
        (f"{headrace} run --once --source {source_text} --sink {sink_text}", "go on from the checkpoint (without --once: follow)"),
        (f"{python} -c {shlex.quote(query)}", "query it"),
    ]


def _program(name: str) -> str:
    """How to call a program of this environment: by its name if the PATH finds it, else by its path."""
    program = Path(sys.executable).parent / name
    found = shutil.which(name)
    if not program.exists() or (found is not None and Path(found).absolute() == program):
        return name
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
