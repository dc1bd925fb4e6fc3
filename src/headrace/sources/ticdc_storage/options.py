"""The configured options of a changefeed, from the source's URI and from TiCDC's own changefeed file.

Names and defaults are TiCDC's (TiCDC documentation, "Replicate Data to Storage Services" and "Changefeed Configuration
Parameters"). The URI takes precedence over the file. Options of the changefeed that do not concern a reader are accepted and
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from headrace.errors import DefinitionError
from headrace.formats.canal_json import CanalJsonOptions
from headrace.formats.csv import CsvOptions
from headrace.formats.storage_paths import DateSeparator
from headrace.model.tso import CLOCK_TOLERANCE
from headrace.model.uri import Uri, near_match, reject_unknown
from headrace.places.location import STORE_PARAMETERS
from headrace.sources.changefeed_file import read_changefeed_file
from headrace.sources.changefeed_rules import ColumnSelectors, read_selectors

_CSV_KEYS = frozenset(
    {
        "delimiter",
        "quote",
        "null",
        "include-commit-ts",
        "binary-encoding-method",
        "output-old-value",
        "output-handle-key",
        "output-field-header",
    }
)
_SINK_KEYS = frozenset(
    {
        "protocol",
        "terminator",
        "date-separator",
        "enable-partition-separator",
        "enable-tidb-extension",
    }
)
_STORAGE_KEYS = frozenset({"file-size", "file-expiration-days", "output-raw-change-event", "use-table-id-as-path"})
_OTHER_URI_PARAMETERS = frozenset(
    {
        "content-compatible",
        "delete-only-output-handle-key-columns",
        "file-cleanup-cron-spec",
        "file-index-digit",
        "flush-concurrency",
        "flush-interval",
        "max-message-bytes",
        "only-output-updated-columns",
        "output-column-id",
        "output-row-key",
        "spool-base-dir",
        "spool-disk-quota",
        "transaction-atomicity",
        "worker-count",
    }
)
_OWN_URI_PARAMETERS = frozenset(
    {"clock-tolerance", "max-file-bytes", "max-statement-bytes", "new-collations", "time-zone", "strict"}
)
URI_PARAMETERS = STORE_PARAMETERS | _CSV_KEYS | _SINK_KEYS | _STORAGE_KEYS | _OTHER_URI_PARAMETERS | _OWN_URI_PARAMETERS
"""All parameters that a storage source's URI may have."""

_Choice = TypeVar("_Choice", bound=StrEnum)
_ESCAPES = {"\\r": "\r", "\\n": "\n", "\\t": "\t"}
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


class Protocol(StrEnum):
    """The formats of data files that Headrace reads. Each value is also the changefeed's name for it."""

    CSV = "csv"
    CANAL_JSON = "canal-json"

    @property
    def extension(self) -> str:
        return "csv" if self is Protocol.CSV else "json"


@dataclass(frozen=True)
class StorageOptions:
    """How to read a changefeed's folder."""

    protocol: Protocol | None = None
    """``None`` if not configured: then the files' names decide. The same holds for ``date_separator``."""
    csv: CsvOptions = field(default_factory=CsvOptions)
    canal_json: CanalJsonOptions = field(default_factory=CanalJsonOptions)
    date_separator: DateSeparator | None = None
    partition_separator: bool = True
    use_table_id_as_path: bool | None = None
    enable_tidb_extension: bool | None = None
    """``None`` if not configured: then the files decide."""
    raw_change_events: bool = False
    """Updates that change a key are not split."""
    file_size: int = 64 << 20
    """The size in bytes at which TiCDC begins a new file."""
    expiration_days: int = 0
    """TiCDC removes files that are older (0: never)."""
    strict: bool = False
    """A wrong checksum of a schema file is an error."""
    new_collations: bool | None = None
    """TiDB's ``new_collations_enabled_on_first_bootstrap``. If false, TiDB compares texts byte by byte; ``None`` if unknown."""
    most_file_bytes: int = 1 << 30
    """A larger data file is not read: it is held in memory whole. TiCDC's largest ``file-size`` is 512 MiB."""
    most_statement_bytes: int = 16 << 20
    """A schema file with a longer statement is not read."""
    clock_tolerance: int = CLOCK_TOLERANCE
    """How far (seconds) commit ts and checkpoints may be ahead of this machine's clock."""


def read_options(uri: Uri, changefeed: str | None = None) -> StorageOptions:
    """The options of a URI and, with lower precedence, of the changefeed file at ``changefeed``. Raises DefinitionError."""
    reject_unknown(uri.params.keys(), URI_PARAMETERS, "parameter of a storage source")
    told, selectors = _read_changefeed(changefeed) if changefeed else ({}, ColumnSelectors())
    told.update({key: _unescaped(key, value) for key, value in uri.params.items()})
    return _options(told, selectors)


def _options(told: Mapping[str, object], selectors: ColumnSelectors) -> StorageOptions:
    # TiCDC uses CRLF only if the key is absent, but according to its documentation an empty text also means CRLF. CSV without a
    # terminator cannot be read, canal-JSON can.
    terminator = _text(told, "terminator", "\r\n")
    time_zone = _text(told, "time-zone", "UTC")
    try:
        csv = CsvOptions(
            delimiter=_text(told, "delimiter", ","),
            quote=_text(told, "quote", '"'),
            null=_text(told, "null", "\\N"),
            terminator=terminator or "\r\n",
            include_commit_ts=_flag(told, "include-commit-ts"),
            output_old_value=_flag(told, "output-old-value"),
            output_handle_key=bool(_flag(told, "output-handle-key")),
            header=_flag(told, "output-field-header"),
            binary_encoding=_text(told, "binary-encoding-method", "base64").lower(),
            time_zone=time_zone,
            column_selected=selectors if selectors.selectors else None,
        )
        canal = CanalJsonOptions(terminator=terminator, time_zone=time_zone)
    except ValueError as error:
        raise DefinitionError(f"The options of the changefeed do not work: {error}.") from None
    partition_separator = _flag(told, "enable-partition-separator")
    return StorageOptions(
        protocol=_choice(told, "protocol", Protocol),
        csv=csv,
        canal_json=canal,
        date_separator=_choice(told, "date-separator", DateSeparator),
        partition_separator=partition_separator is not False,
        use_table_id_as_path=_flag(told, "use-table-id-as-path"),
        enable_tidb_extension=_flag(told, "enable-tidb-extension"),
        raw_change_events=bool(_flag(told, "output-raw-change-event")),
        file_size=_whole(told, "file-size", 64 << 20, "bytes"),
        expiration_days=_whole(told, "file-expiration-days", 0, "days"),
        strict=bool(_flag(told, "strict")),
        new_collations=_flag(told, "new-collations"),
        most_file_bytes=_whole(told, "max-file-bytes", 1 << 30, "bytes"),
        most_statement_bytes=_whole(told, "max-statement-bytes", 16 << 20, "bytes"),
        clock_tolerance=_whole(told, "clock-tolerance", CLOCK_TOLERANCE, "seconds"),
    )


def _whole(told: Mapping[str, object], key: str, default: int, unit: str) -> int:
    text = str(told.get(key, default))
    if not re.fullmatch("[0-9]{1,18}", text):
        raise DefinitionError(f"{key}={text} is not a whole number of {unit}.")
    return int(text)


def _read_changefeed(path: str) -> tuple[dict[str, object], ColumnSelectors]:
    """The options of a changefeed file in one flat dictionary with the URI's names, and its column selectors."""
    file = read_changefeed_file(path)
    told: dict[str, object] = {key: value for key, value in file.sink.items() if key in _SINK_KEYS}
    told.update(file.section("csv", _CSV_KEYS))
    told.update({key: value for key, value in file.section("cloud-storage-config").items() if key in _STORAGE_KEYS})
    return told, read_selectors(file)


def _unescaped(key: str, value: str) -> str:
    r"""Replaces escapes like ``\t`` in a URI's delimiter and terminator by control characters. TOML has its own escapes."""
    if key in ("delimiter", "terminator"):
        for written, meant in _ESCAPES.items():
            value = value.replace(written, meant)
    return value


def _text(told: Mapping[str, object], key: str, default: str) -> str:
    value = told.get(key, default)
    if not isinstance(value, str):
        raise DefinitionError(f"{key} must be a text, not {value!r}.")
    return value


def _flag(told: Mapping[str, object], key: str) -> bool | None:
    value = told.get(key)
    if value is None or isinstance(value, bool):
        return value
    folded = str(value).lower()
    if folded in _TRUE:
        return True
    if folded in _FALSE:
        return False
    raise DefinitionError(f"{key} must be true or false, not {value!r}.")


def _choice(told: Mapping[str, object], key: str, choices: type[_Choice]) -> _Choice | None:
    value = told.get(key)
    if value is None or value == "":
        return None
    try:
        return choices(str(value).lower())
    except ValueError:
        hint = near_match(str(value), [str(choice) for choice in choices])
        raise DefinitionError(f"{key} {value!r} is not one that Headrace reads.", hint) from None
