"""The URIs of sources and sinks: parses them, expands environment variables, hides secrets, and suggests names for unknown ones."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from headrace.errors import DefinitionError

_VARIABLE = re.compile(r"\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|file:(?P<file>[^{}]+))\}")
SECRET_PARAMETERS = frozenset(
    {"access-key", "secret-access-key", "session-token", "account-key", "sas-token", "password", "encryption-key", "external-id"}
    | {"claim-check-storage-uri", "upstream"}  # URIs, which may have secrets themselves
    | {"sig"}  # of a SAS token; its other parameters (times, rights, versions) grant no access, and are common words
)
"""Parameters of URIs whose values must not appear in any message. See also :func:`is_secret`."""
_SECRET_ENDINGS = ("password", "secret", "key.pem", "token")


_BEHIND_SEMICOLON = re.compile(r";(?P<name>[\w-]+)=")
_PARAMETERS_BEGIN = re.compile(r"[?#;]")
_TIME_ZONE = re.compile(r"[A-Za-z_]+(/[A-Za-z0-9_+-]+)*|[+-]\d{1,2}:\d{2}")


ConnectorOptions = Mapping[str, str | bool]
"""The options of a connector besides its URI, by their names in a definition file. Options that were not set are absent."""

NO_OPTIONS: ConnectorOptions = MappingProxyType({})


@dataclass(frozen=True)
class Uri:
    """A parsed URI. ``path`` keeps its leading slash, ``params`` are decoded, and ``repr`` never shows the password."""

    scheme: str
    host: str = ""
    """Of several servers (``h1:9092,h2:9092``), all but the last one's port, which is ``port``."""
    port: int | None = None
    path: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)

    def redacted(self) -> str:
        """The URI without user, password or parameters: what may be printed, and stored as an identity."""
        place = f"[{self.host}]" if ":" in self.host and "," not in self.host else self.host
        if self.port is not None:
            place += f":{self.port}"
        return f"{self.scheme}://{place}{self.path}"

    def secrets(self) -> list[str]:
        """The values that must not appear in any message."""
        inside = [secret for name, value in self.params.items() for secret in secrets_in(name, value)]
        return [self.password, *inside] if self.password else inside


def secrets_in(parameter: str, value: str) -> list[str]:
    """The secret values of a parameter: the value itself, and those of a token or a URL that it is, as written there and as sent.

    A client may send the parts of a token or URL in another order, so hiding the whole value is not enough.
    """
    found = [value] if is_secret(parameter) else []
    login = value.partition("://")[2].partition("/")[0].rpartition("@")[0]
    password = login.partition(":")[2]
    found += [password, unquote(password)]
    for part in (value.partition("?")[2] or value).split("&"):
        name, is_assigned, text = part.partition("=")
        if is_assigned and is_secret(name.lower()):
            found += [text, *secrets_in(name.lower(), unquote(text))]
    return list(dict.fromkeys(filter(None, found)))


def is_secret(parameter: str) -> bool:
    """Whether the value of a parameter must not appear in any message: a named one, or a password or key by its name, as in
    ``kafka.ssl.key.password``."""
    return parameter in SECRET_PARAMETERS or parameter.endswith(_SECRET_ENDINGS)


def expand_environment(text: str) -> str:
    """Replaces ``${NAME}`` by the environment variable, and ``${file:PATH}`` by the file's content without the newline at its end.

    Raises DefinitionError for a variable that is not set, and for a file that cannot be read.
    """

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return _file_content(match["file"])
        if name not in os.environ:
            raise DefinitionError(f"The environment variable {name} is not set.", f"Set {name}, or write the value itself.")
        return os.environ[name]

    return _VARIABLE.sub(value, text)


def _file_content(path: str) -> str:
    if "\0" in path:
        raise DefinitionError(f"${{file:…}} names {path!r}, which is not a path: it holds a NUL.", "Check the path.")
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DefinitionError(
            f"The file {path}, named as ${{file:{path}}}, cannot be read: {reason}.", "Check its path and permissions."
        ) from None


def escape_variables(text: str) -> str:
    """The text with ``${…}`` escaped as in a URI, so that a path inside it is not parsed as a part of the URI."""
    return _VARIABLE.sub(lambda match: quote(match[0], safe="", errors="surrogatepass"), text)


def parse_uri(text: str) -> Uri:
    """Parses a URI. ``${…}`` is expanded inside each part, so a password may hold any character. Raises DefinitionError."""
    escaped = escape_variables(text)
    if "#" in escaped:
        # The text after it would be dropped silently: a parameter that protects, or the rest of a file's name.
        raise DefinitionError(
            f"{without_secrets(text)!r} holds a #, which begins a fragment, and Headrace's URIs have none.", "Write it as %23."
        )
    if _has_parameters_behind_semicolon(escaped):
        raise DefinitionError(
            f"{without_secrets(text)!r} holds a ; before the name of a parameter, and Headrace's URIs separate parameters with &.",
            "Write ? before the first parameter and & before the others, or %3B for a ; in a name.",
        )
    try:
        split = urlsplit(escaped)
    except ValueError:
        # The brackets do not contain an IPv6 address.
        raise DefinitionError(f"{without_secrets(text)!r} is not a URI: the part in [] is not an address.") from None
    if not split.scheme or "://" not in text:
        raise DefinitionError(
            f"{without_secrets(text)!r} is not a URI.",
            "Write it with its scheme, for example file:///data/changefeed?protocol=csv.",
        )
    host = split.hostname or ""
    servers, is_several, last = split.netloc.rpartition("@")[2].rpartition(",")
    try:
        if is_several:
            of_last = urlsplit(f"//{last}")
            host, port = f"{servers},{of_last.hostname or ''}", of_last.port
        else:
            port = split.port
    except ValueError:
        raise DefinitionError(f"The port of {split.scheme}://{host} is not a number from 1 to 65535.") from None
    return Uri(
        scheme=split.scheme.lower(),
        host=expand_environment(unquote(host)),
        port=port,
        path=expand_environment(unquote(split.path)),
        username=expand_environment(unquote(split.username or "")),
        password=expand_environment(unquote(split.password or "")),
        params=_parameters(split.query),
    )


def _has_parameters_behind_semicolon(escaped: str) -> bool:
    """Whether the path has text such as ``;name=``, or the query such text with the name of a secret. Messages show both."""
    place, _, query = escaped.partition("?")
    names = (found["name"].lower().replace("_", "-") for found in _BEHIND_SEMICOLON.finditer(query))
    return bool(_BEHIND_SEMICOLON.search(place)) or any(is_secret(name) for name in names)


def _parameters(query: str) -> dict[str, str]:
    """Parses the query. Raises DefinitionError if a parameter is there twice with two values: choosing one would be a guess."""
    params: dict[str, str] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        key, value = name.lower(), expand_environment(text)
        if params.setdefault(key, value) != value:
            raise DefinitionError(f"The parameter {key!r} is in the URI twice, with two values.", "Leave one of them out.")
    return params


def without_secrets(text: str) -> str:
    """The part of an invalid URI that may be printed: without the text before an ``@``, and up to a ``?``, ``#`` or ``;``.

    If an ``@`` is only behind such a character, the character may belong to a password, and nothing but the scheme is left.
    """
    place = _PARAMETERS_BEGIN.split(text, maxsplit=1)[0]
    if "@" in place:
        return f"…@{place.rpartition('@')[2]}"
    return f"{place.partition(':')[0]}:…" if "@" in text else place


def near_match(name: str, known: Collection[str]) -> str:
    """``Did you mean …?`` if a known name is close, else the list of known names."""
    words = sorted(map(str, known))
    close = difflib.get_close_matches(name, words, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known are: {', '.join(words)}."


def flag_of(options: ConnectorOptions, name: str) -> bool:
    """Whether an option of a connector is switched on. Raises DefinitionError for anything but true and false."""
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise DefinitionError(f"The option {name!r} is true or false, not {value!r}.")
    return value


def text_of(options: ConnectorOptions, name: str) -> str | None:
    """The text of a connector's option, ``None`` if it is not set. Raises DefinitionError for anything but a text."""
    value = options.get(name)
    if value is not None and not isinstance(value, str):
        raise DefinitionError(f"The option {name!r} is a text, not {value!r}.")
    return value


def reject_unknown(names: Collection[str], known: Collection[str], what: str) -> None:
    """Raises DefinitionError for the first name that is not known, with a near match."""
    for name in names:
        if name not in known:
            raise DefinitionError(f"Unknown {what} {name!r}.", near_match(name, known))


def time_zone_of(text: str) -> str:
    """The time zone that a sink's URI names as ``time-zone``: a name or an offset, empty for none. Raises DefinitionError."""
    text = text.strip().strip("\"'")
    if not text:
        return ""
    if text[0].isdigit():  # an unescaped + of a URI's query arrives as a blank
        text = f"+{text}"
    if not _TIME_ZONE.fullmatch(text):
        raise DefinitionError(
            f"time-zone={text} is not a time zone.", "Write a name such as Asia/Shanghai, or an offset such as %2B08:00."
        )
    return "+00:00" if text.upper() == "UTC" else text
