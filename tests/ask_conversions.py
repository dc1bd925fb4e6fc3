"""Asks a real TiDB what MODIFY COLUMN makes of every value of ``conversions.SHAPES`` in every other type (half an hour).

``python tests/tidb_server.py`` builds the TiDB, and ``python tests/ask_conversions.py`` writes ``support/modify_column.tsv``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from queue import Empty, Queue
from threading import Thread

import pymysql

from conversions import ANSWERS, SESSION_TIME, SESSION_ZONE, SHAPES, Answer, Conversion, Shape, dumped
from headrace.model.types import BINARY_KINDS, ColumnType, TypeKind
from tidb_server import running_tidb


class Asker:
    """Alters tables of its own on one connection."""

    def __init__(self, connection: pymysql.connections.Connection) -> None:
        self._cursor = connection.cursor()
        self._tables = 0
        self._targets: dict[str, str] = {}
        self._run("CREATE DATABASE asked", "USE asked", "SET NAMES utf8mb4")
        self._cursor.execute("SELECT @@sql_mode")
        self._strict = str(self._cursor.fetchall()[0][0])

    def ask(self, old: Shape, new: Shape) -> Conversion:
        """What becomes of each value of ``old``."""
        self._run("SET sql_mode = '', time_zone = '+00:00'")
        source = self._table(old, old.values)
        strict = self._converted(source, new, self._strict)
        if not isinstance(strict, pymysql.err.MySQLError):
            return Conversion(old, new, tuple(Answer(text, True) for text in strict))
        passes = self._passing(source, old, new)
        lax = self._converted(source, new, "")
        if isinstance(lax, pymysql.err.MySQLError):
            refused = self._converted(self._table(old, ()), new, "")
            if isinstance(refused, pymysql.err.MySQLError):
                return Conversion(old, new, refusal=" ".join(str(refused.args[1]).split()))
            lax = self._one_by_one(old, new)
        return Conversion(old, new, tuple(Answer(text, passed) for text, passed in zip(lax, passes, strict=True)))

    def _passing(self, source: str, old: Shape, new: Shape) -> list[bool]:
        """Which values strict mode lets pass. An INSERT of each converts by the same code, and needs no schema change."""
        self._run("SET sql_mode = '', time_zone = '+00:00'")
        target = self._targets.get(new.definition) or self._table(new, ())
        self._targets[new.definition] = target
        self._run(f"DELETE FROM {target}", f"SET sql_mode = '{self._strict}', time_zone = '{SESSION_ZONE}'")
        return [self._passes(f"INSERT INTO {target} SELECT * FROM {source} WHERE id = {n}") for n in range(len(old.values))]

    def _passes(self, statement: str) -> bool:
        try:
            self._run(statement)
        except pymysql.err.MySQLError:
            return False
        return True

    def _one_by_one(self, old: Shape, new: Shape) -> list[str | None]:
        """Each value in a table of its own; ``None`` where MODIFY COLUMN fails."""
        found: list[str | None] = []
        for value in old.values:
            self._run("SET sql_mode = '', time_zone = '+00:00'")
            texts = self._converted(self._table(old, (value,)), new, "")
            found.append(None if isinstance(texts, pymysql.err.MySQLError) else texts[0])
        return found

    def _converted(self, name: str, new: Shape, mode: str) -> list[str | None] | pymysql.err.MySQLError:
        """The column's values after MODIFY COLUMN, or why it failed; then the table is as it was."""
        self._run(f"SET sql_mode = '{mode}', time_zone = '{SESSION_ZONE}', timestamp = {SESSION_TIME}")
        try:
            self._run(f"ALTER TABLE {name} MODIFY COLUMN v {new.definition} NULL")
        except pymysql.err.MySQLError as error:
            return error
        self._run("SET time_zone = '+00:00'")
        self._cursor.execute(f"SELECT {_read(new.type)} FROM {name} ORDER BY id")
        return [None if text is None else _shown(str(text), new.type) for (text,) in self._cursor.fetchall()]

    def _table(self, shape: Shape, values: Sequence[object]) -> str:
        """A new table with these values; its name."""
        self._tables += 1
        name = f"t{self._tables}"
        self._run(f"CREATE TABLE {name} (id INT PRIMARY KEY, v {shape.definition} NULL)")
        if values:
            rows = ", ".join(f"({number}, {_literal(value)})" for number, value in enumerate(values))
            self._run(f"INSERT INTO {name} VALUES {rows}")
        return name

    def _run(self, *statements: str) -> None:
        for statement in statements:
            self._cursor.execute(statement)


def _literal(value: object) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return pymysql.converters.escape_item(value, "utf8mb4") if isinstance(value, str) else repr(value)


def _read(column_type: ColumnType) -> str:
    if column_type.kind in BINARY_KINDS:
        return "LOWER(HEX(v))"
    return "CAST(v AS UNSIGNED)" if column_type.kind is TypeKind.BIT else "HEX(CAST(v AS CHAR))"


def _shown(text: str, column_type: ColumnType) -> str:
    """What ``_read`` gave as a canonical text; bytes that are no text stay visible."""
    if column_type.kind in BINARY_KINDS or column_type.kind is TypeKind.BIT:
        return text
    return bytes.fromhex(text).decode("utf-8", "backslashreplace")


def _answer(waiting: Queue[Shape], found: dict[str, list[str]]) -> None:
    """Asks a TiDB of its own about one old type after another."""
    with running_tidb() as server, server.connect() as connection:
        asker = Asker(connection)
        while True:
            try:
                old = waiting.get_nowait()
            except Empty:
                return
            found[old.definition] = [dumped(asker.ask(old, new)) for new in SHAPES if new is not old]
            sys.stderr.write(f"{old.definition}\n")


def main() -> None:
    """Writes the file anew, in the order of the shapes; two servers are asked at once."""
    asked = [shape for shape in SHAPES if shape.values]
    waiting: Queue[Shape] = Queue()
    found: dict[str, list[str]] = {}
    for shape in asked:
        waiting.put(shape)
    workers = [Thread(target=_answer, args=(waiting, found)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    ANSWERS.write_text("".join(f"{line}\n" for shape in asked for line in found[shape.definition]), encoding="utf-8")


if __name__ == "__main__":
    main()
