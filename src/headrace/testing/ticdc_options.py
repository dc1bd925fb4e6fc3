"""A changefeed's configuration, as far as it affects the files that TiCDC writes.

Names and defaults are those of the sink URI and the changefeed configuration file (TiCDC documentation, "Replicate Data to Storage
Services" and "CLI and Configuration Parameters of TiCDC Changefeeds").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

Protocol = Literal["csv", "canal-json"]
DateSeparator = Literal["none", "year", "month", "day"]

_DATE_FORMATS: dict[str, str] = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d"}


@dataclass(frozen=True)
class ChangefeedOptions:
    """One changefeed's options."""

    protocol: Protocol = "csv"
    date_separator: DateSeparator = "day"
    enable_partition_separator: bool = True
    file_index_digit: int = 20
    use_table_id_as_path: bool = False
    enable_table_across_nodes: bool = False
    legacy: bool = False
    """Writes the tree of the releases before v6.5.3: ``{V}/schema.json`` without ``Type``, no database-level files, six digits, the
    index file beside the data."""
    file_size: int = 64 << 20
    """Bytes."""
    time_zone: str = "UTC"
    """The zone of the TiCDC server (``--tz``), in which TIMESTAMP values and date folders are written."""
    terminator: str = "\r\n"
    output_column_id: bool = False
    output_raw_change_event: bool = False
    """Does not split updates that change a key."""
    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    binary_encoding_method: Literal["base64", "hex"] = "base64"
    output_old_value: bool = False
    output_field_header: bool = False
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False

    @property
    def extension(self) -> str:
        """``csv`` or ``json``."""
        return "csv" if self.protocol == "csv" else "json"

    @property
    def digits(self) -> int:
        """The width of file numbers. A value out of range means the default, as in TiCDC."""
        if self.legacy:
            return 6
        return self.file_index_digit if 6 <= self.file_index_digit <= 20 else 20

    @property
    def zone(self) -> tzinfo:
        return UTC if self.time_zone == "UTC" else ZoneInfo(self.time_zone)

    def date_folder(self, now: datetime) -> str:
        """The date directory of a file that is written at ``now``; empty without a date separator."""
        form = _DATE_FORMATS.get(self.date_separator)
        return now.astimezone(self.zone).strftime(form) if form else ""

    def uri_parameters(self) -> str:
        """The query of the sink URI, which a consumer also needs."""
        query: dict[str, str] = {"protocol": self.protocol}
        flags = {
            "enable-tidb-extension": self.enable_tidb_extension,
            "content-compatible": self.content_compatible,
            "only-output-updated-columns": self.only_output_updated_columns,
            "use-table-id-as-path": self.use_table_id_as_path,
        }
        query |= {name: "true" for name, chosen in flags.items() if chosen}
        return urlencode(query)

    def changefeed_toml(self) -> str:
        """The changefeed's configuration file. (A JSON string is also a TOML string.)"""
        lines = [
            "[sink]",
            f"terminator = {json.dumps(self.terminator)}",
            f"date-separator = {json.dumps(self.date_separator)}",
            f"enable-partition-separator = {_toml(self.enable_partition_separator)}",
            f"file-index-digit = {self.digits}",
            f"delete-only-output-handle-key-columns = {_toml(self.delete_only_output_handle_key_columns)}",
            "[sink.cloud-storage-config]",
            f"output-column-id = {_toml(self.output_column_id)}",
            f"output-raw-change-event = {_toml(self.output_raw_change_event)}",
            f"file-size = {self.file_size}",
        ]
        if self.protocol == "csv":
            lines += [
                "[sink.csv]",
                f"delimiter = {json.dumps(self.delimiter)}",
                f"quote = {json.dumps(self.quote)}",
                f"null = {json.dumps(self.null)}",
                f"include-commit-ts = {_toml(self.include_commit_ts)}",
                f"binary-encoding-method = {json.dumps(self.binary_encoding_method)}",
                f"output-old-value = {_toml(self.output_old_value)}",
                f"output-field-header = {_toml(self.output_field_header)}",
            ]
        if self.enable_table_across_nodes:
            lines += ["[scheduler]", "enable-table-across-nodes = true"]
        return "\n".join(lines) + "\n"


def _toml(value: bool) -> str:
    return "true" if value else "false"
