"""Reads canal-JSON messages one by one: finds a file's columns, reads what Arrow's reader cannot, and locates errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats import base
from headrace.formats.base import (
    DecodeError,
    MembersNotKnownError,
    OverlongMembersError,
    OverlongRecordError,
    Rejects,
    SchemaMismatchError,
    TruncatedRecordError,
)
from headrace.formats.canal_rows import ROWS_PER_MESSAGE, TYPES, BoolArray, CanalReader, CarriedColumn, message_batch
from headrace.formats.json_lines import LONGEST_NUMBER, bounded_integer, require_few_values
from headrace.formats.json_sequence import JsonSequence
from headrace.formats.values import UnknownMembersError, bad_places
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.tso import LOGICAL_BITS, MAX_TSO
from headrace.model.types import TypeKind, unfit_members

BATCH_ROWS = 65_536
_BATCH_CHARACTERS = 4 << 20
_LINE_END = re.compile(rb"[\r\n]")
_FULL_ROW = re.compile(rb'"type"\s*:\s*"(?:INSERT|UPDATE)"')
# Marks between the parts of a message. Their quotes are not escaped, so no string can hold them.
_OLD = b'"old":[{'
_DATA = b'],"data":'
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
# Unquoted numbers occur only outside of rows, so this cannot match a column of that name.
_COMMIT_TS = re.compile(rb'"commitTs"\s*:\s*(\d+)\s*[,}]')
# The next member, with everything before it: a search would start again at each quote of a member that does not end.
_MYSQL_MEMBER = re.compile(r"[^']*+'((?:[^'\\]++|''|\\.)*+)'", re.DOTALL)
_SHOWN = 100
# No row can hold it: in rows every value is a text or null, and the quotes in texts are escaped.
_EXTENSION = re.compile(rb'"_tidb"\s*:\s*\{')


DECODER = json.JSONDecoder(parse_float=str, parse_int=bounded_integer)
"""Decodes a message. Fractions are kept as their text, because all later steps expect values as text."""
_SEARCH_BYTES = 1 << 20
_LINE_BYTES = 1 << 12
_LONGEST_LITERAL = len("false")

Message = dict[str, object]


def first_message(data: memoryview) -> Message | None:
    """The first message of a file, ``None`` for a file without one. Raises DecodeError."""
    for stop in (_SEARCH_BYTES, len(data)):
        text = bytes(data[:stop]).decode("utf-8", "replace").lstrip("\r\n ")
        if not text:
            return None
        try:
            message, _ = JsonSequence(text, DECODER).decode(0)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict):
            return message
    raise DecodeError("The first message is not a JSON object.", line=1)


def has_extension(data: memoryview) -> bool:
    """Whether any message of a file has the TiDB extension. Then all must have an exact commit ts; one without it is damaged."""
    return _EXTENSION.search(data) is not None


def is_lines(terminator: str) -> bool:
    """Whether each message is a line of its own: messages hold no raw line breaks."""
    return bool(terminator) and set(terminator) <= set("\r\n")


def carried_columns(data: memoryview, schema: TableSchema, terminator: str) -> tuple[CarriedColumn, ...]:
    """The columns that the messages of a file carry, in the order of the schema.

    They are taken from the first INSERT or UPDATE, because deletes may have only the handle key; without one, from the first
    message. Members of ENUM and SET come from the schema file, or else from ``mysqlType``, where content-compatible mode has them.
    Raises SchemaMismatchError for a column that the schema file does not list.
    """
    message = _first_full_line(data) if is_lines(terminator) else _first_full_object(data, terminator)
    if message is None:
        try:
            message = first_message(data)
        except DecodeError:
            message = None
    if message is None:
        return tuple(CarriedColumn(column.name, column) for column in schema.row_columns)
    keys = {folded_name(key): key for key in _row(message, "data") or {}}
    for folded, key in keys.items():
        if not schema.has_column(folded):
            raise SchemaMismatchError(
                f"The rows have a column {key}, which the schema file of {schema.table_id} does not list.", line=1, column=key
            )
    types = message.get("mysqlType")
    mysql_types = {folded_name(key): str(text) for key, text in types.items()} if isinstance(types, dict) else {}
    return tuple(
        CarriedColumn(keys[folded_name(column.name)], _with_members(column, mysql_types.get(folded_name(column.name), "")))
        for column in schema.row_columns
        if folded_name(column.name) in keys
    )


class OldTexts:
    """The old rows of a block of lines as they are written: an :class:`~headrace.formats.canal_rows.OldNulls`.

    Only old rows that are queried and that contain a ``null`` are parsed. Each is parsed once, however many columns are queried.
    """

    def __init__(self, block: bytes, mark: bytes, old: pa.ChunkedArray) -> None:
        """``old`` are the old rows of the block's messages as Arrow read them."""
        self._block, self._mark, self._old = block, mark, old
        self._rows: dict[int, dict[str, object]] = {}  # the parsed ones, by the number of the message

    def says_null(self, key: str, messages: BoolArray) -> BoolArray:
        """See ``OldNulls``. Raises ValueError if the block is not written as TiCDC writes it, DecodeError for an invalid row."""
        said = np.zeros(len(messages), bool)
        numbers = self._numbers
        for number in numbers[messages[numbers]].tolist():
            row = self._rows.get(number)
            if row is None:
                row = self._rows[number] = _parse_beginning(b"{" + self._with_null[number])
            said[number] = row.get(key, key) is None
        return said

    @cached_property
    def _numbers(self) -> npt.NDArray[np.int64]:
        return np.fromiter(self._with_null, np.int64, len(self._with_null))

    @cached_property
    def _with_null(self) -> dict[int, bytes]:
        """By the number of the message, the text of each old row that contains a ``null``, from after its opening brace on."""
        block, mark = self._block, self._mark
        if len(self._old) != block.count(mark) or block.count(_OLD) != len(self._old) - self._old.null_count:
            raise ValueError("there are blank lines, or another writer's spaces")
        found: dict[int, bytes] = {}
        first, *parts = block.split(_OLD)
        number = first.count(mark)
        for part in parts:
            text = part[: part.find(_DATA)]
            if b"null" in text:
                found[number] = text
            number += part.count(mark)
        return found


def _parse_beginning(text: bytes) -> dict[str, object]:
    """The JSON object at the start of a text. Raises DecodeError."""
    try:
        row, _ = DECODER.raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise DecodeError("The message does not follow the format.")
    return row


def has_other_columns(block: bytes, mark: bytes, reader: CanalReader) -> bool:
    """Whether the first or the last line of a block has columns other than those that the reader expects."""
    return any(
        _is_misfit(line, reader) for line in {block[: block.find(mark)], block[block.rfind(mark, 0, -len(mark)) + len(mark) :]}
    )


def _is_misfit(line: bytes, reader: CanalReader) -> bool:
    try:
        normalise(_parse(line.strip()), reader)
    except SchemaMismatchError:
        return True
    except DecodeError:
        return False
    return False


def truncated(tail: bytes, line: int) -> TruncatedRecordError:
    """The error for the bytes after the last complete message."""
    return TruncatedRecordError(
        "The last message is cut off: the file does not end with the terminator.", line=line, commit_ts=_told_commit_ts(tail)
    )


def _told_commit_ts(raw: bytes) -> int | None:
    """The commit ts in a message that cannot be read, if it is a possible one."""
    found = _COMMIT_TS.findall(raw)
    return _number(int(found[-1]), MAX_TSO) if found and len(found[-1]) <= LONGEST_NUMBER else None


def mysql_members(mysql_type: str) -> tuple[str, ...]:
    """The members in ``enum('a','it''s')`` or ``set(…)``; nothing for a bare ``enum``."""
    if not mysql_type.lower().startswith(("enum(", "set(")):
        return ()
    found, position = [], 0
    while (member := _MYSQL_MEMBER.match(mysql_type, position)) is not None:
        found.append(re.sub(r"''|\\(.)", lambda m: m[1] or "'", member[1]))
        position = member.end()
    return tuple(found)


def _with_members(column: Column, mysql_type: str) -> Column:
    if column.type.kind in (TypeKind.ENUM, TypeKind.SET) and not column.type.elements:
        members = mysql_members(mysql_type)
        if unfit := unfit_members(column.type.kind, members):
            raise SchemaMismatchError(f"According to the message's mysqlType, the column {unfit}.", line=1, column=column.name)
        return replace(column, type=replace(column.type, elements=members))
    return column


def _first_full_line(data: memoryview) -> Message | None:
    """The first INSERT or UPDATE. Reading the message rules out a match inside a row (a column named ``type``)."""
    at = 0
    while (match := _FULL_ROW.search(data, at)) is not None:
        message = _message_of_line(data, match.start())
        if message is not None and message.get("type") in ("INSERT", "UPDATE"):
            return message
        behind = _LINE_END.search(data, match.end())  # other matches on this line are not such a message either
        if behind is None:
            return None
        at = behind.end()
    return None


def _first_full_object(data: memoryview, terminator: str) -> Message | None:
    try:
        for message, _, _ in stream_messages(stream_text(data), terminator):
            if isinstance(message, dict) and message.get("type") in ("INSERT", "UPDATE"):
                return message
    except DecodeError:
        return None
    return None


def _message_of_line(data: memoryview, place: int) -> Message | None:
    """The message on the line that contains the byte at ``place``; ``None`` if it cannot be read."""
    reach = _LINE_BYTES
    while True:
        begin = max(0, place - reach)
        before = bytes(data[begin:place])
        start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
        if start or not begin:
            break
        reach *= 4
    end = _LINE_END.search(data, place)
    line = bytes(data[begin + start : len(data) if end is None else end.start()])
    try:
        require_few_values(line)
        message, _ = DECODER.raw_decode(line.decode("utf-8", "replace").lstrip())
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _row(message: Message, key: str) -> dict[str, object] | None:
    rows = message.get(key)
    if isinstance(rows, list) and len(rows) == 1 and isinstance(rows[0], dict):
        return rows[0]
    return None


def normalise(message: object, reader: CanalReader) -> Message:
    """A message in the shape of ``CanalReader.arrow_schema``, its old row completed from the new one. Raises DecodeError."""
    if not isinstance(message, dict):
        raise DecodeError("The message is not a JSON object.")
    if message.get("type") not in TYPES:
        raise DecodeError("The message is not a row change.", column="type", value=str(message.get("type")))
    row = _row(message, "data")
    if row is None:
        raise DecodeError("The message does not have exactly one row in data.", column="data")
    data = _texts(row, reader)
    if len(data) < len(reader.carried):
        needed = set(map(folded_name, reader.schema.handle_key)) if message["type"] == "DELETE" else reader.keys.keys()
        lost = next((c.key for c in reader.carried if c.key not in data and folded_name(c.key) in needed), None)
        if lost is not None:
            raise SchemaMismatchError(f"The message lacks the column {lost} that the first message has.", column=lost)
    old: list[dict[str, str | None]] | None = None
    if message.get("old") is not None and message["type"] == "UPDATE":
        old_row = _row(message, "old")
        if old_row is None:
            raise DecodeError("The message does not have exactly one row in old.", column="old")
        old = [data | _texts(old_row, reader)]
    es, commit_ts = _moment(message, exact=reader.exact)
    return {"type": message["type"], "es": es, "data": [data], "old": old, "_tidb": {"commitTs": commit_ts}}


def _moment(message: Message, *, exact: bool) -> tuple[int | None, int | None]:
    """``es`` and the commit ts of a message; one of them may be missing. Raises DecodeError.

    If any message of a file has the TiDB extension, a message without a commit ts is damaged: with the millisecond alone its row
    would silently be placed before other rows of its own transaction.
    """
    es = _number(message.get("es"), MAX_TSO >> LOGICAL_BITS)
    if (es is None and message.get("es") is not None) or not (es or exact):
        raise DecodeError("The value is not the millisecond of a commit ts.", column="es", value=_written(message.get("es")))
    if not exact:
        return es, None
    extension = message.get("_tidb")
    told = extension.get("commitTs") if isinstance(extension, dict) else None
    if told is None:
        raise DecodeError("The message has no commit ts, though others of the file have one.", column="_tidb.commitTs")
    commit_ts = _number(told, MAX_TSO)
    if not commit_ts:
        raise DecodeError("The value is not a commit ts.", column="_tidb.commitTs", value=_written(told))
    if es is not None and commit_ts >> LOGICAL_BITS != es:
        reason = f"The commit ts is of the millisecond {commit_ts >> LOGICAL_BITS}, but es is {es}."
        raise DecodeError(reason, column="_tidb.commitTs", value=str(commit_ts))
    return es, commit_ts


def _number(value: object, largest: int) -> int | None:
    """A whole number that is not too large, ``None`` for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest else None


def _written(value: object) -> str:
    """The value as JSON, shortened."""
    return json.dumps(value)[:_SHOWN]


def _texts(row: dict[str, object], reader: CanalReader) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for key, value in row.items():
        name = reader.keys.get(folded_name(key))
        if name is None:
            if folded_name(key) in reader.passed_over:
                continue
            raise SchemaMismatchError(f"The message has a column {key} that the first message lacks.", column=key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise DecodeError("The value is not text.", column=key, value=json.dumps(value))
        texts[name] = value if value is None else str(value)
    return texts


class _Pending:
    """Messages that wait to be converted together. ``number`` is the number of the first one in the file.

    ``source`` provides the line, the offset in bytes and the raw bytes of a message, for reporting a bad one.
    """

    def __init__(
        self, reader: CanalReader, rejects: Rejects, number: int, source: Callable[[int, int], tuple[int | None, int, bytes]]
    ) -> None:
        self._reader, self._rejects, self._source = reader, rejects, source
        self.number = number
        self.messages: list[Message] = []
        self._origins: list[tuple[int, int]] = []

    def add(self, message: object, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Adds a message. A bad one is left out if it may be; else raises DecodeError after the rows before it."""
        try:
            if stop - start > base.MOST_RECORD_BYTES:
                raise OverlongRecordError(stop - start, "message")
            self.messages.append(normalise(message, self._reader))
            self._origins.append((start, stop))
        except DecodeError as error:
            yield from self.reject(error, start, stop)

    def reject(self, error: DecodeError, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows so far. Then leaves out the next message, or raises its ``error`` if it may not be left out."""
        yield from self.flush()
        self._take(error, self.number, start, stop)
        self.number += 1

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rows of all waiting messages, without bad ones. Raises DecodeError for the first that may not be left out."""
        messages, origins, number = self.messages, self._origins, self.number
        self.messages, self._origins, self.number = [], [], number + len(messages)
        reader, schema = self._reader, self._reader.arrow_schema()

        def build(start: int, stop: int) -> pa.RecordBatch:
            size = sum(end - begin for begin, end in origins[start:stop])
            try:
                return reader.build(message_batch(messages[start:stop], schema), number + start, size)
            except OverlongMembersError as error:
                error.line = self._source(*origins[start])[0]
                raise

        def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
            if start < stop and (batch := build(start, stop)).num_rows:
                yield batch

        try:
            sound = [*rows(0, len(messages))]
        except ValueError:
            bad_ones = bad_places(build, len(messages), self._rejects.left + 1)
        else:
            yield from sound
            return
        done = 0
        for bad in bad_ones:
            yield from rows(done, bad)
            self._take(_bad_value(messages[bad], reader), number + bad, *origins[bad])
            done = bad + 1
        yield from rows(done, len(messages))

    def _take(self, error: DecodeError, number: int, start: int, stop: int) -> None:
        error.line, offset, raw = self._source(start, stop)
        if isinstance(error, SchemaMismatchError | OverlongRecordError):
            raise error
        self._rejects.take(error, (number * ROWS_PER_MESSAGE) + 1, offset, raw, _told_commit_ts(raw))


@dataclass
class LineMessages:
    """Reads the lines of a block one by one. The block begins at ``line`` and ``offset`` (bytes) of the file.

    ``count`` is the number of messages once :meth:`batches` has ended.
    """

    block: bytes
    mark: bytes
    reader: CanalReader
    first_line: int
    offset: int
    rejects: Rejects
    count: int = 0

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows, then raises the DecodeError of the first bad line that is not left out.

        ``number`` is the number of the first message.
        """
        pending = _Pending(self.reader, self.rejects, number, self._source)
        stop = 0
        for line in self.block.split(self.mark):
            start, stop = stop, stop + len(line) + len(self.mark)
            text = line.strip()
            if not text:
                continue
            try:
                message = _parse(text)
            except DecodeError as error:
                yield from pending.reject(error, start, stop)
            else:
                yield from pending.add(message, start, stop)
        yield from pending.flush()
        self.count = pending.number - number

    def _source(self, start: int, stop: int) -> tuple[int | None, int, bytes]:
        line = self.first_line + self.block.count(self.mark, 0, start)
        return line, self.offset + start, self.block[start:stop].rstrip(b"\r\n")


def _parse(text: bytes) -> object:
    try:
        require_few_values(text)
    except ValueError as error:
        raise DecodeError(f"The message cannot be read: {error}", value=text[:80].decode("utf-8", "replace")) from None
    try:
        return DECODER.decode(text.decode("utf-8"))
    except RecursionError:
        raise DecodeError("The message is nested too deeply.", value=text[:80].decode("utf-8", "replace")) from None
    except ValueError as error:
        at = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else "it is not UTF-8"
        raise DecodeError(f"The message is not valid JSON: {at}.", value=text[:80].decode("utf-8", "replace")) from None


@dataclass
class StreamMessages:
    """Messages with no separator, or with a separator other than a line end. Only a JSON parser can find where one ends."""

    data: memoryview
    reader: CanalReader
    terminator: str
    rejects: Rejects

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, then raises the DecodeError of the first bad message that is not left out.

        Text that is not JSON ends the reading, because it is unknown where the next message begins.
        """
        text = stream_text(self.data)

        def source(start: int, stop: int) -> tuple[int | None, int, bytes]:
            return None, len(text[:start].encode("utf-8", "surrogateescape")), text[start:stop].encode("utf-8", "surrogateescape")

        pending = _Pending(self.reader, self.rejects, 0, source)
        size = 0
        error: DecodeError | None = None
        try:
            for message, start, stop in stream_messages(text, self.terminator):
                yield from pending.add(message, start, stop)
                size += stop - start
                if len(pending.messages) >= BATCH_ROWS or size >= _BATCH_CHARACTERS:
                    yield from pending.flush()
                    size = 0
        except DecodeError as problem:
            error = problem
        yield from pending.flush()
        if error is not None:
            raise error


def stream_text(data: memoryview) -> str:
    """The text of a stream; bytes that are not UTF-8 become lone surrogates, which no writer writes."""
    return bytes(data).decode("utf-8", "surrogateescape")


def stream_messages(text: str, terminator: str) -> Iterator[tuple[object, int, int]]:
    """Each message of a stream, with the positions of its first character and of its end. Raises DecodeError."""
    position = _skip(text, 0, terminator)
    sequence = JsonSequence(text, DECODER)
    while position < len(text):
        try:
            message, end = sequence.decode(position)
        except RecursionError:
            line = text.count("\n", 0, position) + 1
            raise DecodeError("The message is nested too deeply.", line=line, value=text[position : position + 80]) from None
        except json.JSONDecodeError as error:
            if error.pos >= len(text) - _LONGEST_LITERAL or error.msg.startswith("Unterminated"):
                raise truncated(text[position:].encode("utf-8", "surrogateescape"), text.count("\n", 0, position) + 1) from None
            raise DecodeError(
                f"The message is not valid JSON: {error.msg}.",
                line=text.count("\n", 0, position) + 1,
                value=text[position : position + 80],
            ) from None
        except ValueError as error:
            line = text.count("\n", 0, position) + 1
            raise DecodeError(f"The message cannot be read: {error}", line=line, value=text[position : position + 80]) from None
        if not text.startswith(terminator, end):
            raise truncated(text[position:].encode("utf-8", "surrogateescape"), text.count("\n", 0, position) + 1)
        if not text.isascii() and _NOT_UTF8.search(text, position, end):
            raise DecodeError("The message is not UTF-8.", line=text.count("\n", 0, position) + 1)
        yield message, position, end
        position = _skip(text, end, terminator)


def _skip(text: str, position: int, terminator: str) -> int:
    """The position after terminators and blank lines."""
    while position < len(text):
        if terminator and text.startswith(terminator, position):
            position += len(terminator)
        elif text[position] in "\r\n ":
            position += 1
        else:
            break
    return position


def _bad_value(message: Message, reader: CanalReader) -> DecodeError:
    """The error for a message, naming the first column with an invalid value."""
    for key in ("old", "data"):
        row = _row(message, key) or {}
        for carried in reader.carried:
            value = row.get(carried.key)
            if value is None:
                continue
            try:
                reader.convert(carried.column, pa.array([value], pa.string()), base.MOST_RECORD_BYTES)
            except UnknownMembersError as unknown:
                return MembersNotKnownError(str(carried.column.type.kind), carried.column.name, unknown.value)
            except ValueError:
                return DecodeError(
                    f"The value is not a value of the type {carried.column.type}.",
                    column=carried.column.name,
                    value=str(value),
                )
    return DecodeError("The message does not follow the format.")
