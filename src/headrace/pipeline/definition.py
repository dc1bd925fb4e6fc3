"""Reads a pipeline's settings from a YAML file, command-line options, or both, and combines them into one Definition.

The file has the structure of Flink CDC's files (``source:``, ``sink:``, ``pipeline:``), but names sources and sinks by URI. Every
value is read as the text in the file, so ``spark.ui.enabled: false`` is ``false`` and not ``False``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from headrace.engine.keys import DeclaredKeys
from headrace.engine.run_options import RunOptions
from headrace.errors import DefinitionError
from headrace.model.policy import OnError, SchemaChangePolicies
from headrace.model.uri import expand_environment, near_match, without_secrets
from headrace.model.writable_text import is_unicode, writable
from headrace.pipeline.assembly import DEFAULT_LEDGER, DEFAULT_SINK, Target
from headrace.pipeline.given import definitions_from
from headrace.sinks.dead_letters import MOST_LETTERS, DeadLetters, open_dead_letters
from headrace.transform.filters import TableFilter

_Path = tuple[str | int, ...]
_T = TypeVar("_T")

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
# No file written by hand is this large, but an alias that contains itself, or is repeated in other aliases, expands without end.
_MOST_LEVELS = 50
_MOST_VALUES = 100_000
_BYTES = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_URIS: frozenset[_Path] = frozenset(
    {
        *(("source", "uri"), ("source", "schema-from"), ("sink", "uri")),
        *(("pipeline", "ledger"), ("pipeline", "work"), ("pipeline", "dead-letters")),
    }
)
_EXAMPLES = {"source": "file:///data/changefeed?protocol=csv", "sink": "mysql://user:${MYSQL_PASSWORD}@db:3306/"}
_IN_QUOTES = "Put values that begin with {} into quotes: tables: '*.*,!shop.tmp_*'."
_NOT_BUILT = {
    "route": ("tables cannot be routed to other names yet.", "Take it out; each table keeps its name."),
    "transform": ("rows cannot be transformed yet.", "Take it out; tables are chosen with tables under pipeline."),
}


@dataclass(frozen=True)
class Definition:
    """One pipeline: source, target and settings. ``spark`` are Spark settings; ``changefeed`` is the path of a TOML file."""

    source: str = field(repr=False)
    sink: str = field(default=DEFAULT_SINK, repr=False)
    name: str = "default"
    changefeed: str | None = None
    ledger: str = field(default=DEFAULT_LEDGER, repr=False)
    work: str | None = field(default=None, repr=False)
    """The work place: a folder, or a URL; ``None`` is the temporary folder."""
    adopt: bool = False
    allow_non_transactional: bool = False
    options: RunOptions = field(default_factory=RunOptions)
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises DefinitionError."""
        parse_name(self.name)

    @property
    def target(self) -> Target:
        """Where changes go."""
        return Target(self.sink, self.ledger, self.work, self.adopt, self.allow_non_transactional)


_HALF = "it has half of a character (a lone surrogate), or bytes that are not UTF-8."


def parse_name(text: str) -> str:
    """A pipeline's name. Raises DefinitionError for a name that begins or ends with white space, or is not Unicode.

    Servers treat names that differ only in trailing spaces as equal, but their locks do not. No ledger can hold a name that is not
    Unicode, as one of bytes of a command line that are not UTF-8.
    """
    if not is_unicode(text):
        raise DefinitionError(f"{writable(text)!r} cannot be the name of a pipeline: {_HALF}", "Write the name in UTF-8.")
    if text != text.strip():
        raise DefinitionError(
            f"{text!r} begins or ends with white space, and cannot be the name of a pipeline.", f"Write {text.strip()!r}."
        )
    return text


class _Part(BaseModel):
    """A mapping in the file. Its keys are written with dashes."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=lambda name: name.replace("_", "-"))


class SourcePart(_Part):
    """Where changes come from. ``changefeed`` is the path of TiCDC's own TOML file, relative to the definition's folder, and
    ``schema-from`` a file or folder of SQL there, or a server's URI."""

    uri: str
    changefeed: str | None = None
    schema_from: str | None = None


class SinkPart(_Part):
    """Where changes go. ``adopt`` accepts target tables that already hold rows, ``allow-non-transactional`` tables of an engine
    without transactions. ``apply`` and ``apply-tables`` are parameters of the URI, too."""

    uri: str
    adopt: bool | None = None
    allow_non_transactional: bool | None = None
    apply: str | None = None
    apply_tables: dict[str, str] = {}


class PipelinePart(_Part):
    """How the pipeline runs. ``ledger``, ``work`` and ``dead-letters`` are URLs, or folders relative to the definition's folder."""

    name: str | None = None
    tables: str | None = None
    poll_interval: str | None = None
    max_cut: str | None = None
    ledger: str | None = None
    work: str | None = None
    on_error: str | None = None
    dead_letters: str | None = None
    max_dead_letters: str | None = None
    strict: bool | None = None
    keys: dict[str, list[str]] = {}
    schema_changes: dict[str, str] = {}
    spark: dict[str, str] = {}


class DefinitionFile(_Part):
    """One pipeline as a YAML file."""

    source: SourcePart
    sink: SinkPart | None = None
    pipeline: PipelinePart = PipelinePart()


@dataclass(frozen=True)
class Settings:
    """The settings of a pipeline from one origin. Unset ones are ``None`` or empty. ``poll_interval`` is in seconds, ``max_cut`` in
    bytes."""

    source: str | None = field(default=None, repr=False)
    changefeed: str | None = None
    schema_from: str | None = field(default=None, repr=False)
    sink: str | None = field(default=None, repr=False)
    adopt: bool | None = None
    allow_non_transactional: bool | None = None
    name: str | None = None
    tables: str | None = None
    poll_interval: float | None = None
    max_cut: int | None = None
    ledger: str | None = field(default=None, repr=False)
    work: str | None = field(default=None, repr=False)
    on_error: OnError | None = None
    dead_letters: str | None = field(default=None, repr=False)
    max_dead_letters: int | None = None
    strict: bool | None = None
    keys: DeclaredKeys = field(default_factory=DeclaredKeys)
    policies: SchemaChangePolicies = field(default_factory=SchemaChangePolicies)
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises DefinitionError."""
        if self.name is not None:
            parse_name(self.name)

    def over(self, other: Settings) -> Settings:
        """These settings, completed by ``other``. These win; keys, policies and Spark settings are merged one by one."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        mixed = {
            "keys": self.keys.over(other.keys),
            "policies": SchemaChangePolicies({**other.policies.by_kind, **self.policies.by_kind}),
            "spark": {**other.spark, **self.spark},
        }
        return replace(other, **(said | mixed))

    @property
    def source_uri(self) -> str:
        """The source's URI, with ``strict=true`` added if that option is set. Raises DefinitionError if there is no source."""
        if self.source is None:
            raise DefinitionError(
                "No source is given.", "Name it with --source, or name a definition file: headrace run pipeline.yaml."
            )
        # If a parameter is there twice, the last one counts.
        return self.source + ("&" if "?" in self.source else "?") + "strict=true" if self.strict else self.source

    @property
    def sink_uri(self) -> str:
        return self.sink or DEFAULT_SINK

    @property
    def ledger_place(self) -> str:
        return self.ledger or DEFAULT_LEDGER

    @property
    def uris(self) -> tuple[str, ...]:
        """All URIs and paths that may contain secrets."""
        return tuple(uri for uri in (self.source, self.schema_from, self.sink, self.ledger, self.work, self.dead_letters) if uri)

    @property
    def target(self) -> Target:
        """Where changes go."""
        return Target(self.sink_uri, self.ledger_place, self.work, bool(self.adopt), bool(self.allow_non_transactional))

    def letters(self) -> DeadLetters | None:
        """The dead-letter folder, if one is named. Raises DefinitionError if one is needed and not named."""
        if self.dead_letters is not None:
            most = MOST_LETTERS if self.max_dead_letters is None else self.max_dead_letters
            return open_dead_letters(self.dead_letters, self.name or "default", most)
        if self.on_error is OnError.DEAD_LETTER:
            raise DefinitionError(
                "on-error is dead-letter, and no folder is named for dead letters.",
                "Name one with --dead-letters, or dead-letters under pipeline: a folder, or an s3:// URL.",
            )
        return None

    def definition(self, options: RunOptions) -> Definition:
        """The pipeline. ``options`` says how long to run. Raises DefinitionError."""
        table_filter, target = TableFilter.parse(self.tables or ""), self.target
        return Definition(
            source=self.source_uri,
            sink=target.sink,
            name=self.name or "default",
            changefeed=self.changefeed,
            ledger=target.ledger,
            work=target.work,
            adopt=target.adopt,
            allow_non_transactional=target.allow_non_transactional,
            options=replace(
                options,
                poll_interval=options.poll_interval if self.poll_interval is None else self.poll_interval,
                max_cut=options.max_cut if self.max_cut is None else self.max_cut,
                includes=table_filter.includes,
                filter_text=self.tables or "",
                policies=self.policies,
                keys=self.keys,
                on_error=self.on_error or OnError.STOP,
                letters=self.letters(),
                given=definitions_from(self.schema_from) if self.schema_from is not None else None,
            ),
            spark=self.spark,
        )


def read_settings(path: Path) -> Settings:
    """The settings in a definition file. Raises DefinitionError, which names the file, the line and the key of the error."""
    return _Reader(path).read()


def parse_seconds(text: str) -> float:
    """``1s``, ``500ms``, ``2m`` or a plain number of seconds. Raises DefinitionError."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m)?", text.strip())
    if match is None:
        raise DefinitionError(f"{text!r} is not a duration.", "Write it as 1s, 500ms or 2m, or as a number of seconds.")
    return float(match.group(1)) * _SECONDS[match.group(2) or "s"]


def parse_bytes(text: str) -> int:
    """``1GiB``, ``512 MiB``, ``64KiB`` or a plain number of bytes. Raises DefinitionError."""
    match = re.fullmatch(r"([0-9]{1,18})\s*(KiB|MiB|GiB|TiB)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise DefinitionError(f"{text!r} is not a size.", "Write it as 1GiB or 512MiB; 0 is without bound.")
    return int(match.group(1)) * _BYTES.get((match.group(2) or "").lower(), 1)


def parse_on_error(text: str) -> OnError:
    """``stop`` or ``dead-letter``. Raises DefinitionError."""
    if text not in set(OnError):
        raise DefinitionError(f"{text!r} is not a valid value for on-error.", near_match(text, list(OnError)))
    return OnError(text)


def parse_count(text: str) -> int:
    """A whole number above 0. Raises DefinitionError."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text.strip()):
        raise DefinitionError(f"{text!r} is not a number of dead letters.", "Write a whole number from 1 on, such as 1000.")
    return int(text.strip())


class _Reader:
    """Reads one file, and records the line of each key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[_Path, int] = {}
        self._values = 0

    def read(self) -> Settings:
        document = self._document()
        for section in ("source", "sink"):
            self._refuse_type(document, section)
        try:
            file = DefinitionFile.model_validate(document)
        except ValidationError as error:
            # A missing key is often there with a typing error, and the error about that key is more helpful.
            raise self._explained(min(error.errors(), key=lambda told: told["type"] != "extra_forbidden")) from None
        return self._settings(file)

    def _root(self) -> yaml.Node | None:
        try:
            loader = yaml.BaseLoader(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise DefinitionError(f"The definition {self._path} cannot be read: {reason}.") from None
        except yaml.YAMLError as error:
            raise self._no_yaml(error) from None
        try:
            return loader.get_single_node()
        except yaml.YAMLError as error:
            raise self._no_yaml(error) from None
        except RecursionError:
            raise self._endless("nested too deeply") from None
        except (ValueError, OverflowError):  # PyYAML does not check the numbers of escapes and of directives
            told = "a number in it (of an escape such as \\U0001F600, or of a directive such as %YAML 1.2) is too large"
            line = loader.get_mark().line + 1
            raise DefinitionError(f"The definition {self._path}, line {line} is not valid YAML: {told}.") from None
        finally:
            loader.dispose()

    def _no_yaml(self, error: yaml.YAMLError) -> DefinitionError:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        told = getattr(error, "problem", None) or "it is not YAML"
        is_alias = "alias" in f"{told} {getattr(error, 'context', None)}"
        hint = _IN_QUOTES.format("*") if is_alias else ""
        return DefinitionError(f"The definition {self._path}{line} is not valid YAML: {told}.", hint)

    def _document(self) -> dict[str, Any]:
        root = self._root()
        document = self._value(root, ()) if root is not None else {}
        if not isinstance(document, dict):
            raise self._wrong((), "it must be a mapping with source:, sink: and pipeline:.")
        for name, (message, hint) in _NOT_BUILT.items():
            if name in document:
                raise self._wrong((name,), message, hint)
        return document

    def _value(self, node: yaml.Node, place: _Path) -> Any:
        """The node as mappings, lists and texts, with variables put in; notes lines. A mapping without content is left out."""
        self._values += 1
        if len(place) > _MOST_LEVELS:
            raise self._endless("nested too deeply")
        if self._values > _MOST_VALUES:
            raise self._endless("too long")
        self._lines.setdefault(place, node.start_mark.line + 1)
        if node.tag.startswith("!"):  # without quotes it is a YAML tag, and the value behind it may be empty
            raise self._wrong(place, f"{node.tag} is not in quotes.", _IN_QUOTES.format("!"))
        if isinstance(node, yaml.MappingNode):
            return dict(self._entries(node, place))
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*place, number)) for number, item in enumerate(node.value)]
        text = self._whole(place, str(node.value))
        if place in _URIS and "://" in text:
            return text  # put in when the URI is taken apart, so that a password may hold any sign
        return self._at(place, lambda: expand_environment(text))

    def _entries(self, node: yaml.MappingNode, place: _Path) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise DefinitionError(f"The definition {self._path}, line {key.start_mark.line + 1}: a key must be a plain text.")
            name = str(key.value)
            where = (*place, name)
            self._lines[where] = key.start_mark.line + 1
            self._whole(where, name)
            if name in seen:
                raise self._wrong(where, "it is there twice.", "Keep one of them.")
            seen.add(name)
            found = self._value(value, where)
            if found != "":  # nothing behind the colon: as if the line were not there
                yield name, found

    def _whole(self, place: _Path, text: str) -> str:
        """The text. Raises DefinitionError if an escape in it is half of a character."""
        if not is_unicode(text):
            raise self._wrong(place, _HALF, "Write the character itself, or its escape \\U with eight digits.")
        return text

    def _endless(self, what: str) -> DefinitionError:
        return DefinitionError(
            f"The definition {self._path} is {what}.", "Write each value in its place, and no alias inside itself."
        )

    def _refuse_type(self, document: Mapping[str, Any], section: str) -> None:
        """Raises DefinitionError for ``type:``. Flink CDC names connectors by it, with the other settings in keys of their own."""
        part = document.get(section)
        if not isinstance(part, dict) or "type" not in part or "uri" in part:
            return
        kind, host, user = (str(part.get(name, "")) for name in ("type", "hostname", "username"))
        uri = _EXAMPLES[section]
        if host:
            port = f":{part['port']}" if "port" in part else ""
            uri = f"{kind}://{f'{user}:${{PASSWORD}}@' if user else ''}{host}{port}/"
        raise self._wrong(
            (section, "type"), f"a {section} is named by its URI.", f'Write uri: "{uri}" in place of type and the rest.'
        )

    def _settings(self, file: DefinitionFile) -> Settings:
        pipeline = file.pipeline
        interval = pipeline.poll_interval
        max_cut, name = pipeline.max_cut, pipeline.name
        on_error, most = pipeline.on_error, pipeline.max_dead_letters
        tables = pipeline.tables
        if tables is not None:
            self._at(("pipeline", "tables"), lambda: TableFilter.parse(tables))
        return Settings(
            source=file.source.uri,
            changefeed=self._relative(("source", "changefeed"), file.source.changefeed),
            schema_from=self._relative(("source", "schema-from"), file.source.schema_from),
            sink=self._sink_uri(file.sink) if file.sink else None,
            adopt=file.sink.adopt if file.sink else None,
            allow_non_transactional=file.sink.allow_non_transactional if file.sink else None,
            name=self._at(("pipeline", "name"), lambda: None if name is None else parse_name(name)),
            tables=tables,
            poll_interval=self._at(("pipeline", "poll-interval"), lambda: None if interval is None else parse_seconds(interval)),
            max_cut=self._at(("pipeline", "max-cut"), lambda: None if max_cut is None else parse_bytes(max_cut)),
            ledger=self._relative(("pipeline", "ledger"), pipeline.ledger),
            work=self._relative(("pipeline", "work"), pipeline.work),
            on_error=self._at(("pipeline", "on-error"), lambda: None if on_error is None else parse_on_error(on_error)),
            dead_letters=self._relative(("pipeline", "dead-letters"), pipeline.dead_letters),
            max_dead_letters=self._at(("pipeline", "max-dead-letters"), lambda: None if most is None else parse_count(most)),
            strict=pipeline.strict,
            keys=self._at(("pipeline", "keys"), lambda: DeclaredKeys.parse(pipeline.keys)),
            policies=self._at(("pipeline", "schema-changes"), lambda: SchemaChangePolicies.parse(pipeline.schema_changes)),
            spark=pipeline.spark,
        )

    def _sink_uri(self, sink: SinkPart) -> str:
        tables = ",".join(f"{pattern}:{mode}" for pattern, mode in sink.apply_tables.items())
        uri = sink.uri
        for name, text in (("apply", sink.apply), ("apply-tables", tables)):
            if not text:
                continue
            if re.search(rf"[?&]{name}=", uri):
                raise self._wrong(("sink", name), "it is in the URI as well.", "Keep one of the two.")
            uri += f"{'&' if '?' in uri else '?'}{name}={quote(text, safe='*,:.')}"
        return uri

    def _relative(self, place: _Path, folder: str | None) -> str | None:
        if folder is None or "://" in folder:
            return folder
        try:
            return str(self._path.parent / Path(folder).expanduser())
        except (RuntimeError, UnicodeEncodeError):  # the second of a name with half of a character
            raise self._wrong(place, f"{folder} names no folder: there is no such user.", "Write the path in full.") from None

    def _at(self, place: _Path, read: Callable[[], _T]) -> _T:
        """Returns what ``read`` returns. Adds the place in the file to the errors that it raises."""
        try:
            return read()
        except DefinitionError as error:
            raise self._wrong(place, error.message, error.hint) from None

    def _explained(self, error: ErrorDetails) -> DefinitionError:
        place: _Path = tuple(error["loc"])
        kind = error["type"]
        if kind == "extra_forbidden":
            return self._wrong(place, "it is not known here.", near_match(str(place[-1]), _names_at(place[:-1])))
        if kind == "missing":
            example = _EXAMPLES.get(str(place[0]), "")
            return self._wrong(
                place, "it is missing.", f'Write it as uri: "{example}".' if place[-1] in ("uri", *_EXAMPLES) else ""
            )
        if kind.startswith("bool"):
            return self._wrong(place, f"{error['input']!r} is neither true nor false.")
        if kind == "string_type":
            return self._wrong(place, "it must be one text.")
        if kind == "list_type":
            return self._wrong(place, "it must be a list.", "Write it as [order_no, line].")
        return self._wrong(place, "it must be a mapping of names to values.")

    def _wrong(self, place: _Path, message: str, hint: str = "") -> DefinitionError:
        known = next((place[:length] for length in range(len(place), 0, -1) if place[:length] in self._lines), ())
        line = f", line {self._lines[known]}" if known else ""
        name = f", {'.'.join(without_secrets(writable(str(part))) for part in place)}" if place else ""
        return DefinitionError(f"The definition {self._path}{line}{name}: {message}", hint)


def _names_at(place: _Path) -> list[str]:
    parts: dict[_Path, type[BaseModel]] = {
        (): DefinitionFile,
        ("source",): SourcePart,
        ("sink",): SinkPart,
        ("pipeline",): PipelinePart,
    }
    return [str(entry.alias) for entry in parts[place].model_fields.values()]
