"""The commands of ``headrace binlog``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import Json
from headrace.cli.output import make_output

if TYPE_CHECKING:
    from headrace.cli.binlog_topics import TopicOptions

binlog = typer.Typer(
    short_help="Look into the Kafka topic of a TiDB Binlog Drainer.",
    help="TiDB's secondary binlog, which TiDB Binlog's Drainer writes to Kafka: print it, and find an offset in it.",
    no_args_is_help=True,
)

Brokers = Annotated[str, typer.Option("--kafka-addr", help="The brokers: host:9092, or several separated by commas.")]
Topic = Annotated[str, typer.Option("--topic", help="The topic. Default: <cluster-id>_obinlog.")]
ClusterId = Annotated[str, typer.Option("--cluster-id", help="The cluster's id, if Drainer named the topic after it.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        help="A setting of librdkafka as NAME=VALUE, for example for TLS; ${NAME} is an environment variable; may be repeated.",
    ),
]
AllowGap = Annotated[
    bool, typer.Option("--allow-gap", help="Begin at the oldest record even if transactions before it may be gone.")
]


@binlog.command("print", short_help="Print the transactions of a topic as JSON lines.")
def print_topic(
    kafka_addr: Brokers,
    topic: Topic = "",
    cluster_id: ClusterId = "",
    commit_ts: Annotated[str, typer.Option("--commit-ts", help="Begin after this TSO or ISO time.")] = "",
    offset: Annotated[
        int, typer.Option("--offset", help="Begin at this offset; -1 is the end of the topic, -2 its oldest record.", min=-2)
    ] = -2,
    until: Annotated[str, typer.Option("--until", help="Print nothing after this TSO or ISO time, and exit.")] = "",
    tables: Annotated[str, typer.Option("--tables", help="Which tables: 'shop.*,!shop.tmp_*'. Default: all.")] = "",
    ops: Annotated[str, typer.Option("--ops", help="Which changes: insert, update, delete, ddl. Default: all.")] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end of the topic.")] = False,
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="The time zone of Drainer's host; TIMESTAMP values are then printed in UTC.")
    ] = "",
    charset: Annotated[str, typer.Option("--charset", help="The charset of strings: utf-8, latin-1, gbk.")] = "utf-8",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Report records that cannot be read and go on, instead of stopping.")
    ] = False,
    allow_gap: AllowGap = False,
    settings: Settings = None,
    json: Json = False,
) -> int:
    """Print the rows and DDL statements of a topic, one JSON object per line, in the order of their commit ts.

    A transaction that the topic has several times is printed once.
    """
    from headrace.cli.binlog_topics import PrintOptions, print_transactions

    options = PrintOptions.parse(
        commit_ts=commit_ts,
        offset=offset,
        until=until,
        tables=tables,
        ops=ops,
        follow=follow,
        time_zone=time_zone,
        charset=charset,
        skip_bad=skip_bad,
    )
    return print_transactions(_topic(kafka_addr, topic, cluster_id, settings, allow_gap), options, make_output(json=json))


@binlog.command(short_help="Find the offset at which to begin for a commit ts.")
def seek(
    kafka_addr: Brokers,
    commit_ts: Annotated[str, typer.Option("--commit-ts", help="A TSO or ISO time; what comes after it is wanted.")],
    topic: Topic = "",
    cluster_id: ClusterId = "",
    allow_gap: AllowGap = False,
    settings: Settings = None,
    json: Json = False,
) -> int:
    """Find the offset at which to begin, so that every transaction after a commit ts comes."""
    from headrace.cli.binlog_topics import show_seek

    return show_seek(_topic(kafka_addr, topic, cluster_id, settings, allow_gap), commit_ts, make_output(json=json))


def _topic(kafka_addr: str, topic: str, cluster_id: str, settings: list[str] | None, allow_gap: bool) -> TopicOptions:
    from headrace.cli.binlog_topics import TopicOptions

    return TopicOptions.parse(kafka_addr, topic, cluster_id, settings or [], allow_gap=allow_gap)
