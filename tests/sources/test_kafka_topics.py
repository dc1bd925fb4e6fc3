"""Changefeeds that write to several topics: new ones join, one without tables holds nothing, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from harness import run_once
from headrace.cli.main import main
from headrace.kafka.client import KafkaClient
from headrace.testing.engine import LocalEngine
from kafka_cases import created, database_created, row, statement, watermark
from kafka_server import KafkaBroker, Record

pytestmark = [pytest.mark.server, pytest.mark.pipeline]


@dataclass
class Feed:
    """The topics of one changefeed, ``<prefix>`` (the default one) and ``<prefix>_<table>``, and a DuckDB file."""

    kafka: KafkaBroker
    prefix: str
    folder: Path
    capsys: pytest.CaptureFixture[str]
    told: str = ""

    def topic(self, table: str, partitions: int = 1) -> str:
        name = f"{self.prefix}_{table}"
        self.kafka.make_topic(partitions, name=name)
        return name

    def write(self, table: str, *values: bytes, partition: int = 0) -> None:
        name = f"{self.prefix}_{table}" if table else self.prefix
        self.kafka.write(name, [Record(value, partition) for value in values])

    @property
    def sink(self) -> str:
        return f"duckdb://{self.folder}/x.duckdb"

    def uri(self, **params: object) -> str:
        return self.kafka.uri(self.prefix, **{"topics": f"{self.prefix}_*", **params})

    def run(self, uri: str = "", **options: object) -> int:
        """The exit code of a run; what it printed is in ``told``."""
        self.capsys.readouterr()
        code = run_once(uri or self.uri(), self.sink, engine=LocalEngine(), **options)
        self.told = "".join(self.capsys.readouterr())
        return code

    def keys(self, table: str) -> list[int]:
        with duckdb.connect(str(self.folder / "x.duckdb")) as connection:
            return [key for (key,) in connection.execute(f"SELECT id FROM shop.{table} ORDER BY id").fetchall()]


@pytest.fixture
def feed(kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Feed:
    return Feed(kafka, kafka.make_topic(), tmp_path, capsys)


def with_two_tables(feed: Feed) -> Feed:
    """Tables ``a`` and ``b`` with a row each, each in its own topic, everything promised up to second 5."""
    feed.topic("a")
    feed.topic("b")
    feed.write("", database_created(1), watermark(5))
    for key, table in enumerate("ab"):
        feed.write(table, created(2, table), row(4, key, table=table), watermark(5))
    return feed


def test_b63_partitions_of_the_same_number_in_different_topics_are_independent(feed: Feed) -> None:
    with_two_tables(feed)
    feed.write("a", row(7, 8, table="a"), watermark(10))
    feed.write("b", row(6, 9, table="b"), watermark(7))
    feed.write("", watermark(10))
    assert feed.run() == 0
    assert (feed.keys("a"), feed.keys("b")) == ([0, 8], [1, 9])
    feed.write("a", row(11, 10, table="a"), watermark(12))
    feed.write("b", row(11, 11, table="b"))
    feed.write("", watermark(12))
    assert feed.run() == 0
    assert (feed.keys("a"), feed.keys("b")) == ([0, 8], [1, 9])


def test_b54_a_schema_change_in_every_partition_of_a_topic_is_executed_once(feed: Feed) -> None:
    feed.topic("a", 3)
    feed.write("", database_created(1), watermark(9))
    for partition in range(3):
        feed.write("a", created(2), row(4, partition), statement(5, "ALTER TABLE a ADD w INT", type="ALTER"), partition=partition)
        feed.write("a", watermark(9), partition=partition)
    assert feed.run() == 0
    assert feed.keys("a") == [0, 1, 2]
    with duckdb.connect(str(feed.folder / "x.duckdb")) as connection:
        done = connection.execute("SELECT count(*) FROM headrace.ddl_journal WHERE statement LIKE 'ALTER%'").fetchall()
    assert done == [(1,)]


def test_a_topic_that_is_made_later_joins_and_nothing_is_lost(feed: Feed) -> None:
    with_two_tables(feed)
    assert feed.run() == 0
    feed.topic("c")
    feed.write("c", created(6, "c"), row(7, 3, table="c"))
    feed.write("", watermark(8))
    for table in "ab":
        feed.write(table, watermark(8))
    assert feed.run() == 0
    feed.write("c", watermark(8))
    assert feed.run() == 0
    assert feed.keys("c") == [3]


def test_a_topic_that_is_made_while_offsets_are_read_is_not_passed(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watermark that was then read in another topic was written after the new topic's rows."""
    with_two_tables(feed)
    assert feed.run() == 0
    topics, waiting = KafkaClient.topics, [True]

    def listed(client: KafkaClient) -> dict[str, tuple[int, ...]]:
        found = topics(client)
        if waiting:
            waiting.clear()
            feed.topic("c")
            feed.write("c", created(6, "c"), row(7, 3, table="c"))
            for table in ("a", "b", ""):
                feed.write(table, watermark(8))
        return found

    monkeypatch.setattr(KafkaClient, "topics", listed)
    assert feed.run() == 0
    feed.write("c", watermark(8))
    assert feed.run() == 0
    assert "came too late" not in feed.told
    assert feed.keys("c") == [3]


def test_a_topic_without_tables_holds_nothing_up(feed: Feed) -> None:
    """TiCDC sends it no watermarks any more; those of the default topic count for it a minute later."""
    with_two_tables(feed)
    feed.write("a", statement(6, "DROP TABLE `a`", type="ERASE"))
    feed.write("b", row(20, 7, table="b"), row(90, 8, table="b"), watermark(99))
    feed.write("", watermark(65))
    assert feed.run() == 0
    assert feed.keys("b") == [1]
    feed.write("", watermark(66))
    assert feed.run() == 0
    assert feed.keys("b") == [1, 7]
    feed.write("", watermark(98))
    assert feed.run() == 0
    assert feed.keys("b") == [1, 7, 8]
    feed.write("a", created(99), row(100, 5), watermark(101))
    feed.write("b", watermark(101))
    feed.write("", watermark(101))
    assert feed.run() == 0
    assert feed.keys("a") == [5]


def test_without_a_default_topic_one_without_watermarks_is_told_and_can_be_left_out(feed: Feed) -> None:
    with_two_tables(feed)
    feed.topic("c")
    uri = feed.kafka.uri("", topics=f"{feed.prefix}*")
    feed.run(uri)
    assert f"Partition {feed.prefix}_c/0 has no watermark, and others have" in feed.told
    assert f"leave it out (topics=…,!{feed.prefix}_c)" in feed.told
    left_out = feed.kafka.uri("", topics=f"{feed.prefix}*,!{feed.prefix}_c")
    assert feed.run(left_out) == 0
    assert feed.keys("a") == [0]


def test_a_topic_that_was_deleted_holds_the_others_until_it_is_left_out(feed: Feed) -> None:
    with_two_tables(feed)
    assert feed.run() == 0
    feed.kafka.delete_topic(f"{feed.prefix}_a")
    feed.write("b", row(6, 2, table="b"), watermark(8))
    feed.write("", watermark(8))
    assert feed.run() == 0
    assert f"does not name its partition {feed.prefix}_a/0 any more" in feed.told
    assert feed.keys("b") == [1]
    assert feed.run(feed.uri(topics=f"{feed.prefix}_*,!{feed.prefix}_a")) == 0
    assert feed.keys("b") == [1, 2]


def test_a_topic_that_was_deleted_and_made_again_is_told_by_its_name(feed: Feed) -> None:
    with_two_tables(feed)
    assert feed.run() == 0
    feed.kafka.make_again(f"{feed.prefix}_a")
    feed.write("a", watermark(6), watermark(7), watermark(8), watermark(9))
    assert feed.run() == 4
    assert f"Partition {feed.prefix}_a/0 of {feed.uri().partition('?')[0]} is another stream" in feed.told


def test_a_pipeline_over_one_topic_gets_more_of_them(feed: Feed) -> None:
    feed.write("", database_created(1), created(2), row(4, 1), watermark(5))
    assert feed.run(feed.kafka.uri(feed.prefix)) == 0
    feed.topic("b")
    feed.write("b", created(6, "b"), row(7, 2, table="b"), watermark(8))
    feed.write("", row(7, 3), watermark(8))
    assert feed.run() == 0
    assert (feed.keys("a"), feed.keys("b")) == ([1, 3], [2])


def test_a_named_topic_that_does_not_exist_is_told_and_read_once_it_does(feed: Feed) -> None:
    with_two_tables(feed)
    uri = feed.uri(topics=f"{feed.prefix}_a,{feed.prefix}_b,{feed.prefix}_c")
    assert feed.run(uri) == 0
    assert f"The topic {feed.prefix}_c does not exist. It is read when it is created." in feed.told
    feed.topic("c")
    for table in ("", "a", "b"):
        feed.write(table, watermark(8))
    feed.write("c", created(6, "c"), row(7, 3, table="c"), watermark(8))
    assert feed.run(uri) == 0
    assert feed.keys("c") == [3]


def test_no_topic_at_all_is_told(feed: Feed) -> None:
    assert feed.run(feed.kafka.uri("", topics="nothing_*")) == 4
    assert "?topics=nothing_* exists so far" in feed.told


def test_the_topics_come_from_the_changefeed_file(feed: Feed) -> None:
    with_two_tables(feed)
    file = feed.folder / "changefeed.toml"
    file.write_text(f'[sink]\ndispatchers = [{{matcher = ["SHOP.*"], topic = "{feed.prefix}_{{table}}"}}]\n')
    assert feed.run(feed.kafka.uri(feed.prefix), changefeed=str(file)) == 0
    assert (feed.keys("a"), feed.keys("b")) == ([0], [1])


def test_a_record_is_given_up_by_topic_partition_and_offset(feed: Feed) -> None:
    with_two_tables(feed)
    feed.write("b", row(6, 2, table="b")[:-20], row(7, 3, table="b"), watermark(8))
    for table in ("", "a"):
        feed.write(table, watermark(8))
    assert feed.run() == 3
    place = f"{feed.prefix}_b/0"
    assert f"table shop.b, partition {place}, offset 3: it is not one JSON object" in feed.told
    skip = ["table", "skip", "shop.b", "--partition", place, "--offset", "3", "--yes"]
    assert main([*skip, "--sink", feed.sink, "--source", feed.uri()]) == 0
    feed.run()
    assert feed.keys("b") == [1, 3]


def test_the_protocol_is_shown_by_whichever_topic_has_messages(feed: Feed) -> None:
    feed.topic("a")
    feed.write("a", database_created(1), created(2), row(4, 1), watermark(5))
    assert feed.run(feed.uri().replace("protocol=canal-json", "")) == 0
    assert f"The messages of the topic {feed.prefix}" in feed.told


@pytest.mark.parametrize("poll", [1, 2])
def test_a_following_run_takes_a_new_topic(poll: int, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is made before or after the run's first look."""
    with_two_tables(feed)
    topics = KafkaClient.topics
    acts: list[Callable[[], object]] = [lambda: None] * (poll - 1)

    def arrives() -> None:
        feed.topic("c")
        feed.write("c", created(6, "c"), row(7, 3, table="c"), watermark(8))
        for table in ("a", "b", ""):
            feed.write(table, watermark(8))

    acts.append(arrives)

    def listed(client: KafkaClient) -> dict[str, tuple[int, ...]]:
        if acts:
            acts.pop(0)()
        return topics(client)

    monkeypatch.setattr(KafkaClient, "topics", listed)
    assert feed.run() == 0
    assert feed.keys("c") == [3]


def rename(second: int, old: str, new: str) -> bytes:
    return statement(second, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", new, type="RENAME")


@pytest.mark.parametrize("names", ["abc", "bac"])
def test_steps_of_a_rename_in_different_topics_run_in_the_order_that_the_tables_allow(names: str, feed: Feed) -> None:
    """TiCDC writes each step of ``RENAME TABLE second TO free, first TO second`` to the topic of its old name."""
    first, second, free = names
    with_two_tables(feed)
    assert feed.run() == 0
    kept = {table: feed.keys(table) for table in "ab"}
    feed.write(second, rename(6, second, free), watermark(7))
    feed.write(first, rename(6, first, second), watermark(7))
    feed.write("", watermark(7))
    assert feed.run() == 0
    assert {second: feed.keys(second), free: feed.keys(free)} == {second: kept[first], free: kept[second]}


def test_steps_that_swap_two_tables_wait_for_a_decision(feed: Feed) -> None:
    """Which of them ran first cannot be seen, and the step over a third name is in the topic of that name."""
    with_two_tables(feed)
    assert feed.run() == 0
    feed.write("a", rename(6, "a", "b"), watermark(7))
    feed.write("b", rename(6, "b", "a"), watermark(7))
    feed.write("", watermark(7))
    assert feed.run() == 3
    assert "the stream does not show the order of the renames" in feed.told
    assert (feed.keys("a"), feed.keys("b")) == ([0], [1])
