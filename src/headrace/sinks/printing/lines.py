"""Changes as JSON lines, and the spool files that carry them from the tasks to the driver."""

from __future__ import annotations

import base64
import heapq
import io
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import takewhile

import pyarrow as pa

from headrace.errors import TransientError
from headrace.model.block import COMMIT_TS, KIND, META_COUNT
from headrace.model.events import RowKind, SchemaChange
from headrace.places.work_place import WorkPlace
from headrace.sinks.base import TableChange

_SIGNS = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}
# The commit ts in front of each spooled line is text of fixed width, so that text order is commit order. Lines of a table with the
# same commit ts keep the order in which they arrived. The source's order may differ: there a deletion may follow the new row of its
# key.
_KEY_WIDTH = 20
_MERGED_AT_ONCE = 100
_END = "end\n"
"""The last line of a spooled file. A file without it is not whole."""


def row_lines(change: TableChange) -> Iterator[str]:
    """The rows of ``change.ordered`` as spooled lines: ``<commit ts> <JSON>``."""
    columns = {name: change.ordered.column(i).to_pylist() for i, name in enumerate(change.ordered.column_names)}
    names = change.ordered.column_names[META_COUNT:]
    table = str(change.target)
    for i, (kind, commit_ts) in enumerate(zip(columns[KIND], columns[COMMIT_TS], strict=True)):
        row = {name: columns[name][i] for name in names}
        line = {"kind": _SIGNS[RowKind(kind)], "table": table, "commit_ts": commit_ts, "row": row}
        yield f"{commit_ts:020} {_json(line)}"


def schema_change_line(change: SchemaChange) -> str:
    """A schema change as a JSON line. ``events`` names its kinds; ``statement`` is empty if the source gives none."""
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


def spool(lines: Iterable[str], work: WorkPlace, key: str) -> None:
    """Writes the lines, which must be in commit order, to one file. Raises TransientError."""
    with work.writing(key) as file, io.TextIOWrapper(file, encoding="utf-8", newline="\n") as out:
        out.writelines(f"{line}\n" for line in lines)
        out.write(_END)


def merge_spooled(work: WorkPlace, keys: Sequence[str], folder: str) -> str:
    """Merges several files into one, a few at a time. Returns its key, which is in ``folder``. Raises TransientError."""
    left = list(keys)
    while len(left) > 1:
        some, left = left[:_MERGED_AT_ONCE], left[_MERGED_AT_ONCE:]
        key = f"{folder}/{uuid.uuid4().hex}.jsonl"
        with ExitStack() as stack:
            spool((line.removesuffix("\n") for line in _merged(work, some, stack)), work, key)
        left.append(key)
    return left[0]


def merged_lines(work: WorkPlace, keys: Iterable[str]) -> Iterator[str]:
    """The JSON lines of all files in commit order, with their line ends. Holds one line of each file in memory.

    Raises TransientError before the first line if a file is missing or not whole.
    """
    with ExitStack() as stack:
        for line in _merged(work, keys, stack):
            yield line[_KEY_WIDTH + 1 :]


def _merged(work: WorkPlace, keys: Iterable[str], stack: ExitStack) -> Iterator[str]:
    files = [stack.enter_context(work.open(key)) for key in keys]
    for file in files:
        _require_whole(file)
    opened = [stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n")) for file in files]
    return heapq.merge(*(takewhile(lambda line: line != _END, lines) for lines in opened), key=_key)


def _require_whole(file: pa.NativeFile) -> None:
    file.seek(max(0, file.size() - len(_END)))
    if file.read() != _END.encode():
        raise TransientError(
            "A file of rows in the work place is not whole, so they are written again.",
            "If this happens again, check the disk or the store of the work place (--work).",
        )
    file.seek(0)


def _key(line: str) -> str:
    return line[:_KEY_WIDTH]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_bytes_to_base64)


def _bytes_to_base64(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{type(value).__name__} is no canonical value")
