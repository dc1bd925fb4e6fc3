"""Finds connectors by URI scheme. All connectors, also Headrace's own, are registered as entry points.

A source is registered in the group ``headrace.sources`` under its scheme, as a function ``(uri, options) -> DataSource``; a sink in
``headrace.sinks``, as ``(uri, options) -> DataSink``. ``options`` is a mapping of the settings besides the URI
(``ConnectorOptions``). A connector rejects options that it does not have, and names them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from headrace.errors import DefinitionError, MissingPartError
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, near_match, without_secrets
from headrace.sinks.base import DataSink
from headrace.sources.base import DataSource


def open_source(uri: str, options: ConnectorOptions = NO_OPTIONS) -> DataSource:
    """The source that a URI names.

    Raises DefinitionError for an unknown scheme, parameter or option, and MissingPartError if a package that it needs is not
    installed.
    """
    return cast(DataSource, _loaded(_entry("headrace.sources", uri, "source"))(uri, options))


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> DataSink:
    """The sink that a URI names. Raises as :func:`open_source`."""
    return cast(DataSink, _loaded(_entry("headrace.sinks", uri, "sink"))(uri, options))


def source_options(changefeed: str | None) -> ConnectorOptions:
    """``changefeed`` is the path of a changefeed's own configuration file."""
    return {"changefeed": changefeed} if changefeed else NO_OPTIONS


def sink_options(*, adopt: bool = False, allow_non_transactional: bool = False) -> ConnectorOptions:
    """``adopt`` accepts tables that already hold rows, ``allow_non_transactional`` tables whose writes cannot be rolled back."""
    said = {"adopt": adopt, "allow-non-transactional": allow_non_transactional}
    return {name: value for name, value in said.items() if value}


def _entry(group: str, uri: str, what: str) -> EntryPoint:
    scheme, separator, _ = uri.partition("://")
    if not separator:
        example = "file:///data/changefeed?protocol=csv" if what == "source" else "mysql://user@host:3306/"
        raise DefinitionError(
            f"{without_secrets(uri)!r} is not a URI.", f"Write the {what} with its scheme, for example {example}."
        )
    known = {entry.name: entry for entry in entry_points(group=group)}
    if scheme.lower() not in known:
        raise DefinitionError(f"Unknown {what} scheme {without_secrets(scheme)!r}.", near_match(scheme, known))
    return known[scheme.lower()]


def _loaded(entry: EntryPoint) -> Callable[[str, ConnectorOptions], object]:
    try:
        return cast(Callable[[str, ConnectorOptions], object], entry.load())
    except ModuleNotFoundError as error:
        package = entry.dist.name if entry.dist is not None else "headrace"
        extras = entry.dist.metadata.get_all("Provides-Extra") or [] if entry.dist is not None else []
        wanted = f"'{package}[{entry.name}]'" if entry.name in extras else package
        raise MissingPartError(
            f"The connector {entry.name}:// needs the Python package {error.name}, which is not installed.",
            f"Run: pip install {wanted}",
        ) from None
