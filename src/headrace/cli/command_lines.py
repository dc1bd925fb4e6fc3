"""How the user named the pipeline, put into the commands that messages tell the user to run.

What the engine reports and the ledger keeps names commands without it: whoever reads it may call Headrace in another way.
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
# A command that goes on with one of these options is complete.
_COMMAND = re.compile(
    rf"\bheadrace (?>(?P<check>validate)|{_LEDGER_COMMANDS})(?![\w-])"
    r"(?! (?:-[dts]|--definition|--sink|--source)\b)(?P<named>(?= --name\b))?"
)
_VARIABLE = re.compile(r"\$\{[^{}]*\}")
_LEDGER_OPTIONS = ("-d", "--sink", "--ledger", "--name")
_CHECK_OPTIONS = ("-d", "--source", "--changefeed", "--sink", "--name")

_STANDS_FOR = {"-d": "FILE"}

_SAID: dict[str, str] = {}


def remember(said: Settings, file: Path | None) -> None:
    """From now on every command that is printed names the pipeline as these options and this definition file do."""
    forget()
    texts = {"-d": file and str(file), "--changefeed": said.changefeed, "--name": said.name}
    texts |= {"--source": said.source, "--sink": said.sink, "--ledger": said.ledger}
    _SAID.update({option: _word(option, text) for option, text in texts.items() if text})


def forget() -> None:
    """Commands are printed as they are."""
    _SAID.clear()


def with_options(text: str) -> str:
    """The text with each command in it completed.

    The options stand behind the table or change, before the command's own options: nothing tells where in a sentence those end.
    """
    return _COMMAND.sub(_completed, text) if _SAID else text


def _completed(command: re.Match[str]) -> str:
    options = _CHECK_OPTIONS if command["check"] else _LEDGER_OPTIONS
    wanted = (option for option in options if option in _SAID and not (option == "--name" and command["named"] is not None))
    return " ".join((command[0], *(f"{option} {_SAID[option]}" for option in wanted)))


def _word(option: str, text: str) -> str:
    """What the user said, or ``SINK`` and the like for the user to replace.

    That is for a secret, and for what a shell needs in quotes: a table may be called like a command, and quotes within the quoted
    name of one would let a shell run what stands behind them.
    """
    is_plain = shlex.quote(text) == text and not _holds_secret(text)
    return text if is_plain else _STANDS_FOR.get(option, option.removeprefix("--").upper())


def _holds_secret(text: str) -> bool:
    """Whether the text itself holds one; ``${PASSWORD}`` only names it."""
    if "://" not in text:
        return False
    try:
        return bool(parse_uri(_VARIABLE.sub("", text)).secrets())
    except (DefinitionError, ValueError):
        return True  # what is no valid URI may hold one
