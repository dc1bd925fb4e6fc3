"""Finds the fields of many messages at once: the steps of a reader, each taken for all messages before the next.

Everything here works on arrays of positions in one buffer that holds the messages one after the other. What does not have the
layout that is looked for is marked as not sound, never guessed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.formats.binlog.errors import MalformedBinlogError
from headrace.formats.binlog.wire import varint
from headrace.formats.buffer import Buffer, Positions

_FEW = 64
"""From so few chains on, a loop over their fields in Python is faster than numpy's calls for each step."""
_LONG = 1024
"""From so many bytes on, a single chain is looked for in all its bytes at once."""


class Chains(NamedTuple):
    """Fields that follow each other in their owners, in the order of their bytes."""

    owner: Positions
    """The number of the chain that the field is in."""
    start: Positions
    stop: Positions
    """The content of each field, without tag and length."""
    end: Positions
    """For each chain, where it ends: at another field, at its owner's end, or at a field that does not fit into its owner."""


class FieldBuffer(Buffer):
    """Messages of protobuf."""

    def chains(self, at: Positions, end: Positions, tag: int, first: int) -> Chains:
        """The fields with that tag (of the wire type for bytes) that follow each other from each position on.

        ``first`` is the first byte of most of the fields' contents.
        """
        at = at.copy()
        found = [(np.empty(0, np.int64),) * 3]
        active = np.arange(len(at))
        while len(active) > _FEW:
            here = at[active]
            going = (here < end[active]) & (self.bytes[here] == tag)
            if not going.all():
                active, here = active[going], here[going]
            length, start, sound = self.lengths(here + 1)
            stop = start + length
            fits = stop <= end[active]
            if sound is not None:
                fits &= sound
            if not fits.all():
                active, start, stop = active[fits], start[fits], stop[fits]
            at[active] = stop
            found.append((active, start, stop))
        for owner in active.tolist():
            places, at[owner] = self._chain(int(at[owner]), int(end[owner]), tag, first)
            length, start, _ = self.lengths(places + 1)
            found.append((np.full(len(places), owner), start, start + length))
        owners, starts, stops = (np.concatenate([part[column] for part in found]) for column in range(3))
        if len(found) > 2:
            order = np.argsort(starts, kind="stable")
            owners, starts, stops = owners[order], starts[order], stops[order]
        return Chains(owners, starts, stops, at)

    def _chain(self, at: int, end: int, tag: int, first: int) -> tuple[Positions, int]:
        """The positions of the fields of one chain, and where it ends."""
        if end - at >= _LONG:
            # Wherever tag and first byte are, behind a length of one or two bytes, a field may begin. If each of these ends where
            # the next begins, they are the chain.
            places = at + np.flatnonzero(self.bytes[at:end] == tag)
            one, two, three = (self.bytes[places + place] for place in (1, 2, 3))
            places = places[np.where(one < 0x80, two == first, (two < 0x80) & (three == first))]
            lengths, starts, _ = self.lengths(places + 1)
            stops = starts + lengths
            if len(places) and places[0] == at and (places[1:] == stops[:-1]).all():
                stop = int(stops[-1])
                if stop == end or (stop < end and self.data[stop] != tag):
                    return places, stop
        return self._followed(at, end, tag)

    def _followed(self, at: int, end: int, tag: int) -> tuple[Positions, int]:
        """The positions of the fields of one chain, and where it ends, field by field."""
        data, places = self.data, []
        while at < end and data[at] == tag:
            length = data[at + 1]
            if length < 0x80:
                stop = at + 2 + length
            elif data[at + 2] < 0x80:
                stop = at + 3 + (length & 0x7F | data[at + 2] << 7)
            else:
                try:
                    length, start = varint(data, at + 1, end)
                except MalformedBinlogError:
                    break
                stop = start + length
            if stop > end:
                break
            places.append(at)
            at = stop
        return np.array(places, np.int64), at
