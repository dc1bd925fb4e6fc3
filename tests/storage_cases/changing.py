"""A world whose tables a schema change finds: what a run leaves behind that died at one, and what people do before the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, Ran, ledger_at

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Decision, JournalEntry, JournalState, Verdict
from headrace.sinks.mysql import open_sink
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from person import Person
from servers import MariaDb
from targets import MariaDbTarget

PARTITIONED = (
    "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY RANGE (`id`) "
    "(PARTITION p0 VALUES LESS THAN (50),PARTITION p1 VALUES LESS THAN (1000))"
)
EXCHANGE = "ALTER TABLE `p` EXCHANGE PARTITION p0 WITH TABLE `t`"


class World:
    """A table ``t`` with a row, and another one that goes on whatever happens to it."""

    def __init__(self, folder: Path, server: MariaDb, partitioned: str = PARTITIONED) -> None:
        self.uri, self.person, self.bucket = server.uri(), Person(MariaDbTarget(server), server), Bucket(folder)
        bucket = self.bucket
        bucket.create("t")
        bucket.create("o", 101)
        bucket.schema("p", 102, "id,v", partitioned, 3)
        bucket.rows("t/100/1", "I 110 1 a")
        bucket.rows("o/101/1", "I 110 1 o")
        bucket.rows("p/102/1", "I 110 4 d", "I 110 500 f")
        assert self.run(150).code == EXIT_OK

    def run(self, checkpoint: int, **options: Any) -> Ran:
        self.bucket.rows(f"o/101/{checkpoint}", f"I {checkpoint - 1} {checkpoint} o")
        self.bucket.checkpoint(checkpoint)
        ran = self.bucket.run(self.uri, **options)
        assert (checkpoint, "o") in self.rows("o"), "the other table goes on"
        return ran

    def dies(self, checkpoint: int, moment: Moment, step: Step = Step.MYSQL_STATEMENT) -> None:
        self.bucket.checkpoint(checkpoint)
        with armed(crash_at(moment, step)), pytest.raises(Crashed):
            self.bucket.run(self.uri)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.person.run(f"SELECT * FROM test.{table}"))

    def acts(self, *statements: str) -> None:
        for statement in statements:
            self.person.run(statement)

    def entry(self) -> JournalEntry:
        return max(ledger_at(self.uri).journal.values(), key=lambda entry: entry.commit_ts)

    def decide(self, verdict: Verdict, statement: str = "", of: JournalEntry | None = None) -> None:
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            sink.ledger.decide("default", Decision((of or self.entry()).identity, verdict, statement))
            sink.ledger.close()


def stays_unclear(world: World, untouched: Sequence[str]) -> None:
    """However often it is tried, nothing runs before a person decides."""
    held = {table: world.rows(table) for table in untouched}
    for checkpoint in (300, 310, 320):
        ran = world.run(checkpoint)
        assert ran.code == EXIT_TABLE_STOPPED
        assert any("cannot tell whether it took effect" in reason for reason in ran.stopped.values())
        assert world.entry().state is JournalState.UNCLEAR
        assert {table: world.rows(table) for table in untouched} == held
