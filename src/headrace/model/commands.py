"""Quotes names in the commands that messages advise, so that a shell passes them on unchanged."""

from __future__ import annotations

import shlex

from headrace.model.place import PlaceInFile, SourcePlace
from headrace.model.table import NOBODYS, TableId


def word(name: object) -> str:
    """A name as one shell word, in quotes only if it needs them."""
    return shlex.quote(str(name))


def in_quotes(text: object) -> str:
    """A text as one shell word, always in quotes."""
    return "'" + str(text).replace("'", "'\"'\"'") + "'"


def skip_command(table_id: TableId, place: SourcePlace) -> str:
    """The command that gives up a file, or a record of a stream. It names no table if the record's table is unknown."""
    command = "headrace table skip" if table_id == NOBODYS else f"headrace table skip {word(table_id)}"
    if isinstance(place, PlaceInFile):
        return f"{command} --file {in_quotes(place.file)}"
    return f"{command} --partition {word(place.partition)} --offset {place.offset}"
