"""Somebody else who works in a target: makes objects there, and looks whether they are as they were."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import duckdb

from harness import ExpectedTable, State
from places import Place
from servers import MariaDb
from targets import DuckDbTarget, Target


class Person:
    """A session on a target for each statement. Names of databases are written as ``test.t``, or in double quotes."""

    def __init__(self, target: Target, server: MariaDb | None) -> None:
        self._target, self._server = target, server

    @classmethod
    def at(cls, place: Place, target: Target) -> Person:
        return cls(target, place.mariadb)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs the statements; the rows of the last one."""
        if self._server is None:
            assert isinstance(self._target, DuckDbTarget)
            with duckdb.connect(str(self._target.path)) as connection:
                return [connection.execute(statement).fetchall() for statement in statements][-1]
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = 'ANSI_QUOTES'")
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


@dataclass
class Stranger:
    """A person who makes tables in a target's databases as it comes. They are to stay as they are, whatever the source does."""

    target: Target
    person: Person
    tables: list[ExpectedTable] = field(default_factory=list)

    def come(self, seed: int, databases: tuple[str, ...]) -> None:
        """Makes a table with a row, in one of the databases that are there."""
        there = sorted(self.target.databases() & set(databases))
        if there:
            database, name, value = Random(seed).choice(there), f"mine {len(self.tables)}", str(seed)
            place = f'"{database}"."{name}"'
            self.person.run(f"CREATE TABLE {place} (id INT PRIMARY KEY)", f"INSERT INTO {place} VALUES ({value})")
            self.tables.append(ExpectedTable(database, name, "BASE TABLE", {"id": "int"}, ("id",), ((value,),)))

    def with_theirs(self, state: State) -> State:
        """What the target must hold: what the upstream holds, and what was made here."""
        return replace(state, tables=(*state.tables, *self.tables))
