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
from zlib import crc32

from differential_shapes import COLUMN_NAMES, INT, KEY_TYPES, random_clauses, random_column, random_value, undone
from harness import ExpectedTable, State
from headrace.model.table import Column, Generated, TableId
from headrace.model.types import BINARY_KINDS, ColumnType, TypeKind
from headrace.testing.delivery import Conduct, Delivery
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.upstream import Delete, Insert, Statement, Update, Upstream
from headrace.testing.upstream_ddl import Clause
from headrace.testing.upstream_table import Table

DATABASES = ("d1", "d-2")
LEDGERS = ("headrace", "progress")
_SYSTEM = ("information_schema", "Information_Schema")  # which is every target's
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
    ledger: str = LEDGERS[0]
    """The targets' database or schema of the ledger. In another one than the usual, one of the upstream's has the usual name."""
    told: list[str] = field(default_factory=list)
    taken: int = 0
    """Up to which checkpoint runs have come."""
    tables_taken: str = ""
    """The ``--tables`` that they had."""
    damaged: dict[Path, bytes] = field(default_factory=dict)
    """The schema files that cannot be read now, with what they hold."""
    _refused: list[tuple[int, int, TableId]] = field(default_factory=list)
    _states: list[tuple[int, bool, State]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = Random(0)
        self.delivery = self.new_delivery()
        self.upstream = Upstream(self.delivery)
        self.upstream.typed = self._typed
        self.toml = self.root / "changefeed.toml"
        self.toml.write_text(self.options.changefeed_toml(), encoding="utf-8")
        self._counter = 0
        self._back: dict[TableId, Clause] = {}
        self.databases = DATABASES if self.ledger == LEDGERS[0] else (DATABASES[0], LEDGERS[0])
        for database in self.databases:
            self._remember(self.upstream.create_database(database), f"create database {database}", ddl=True)
        self.delivery.checkpoint(0)

    def new_delivery(self) -> Delivery:
        """What the upstream writes to."""
        return Delivery(self.root / "data", self.options, self.conduct, self._chance)

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
        while len(self.tables) < _FEWEST_TABLES:
            self._create()
        for _ in range(_TRIES):
            with suppress(KeyError, ValueError, IndexError):
                getattr(self, f"_{step.action}")()
                return

    def finish(self) -> None:
        """Everything arrives, and a checkpoint after it; what was damaged is repaired."""
        self._repair()
        self.upstream.advance(5)
        self.upstream.checkpoint()
        self.told.append(f"everything arrives; checkpoint {self.promised}")

    def state(self, checkpoint: int | None = None) -> State:
        """What a target must hold at a checkpoint, the highest one by default: rows up to it, schema changes below it."""
        checkpoint = self.promised if checkpoint is None else checkpoint
        found = [s for ts, ddl, s in self._states if ts < checkpoint or (ts == checkpoint and not ddl)]
        return replace(found[-1], checkpoint_ts=checkpoint) if found else State(checkpoint, frozenset(self.databases), ())

    @property
    def rests(self) -> bool:
        """Whether the checkpoint has reached everything that happened."""
        return not self._states or self._states[-1][0] <= self.promised

    def schema_changes_below(self, checkpoint: int) -> set[int]:
        """The commit ts of the schema changes that a target at this checkpoint has."""
        return {ts for ts, ddl, _ in self._states if ddl and ts < checkpoint}

    def _remember(self, ts: int, words: str, *, ddl: bool) -> None:
        tables = tuple(_expected(self.upstream.table(table_id)) for table_id in self.tables)
        self._states.append((ts, ddl, State(ts, frozenset(self.databases), tables)))
        self.told.append(f"{ts}: {words}")

    @property
    def tables(self) -> tuple[TableId, ...]:
        """The tables that targets follow."""
        return tuple(t for t in self.upstream.tables if t.database in self.databases)

    def refused(self, includes: Callable[[TableId], bool]) -> set[bool]:
        """Whether databases that no target may have stop at the checkpoint: both where it depends on what the layout tells."""
        found = [(first, last) for first, last, table_id in self._refused if includes(table_id)]
        return {any(first < self.promised for first, _ in found), any(last < self.promised for _, last in found)}

    def _some_table(self) -> Table:
        return self.upstream.table(self._chance.choice(self.tables))

    def _free_name(self) -> TableId:
        """A name that no table has, in whatever case."""
        taken = {name.folded for name in self.upstream.tables}
        names = [TableId(d, t) for d in self.databases for t in TABLES]
        return self._in_some_case(self._chance.choice([name for name in names if name.folded not in taken]))

    def _in_some_case(self, table_id: TableId) -> TableId:
        """What one table has, the next one may have in another case."""
        return TableId(table_id.database, table_id.table.swapcase()) if self._chance.random() < 0.3 else table_id

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

    def _rows_of(self, table_id: TableId) -> None:
        """Transactions over a table that meet the same few rows again and again."""
        for _ in range(self._chance.randint(1, 3)):
            table = self.upstream.table(table_id)
            statements = self._statement(table)
            columns = [c for c in table.schema.columns if c.generated is None and c.name not in table.schema.handle_key]
            if table.schema.handle_key and columns:
                often = sorted(table.rows, key=str)[:3]
                self._transaction([Update(table_id, k, {c.name: random_value(self._chance, c) for c in columns}) for k in often])
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
        if (self.options.use_table_id_as_path or self.options.legacy) and chance.random() < 0.5:
            kind = "partitions"  # theirs have directories of their own there
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
        # Where the pattern is left out, or gone, a target makes the copy without partitions, and stops where a statement needs one.
        patterns = [name for name in self.tables if not self.upstream.table(name).partitions]
        pattern, table_id = self._chance.choice(patterns), self._free_name()
        self._ddl(f"create {table_id} like {pattern}", lambda: self.upstream.create_table_like(table_id, pattern))
        if self._chance.random() < 0.3:  # the pattern is another table, or gone, where the copy comes late
            self._ddl(f"drop {pattern}", lambda: self.upstream.drop_table(pattern))
            if self._chance.random() < 0.5:
                self._create_anew(pattern)

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
        self._create_anew(table_id)

    def _create_anew(self, table_id: TableId) -> None:
        next_id = self._in_some_case(table_id)
        self._ddl(
            f"create {next_id}",
            lambda: self.upstream.create_table(
                next_id, [Column("id", INT, nullable=False, primary_key=True), random_column(self._chance, "new")]
            ),
        )

    def _rename(self) -> None:
        old, new = self._some_table().schema.table_id, self._free_name()
        self._ddl(f"rename {old} to {new}", lambda: self.upstream.rename_table(old, new))

    def _typed(self, table_id: TableId) -> TableId:
        """A name as somebody types it: now and then in another case, which is the same to TiDB."""
        if crc32(f"{table_id} {self.upstream.now}".encode()) % 4:
            return table_id
        return TableId(table_id.database, table_id.table.swapcase())

    def _rename_many(self) -> None:
        """A chain or a swap."""
        first, second = self._chance.sample(self.tables, 2)
        free = self._free_name()
        steps = [(first, free), (second, first)]
        steps += [(free, second)] if self._chance.random() < 0.6 else []
        self._ddl(f"rename {steps}", lambda: self.upstream.rename_tables(*steps))

    def _recreate_database(self) -> None:
        if self.options.use_table_id_as_path or self.options.legacy:
            raise ValueError("this layout does not tell of databases")
        database = self._chance.choice(self.databases)
        self._ddl(f"drop database {database}", lambda: self.upstream.drop_database(database))
        self._ddl(f"create database {database}", lambda: self.upstream.create_database(database))

    def _reserved(self) -> None:
        """A database that no target may have comes, with a table, or goes: one of the ledger's name, or of a system's."""
        name = self._chance.choice([self.ledger, self.ledger.upper(), self.ledger.capitalize(), self._chance.choice(_SYSTEM)])
        table_id = TableId(name, self._chance.choice(["cuts", "pipelines", "a"]))
        there = [t for t in self.upstream.tables if t.lies_in(name)]
        if there:
            self._ddl(f"drop database {there[0].database}", lambda: self.upstream.drop_database(there[0].database))
            return
        first = self.upstream.create_database(name)
        key = Column("id", INT, nullable=False, primary_key=True)
        last = self.upstream.create_table(table_id, [key])
        self._refused.append((first, last, table_id))
        self._remember(last, f"create database {name} and table {table_id}", ddl=True)
        self._transaction([Insert(table_id, {"id": 1})])

    def _stranger(self) -> None:
        """Somebody works in the targets, of which the upstream knows nothing."""

    def _partition(self) -> None:
        tables = [t for name in self.tables if (t := self.upstream.table(name)).partitions]
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

    def _exchange(self) -> None:
        """A partition exchanges its rows with a table that is made for that, and stays."""
        tables = [t for name in self.tables if (t := self.upstream.table(name)).partitions and not (t.uniques or t.indexes)]
        table, other = self._chance.choice(tables), self._free_name()
        table_id, partitions = table.schema.table_id, table.partitions
        assert partitions is not None
        names = list(partitions.bounds)
        place = self._chance.randrange(len(names))
        bounds = [-9, *(1000 if bound is None else bound for bound in partitions.bounds.values())]
        more: dict[str, Any] = {"ignores_case": table.ignores_case, "generating": table.generating}
        columns = [replace(column, column_id=None) for column in table.schema.columns]
        self._ddl(f"create table {other} like a partition", lambda: self.upstream.create_table(other, columns, **more))
        for _ in range(self._chance.randint(0, 3)):
            row = {c.name: random_value(self._chance, c) for c in columns if c.generated is None}
            number = self._chance.randrange(bounds[place], bounds[place + 1])
            self._transaction([Insert(other, row | {partitions.column: number})])
        if self._chance.random() < 0.5:
            self._promise()
        if self._chance.random() < 0.3:
            self._rows_of(table_id)
        name = names[place]
        for _ in range(self._chance.choice([1, 1, 2])):
            self._ddl(
                f"exchange {name} of {table_id} with {other}", lambda: self.upstream.exchange_partition(table_id, name, other)
            )
            if self._chance.random() < 0.5:
                self._rows_of(table_id)
            if self._chance.random() < 0.5:
                self._rows_of(other)

    # Columns and indexes.

    def _alter(self) -> None:
        self._alter_table(self._some_table())

    def _alter_table(self, table: Table) -> None:
        table_id, keys = table.schema.table_id, self.can_old and not self.options.delete_only_output_handle_key_columns
        clauses = random_clauses(self._chance, table, keys=keys)
        back = [undone(clause, table) for clause in clauses]
        self._ddl(f"{table_id}: {', '.join(c.text() for c in clauses)}", lambda: self.upstream.alter(table_id, *clauses))
        self._back.pop(table_id, None)
        if len(back) == 1 and back[0] is not None:
            self._back[table_id] = back[0]

    def _undo(self) -> None:
        """A table gets the columns back that it had before its last change, so that TiCDC may go on in an older directory."""
        self._undo_of(self._chance.choice([table_id for table_id in self._back if table_id in self.upstream.tables]))

    def _undo_of(self, table_id: TableId) -> None:
        clause = self._back.pop(table_id)
        forth = undone(clause, self.upstream.table(table_id))
        self._ddl(f"{table_id}: back, {clause.text()}", lambda: self.upstream.alter(table_id, clause))
        if forth is not None:
            self._back[table_id] = forth

    def _there_and_back(self) -> None:
        """Rows, a change of columns, rows, the columns of before, and rows again: of a table with partitions where there is one."""
        tables = [self.upstream.table(name) for name in self.tables]
        table = self._chance.choice([t for t in tables if t.partitions] or tables)
        table_id = table.schema.table_id
        self._back.pop(table_id, None)
        self._rows_of(table_id)
        with suppress(KeyError, ValueError, IndexError):
            self._alter_table(table)
        for _ in range(self._chance.randint(1, 2)):
            self._rows_of(table_id)
            if self._chance.random() < 0.3:
                self._promise()
            if table_id in self._back:
                self._undo_of(table_id)
        self._rows_of(table_id)

    # The way into files.

    def _move(self) -> None:
        """One partition of a table is written by another node from now on."""
        tables = [t for name in self.tables if (t := self.upstream.table(name)).partitions]
        table = self._chance.choice(tables)
        assert table.partitions is not None
        table_id, partition = table.schema.table_id, self._chance.choice(list(table.partitions.ids.values()))
        self.delivery.move_partition(table_id, partition)
        self.told.append(f"partition {partition} of {table_id} moves, from {self.promised}")

    def _deliver(self) -> None:
        self.told.append("some of it arrives")
        self.delivery.deliver_some()

    def _half(self) -> None:
        self.told.append("files are seen half written")
        self.delivery.begin_files()

    def _indexes(self) -> None:
        self.told.append("index files lie")
        self.delivery.disturb_indexes()

    def _damage(self) -> None:
        """A schema file cannot be read, or is not there though its data are; rather one that no run has seen. Then a checkpoint.

        Two may be so at once: then tables wait at several places, some of them for each other.

        Often it is one that gives a table another name: of those it matters which tables have to wait.
        """
        if len(self.damaged) > 1:
            raise ValueError("two at a time")
        since = self.taken
        if self._chance.random() < 0.5:
            with suppress(KeyError, ValueError, IndexError):
                self._rename()
                since = self._states[-1][0]
                self.upstream.checkpoint()
        versions = {path: _version(path) for path in sorted((self.root / "data").rglob("schema*.json"))}
        fresh = [path for path, version in versions.items() if version >= since]
        may_be = fresh if fresh and self._chance.random() < 0.75 else list(versions)
        path = self._chance.choice([path for path in may_be if path not in self.damaged])
        raw = path.read_bytes()
        kind = self._chance.choice(["torn", "empty", "garbage", "missing"])
        if kind == "missing" and not self._has_rows(path, versions[path]):
            kind = "empty"  # nothing would tell of it
        self.damaged[path] = raw
        if kind == "missing":
            path.unlink()
        else:
            path.write_bytes({"torn": raw[: self._chance.randrange(len(raw) - 1)], "empty": b"", "garbage": raw[::-1]}[kind])
        self.told.append(f"{path.relative_to(self.root)} is {kind}")
        self._promise()

    def _has_rows(self, schema_file: Path, version: int) -> bool:
        folder = schema_file.parent if schema_file.parent.name == str(version) else schema_file.parents[1] / str(version)
        return any(folder.rglob(f"CDC*.{self.options.extension}"))

    def _repair(self) -> None:
        """Every damaged file is as it was."""
        for path, raw in self.damaged.items():
            self.told.append(f"{path.relative_to(self.root)} is repaired")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
        self.damaged.clear()

    def _clear(self) -> None:
        """Everything arrives. When it was applied, :meth:`cleared` lets files go."""
        self.finish()

    def cleared(self) -> None:
        self.delivery.remove_files()
        self.told.append("files are cleared away, or their numbers used again")

    def _litter(self) -> None:
        self.delivery.litter()
        self.told.append("something lies in the folder that is not TiCDC's")

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
        """TiCDC goes on from its checkpoint, or, re-created or resumed, from an earlier one. It looks for schema files."""
        self._repair()
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
    "exchange",
    *["deliver"] * 3,
    *["promise"] * 4,
    *["restart"] * 2,
    *["there_and_back"] * 3,
    *["move"] * 2,
    *("undo", "swap_rows", "like", "drop", "truncate", "recreate", "rename", "rename_many", "recreate_database"),
    *("half", "indexes", "time", "reserved", "recreate_database", "stranger", "stranger"),
    *["damage"] * 3,
    "repair",
    *("time", "clear", "clear", "litter"),
)


def _version(schema_file: Path) -> int:
    """Of ``schema_<version>_<checksum>.json``, or of the folder of ``<version>/schema.json``."""
    parts = schema_file.stem.split("_")
    return int(parts[1] if len(parts) > 1 else schema_file.parent.name)


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
