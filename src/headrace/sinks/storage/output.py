"""How a storage sink writes: the parameters of its URI, which are those of TiCDC's storage sink, and an encoder for rows.

Names and meanings: TiCDC documentation, "Replicate Data to Storage Services". Where readers need something that TiCDC leaves out
unless asked, the default is to write it: the commit ts of each row (``include-commit-ts``, ``enable-tidb-extension``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import pyarrow as pa

from headrace.errors import DefinitionError
from headrace.formats.canal_encoder import CanalJsonEncoder, CanalJsonOutput
from headrace.formats.csv_encoder import CsvEncoder
from headrace.formats.csv_layout import CsvOptions
from headrace.formats.encoding import EncodeError
from headrace.formats.storage_paths import DateSeparator
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import ColumnType, TypeKind
from headrace.model.uri import Uri, near_match, reject_unknown
from headrace.places.location import STORE_PARAMETERS

_Choice = TypeVar("_Choice", bound=StrEnum)
_CSV = frozenset(
    {
        "delimiter",
        "quote",
        "null",
        "include-commit-ts",
        "binary-encoding-method",
        "output-old-value",
        "output-field-header",
    }
)
_CANAL_JSON = frozenset(
    {
        "enable-tidb-extension",
        "content-compatible",
        "only-output-updated-columns",
        "delete-only-output-handle-key-columns",
    }
)
_COMMON = frozenset({"protocol", "terminator", "date-separator", "file-index-digit", "file-size", "output-column-id", "time-zone"})
_DATES = {DateSeparator.YEAR: "%Y", DateSeparator.MONTH: "%Y-%m", DateSeparator.DAY: "%Y-%m-%d"}
_ESCAPES = {"\\r": "\r", "\\n": "\n", "\\t": "\t"}
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_SIZES = range(1 << 10, (512 << 20) + 1)
_DIGITS = range(6, 21)
_ANY_TABLE = TableSchema(TableId("d", "t"), (Column("c", ColumnType(TypeKind.INT)),))
"""To check options that concern every table."""


class Protocol(StrEnum):
    """What data files hold. Each value is TiCDC's name for it."""

    CSV = "csv"
    CANAL_JSON = "canal-json"


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows of one table in one shape. ``encode`` raises EncodeError."""

    header: bytes
    """The beginning of every file."""
    encode: Callable[[pa.RecordBatch], pa.Buffer]


@dataclass(frozen=True)
class StorageOutput:
    """The options of a storage sink."""

    protocol: Protocol
    csv: CsvOptions
    canal_json: CanalJsonOutput
    terminator: str
    date_separator: DateSeparator
    digits: int
    file_size: int
    """The size in bytes from which on a new file begins."""
    column_ids: bool

    @property
    def extension(self) -> str:
        return "csv" if self.protocol is Protocol.CSV else "json"

    @property
    def told(self) -> str:
        """What readers have to know, as text: files of one target are read with one set of options."""
        told: dict[str, object] = {"protocol": str(self.protocol), "terminator": self.terminator}
        if self.protocol is Protocol.CSV:
            csv = self.csv
            told |= {"delimiter": csv.delimiter, "quote": csv.quote, "null": csv.null, "time-zone": csv.time_zone}
            told |= {"binary-encoding-method": csv.binary_encoding, "include-commit-ts": bool(csv.include_commit_ts)}
            told |= {"output-old-value": bool(csv.output_old_value), "output-field-header": bool(csv.header)}
        else:
            canal = self.canal_json
            told |= {"time-zone": canal.time_zone, "enable-tidb-extension": canal.enable_tidb_extension}
        return ", ".join(f"{name}={json.dumps(value)}" for name, value in told.items())

    def date(self, now: datetime) -> str:
        """The name of the date directory at a time; empty if there are none."""
        return now.strftime(_DATES[self.date_separator]) if self.date_separator in _DATES else ""

    def encoder(self, schema: TableSchema, carried: Collection[str]) -> RowEncoder:
        """The encoder for rows that have these columns.

        Rows of canal-JSON, and of CSV with a header, name their columns. So they may lack columns that a column selector of the
        source left out. Raises EncodeError for a shape that the options do not fit.
        """
        names = {folded_name(name) for name in carried}
        for column in schema.row_columns:
            if column.generated is not None and folded_name(column.name) not in names:
                reason = "is computed by the source, and the source's rows do not have it"
                raise EncodeError(schema.table_id, reason, column=column.name, hint="Readers of files cannot compute it.")
        has_names = self.protocol is Protocol.CANAL_JSON or bool(self.csv.header)
        is_selected = (lambda _, name: folded_name(name) in names) if has_names else None
        if self.protocol is Protocol.CANAL_JSON:
            lines = CanalJsonEncoder(schema, replace(self.canal_json, column_selected=is_selected))
            return RowEncoder(b"", lambda batch: lines.lines(batch, self.terminator))
        records = CsvEncoder(schema, replace(self.csv, column_selected=is_selected))
        return RowEncoder(records.header(), records.encode)


def read_output(uri: Uri) -> StorageOutput:
    """The options of a sink's URI. Raises DefinitionError."""
    told = uri.params
    protocol = _choice(told, "protocol", Protocol, None)
    own = _CSV if protocol is Protocol.CSV else _CANAL_JSON
    reject_unknown(told.keys(), own | _COMMON | STORE_PARAMETERS, f"parameter of a storage sink with protocol={protocol}")
    terminator = _text(told, "terminator", "\r\n") or "\r\n"
    zone = _text(told, "time-zone", "UTC")
    try:
        csv = CsvOptions(
            delimiter=_text(told, "delimiter", ","),
            quote=_text(told, "quote", '"'),
            null=_text(told, "null", "\\N"),
            terminator=terminator,
            include_commit_ts=_flag(told, "include-commit-ts", default=True),
            output_old_value=_flag(told, "output-old-value"),
            header=_flag(told, "output-field-header"),
            binary_encoding=_text(told, "binary-encoding-method", "base64").lower(),
            time_zone=zone,
        )
        CsvEncoder(_ANY_TABLE, csv)
        canal = CanalJsonOutput(
            enable_tidb_extension=_flag(told, "enable-tidb-extension", default=True),
            content_compatible=_flag(told, "content-compatible"),
            only_output_updated_columns=_flag(told, "only-output-updated-columns"),
            delete_only_output_handle_key_columns=_flag(told, "delete-only-output-handle-key-columns"),
            time_zone=zone,
        )
    except ValueError as error:
        raise DefinitionError(f"The options of the storage sink do not work: {error}.") from None
    return StorageOutput(
        protocol,
        csv,
        canal,
        terminator,
        _choice(told, "date-separator", DateSeparator, DateSeparator.DAY),
        _number(told, "file-index-digit", 20, _DIGITS),
        _number(told, "file-size", 64 << 20, _SIZES),
        _flag(told, "output-column-id"),
    )


def _text(told: Mapping[str, str], name: str, default: str) -> str:
    return re.sub(r"\\[rnt]", lambda found: _ESCAPES[found[0]], told[name]) if name in told else default


def _flag(told: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    if name not in told:
        return default
    value = _FLAGS.get(told[name].lower())
    if value is None:
        raise DefinitionError(f"{name}={told[name]} is neither true nor false.", "Write true or false.")
    return value


def _number(told: Mapping[str, str], name: str, default: int, allowed: range) -> int:
    text = told.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(allowed[-1])) and int(text) in allowed):
        raise DefinitionError(f"{name}={text} is not possible.", f"Write a number from {allowed[0]} to {allowed[-1]}.")
    return int(text)


def _choice(told: Mapping[str, str], name: str, choices: type[_Choice], default: _Choice | None) -> _Choice:
    known = [choice.value for choice in choices]
    if name not in told and default is None:
        ways = " or ".join(f"{name}={choice}" for choice in known)
        raise DefinitionError(f"The URI of a storage sink does not say its {name}.", f"Add {ways}.")
    value = told[name].lower() if name in told else str(default)
    if value not in known:
        raise DefinitionError(f"{name}={value} is not a choice of a storage sink.", near_match(value, known))
    return choices(value)
