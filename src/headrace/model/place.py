"""Places in a source: a file or a record in it, or a record of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PlaceInFile:
    """A file, or a record in it."""

    file: str
    """The source's name of the file."""
    line: int | None = None
    """Counted from 1."""
    offset: int | None = None
    """In bytes. Messages show the line instead."""

    def __str__(self) -> str:
        """The place for a sentence: ``file shop/a/7/CDC000001.csv, line 3``."""
        return f"file {self.name}"

    @property
    def name(self) -> str:
        """The place without its kind, for a context in which the kind is clear."""
        return self.file if self.line is None else f"{self.file}, line {self.line}"

    @property
    def noun(self) -> str:
        """The word for what a person gives up at this place."""
        return "file"

    @property
    def described(self) -> str:
        """``the file shop/a/7/CDC000001.csv``"""
        return f"the {self}"

    @property
    def container(self) -> str:
        """The file that the offset refers to."""
        return self.file

    @property
    def is_record(self) -> bool:
        """Whether this is the place of one record, and not of the whole file."""
        return self.line is not None or self.offset is not None

    def at(self, *, line: int | None = None, offset: int | None = None) -> PlaceInFile:
        """The place of a record in the file."""
        return replace(self, line=line, offset=offset)

    def spelled(self, spell: Callable[[str], str]) -> PlaceInFile:
        """The place with its name spelled in another way."""
        return replace(self, file=spell(self.file))


@dataclass(frozen=True)
class PlaceInStream:
    """A record of a stream, or records of one partition that are read together."""

    partition: str
    offset: int
    """The offset of the record, or of the first of several."""
    last: int | None = None
    """The offset of the last record, if there may be several."""

    def __str__(self) -> str:
        """The place for a sentence: ``partition 3, offset 1234``."""
        is_one = self.last in (None, self.offset)
        return f"partition {self.partition}, " + (f"offset {self.offset}" if is_one else f"offsets {self.offset} to {self.last}")

    @property
    def name(self) -> str:
        """The same as in a sentence."""
        return str(self)

    @property
    def noun(self) -> str:
        """The word for what a person gives up at this place: a record, or a piece (records staged together in the work place)."""
        return "record" if self.is_record else "piece"

    @property
    def described(self) -> str:
        """``the record at partition 3, offset 1234``"""
        return f"the {self.noun} at {self}"

    @property
    def container(self) -> str:
        """The partition that the offset refers to."""
        return self.partition

    @property
    def is_record(self) -> bool:
        """Whether this is the place of one record, and not of records that are read together."""
        return self.last is None

    def at(self, *, line: int | None = None, offset: int | None = None) -> PlaceInStream:
        """The place of one record of these. Nothing in a stream has lines."""
        return replace(self, offset=self.offset if offset is None else offset, last=None)

    def spelled(self, spell: Callable[[str], str]) -> PlaceInStream:
        """The place with its name spelled in another way."""
        return replace(self, partition=spell(self.partition))


SourcePlace = PlaceInFile | PlaceInStream


def file_of(place: SourcePlace | None) -> str:
    """The name of the place's file; ``""`` if there is none."""
    return place.file if isinstance(place, PlaceInFile) else ""


def fields_of(place: SourcePlace | None) -> dict[str, str | int]:
    """The place's fields for JSON, without those that are ``None``; empty for no place."""
    told = asdict(place) if place is not None else {}
    return {name: value for name, value in told.items() if value is not None}


def place_from(told: Mapping[str, Any]) -> SourcePlace | None:
    """The inverse of :func:`fields_of`. Other fields are ignored. Raises KeyError."""
    if "partition" in told:
        return PlaceInStream(told["partition"], told["offset"], told.get("last"))
    return PlaceInFile(told["file"], told.get("line"), told.get("offset")) if told.get("file") else None


def place_text(place: SourcePlace | None) -> str:
    """A file by its name, a record of a stream as ``partition:offset``; ``""`` for no place."""
    return f"{place.partition}:{place.offset}" if isinstance(place, PlaceInStream) else file_of(place)


def place_of_text(text: str, *, in_stream: bool) -> SourcePlace | None:
    """The inverse of :func:`place_text`. Raises ValueError."""
    if in_stream:
        partition, _, offset = text.rpartition(":")
        return PlaceInStream(partition, int(offset))
    return PlaceInFile(text) if text else None
