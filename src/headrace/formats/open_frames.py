"""Splits many messages of TiCDC's Open Protocol into their rows at once, in columns.

Format: see :mod:`headrace.formats.open_messages`, which reads messages one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.alike import cut, numbers_in
from headrace.formats.open_messages import VERSION

_LENGTH_BYTES = 8
_MOST_EVENTS = 1024
"""The most events of a message that is split here: each event of a message takes a step for all messages."""
_MOST_BYTES = 1 << 30
"""The most bytes of keys or values. Arrow's arrays of bytes have 2 GiB at most."""
_BEFORE_TS = b'{"ts":'
_TS_DIGITS = 18
"""Of a commit ts between 1985 and 2090."""
_LEAST_TS = 10 ** (_TS_DIGITS - 1)
_NAMES = re.compile(rb',"scm":"([^"\\\x00-\x1f]+)","tbl":"([^"\\\x00-\x1f]+)","t":1\}')
"""What is behind the commit ts in the key of a row whose names need no escape, as TiCDC writes it."""
_BREAKS = (0x0A, 0x0D)

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OpenRows:
    """The rows of messages that have nothing but rows, as TiCDC writes them without compression."""

    is_regular: BoolArray
    """Of each message, whether it is such a one. The others are to be read one by one."""
    numbers: IntArray
    """For each run of rows of a message that have the same table and commit ts, the number of the message. Ascending."""
    databases: pa.StringArray
    tables: pa.StringArray
    commit_ts: IntArray
    """TSO."""
    lines: pa.BinaryArray
    """The rows of a run, with a line break between two."""


class _Events(NamedTuple):
    """The events in keys, or those in values."""

    is_sound: BoolArray
    """Of each message, whether it consists of events."""
    messages: IntArray
    """The number of the message of each event, ascending."""
    begins: IntArray
    """Where each event begins in the text of all messages, behind its length."""
    ends: IntArray


def split_rows(keys: Sequence[bytes], values: Sequence[bytes]) -> OpenRows:
    """The rows of messages with these keys and values."""
    if max(sum(map(len, keys)), sum(map(len, values))) > _MOST_BYTES:
        return _nothing(len(keys))
    key_text, value_text = (np.frombuffer(b"".join(parts), np.uint8) for parts in (keys, values))
    of_keys, of_values = _events(key_text, keys, _LENGTH_BYTES), _events(value_text, values, 0)
    counts = [np.bincount(found.messages, minlength=len(keys)) for found in (of_keys, of_values)]
    is_regular = of_keys.is_sound & of_values.is_sound & (counts[0] == counts[1]) & (counts[0] > 0)
    is_regular &= _have_version(keys)
    of_keys, of_values = _only(of_keys, is_regular), _only(of_values, is_regular)
    told = _read_keys(key_text, of_keys)
    is_regular[of_keys.messages[~(told.is_row & _are_lines(value_text, of_values))]] = False
    kept = np.flatnonzero(is_regular[of_keys.messages])
    about = [column[kept] for column in (of_keys.messages, told.tables, told.commit_ts)]
    is_first = np.ones(len(kept), bool)
    is_first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in about])
    lines = cut(value_text, of_values.begins[kept], of_values.ends[kept])
    runs = np.flatnonzero(is_first)
    if len(runs) < len(kept):
        lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([*runs, len(kept)], pa.int32()), lines), b"\n")
    messages, places, commit_ts = (column[runs] for column in about)
    databases, tables = (
        pa.array([name and name[part] for name in told.names], pa.string()).take(pa.array(places)) for part in (0, 1)
    )
    return OpenRows(is_regular, messages, databases, tables, commit_ts, lines)


def _nothing(count: int) -> OpenRows:
    none, texts = np.zeros(0, np.int64), pa.array([], pa.string())
    return OpenRows(np.zeros(count, bool), none, texts, texts, none, pa.array([], pa.binary()))


def _events(text: npt.NDArray[np.uint8], parts: Sequence[bytes], header: int) -> _Events:
    """The events of messages (``parts`` of ``text``) behind their headers: each is its length in 8 bytes, and then itself."""
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
    at = np.concatenate([[0], ends[:-1]])[: len(ends)] + header
    lengths = np.ndarray((max(len(text) - _LENGTH_BYTES + 1, 0),), ">u8", text, strides=(1,))
    left = np.flatnonzero(at < ends)
    messages, begins, stops = [], [], []
    for _ in range(_MOST_EVENTS):
        left = left[at[left] + _LENGTH_BYTES <= ends[left]]
        if not len(left):
            break
        begin = at[left] + _LENGTH_BYTES
        length = lengths[at[left]]
        fits = length <= (ends[left] - begin).astype(np.uint64)
        left, begin, length = left[fits], begin[fits], length[fits].astype(np.int64)
        at[left] = begin + length
        messages.append(left)
        begins.append(begin)
        stops.append(begin + length)
    found = [np.concatenate([np.zeros(0, np.int64), *steps]) for steps in (messages, begins, stops)]
    order = np.argsort(found[0], kind="stable")
    return _Events(at == ends, *(column[order] for column in found))


def _only(events: _Events, is_chosen: BoolArray) -> _Events:
    """The events of the chosen messages."""
    kept = is_chosen[events.messages]
    return _Events(is_chosen, events.messages[kept], events.begins[kept], events.ends[kept])


def _have_version(keys: Sequence[bytes]) -> BoolArray:
    """Which keys begin with the version of the protocol that is known."""
    begin = VERSION.to_bytes(_LENGTH_BYTES, "big")
    return np.fromiter((key.startswith(begin) for key in keys), bool, len(keys))


class _Keys(NamedTuple):
    """What the keys of events say, by the number of the event; those of other events than rows have any names and commit ts."""

    is_row: BoolArray
    commit_ts: IntArray
    """TSO."""
    tables: IntArray
    """The place of the table in ``names``."""
    names: Sequence[tuple[str, str] | None]
    """Database and table."""


def _read_keys(text: npt.NDArray[np.uint8], events: _Events) -> _Keys:
    keys = cut(text, events.begins, events.ends).dictionary_encode()
    different, number = keys.dictionary, keys.indices.to_numpy()
    found = numbers_in(different, len(_BEFORE_TS), len(_BEFORE_TS) + _TS_DIGITS)
    is_row = pc.starts_with(different, _BEFORE_TS).to_numpy(zero_copy_only=False) & (found >= _LEAST_TS)
    ends = np.cumsum(pc.binary_length(different).to_numpy().astype(np.int64))
    begins = np.concatenate([[0], ends[:-1]])[: len(ends)]
    together = np.frombuffer(b"".join(different.to_pylist()), np.uint8)
    behind = cut(together, np.minimum(begins + len(_BEFORE_TS) + _TS_DIGITS, ends), ends).dictionary_encode()
    names = [_names_in(told) for told in behind.dictionary.to_pylist()]
    place = behind.indices.to_numpy()
    is_row &= np.array([name is not None for name in names], bool)[place]
    return _Keys(is_row[number], found[number], place[number].astype(np.int64), names)


def _names_in(text: bytes) -> tuple[str, str] | None:
    """Database and table in what is behind the commit ts of a key; ``None`` if it is not that of a row."""
    found = _NAMES.fullmatch(text)
    try:
        return (found[1].decode(), found[2].decode()) if found else None
    except UnicodeDecodeError:
        return None


def _are_lines(text: npt.NDArray[np.uint8], events: _Events) -> BoolArray:
    """Which events have an object with members, without line breaks and without compression."""
    begins, ends = events.begins, events.ends
    are_long = ends - begins > len(b'{""}')
    found = are_long.copy()
    begins, ends = begins[are_long], ends[are_long]
    found[are_long] = (text[begins] == ord("{")) & (text[begins + 1] == ord('"')) & (text[ends - 1] == ord("}"))
    breaks = np.flatnonzero((text == _BREAKS[0]) | (text == _BREAKS[1]))
    if len(breaks) and len(events.begins):
        of_break = np.maximum(np.searchsorted(events.begins, breaks, "right") - 1, 0)
        is_inside = (breaks >= events.begins[of_break]) & (breaks < events.ends[of_break])
        found[of_break[is_inside]] = False  # others are in lengths
    return found
