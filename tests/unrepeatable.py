"""Histories whose schema change must take effect once: run a second time it would undo itself, or take rows that came after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ddl_history import History, Row
from servers import MariaDb

BASE = ("id INT PK", "a VARCHAR(20)")
ROWS: tuple[Row, ...] = ((1, "one"), (2, "two"), (3, "three"))
LATER: Row = (2, "later")
_RANGES = (
    "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20)) PARTITION BY RANGE (`id`) "
    "(PARTITION `p0` VALUES LESS THAN (3),PARTITION `p1` VALUES LESS THAN MAXVALUE)"
)


@dataclass(frozen=True)
class Unrepeatable:
    """``statement`` is what the run says of the step that is looked at, and ``begins`` how such statements begin.

    There are as many of them as ``statements``, and the one that is looked at is the ``occurrence``, from 0.
    ``repeats``: run again at once, before any row comes, it does no harm, and the journal lets it.
    """

    build: Callable[[History], None]
    statement: str
    begins: str
    statements: int = 1
    occurrence: int = 0
    repeats: bool = False

    def built(self, folder: Path) -> History:
        history = History(folder)
        self.build(history)
        history.finish()
        return history

    def executed(self, server: MariaDb) -> int:
        """How many such statements the server has been given since this was first asked; of a TiDB, how many it has carried out.

        Those that were tried on a scratch table do not count.
        """
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            if server.is_tidb:
                cursor.execute("SELECT COUNT(*) FROM information_schema.DDL_JOBS WHERE QUERY LIKE %s", (f"%{self.statement}%",))
            else:
                cursor.execute("SET GLOBAL log_output = 'TABLE'")
                cursor.execute("SET GLOBAL general_log = ON")
                cursor.execute(
                    "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE %s"
                    " AND argument NOT LIKE '%%`scratch@_%%' ESCAPE '@'",
                    (f"{self.begins}%",),
                )
            return int(cursor.fetchone()[-1])


def _truncate(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.ddl("t", "TRUNCATE TABLE `t`", 11, effect=lambda _: [])
    history.insert("t", LATER, (9, "nine"))


def _drop_and_create(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.drop("t", "DROP TABLE `t`")
    history.create("t", *BASE, rows=[LATER])
    history.drop("t", "DROP TABLE `t`")
    history.create("t", *BASE, rows=[(7, "of the third life")])


def _moved(history: History, *steps: tuple[str, str, str]) -> None:
    """One RENAME TABLE as TiCDC tells it: of each table its last step (old name, new name), and whose rows it has.

    The target runs a statement for each step.
    """
    held = {origin: history.rows_of(origin) for _, _, origin in steps}
    version = 0
    for old, new, origin in steps:
        history.writer.flush()
        version = history.ddl(
            new, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`;", 14, columns=BASE, at=version,
            effect=lambda _, origin=origin: list(held[origin]),
        )  # fmt: skip
    for gone in {origin for _, _, origin in steps} - {new for _, new, _ in steps}:
        history.forget(gone)


def _filled(history: History, *names: str) -> None:
    for name in names:
        history.create(name, *BASE, rows=[(1, f"of {name}"), (2, "x")])


def _swap(history: History) -> None:
    _filled(history, "t", "u")
    _moved(history, ("u", "t", "u"), ("x", "u", "t"))
    history.insert("u", (4, "four"))
    history.delete("t", (2, "x"))


def _chain(history: History) -> None:
    _filled(history, "t", "u")
    _moved(history, ("u", "v", "u"), ("t", "u", "t"))
    history.insert("u", (4, "four"))
    history.delete("v", (2, "x"))


def _exchange(history: History) -> None:
    history.create("t", *BASE, statement=_RANGES, rows=ROWS)
    history.create("u", *BASE, rows=[(0, "of u")])
    mine, other = history.rows_of("t"), history.rows_of("u")
    history.writer.flush()
    version = history.ddl(
        "t", "ALTER TABLE `shop`.`t` EXCHANGE PARTITION `p0` WITH TABLE `shop`.`u` WITHOUT VALIDATION", 42,
        effect=lambda _: [mine[2], *other],
    )  # fmt: skip
    history.ddl("u", "", 0, at=version, effect=lambda _: mine[:2])
    history.insert("t", (4, "four"))
    history.delete("u", mine[1])


def _computed(history: History) -> None:
    """The rows that are there get the moment at which the source ran the statement."""
    history.create("t", *BASE, rows=ROWS)
    history.ddl(
        "t", "ALTER TABLE `t` ADD COLUMN `b` DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)", 5,
        columns=(*BASE, "b DATETIME(3) = CURRENT_TIMESTAMP(3)"),
        effect=lambda rows: [(*row, "2026-01-01 00:00:00.008") for row in rows],
    )  # fmt: skip
    history.insert("t", (4, "four", "2026-01-02 03:04:05.678"))


def _with_index(history: History) -> None:
    """The name of the column alone does not tell that all of the statement ran."""
    history.create("t", *BASE, rows=ROWS)
    history.ddl(
        "t", "ALTER TABLE `t` ADD COLUMN `b` INT, ADD UNIQUE INDEX `u` (`b`)", 63,
        columns=(*BASE, "b INT"), effect=lambda rows: [(*row, None) for row in rows],
    )  # fmt: skip
    history.insert("t", (4, "four", 4))


UNREPEATABLE = {
    "TRUNCATE": Unrepeatable(_truncate, "TRUNCATE TABLE `t`", "TRUNCATE", repeats=True),
    "DROP": Unrepeatable(_drop_and_create, "DROP TABLE `t`", "DROP TABLE", statements=2),
    "CREATE": Unrepeatable(_drop_and_create, "CREATE TABLE `t`", "CREATE TABLE", statements=3, occurrence=1),
    "RENAME, a swap": Unrepeatable(_swap, "RENAME TABLE", "RENAME TABLE", statements=3, occurrence=1),
    "RENAME, a chain": Unrepeatable(_chain, "RENAME TABLE", "RENAME TABLE", statements=2, occurrence=1),
    "EXCHANGE PARTITION": Unrepeatable(_exchange, "EXCHANGE PARTITION", "ALTER TABLE"),
    "ADD COLUMN, an index": Unrepeatable(_with_index, "ADD UNIQUE INDEX", "ALTER TABLE"),
    "ADD COLUMN, computed": Unrepeatable(_computed, "ADD COLUMN", "ALTER TABLE"),
}
