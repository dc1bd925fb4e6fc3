"""Random histories of an upstream, told step by step: what a differential test draws, and what it prints when it fails.

A step is an action and a seed; what the action does follows from both and from the state so far, so that steps can be left out
and a failing history can be made small.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from differential_shapes import COLUMN_NAMES, INT, KEY_TYPES, random_clauses, random_column, random_value
from harness import ExpectedTable, State
from headrace.model.table import Column, Generated, TableId
from headrace.model.types import BINARY_KINDS, ColumnType, TypeKind
from headrace.testing.delivery import Conduct, Delivery
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.upstream import Delete, Insert, Statement, Update, Upstream
from headrace.testing.upstream_table import Table

DATABASES = ("d1", "d-2")
TABLES = ("a", "b", "Ünï c", "t%3")
_FEWEST_TABLES, _TRIES = 2, 5


@dataclass(frozen=True)
class Step:
    """One thing that happens; ``action`` is a method of :class:`History` without its underscore."""

    action: str
    seed: int


@dataclass
class History:
    """An upstream, its changefeed, and the state at every ts so far. ``told`` says in words what happened."""

    root: Path
    options: ChangefeedOptions
    conduct: Conduct
    told: list[str] = field(default_factory=list)
    _states: list[tuple[int, bool, State]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = Random(0)
        self.delivery = Delivery(self.root / "data", self.options, self.conduct, self._chance)
        self.upstream = Upstream(self.delivery)
        self.toml = self.root / "changefeed.toml"
        self.toml.write_text(self.options.changefeed_toml(), encoding="utf-8")
        self._counter = 0
        for database in DATABASES:
            self._remember(self.upstream.create_database(database), f"create database {database}", ddl=True)
        self.delivery.checkpoint(0)

    # What a run in this process asks of a changefeed (see ``following.run_once``).

    @property
    def uri(self) -> str:
        return self.delivery.uri

    @property
    def promised(self) -> int:
        """The highest checkpoint that was published."""
        return self.delivery.promised

    @property
    def can_old(self) -> bool:
        """Whether updates carry their old row, which tables without key need."""
        return self.options.protocol == "canal-json" or self.options.output_old_value

    def take(self, step: Step) -> None:
        """Lets it happen; what the upstream refuses, or the changefeed cannot show, does not."""
        self._chance.seed(step.seed)
        while len(self.upstream.tables) < _FEWEST_TABLES:
            self._create()
        for _ in range(_TRIES):
            with suppress(KeyError, ValueError, IndexError):
                getattr(self, f"_{step.action}")()
                return

    def finish(self) -> None:
        """Everything arrives, and a checkpoint after it."""
        self.upstream.advance(5)
        self.upstream.checkpoint()
        self.told.append(f"everything arrives; checkpoint {self.promised}")

    def state(self, checkpoint: int | None = None) -> State:
        """What a target must hold at a checkpoint, the highest one by default: rows up to it, schema changes below it."""
        checkpoint = self.promised if checkpoint is None else checkpoint
        found = [s for ts, ddl, s in self._states if ts < checkpoint or (ts == checkpoint and not ddl)]
        return replace(found[-1], checkpoint_ts=checkpoint) if found else State(checkpoint, frozenset(DATABASES), ())

    def schema_changes_below(self, checkpoint: int) -> set[int]:
        """The commit ts of the schema changes that a target at this checkpoint has."""
        return {ts for ts, ddl, _ in self._states if ddl and ts < checkpoint}

    def _remember(self, ts: int, words: str, *, ddl: bool) -> None:
        upstream = self.upstream
        tables = tuple(_expected(upstream.table(table_id)) for table_id in upstream.tables)
        self._states.append((ts, ddl, State(ts, frozenset(DATABASES), tables)))
        self.told.append(f"{ts}: {words}")

    def _some_table(self) -> Table:
        return self.upstream.table(self._chance.choice(self.upstream.tables))

    def _free_name(self) -> TableId:
        names = [TableId(d, t) for d in DATABASES for t in TABLES]
        return self._chance.choice([name for name in names if name not in self.upstream.tables])

    def _ddl(self, words: str, change: Callable[[], int]) -> None:
        self._remember(change(), words, ddl=True)

    # Rows.

    def _rows(self) -> None:
        """A transaction over one table or several."""
        for _ in range(self._chance.randint(1, 4)):
            statements: list[Statement] = []
            for _ in range(self._chance.randint(1, 6)):
                statements += self._statement(self._some_table())
            self._transaction(statements)

    def _transaction(self, statements: list[Statement]) -> None:
        with suppress(KeyError, ValueError):
            ts = self.upstream.execute(*statements)
            self._remember(ts, "; ".join(map(_statement_text, statements)), ddl=False)

    def _swap_rows(self) -> None:
        """Two rows of one table exchange all values but the first of their key, or their keys."""
        table = self._some_table()
        first, second = self._chance.sample(list(table.rows), 2)
        table_id, key = table.schema.table_id, table.schema.handle_key
        if not key:
            raise ValueError("rows without key cannot be told apart")
        kept = set(key) | {c.name for c in table.schema.columns if c.generated}
        one, two = ({n: v for n, v in table.rows[k].items() if n not in kept} for k in (first, second))
        self._transaction([Update(table_id, first, two), Update(table_id, second, one)])

    def _statement(self, table: Table) -> list[Statement]:
        chance, table_id = self._chance, table.schema.table_id
        keys = [key if table.schema.handle_key else tuple(row.values()) for key, row in table.rows.items()]
        action = chance.choice(["insert", "insert", "update", "move", "delete"]) if keys else "insert"
        columns = [column for column in table.schema.columns if column.generated is None]
        if action == "insert":
            row = {column.name: random_value(chance, column) for column in columns}
            return [Insert(table_id, row)] * (1 if table.schema.handle_key else chance.randint(1, 2))
        key = chance.choice(keys)
        if action == "delete":
            return [Delete(table_id, key)]
        changed = [c for c in columns if (c.name in table.schema.handle_key) == (action == "move")]
        if not changed:
            return []
        chosen = chance.sample(changed, chance.randint(1, len(changed)))
        return [Update(table_id, key, {column.name: random_value(chance, column) for column in chosen})]

    # Tables.

    def _create(self) -> None:
        chance, table_id = self._chance, self._free_name()
        kind = chance.choice(["key", "key", "key", "composite", "nonclustered", "unique", "none", "partitions", "generated"])
        if not self.can_old or self.options.delete_only_output_handle_key_columns or self.options.enable_table_across_nodes:
            kind = "key" if kind in ("none", "unique") else kind
        if kind == "partitions" and self.options.use_table_id_as_path:
            kind = "key"
        keys = chance.sample(KEY_TYPES, 2)
        columns = [Column("id", INT if kind in ("partitions", "generated") else keys[0], nullable=False)]
        columns += [Column("k2", keys[1], nullable=False)] if kind in ("composite", "unique") else []
        if kind not in ("none", "unique"):
            columns = [replace(column, primary_key=True) for column in columns]
        columns += [random_column(self._chance, name) for name in COLUMN_NAMES[: chance.randint(0, 4)]]
        more: dict[str, Any] = {"nonclustered": kind == "nonclustered", "ignores_case": chance.random() < 0.4}
        if kind == "partitions":
            more["partitions"] = {"p0": 4, "p1": 8, "p2": chance.choice([None, 1000])}
        if kind == "generated":
            expression = Column("g", INT, generated=chance.choice(list(Generated)), expression="`n`+1")
            columns += [Column("n", ColumnType(TypeKind.TINYINT)), expression]
            more["generating"] = {"g": lambda row: None if row["n"] is None else row["n"] + 1}
        unique = ("id", "k2") if kind == "unique" else ()
        self._ddl(
            f"create {kind} table {table_id} {_shape(columns)} {more}",
            lambda: self.upstream.create_table(table_id, columns, unique, **more),
        )

    def _like(self) -> None:
        pattern, table_id = self._some_table().schema.table_id, self._free_name()
        self._ddl(f"create {table_id} like {pattern}", lambda: self.upstream.create_table_like(table_id, pattern))

    def _drop(self) -> None:
        table_id = self._some_table().schema.table_id
        self._ddl(f"drop {table_id}", lambda: self.upstream.drop_table(table_id))

    def _truncate(self) -> None:
        table_id = self._some_table().schema.table_id
        self._ddl(f"truncate {table_id}", lambda: self.upstream.truncate_table(table_id))

    def _recreate(self) -> None:
        """A table is dropped, and another takes its name at once."""
        table_id = self._some_table().schema.table_id
        self._ddl(f"drop {table_id}", lambda: self.upstream.drop_table(table_id))
        self._ddl(
            f"create {table_id}",
            lambda: self.upstream.create_table(
                table_id, [Column("id", INT, nullable=False, primary_key=True), random_column(self._chance, "new")]
            ),
        )

    def _rename(self) -> None:
        old, new = self._some_table().schema.table_id, self._free_name()
        self._ddl(f"rename {old} to {new}", lambda: self.upstream.rename_table(old, new))

    def _rename_many(self) -> None:
        """A chain or a swap."""
        first, second = self._chance.sample(self.upstream.tables, 2)
        free = self._free_name()
        steps = [(first, free), (second, first)]
        steps += [(free, second)] if self._chance.random() < 0.6 else []
        self._ddl(f"rename {steps}", lambda: self.upstream.rename_tables(*steps))

    def _recreate_database(self) -> None:
        if self.options.use_table_id_as_path or self.options.legacy:
            raise ValueError("this layout does not tell of databases")
        database = self._chance.choice(DATABASES)
        self._ddl(f"drop database {database}", lambda: self.upstream.drop_database(database))
        self._ddl(f"create database {database}", lambda: self.upstream.create_database(database))

    def _partition(self) -> None:
        tables = [t for name in self.upstream.tables if (t := self.upstream.table(name)).partitions]
        table = self._chance.choice(tables)
        assert table.partitions is not None
        table_id, names = table.schema.table_id, list(table.partitions.bounds)
        name = self._chance.choice(names)
        match self._chance.randrange(3):
            case 0:
                self._ddl(f"truncate partition {table_id} {name}", lambda: self.upstream.truncate_partition(table_id, name))
            case 1:
                self._ddl(f"drop partition {table_id} {name}", lambda: self.upstream.drop_partition(table_id, name))
            case 2:
                self._counter += 1
                new, bound = f"q{self._counter}", 1000 + self._counter
                self._ddl(f"add partition {table_id} {new}", lambda: self.upstream.add_partition(table_id, new, bound))

    # Columns and indexes.

    def _alter(self) -> None:
        table = self._some_table()
        table_id, keys = table.schema.table_id, self.can_old and not self.options.delete_only_output_handle_key_columns
        clauses = random_clauses(self._chance, table, keys=keys)
        self._ddl(f"{table_id}: {', '.join(c.text() for c in clauses)}", lambda: self.upstream.alter(table_id, *clauses))

    # The way into files.

    def _deliver(self) -> None:
        self.told.append("some of it arrives")
        self.delivery.deliver_some()

    def _half(self) -> None:
        self.told.append("files are seen half written")
        self.delivery.begin_files()

    def _indexes(self) -> None:
        self.told.append("index files lie")
        self.delivery.disturb_indexes()

    def _time(self) -> None:
        self.upstream.advance(self._chance.choice([1000, 3_600_000, 86_400_000]))

    def _promise(self) -> None:
        """A checkpoint: now, or at some commit on the way."""
        later = [ts for ts, _, _ in self._states if ts > self.promised]
        if not later or self._chance.random() < 0.4:
            self.upstream.checkpoint()
        else:
            self.delivery.checkpoint(self._chance.choice(later))
        self.told.append(f"checkpoint {self.promised}")

    def _restart(self) -> None:
        """TiCDC goes on from its checkpoint, or, re-created or resumed, from an earlier one."""
        acknowledged = self.promised
        if self._chance.random() < 0.4:
            acknowledged = self._chance.choice([ts for ts, _, _ in self._states if ts <= self.promised])
        torn = self._chance.random() < 0.3
        self.told.append(f"restart from {acknowledged}{' in the middle of files' if torn else ''}")
        self.delivery.restart(acknowledged, torn=torn)


ACTIONS = (
    *["rows"] * 8,
    *["alter"] * 6,
    *["create"] * 2,
    *["partition"] * 2,
    *["deliver"] * 3,
    *["promise"] * 4,
    *["restart"] * 2,
    *("swap_rows", "like", "drop", "truncate", "recreate", "rename", "rename_many", "recreate_database"),
    *("half", "indexes", "time"),
)


def _expected(table: Table) -> ExpectedTable:
    schema = table.schema
    types = {column.name: _type_text(column.type) for column in schema.columns}
    rows = tuple(tuple(_text(row[c.name], c.type) for c in schema.columns) for row in table.rows.values())
    return ExpectedTable(schema.table_id.database, schema.table_id.table, "BASE TABLE", types, schema.handle_key, rows)


def _type_text(column_type: ColumnType) -> str:
    digits = f"({column_type.scale})" if column_type.kind is TypeKind.DATETIME else ""
    return column_type.kind.lower() + digits


def _text(value: object, column_type: ColumnType) -> str | None:
    if value is None:
        return None
    return value.hex() if column_type.kind in BINARY_KINDS and isinstance(value, bytes) else str(value)


def _statement_text(statement: Statement) -> str:
    match statement:
        case Insert(table_id, row):
            return f"insert {table_id} {dict(row)}"
        case Update(table_id, key, values):
            return f"update {table_id} {key} {dict(values)}"
        case Delete(table_id, key):
            return f"delete {table_id} {key}"


def _shape(columns: list[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}{'' if c.nullable else '!'}{' pk' if c.primary_key else ''}" for c in columns)
