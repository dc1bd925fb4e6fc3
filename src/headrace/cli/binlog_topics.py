"""``headrace binlog print`` and ``headrace binlog seek``: what they do with a topic."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from headrace.binlog import (
    BadRecordError,
    Driver,
    EnumOrdinal,
    RowEvent,
    SeekResult,
    SetMask,
    TableId,
    Transaction,
    find_offset,
    topic_name,
)
from headrace.cli.output import Output, hide_secrets
from headrace.errors import EXIT_OK, DefinitionError
from headrace.model.tso import parse_tso, tso_and_time
from headrace.model.uri import expand_environment, is_secret
from headrace.transform.filters import TableFilter

_DDL = "ddl"
_OPS = ("insert", "update", "delete", _DDL)


@dataclass(frozen=True)
class TopicOptions:
    """Which topic, and how to connect to it."""

    brokers: tuple[str, ...]
    topic: str
    settings: Mapping[str, str]
    allow_gap: bool

    @classmethod
    def parse(cls, brokers: str, topic: str, cluster_id: str, settings: list[str], *, allow_gap: bool) -> TopicOptions:
        """Raises DefinitionError. From now on no output shows a password or key of the settings."""
        names = tuple(name.strip() for name in brokers.split(",") if name.strip())
        if not names:
            raise DefinitionError("No broker is given.", "Pass --kafka-addr host:9092.")
        told = dict(_setting(text) for text in settings)
        hide_secrets(value for name, value in told.items() if is_secret(name))
        return cls(names, topic_name(topic, cluster_id), told, allow_gap)


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise DefinitionError("A --setting is not NAME=VALUE.", "Write it as --setting security.protocol=SSL.")
    return name.strip(), expand_environment(value)


@dataclass(frozen=True)
class PrintOptions:
    """What to print."""

    commit_ts: int
    """TSO; 0 for none."""
    offset: int
    until: int | None
    """TSO."""
    tables: TableFilter
    ops: frozenset[str]
    follow: bool
    time_zone: str
    charset: str
    skip_bad: bool

    @classmethod
    def parse(
        cls,
        *,
        commit_ts: str,
        offset: int,
        until: str,
        tables: str,
        ops: str,
        follow: bool,
        time_zone: str,
        charset: str,
        skip_bad: bool,
    ) -> PrintOptions:
        """Raises DefinitionError."""
        wanted = frozenset(word.strip() for word in ops.split(",") if word.strip()) or frozenset(_OPS)
        if unknown := sorted(wanted.difference(_OPS)):
            raise DefinitionError(f"--ops: {unknown[0]!r} is not a kind of change.", f"Use {', '.join(_OPS)}.")
        start, end = _tso(commit_ts, "--commit-ts") or 0, _tso(until, "--until")
        return cls(start, offset, end, TableFilter.parse(tables), wanted, follow, time_zone, charset, skip_bad)


def _tso(text: str, option: str) -> int | None:
    if not text:
        return None
    try:
        return parse_tso(text)
    except ValueError as error:
        raise DefinitionError(f"{option}: {error}.") from None


def print_transactions(topic: TopicOptions, options: PrintOptions, output: Output) -> int:
    """Prints the wanted changes on the standard output. Raises what a Driver raises."""

    def report(bad: BadRecordError, _value: bytes) -> None:
        output.warning(f"{bad} The record is left out.")

    with Driver(
        kafka_addr=topic.brokers,
        topic=topic.topic,
        settings=topic.settings,
        allow_gap=topic.allow_gap,
        commit_ts=options.commit_ts,
        offset=options.offset,
        follow=options.follow,
        time_zone=options.time_zone,
        charset=options.charset,
        on_bad_record=report if options.skip_bad else None,
        on_notice=output.warning,
    ) as driver:
        for transaction in driver:
            if options.until is not None and transaction.commit_ts > options.until:
                break
            for fields in _wanted(transaction, options):
                sys.stdout.write(json.dumps(fields, ensure_ascii=True) + "\n")
            sys.stdout.flush()
    return EXIT_OK


def _wanted(transaction: Transaction, options: PrintOptions) -> Iterator[dict[str, object]]:
    place: dict[str, object] = {"offset": transaction.offset, "commit_ts": transaction.commit_ts}
    if transaction.ddl is not None:
        table_id = transaction.ddl.table_id
        if _DDL in options.ops and options.tables.includes(table_id):
            yield place | {"op": _DDL} | _names(table_id) | {"query": transaction.ddl.query.decode("utf-8", "backslashreplace")}
    for row in transaction:
        if row.op in options.ops and options.tables.includes(row.table_id):
            yield place | _row(row)


def _row(row: RowEvent) -> dict[str, object]:
    images = {"before": row.before, "after": row.after}
    return {"op": row.op, **_names(row.table_id), **{name: _image(image) for name, image in images.items() if image is not None}}


def _names(table_id: TableId) -> dict[str, object]:
    return {"schema": table_id.database, "table": table_id.table}


def _image(image: Mapping[str, object]) -> dict[str, object]:
    return {name: _printed(value) for name, value in image.items()}


def _printed(value: object) -> object:
    """A value in JSON: bytes, and members of ENUM and SET whose names are not known, as an object with one field."""
    match value:
        case EnumOrdinal():
            return {"ordinal": int(value)}
        case SetMask():
            return {"mask": int(value)}
        case bytes():
            return {"hex": value.hex()}
        case Decimal():
            return f"{value:f}"
        case _:
            return value


def show_seek(topic: TopicOptions, commit_ts: str, output: Output) -> int:
    """Prints where a Driver would begin. Raises what a Driver raises."""
    wanted = _tso(commit_ts, "--commit-ts")
    if wanted is None:
        raise DefinitionError("--commit-ts is empty.", "Pass a TSO or an ISO time.")
    found = find_offset(topic.brokers, topic.topic, wanted, allow_gap=topic.allow_gap, settings=topic.settings)
    output.event(
        "seek",
        topic=topic.topic,
        partition=0,
        commit_ts=wanted,
        offset=found.offset,
        oldest_offset=found.oldest_offset,
        end_offset=found.end_offset,
        oldest_ts=found.oldest_ts,
        last_ts=found.last_ts,
        has_gap=found.has_gap,
    )
    if not output.is_json:
        output.line(f"begin at offset {found.offset} of topic {topic.topic}, partition 0")
        for sentence in _explained(found):
            output.line(sentence)
    return EXIT_OK


def _explained(found: SeekResult) -> Iterator[str]:
    yield f"the topic has the offsets from {found.oldest_offset} to {found.end_offset}, exclusive"
    if found.oldest_ts is not None:
        yield f"its oldest record has the commit ts {tso_and_time(found.oldest_ts)}"
    if found.last_ts is not None:
        yield f"what comes before the offset ends with the commit ts {tso_and_time(found.last_ts)}"
    if found.has_gap:
        yield "transactions before the oldest record may be gone"
    if found.offset == found.end_offset:
        yield "no record of the topic is later"
