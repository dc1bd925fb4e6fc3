"""Connectors by URI scheme: entry points, ours and third parties' alike.

A source is registered in the group ``headrace.sources`` under its scheme, as a function ``(uri, changefeed) -> DataSource``;
a sink in ``headrace.sinks``, as ``(uri, *, adopt, allow_non_transactional) -> DataSink``.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import cast

from headrace.errors import DefinitionError
from headrace.model.uri import near_match, without_secrets
from headrace.sinks.base import DataSink
from headrace.sources.base import DataSource


def open_source(uri: str, changefeed: str | None = None) -> DataSource:
    """The source that a URI names. Raises DefinitionError for an unknown scheme or parameter."""
    return cast(DataSource, _entry("headrace.sources", uri, "source").load()(uri, changefeed))


def open_sink(uri: str, *, adopt: bool = False, allow_non_transactional: bool = False) -> DataSink:
    """The sink that a URI names. ``adopt`` takes over tables that hold rows already, ``allow_non_transactional`` those whose
    writes cannot be rolled back. Raises DefinitionError for an unknown scheme or parameter."""
    opened = _entry("headrace.sinks", uri, "sink").load()(uri, adopt=adopt, allow_non_transactional=allow_non_transactional)
    return cast(DataSink, opened)


def _entry(group: str, uri: str, what: str) -> EntryPoint:
    scheme, separator, _ = uri.partition("://")
    if not separator:
        example = "file:///data/changefeed?protocol=csv" if what == "source" else "mysql://user@host:3306/"
        raise DefinitionError(
            f"{without_secrets(uri)!r} is not a URI.", f"Write the {what} with its scheme, for example {example}."
        )
    known = {entry.name: entry for entry in entry_points(group=group)}
    if scheme.lower() not in known:
        raise DefinitionError(f"Unknown {what} scheme {scheme!r}.", near_match(scheme, known))
    return known[scheme.lower()]
