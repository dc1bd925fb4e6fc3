"""Adds the user's own pipeline options to the commands that messages tell the user to run.

The texts of the engine and in the ledger name commands without these options, because their reader may name the pipeline in
another way.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import DefinitionError
from headrace.model.uri import parse_uri

if TYPE_CHECKING:
    from headrace.pipeline.definition import Settings

_QUOTED = r"""'[^']*'(?:"'"'[^']*')*"""
_NAME = rf"(?:{_QUOTED}|[^\s'\"-][^\s'\"]*?(?=[.,:;)]*(?:\s|$)))"
_LEDGER_COMMANDS = (
    rf"table (?:list|(?:hold|release|resume|skip|resync)(?: {_NAME})?+)"
    rf"|ddl (?:list|(?:approve|skip|edit)(?:\|(?:approve|skip|edit))*+(?: {_QUOTED})?+)"
    r"|status|reset|replay-dead-letters"
)
# A command that is followed by one of these options is already complete.
_COMMAND = re.compile(
    rf"\bheadrace (?>(?P<check>validate)|{_LEDGER_COMMANDS})(?![\w-])"
    r"(?! (?:-[dts]|--definition|--sink|--source)\b)(?P<named>(?= --name\b))?(?P<record>(?= --partition\b))?"
)
_BACKQUOTED = re.compile(r"(`(?:[^`]|``)*`)")
_VARIABLE = re.compile(r"\$\{[^{}]*\}")
_LEDGER_OPTIONS = ("-d", "--sink", "--ledger", "--name")
_RECORD_OPTIONS = ("-d", "--source", "--changefeed", "--sink", "--ledger", "--name")
"""A record of a stream is looked for in the source, and the ledger does not know how that is reached."""
_CHECK_OPTIONS = ("-d", "--source", "--changefeed", "--sink", "--name")

_STANDS_FOR = {"-d": "FILE"}

_SAID: dict[str, str] = {}


def remember(said: Settings, file: Path | None) -> None:
    """From now on, every printed command names the pipeline with these options and this definition file."""
    forget()
    texts = {"-d": file and str(file), "--changefeed": said.changefeed, "--name": said.name}
    texts |= {"--source": said.source, "--sink": said.sink, "--ledger": said.ledger}
    _SAID.update({option: _word(option, text) for option, text in texts.items() if text})


def forget() -> None:
    """From now on, commands are printed unchanged."""
    _SAID.clear()


def with_options(text: str) -> str:
    """Returns the text with each command in it completed.

    The options are inserted after the table or change, before the command's own options, because in a sentence the end of the
    command's own options cannot be recognised.
    """
    if not _SAID:
        return text
    # What stands in backquotes is a name, whatever it looks like.
    parts = _BACKQUOTED.split(text)
    return "".join(part if number % 2 else _COMMAND.sub(_completed, part) for number, part in enumerate(parts))


def _completed(command: re.Match[str]) -> str:
    options = _CHECK_OPTIONS if command["check"] else _LEDGER_OPTIONS if command["record"] is None else _RECORD_OPTIONS
    wanted = (option for option in options if option in _SAID and not (option == "--name" and command["named"] is not None))
    return " ".join((command[0], *(f"{option} {_SAID[option]}" for option in wanted)))


def _word(option: str, text: str) -> str:
    """The user's value for an option, or a placeholder such as ``SINK`` that the user has to replace.

    The placeholder stands for values that hold a secret and for values that a shell needs in quotes. A table's name may look like a
    command. Quotes inserted into the quoted name of such a table would let a shell run the text behind them.
    """
    is_plain = shlex.quote(text) == text and not _holds_secret(text)
    return text if is_plain else _STANDS_FOR.get(option, option.removeprefix("--").upper())


def _holds_secret(text: str) -> bool:
    """Whether the text itself contains a secret. ``${PASSWORD}`` does not: it only names one."""
    if "://" not in text:
        return False
    try:
        return bool(parse_uri(_VARIABLE.sub("", text)).secrets())
    except (DefinitionError, ValueError):
        return True  # a text that is not a valid URI may hold a secret
