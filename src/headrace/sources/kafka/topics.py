"""Which topics a changefeed writes to: its default topic, and those to which its dispatchers send tables. Pure.

Rules: TiCDC documentation, "Changefeed Configuration Parameters", ``sink.dispatchers`` (topic expressions).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from headrace.errors import DefinitionError
from headrace.kafka.settings import is_topic_name
from headrace.sources.changefeed_file import ChangefeedFile
from headrace.sources.changefeed_rules import glob, is_plain, split_rule

_EXPRESSION = re.compile(r"[A-Za-z0-9._-]*(\{schema\})?([A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._*?-]")
_WILD = re.compile(r"[*?]")
_CLASS = re.compile(r"\[[^]]*]")
_MOST_CHARACTERS = 249
_OF_KAFKA = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"}
)


@dataclass(frozen=True)
class Topics:
    """The topics of a source."""

    default: str = ""
    """The changefeed's default topic. It gets all watermarks, and the statements of databases. Empty if it is not named."""
    patterns: tuple[str, ...] = ()
    """The names of further topics, with ``*`` and ``?`` for any characters. A pattern does not match Kafka's own topics."""
    left_out: tuple[str, ...] = ()
    """Names and patterns of topics that are not read, whatever ``patterns`` says."""
    partition_num: int | None = None
    """How many partitions of the default topic the changefeed uses, from 0 on; ``None``: all. Of other topics TiCDC uses all."""
    any_case: bool = False
    """Whether patterns match names in any case: in a changefeed file the case of a database counts only with ``case-sensitive``."""

    @property
    def are_several(self) -> bool:
        """Whether there may be more topics than the default one."""
        return bool(self.patterns)

    @property
    def text(self) -> str:
        """The part of a URI that names them: the default topic, or the patterns."""
        return self.default or f"?topics={','.join(sorted(self.patterns))}"

    def chosen(self, present: Iterable[str]) -> tuple[str, ...]:
        """Those of the ``present`` topics that are read, the default one first."""
        found = {topic for topic in present if self._matches(topic)}
        return (*((self.default,) if self.default else ()), *sorted(found - {self.default}))

    def missing(self, present: Collection[str]) -> list[str]:
        """The topics that are named without a pattern and do not exist."""
        return [name for name in self.patterns if is_topic_name(name) and name not in present]

    def partition_name(self, topic: str, number: int) -> str:
        """The name of a partition: its number in the default topic, ``topic/number`` in another one.

        So a pipeline over one topic may get more of them, and its ledger stays valid.
        """
        return str(number) if topic == self.default else f"{topic}/{number}"

    def place(self, partition: str) -> tuple[str, int]:
        """The topic and the number of a partition, the inverse of :meth:`partition_name`."""
        topic, _, number = partition.rpartition("/")
        return topic or self.default, int(number)

    def includes(self, partition: str) -> bool:
        """Whether a partition belongs to the topics that are read, and to those that the changefeed uses."""
        topic, number = self.place(partition)
        if topic == self.default:
            return self.partition_num is None or number < self.partition_num
        return self._matches(topic)

    def _matches(self, topic: str) -> bool:
        if topic == self.default or any(_is_match(pattern, topic, self.any_case) for pattern in self.left_out):
            return False
        return any(_is_match(pattern, topic, self.any_case) for pattern in self.patterns)


def topics_of_text(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What ``topics=`` in a URI names: names and patterns, and those with ``!`` in front. Raises DefinitionError."""
    wanted: list[str] = []
    left_out: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name = part.removeprefix("!")
        if not is_topic_name(_WILD.sub("x", name)):
            raise DefinitionError(
                f"topics= has {part!r}, which is no name of a Kafka topic.",
                "Write names with * and ? for any characters: a,b,shop_*.",
            )
        (left_out if part.startswith("!") else wanted).append(name)
    return tuple(wanted), tuple(left_out)


def patterns_of_file(file: ChangefeedFile) -> Iterator[str]:
    """Patterns for the topics to which the dispatchers of a changefeed file send tables. Raises DefinitionError.

    They match at least these topics: of ``matcher = ["shop.*"]`` and ``topic = "{schema}_{table}"``, ``shop_*``.
    """
    dispatchers = file.sink.get("dispatchers", [])
    for rule in dispatchers if isinstance(dispatchers, list) else []:
        expression = str(rule.get("topic", "")) if isinstance(rule, dict) else ""
        if not expression:
            continue
        if _EXPRESSION.fullmatch(expression) is None:
            raise DefinitionError(
                f"The topic {expression!r} of a dispatcher in the changefeed file {file.path} is no topic expression of TiCDC.",
                "It has {schema} before {table}, each at most once, and else letters, digits, and . _ -.",
            )
        matcher = rule.get("matcher", [])
        for of_tables in matcher if isinstance(matcher, list) else [matcher]:
            if not str(of_tables).startswith("!"):
                yield _pattern(expression, str(of_tables))


def _pattern(expression: str, of_tables: str) -> str:
    """A pattern for the topics of the tables that a rule matches.

    TiCDC replaces each character that a topic's name cannot have by ``_``.
    """
    database, table = split_rule(of_tables) if is_plain(of_tables) else ("*", "*")
    database, table = (_NOT_ALLOWED.sub("_", _CLASS.sub("?", name)) for name in (database, table))
    pattern = expression.replace("{schema}", database).replace("{table}", table)
    return pattern if _WILD.search(pattern) else {".": "_", "..": "__"}.get(pattern, pattern[:_MOST_CHARACTERS])


def _is_match(pattern: str, topic: str, any_case: bool) -> bool:
    if pattern == topic:
        return True
    return topic not in _OF_KAFKA and glob(pattern, any_case).fullmatch(topic) is not None
