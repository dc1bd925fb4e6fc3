"""The output of commands: formatted for a terminal, plain lines elsewhere, or JSON lines for machines.

Commands use only :class:`Output`. A run shows its progress through :class:`Progress`. Warnings and errors go to standard error.
Values given to :func:`hide_secrets` are hidden in all output. Characters that a terminal would act on are printed as escapes,
because the writers of the source choose the names of tables and files and the statements. Commands in sentences are completed with
the user's own options (:mod:`headrace.cli.command_lines`).
"""

from __future__ import annotations

import json as json_format
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.command_lines import with_options
from headrace.cli.progress import (
    Figures,
    HeartbeatProgress,
    LiveProgress,
    Progress,
    cut_fields,
    cut_text,
    figures_fields,
    figures_text,
)
from headrace.model.secret_texts import HIDDEN, spellings

if TYPE_CHECKING:
    from headrace.model.ledger import CutRecord

_HIDDEN: set[str] = set()
_SHORT_SECRET = 4
# Control characters, characters that change the writing direction, other invisible characters (except the two joiners, which some
# scripts and emoji need), Unicode line breaks, and lone surrogates.
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class Output(Protocol):
    """Where a command prints its results, warnings and errors."""

    @property
    def is_json(self) -> bool:
        """Whether machines read this output. If so, call :meth:`event`, and leave out lines that are only for people."""
        ...

    def line(self, text: str) -> None:
        """Prints one line for people. Machines get it as a ``message`` event."""
        ...

    def event(self, kind: str, /, **fields: object) -> None:
        """Prints a fact for machines, as one JSON object with ``event: kind``. People are shown nothing."""
        ...

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Prints a small table, or nothing if there are no rows. Machines get it as one ``table`` event with a list of objects."""
        ...

    def warning(self, sentence: str) -> None: ...

    def error(self, sentence: str) -> None: ...

    def progress(self) -> AbstractContextManager[Progress]:
        """A context manager that shows progress until it ends. Only one may be open at a time."""
        ...


def make_output(*, json: bool, aside: bool = False) -> Output:
    """The output for this process: JSON if ``json``, else formatted for a terminal if there is one, else plain lines.

    ``aside`` prints everything on standard error and leaves standard output to a sink that prints.
    """
    out = sys.stderr if aside else sys.stdout
    if json:
        return JsonOutput(out, sys.stderr)
    console = Console(file=out, highlight=False, markup=False, emoji=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalOutput(console, sys.stderr)
    return PlainOutput(out, sys.stderr)


def hide_secrets(values: Iterable[str]) -> None:
    """From now on, every output of this process prints these values as ``***``, even if escaped as in a URI or by Python."""
    for value in filter(None, values):
        _HIDDEN.update({value, repr(value)[1:-1]})


def redact(text: str) -> str:
    """Replaces hidden values in the text.

    A very short value is replaced only where it is a word of its own; otherwise parts of many words would be replaced too.
    """
    for secret in sorted(_HIDDEN, key=len, reverse=True):
        if len(secret) >= _SHORT_SECRET:
            text = spellings(secret).sub(HIDDEN, text)
        else:
            text = re.sub(rf"(?<!\w){spellings(secret).pattern}(?!\w)", HIDDEN, text)
    return text


def shown(text: str) -> str:
    """The text as it is printed in one line: commands are completed, secrets are hidden, and control characters and the like are
    escaped (``\\x1b``)."""
    return _ACTING.sub(lambda sign: sign[0].encode("unicode_escape").decode(), redact(with_options(text)))


class PlainOutput:
    """Lines of text, for files, pipes and logs."""

    is_json = False

    def __init__(self, out: IO[str], errors: IO[str]) -> None:
        self._out, self._errors = out, errors
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        self._write(self._out, text)

    def event(self, kind: str, /, **fields: object) -> None:
        """Nothing: events are for machines."""

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        cells = [[shown(str(cell)) for cell in row] for row in (columns, *rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
        self._write(self._out, f"{title}:", *(f"  {line}" for line in lines))

    def warning(self, sentence: str) -> None:
        self._write(self._errors, f"warning: {sentence}")

    def error(self, sentence: str) -> None:
        self._write(self._errors, f"error: {sentence}")

    def progress(self) -> AbstractContextManager[Progress]:
        return HeartbeatProgress(phase=self.line, beat=self._beat, cut=self._cut)

    def _beat(self, figures: Figures) -> None:
        self.line(f"still {figures_text(figures)}")

    def _cut(self, record: CutRecord, noun: str) -> None:
        self.line(cut_text(record, noun=noun))

    def _write(self, stream: IO[str], *lines: str) -> None:
        with self._lock:
            stream.write("".join(f"{shown(line)}\n" for line in lines))
            stream.flush()


class TerminalOutput(PlainOutput):
    """For a person at a terminal: tables with borders, and one moving line that shows progress."""

    def __init__(self, console: Console, errors: IO[str]) -> None:
        super().__init__(console.file, errors)
        self._console = console

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        grid = Table(title=Text(shown(title)), title_justify="left", title_style="bold")
        for i, column in enumerate(columns):
            numbers = all(isinstance(row[i], int | float) for row in rows)
            grid.add_column(Text(shown(column)), justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            grid.add_row(*(Text(shown(str(cell))) for cell in row))
        self._console.print(grid)

    def progress(self) -> AbstractContextManager[Progress]:
        return LiveProgress(self._console, shown)

    def _write(self, stream: IO[str], *lines: str) -> None:
        """Writes through the console, which keeps the moving line below. Errors redirected to a file are written to that file."""
        if stream is self._errors and not stream.isatty():
            super()._write(stream, *lines)
            return
        for text in lines:
            style = "red" if text.startswith("error: ") else "yellow" if text.startswith("warning: ") else ""
            self._console.print(Text(shown(text), style=style), soft_wrap=True)


class JsonOutput:
    """One JSON object per line, each with ``event``. TSOs are numbers above 2**53: read them as integers, not as floats."""

    is_json = True

    def __init__(self, out: IO[str], errors: IO[str]) -> None:
        self._out, self._errors = out, errors
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        self.event("message", text=text)

    def event(self, kind: str, /, **fields: object) -> None:
        self._write(self._out, kind, fields)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if rows:
            self.event("table", title=title, rows=[dict(zip(columns, row, strict=True)) for row in rows])

    def warning(self, sentence: str) -> None:
        self._write(self._errors, "warning", {"message": sentence})

    def error(self, sentence: str) -> None:
        self._write(self._errors, "error", {"message": sentence})

    def progress(self) -> AbstractContextManager[Progress]:
        return HeartbeatProgress(phase=lambda text: self.event("phase", text=text), beat=self._beat, cut=self._cut)

    def _beat(self, figures: Figures) -> None:
        self.event("progress", **figures_fields(figures))

    def _cut(self, record: CutRecord, _noun: str) -> None:
        self.event("cut", **cut_fields(record))

    def _write(self, stream: IO[str], kind: str, fields: Mapping[str, object]) -> None:
        text = json_format.dumps(
            {"event": kind} | {name: _printed(name, value) for name, value in fields.items()}, ensure_ascii=False, default=str
        )
        text = _ACTING.sub(_json_escape, text)
        with self._lock:
            stream.write(text + "\n")
            stream.flush()


def _json_escape(sign: re.Match[str]) -> str:
    """JSON's own escape. In encoded JSON such characters occur only inside strings, so a reader decodes the same text."""
    return json_format.dumps(sign[0])[1:-1]


_SENTENCES = frozenset({"advice", "detail", "goes_on", "message", "reason", "text"})
"""The fields that are for people: commands in them are completed. All others are data and are not completed, because a statement
may contain the text of a command."""


def _printed(name: str, value: object) -> object:
    if isinstance(value, str):
        return redact(with_options(value) if name in _SENTENCES else value)
    if isinstance(value, Mapping):
        return {str(key): _printed(str(key), part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_printed(name, part) for part in value]
    return value
