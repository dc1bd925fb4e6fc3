"""Reads TiCDC's own changefeed file, for every source that a changefeed writes to.

Names are TiCDC's (TiCDC documentation, "Changefeed Configuration Parameters"). Settings that do not concern a reader are accepted.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import DefinitionError
from headrace.model.uri import reject_unknown

_KEYS = frozenset(
    {
        "bdr-mode",
        "case-sensitive",
        "changefeed-error-stuck-duration",
        "check-gc-safe-point",
        "consistent",
        "enable-active-active",
        "enable-old-value",
        "enable-sync-point",
        "enable-table-monitor",
        "filter",
        "force-replicate",
        "ignore-ineligible-table",
        "integrity",
        "memory-quota",
        "mounter",
        "scheduler",
        "sink",
        "sql-mode",
        "sync-point-interval",
        "sync-point-retention",
        "synced-status",
    }
)
_SINK_KEYS = frozenset(
    {
        "protocol",
        "terminator",
        "date-separator",
        "enable-partition-separator",
        "enable-tidb-extension",
        "advance-timeout-in-sec",
        "case-sensitive",
        "cloud-storage-config",
        "column-selectors",
        "content-compatible",
        "csv",
        "debezium",
        "debezium-disable-schema",
        "delete-only-output-handle-key-columns",
        "dispatchers",
        "enable-kafka-sink-v2",
        "encoder-concurrency",
        "file-index-digit",
        "kafka-config",
        "large-message-handle",
        "mysql-config",
        "only-output-updated-columns",
        "open",
        "output-old-value",
        "pulsar-config",
        "safe-mode",
        "schema-registry",
        "send-all-bootstrap-at-start",
        "send-bootstrap-in-msg-count",
        "send-bootstrap-interval-in-sec",
        "send-bootstrap-to-all-partition",
        "transaction-atomicity",
    }
)


@dataclass(frozen=True)
class ChangefeedFile:
    """A changefeed file whose keys are known."""

    path: str
    document: Mapping[str, object]
    sink: Mapping[str, object]
    """The section ``[sink]``."""

    @property
    def case_sensitive(self) -> bool:
        """Whether its table filters and selectors distinguish letters by case."""
        return bool(self.document.get("case-sensitive", False))

    def section(self, key: str, known: frozenset[str] | None = None) -> dict[str, object]:
        """The section ``[sink.<key>]``, empty if there is none. Raises DefinitionError for a key that is not ``known``."""
        found = _section(self.sink, key, self.path)
        if known is not None:
            reject_unknown(found.keys(), known, f"[sink.{key}] key of the changefeed file {self.path}")
        return found


def read_changefeed_file(path: str) -> ChangefeedFile:
    """The changefeed file at ``path``. Raises DefinitionError if it cannot be read, or has a key that TiCDC does not have."""
    try:
        with Path(path).open("rb") as stream:
            document = tomllib.load(stream)
    except OSError as error:
        raise DefinitionError(f"The changefeed file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError(f"The changefeed file {path} is not valid TOML: {error}.") from None
    what = f"key of the changefeed file {path}"
    reject_unknown(document.keys(), _KEYS, what)
    sink = _section(document, "sink", path)
    reject_unknown(sink.keys(), _SINK_KEYS, f"[sink] {what}")
    return ChangefeedFile(path, document, sink)


def _section(document: Mapping[str, object], key: str, path: str) -> dict[str, object]:
    section = document.get(key, {})
    if not isinstance(section, dict):
        raise DefinitionError(f"{key!r} in the changefeed file {path} is not a section.", f"Write [{key}] or [sink.{key}].")
    return section
