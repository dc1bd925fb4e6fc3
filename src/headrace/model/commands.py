"""How names stand in the commands that messages advise, so that a shell takes them as they are."""

from __future__ import annotations

import shlex

from headrace.model.place import PlaceInFile, SourcePlace
from headrace.model.table import NOBODYS, TableId


def word(name: object) -> str:
    """A name as one word of a shell: in quotes where it needs them."""
    return shlex.quote(str(name))


def in_quotes(text: object) -> str:
    """A text as one word of a shell, always in quotes."""
    return "'" + str(text).replace("'", "'\"'\"'") + "'"


def skip_command(table_id: TableId, place: SourcePlace) -> str:
    """What gives up a file, or a record of a stream. Of nobody's record no table is named."""
    command = "headrace table skip" if table_id == NOBODYS else f"headrace table skip {word(table_id)}"
    if isinstance(place, PlaceInFile):
        return f"{command} --file {in_quotes(place.file)}"
    return f"{command} --partition {word(place.partition)} --offset {place.offset}"
