"""Changes as JSON lines, and the spool files that bring them from the tasks to the driver."""

from __future__ import annotations

import base64
import heapq
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from headrace.model.block import COMMIT_TS, KIND, META_COUNT, SEQ
from headrace.model.events import RowKind, SchemaChange
from headrace.scratch import open_private
from headrace.sinks.base import TableChange

_SIGNS = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}
# Commit ts and seq in front of each spooled line, as text of one width: text order is then commit order.
_KEY_WIDTH = 41


def row_lines(change: TableChange) -> Iterator[str]:
    """The rows of ``change.ordered`` as spooled lines: ``<commit ts> <seq> <JSON>``."""
    columns = {name: change.ordered.column(i).to_pylist() for i, name in enumerate(change.ordered.column_names)}
    names = change.ordered.column_names[META_COUNT:]
    table = str(change.target)
    for i, (kind, commit_ts, seq) in enumerate(zip(columns[KIND], columns[COMMIT_TS], columns[SEQ], strict=True)):
        row = {name: columns[name][i] for name in names}
        line = {"kind": _SIGNS[RowKind(kind)], "table": table, "commit_ts": commit_ts, "row": row}
        yield f"{commit_ts:020} {seq:020} {_json(line)}"


def schema_change_line(change: SchemaChange) -> str:
    """A schema change as a JSON line. ``events`` names its kinds; ``statement`` is empty where the source has none."""
    return _json(
        {
            "kind": "DDL",
            "table": str(change.table_id),
            "commit_ts": change.commit_ts,
            "events": [type(event).__name__ for event in change.events],
            "statement": change.statement,
            "changes": sorted(map(str, change.changes)),
        }
    )


def spool(lines: Iterable[str], file: Path) -> None:
    """Writes the lines in commit order. The file appears whole, in place of one that a repeated task left."""
    fresh = file.with_suffix(".part")
    fresh.unlink(missing_ok=True)
    with io.TextIOWrapper(open_private(fresh), encoding="utf-8", newline="\n") as out:
        out.writelines(f"{line}\n" for line in sorted(lines, key=_key))
    fresh.replace(file)


def merged_lines(files: Iterable[Path]) -> Iterator[str]:
    """The JSON lines of all files in commit order, with their line ends. Holds one line of each file in memory."""
    with ExitStack() as stack:
        opened = [stack.enter_context(file.open(encoding="utf-8", newline="\n")) for file in files]
        for line in heapq.merge(*opened, key=_key):
            yield line[_KEY_WIDTH + 1 :]


def spool_file(folder: Path, slot: int, number: int) -> Path:
    """The file of a write unit's ``number``-th writing."""
    return folder / f"{slot:06}-{number:06}.jsonl"


def _key(line: str) -> str:
    return line[:_KEY_WIDTH]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_bytes_to_base64)


def _bytes_to_base64(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{type(value).__name__} is no canonical value")
