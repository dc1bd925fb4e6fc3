"""The paths of TiCDC's storage sink as values: parses a path into the kind of file, and formats it again.

Grammar: TiCDC documentation, "Replicate Data to Storage Services", sections "Storage path structure" and "Index files"; the
variants of older releases, of table-id mode and of tables spread over several nodes are included. All paths are relative to the
root of the changefeed's folder, with ``/`` between segments.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from headrace.model.place import PlaceInFile
from headrace.model.table import is_possible_name
from headrace.model.tso import MAX_TSO

METADATA = "metadata"
OWN_FOLDER = "_headrace"
"""The folder in which Headrace's storage sink keeps its ledger and unpublished files. Readers of changes pass over it."""
_SCHEMA_NAME = re.compile(r"schema_([0-9]+)_([0-9]{10})\.json")
_LEGACY_SCHEMA_NAME = "schema.json"
_INDEX_NAME = re.compile(r"CDC(?:_([0-9]{1,40}))?\.index")
EXTENSIONS = ("csv", "json")
"""The extensions of data files."""
_DATA_NAME = re.compile(rf"CDC(?:_([0-9]{{1,40}})_)?([0-9]{{6,40}})\.({'|'.join(EXTENSIONS)})")
_DIGITS = re.compile(r"0|[1-9][0-9]*")
_DASHED_DATE = re.compile(r"[0-9]{4}-[0-9]{2}(?:-[0-9]{2})?")
_YEAR = re.compile(r"[0-9]{4}")
META_FOLDER = "meta"
"""The folder of schema files in that of a database or table."""
_LONGEST_TSO = len(str(MAX_TSO))
_MOST_NUMBER = (1 << 64) - 1
"""The greatest file number: TiCDC counts in 64 bits. A file with a larger number is not TiCDC's."""


class DateSeparator(StrEnum):
    """The changefeed's ``date-separator``: the interval of flush time that one directory of data files covers."""

    NONE = "none"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class SchemaPath:
    """A schema file. ``table`` is empty for a database-level file and in table-id mode.

    Only the content shows whether a three-segment path is database-level or of table-id mode. ``legacy`` is the layout
    ``{database}/{table}/{version}/schema.json``, which has no checksum.
    """

    database: str
    table: str
    version: int
    checksum: str = ""
    legacy: bool = False

    @property
    def parent(self) -> str:
        """The object that the file describes: ``database/table``, ``database``, or the table id."""
        return f"{self.database}/{self.table}" if self.table else self.database

    @property
    def key(self) -> str:
        if self.legacy:
            return f"{self.parent}/{self.version}/{_LEGACY_SCHEMA_NAME}"
        return f"{self.parent}/{META_FOLDER}/schema_{self.version}_{self.checksum}.json"

    @property
    def place(self) -> PlaceInFile:
        """For messages."""
        return PlaceInFile(self.key)


@dataclass(frozen=True)
class DataPath:
    """A data file."""

    parent: str
    """``database/table``, or the table id in table-id mode."""
    version: int
    partition: str
    """The physical partition id or ``""``."""
    date: str
    """The date directory or ``""``."""
    dispatcher: str
    """The opaque id in the files of tables spread over nodes, or ``""``."""
    digits: str
    """The file number as written."""
    extension: str
    """``csv`` or ``json``."""

    @property
    def number(self) -> int:
        return int(self.digits)

    @cached_property
    def directory(self) -> str:
        return "/".join(part for part in (self.parent, str(self.version), self.partition, self.date) if part)

    @cached_property
    def stream(self) -> str:
        return stream_of(self.dispatcher, self.digits)

    @cached_property
    def key(self) -> str:
        dispatcher = f"_{self.dispatcher}_" if self.dispatcher else ""
        return f"{self.directory}/CDC{dispatcher}{self.digits}.{self.extension}"

    @property
    def order(self) -> tuple[int, int, str, str, int, str]:
        """The natural order within a table: version, partition, date, dispatcher, number."""
        return (self.version, int(self.partition or 0), self.date, self.dispatcher, self.number, self.digits)


@dataclass(frozen=True, slots=True)
class IndexPath:
    """An index file. Its content is only a hint, which Headrace does not need: it may be outdated and name missing files."""

    directory: str
    dispatcher: str
    legacy: bool = False

    @property
    def key(self) -> str:
        folder = self.directory if self.legacy else f"{self.directory}/{META_FOLDER}"
        return f"{folder}/CDC_{self.dispatcher}.index" if self.dispatcher else f"{folder}/CDC.index"


@dataclass(frozen=True, slots=True)
class MetadataPath:
    """The checkpoint file."""

    @property
    def key(self) -> str:
        return METADATA


@dataclass(frozen=True, slots=True)
class ForeignPath:
    """A file that is not part of the format: counted, never an error."""

    key: str


StoragePath = SchemaPath | DataPath | IndexPath | MetadataPath | ForeignPath


def parse_path(key: str, date_separator: DateSeparator | None = None, table_ids: Collection[str] = ()) -> StoragePath:
    """The kind of file at ``key``.

    ``date_separator`` is the changefeed's, ``None`` if unknown. ``table_ids`` are first segments that are known to be table ids.
    Both matter only for two ambiguous forms: a four-digit directory that may be a year or a partition, or a year or a version.
    """
    if key == METADATA:
        return MetadataPath()
    segments = key.split("/")
    if any(not segment for segment in segments) or not has_possible_names(key):
        return ForeignPath(key)
    name = segments[-1]
    parsed = _parse_schema(segments, name) or _parse_index(segments, name) or _parse_data(segments, name, date_separator, table_ids)
    return parsed or ForeignPath(key)


def first_file_in(directory: str, date_separator: DateSeparator | None, table_ids: Collection[str]) -> DataPath | None:
    """The path of the first data file in a directory; ``None`` if no data file can be there. See :func:`parse_path`."""
    path = parse_path(f"{directory}/CDC000001.csv", date_separator, table_ids)
    return path if isinstance(path, DataPath) else None


def parse_data_name(name: str) -> tuple[str, str, str] | None:
    """``(dispatcher, digits, extension)`` of a data file's name, ``None`` for any other name."""
    match = _DATA_NAME.fullmatch(name)
    return (match.group(1) or "", match.group(2), match.group(3)) if match and int(match.group(2)) <= _MOST_NUMBER else None


def is_misplaced(key: str) -> bool:
    """Whether a file that :func:`parse_path` calls foreign has the name of a schema or data file: only its folder is wrong."""
    name = key.rpartition("/")[2]
    return _SCHEMA_NAME.fullmatch(name) is not None or _DATA_NAME.fullmatch(name) is not None


def has_possible_names(path: str) -> bool:
    """Whether the folders of a file can be the names of a database and a table. TiCDC writes into no others."""
    return all(is_possible_name(segment) for segment in path.split("/")[:-1][:2])


def stream_of(dispatcher: str, digits: str) -> str:
    """The name of a sequence of file numbers inside a directory.

    Two names of one number that differ in leading zeros (because the file index width was changed) are two files, hence two
    streams.
    """
    width = len(digits) if digits.startswith("0") else 0
    return f"{dispatcher}/{width}"


def is_version(segment: str) -> bool:
    """Whether a directory name can be a table version, that is a TSO."""
    return len(segment) <= _LONGEST_TSO and _DIGITS.fullmatch(segment) is not None and int(segment) <= MAX_TSO


def _parse_schema(segments: list[str], name: str) -> SchemaPath | None:
    match = _SCHEMA_NAME.fullmatch(name)
    if match and len(segments) in (3, 4) and segments[-2] == META_FOLDER:
        table = segments[1] if len(segments) == 4 else ""
        # Writers never pad the version. A padded one is not from a writer, and its path could not be formatted again.
        return SchemaPath(segments[0], table, int(match.group(1)), match.group(2)) if is_version(match.group(1)) else None
    if name == _LEGACY_SCHEMA_NAME and len(segments) == 4 and is_version(segments[2]):
        return SchemaPath(segments[0], segments[1], int(segments[2]), legacy=True)
    return None


def _parse_index(segments: list[str], name: str) -> IndexPath | None:
    match = _INDEX_NAME.fullmatch(name)
    if not match or len(segments) < 3:
        return None
    dispatcher = match.group(1) or ""
    if segments[-2] == META_FOLDER:
        return IndexPath("/".join(segments[:-2]), dispatcher)
    return IndexPath("/".join(segments[:-1]), dispatcher, legacy=True)


def _parse_data(
    segments: list[str], name: str, date_separator: DateSeparator | None, table_ids: Collection[str]
) -> DataPath | None:
    parsed = parse_data_name(name)
    if parsed is None:
        return None
    place = _parse_directory(segments[:-1], date_separator, table_ids)
    if place is None:
        return None
    parent, version, partition, date = place
    return DataPath(parent, int(version), partition, date, *parsed)


def _parse_directory(
    parts: list[str], date_separator: DateSeparator | None, table_ids: Collection[str]
) -> tuple[str, str, str, str] | None:
    """``(parent, version, partition, date)`` of a data directory, ``None`` if it does not have that form."""
    rest = parts
    date = ""
    if rest and _is_date(rest, date_separator, table_ids):
        date = rest[-1]
        rest = rest[:-1]
    if len(rest) == 2 and is_version(rest[0]) and is_version(rest[1]):
        return (rest[0], rest[1], "", date)
    if len(rest) == 3 and is_version(rest[2]):
        return (f"{rest[0]}/{rest[1]}", rest[2], "", date)
    if len(rest) == 4 and is_version(rest[2]) and is_version(rest[3]):
        return (f"{rest[0]}/{rest[1]}", rest[2], rest[3], date)
    return None


def _is_date(parts: list[str], date_separator: DateSeparator | None, table_ids: Collection[str]) -> bool:
    """Whether the last directory is a date. Dates with dashes are certain; for a year, the configuration decides."""
    last = parts[-1]
    if _DASHED_DATE.fullmatch(last):
        return True
    if not _YEAR.fullmatch(last):
        return False
    if date_separator is not None:
        # A bucket whose changefeed changed its separator has both forms. Five segments can only end in a date.
        return date_separator is DateSeparator.YEAR or len(parts) == 5
    if len(parts) == 3:
        return parts[0] in table_ids
    # Unknown separator: physical partition ids have four digits only in a young cluster, so a plausible year is taken as a year.
    return len(parts) == 5 or (len(parts) == 4 and 2020 <= int(last) <= 2099)


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The parsed path of a data file."""

    directory: str
    stream: str
    unit: str
    number: int


def place_of(path: str) -> FilePlace:
    """The place of a data file. Raises ``ValueError`` for any other path."""
    directory, _, name = path.rpartition("/")
    parsed = parse_data_name(name)
    if parsed is None:
        raise ValueError(f"{path} is not the path of a data file")
    dispatcher, digits, extension = parsed
    stream = stream_of(dispatcher, digits)
    return FilePlace(directory, stream, f"{stream}.{extension}", int(digits))


def path_of(directory: str, unit: str, number: int) -> str:
    """The inverse of :func:`place_of`. Raises ``ValueError`` for a text that is not a unit."""
    stream, _, extension = unit.rpartition(".")
    dispatcher, _, width = stream.rpartition("/")
    prefix = f"_{dispatcher}_" if dispatcher else ""
    return f"{directory}/CDC{prefix}{number:0{int(width)}d}.{extension}"
