"""The schema changes of a stream in the order of their commit ts, and the shape of each table between them. Pure.

A stream delivers each schema change once, and again after a restart of its writer, and drops it when its retention ends. So earlier
shapes come from the ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import groupby

from headrace.ddl.classify import Classified, classify
from headrace.ddl.columns import annotate
from headrace.ddl.indexes import with_index_names
from headrace.ddl.inferred import doubt_about
from headrace.ddl.names import KnownNames, spelled
from headrace.ddl.partition_text import partitioning_from_text, partitioning_to_text
from headrace.ddl.partitions import Partitioning, partitioning_after
from headrace.ddl.renames import Rename, RenamePlan, can_run, plan_renames, rename_statement
from headrace.ddl.shape_after import collation_after, shape_after
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.ddl.stored_defaults import UnreadDefinitionError
from headrace.ddl.told import named_collation
from headrace.model.containment import contained
from headrace.model.events import DropDatabaseEvent, DropTableEvent, RenameTableEvent, SchemaChange
from headrace.model.outcome import Problem
from headrace.model.stream import StreamStatement
from headrace.model.table import Generated, TableId, TableSchema, folded_name
from headrace.model.tso import MAX_TSO
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS
from headrace.sources.base import KeptShapes

_VIEWS = frozenset({StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW})
_BEGINNINGS = frozenset({StatementKind.CREATE_TABLE, StatementKind.TRUNCATE_TABLE})
_OF_DATABASES = frozenset({StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE})

_OF_TWO = (
    "records with its name are in {before} and in {after}. Another name may be written like its own there, so they may be of two "
    "tables."
)
_ONE_OF_TWO = "Leave the records of one of them out of the source, or rename a table upstream, and begin anew with headrace reset."


class StreamHistory:
    """Processes the statements of a stream. ``changes`` are their effects, ``problems`` those that cannot be handled."""

    def __init__(self, known: KeptShapes, statements: Iterable[StreamStatement]) -> None:
        """``known`` are the earlier shapes, from the ledger."""
        self.changes: list[SchemaChange] = []
        self.problems: list[Problem] = []
        tables = {table_id: shapes for table_id, shapes in known.items() if table_id.table}
        self._versions = {table_id: {shape.version: shape.schema for shape in shapes} for table_id, shapes in tables.items()}
        self._tables: dict[TableId, TableSchema] = {}
        # A repeated statement is applied to the tables as they were before it, though the ledger already has its result.
        self._kept = sorted((shape for shapes in known.values() for shape in shapes), key=lambda shape: shape.version, reverse=True)
        self._told: set[tuple[TableId, int]] = set()
        """The tables and databases that a statement concerns, with its commit ts (TSO)."""
        # The versions at which a table was created, got its name, or was emptied: no earlier row counts.
        self._beginnings = {
            (t, shape.version) for t, shapes in tables.items() for shape in shapes if shape.incarnation == shape.version
        }
        self._ends: dict[TableId, set[int]] = defaultdict(set)
        """When tables were dropped or renamed (TSO)."""
        self._partitionings: dict[TableId, Partitioning | None] = {}
        self._taken_steps: set[tuple[int, tuple[Rename, ...]]] = set()
        # The default collations of tables, and of databases by their folded names.
        self._collations: dict[TableId, str] = defaultdict(str)
        for _, of_time in groupby(_each_once(statements), key=lambda told: told.commit_ts):
            for statement in self._in_order(list(of_time)):
                with contained(self._failed(statement), statement.table_id, statement.place):
                    try:
                        self._take(statement)
                    except UnreadDefinitionError as error:
                        problem = f"the shape that a schema change gives it is not known: {error}"
                        self.problems.append(Problem(statement.table_id, problem, place=statement.place))

    def versions(self, table_id: TableId) -> list[tuple[int, TableSchema]]:
        """The shapes of a table in order, each with the version (TSO) from which it is in force."""
        return sorted(self._versions.get(table_id, {}).items())

    def begins(self, table_id: TableId, version: int) -> bool:
        """Whether no row of the table from before a version (TSO) counts."""
        return (table_id, version) in self._beginnings

    def absences(self, table_id: TableId) -> list[tuple[int, int]]:
        """From what to what commit ts (TSO) there was no table of a name, by the schema changes that end and begin it."""
        begins = sorted(self._versions.get(table_id, {}))
        return [(end, next((at for at in begins if at >= end), MAX_TSO)) for end in sorted(self._ends.get(table_id, ()))]

    def _failed(self, statement: StreamStatement) -> Callable[[Problem], None]:
        def failed(problem: Problem) -> None:
            self.problems.append(replace(problem, table_id=statement.table_id, place=statement.place))

        return failed

    def _in_order(self, of_time: list[StreamStatement]) -> list[StreamStatement]:
        """The statements of one commit ts in an order in which they can run, since the steps of one RENAME TABLE come separately.

        Of steps that give one table several names, only the last may be there, or the steps may be in another order. TiCDC writes
        each step to the topic of its old name, so those of different partitions are in no order at all.
        """
        self._recall(of_time[0].commit_ts)
        if len(of_time) > 1:
            # A name may be spelled in another case in one of the steps.
            names = KnownNames({told.table_id for told in of_time}, self._tables.keys())
            texts = (spelled(told.statement, read_statement(told.statement, told.database), names.meant) for told in of_time)
            of_time = [replace(told, statement=text) for told, text in zip(of_time, texts, strict=True)]
        named = [(rename, told) for told in of_time if (rename := _rename(told)) is not None]
        renames = dict(named)
        is_ordered = len({told.partition for _, told in named}) == 1
        if len(renames) < 2 or (is_ordered and can_run([rename for rename, _ in named], self._tables)):
            return of_time
        shapes = {told.table_id: told.schema for told in renames.values() if told.schema is not None}
        plan = plan_renames(tuple(renames), self._tables, shapes)
        # If some occur several times, it is unknown which are missing; and so it is if some may, as in a TO b, b TO a, a TO b.
        may_repeat = not is_ordered and any((new, old) in renames for old, new in renames)
        if len(named) > len(renames) or may_repeat:
            plan = RenamePlan((), unclear=frozenset(name for rename in renames for name in rename))
        first = next(iter(renames.values()))
        if plan.unclear:
            self._leave_open(first, tuple(renames), plan.unclear)
        steps = [renames.get(step) or self._inferred(step, first) for step in plan.steps]
        place = of_time.index(first)
        others = [(n, told) for n, told in enumerate(of_time) if told not in renames.values()]
        return [*(told for n, told in others if n < place), *steps, *(told for n, told in others if n > place)]

    def _inferred(self, step: Rename, first: StreamStatement) -> StreamStatement:
        old, new = step
        schema = self._tables.get(old)
        schema = replace(schema, table_id=new) if schema is not None else None
        return replace(first, database=old.database, statement=rename_statement(step), table_id=new, schema=schema)

    def _leave_open(self, first: StreamStatement, renames: Collection[Rename], unclear: frozenset[TableId]) -> None:
        """Makes one schema change of renames whose order is unknown; a person must decide about it."""
        names = frozenset(name for rename in renames for name in rename) | unclear
        self._told |= {(name, first.commit_ts) for name in names}
        for name in names:
            self._tables.pop(name, None)
        text = rename_statement(*renames)
        events = tuple(RenameTableEvent(old, new) for old, new in renames)
        doubt = "the stream does not show the order of the renames. Rename the tables in the target by hand."
        self.changes.append(
            SchemaChange(first.commit_ts, first.table_id, events, text, first.database, names, origin=first.place, doubt=doubt)
        )

    def _is_of_two(self, told: StreamStatement) -> bool:
        """Whether rows without a statement may be of another table than those of its name before; that is a problem then."""
        before, after = self._tables.get(told.table_id), told.schema
        if before is None or after is None or not before.named_in or before.named_in == after.named_in:
            return False
        problem = _OF_TWO.format(before=before.named_in, after=after.named_in)
        self.problems.append(Problem(told.table_id, problem, place=told.place, hint=_ONE_OF_TWO))
        return True

    def _is_former(self, told: StreamStatement) -> bool:
        """Whether rows without a statement have the table's shape, or a former one, as rows do that are sent again.

        A registry gives a new schema a greater id.
        """
        before = self._tables.get(told.table_id)
        return before is not None and told.schema is not None and before.registered >= told.schema.registered

    def _take(self, told: StreamStatement) -> None:
        if told.is_inferred and (self._is_of_two(told) or self._is_former(told)):
            return
        names = KnownNames({told.table_id}, self._tables.keys())
        text, doubt = (told.statement, "") if told.current_is_known else self._with_databases(told)
        text = spelled(text, read_statement(text, told.database), names.meant)
        statement = read_statement(text, told.database)
        if len(statement.renames) > 1 and not doubt:
            self._take_steps(told, statement.renames)
            return
        origin = statement.renames[0][0] if len(statement.renames) == 1 else told.table_id
        before = self._tables.get(origin, self._tables.get(told.table_id))
        pattern = self._tables.get(statement.like) if statement.like else None
        text = with_index_names(text, statement, [index.name for index in before.indexes] if before else ())
        collation = self._collation(told, statement, origin)
        after = self._after(told, statement, text, before, pattern, collation)
        if told.is_inferred and after is not None:
            doubt = doubt_about(before, after, tells_defaults=told.tells_defaults)
        former = self._partitionings.get(origin)
        classified = classify(text, database=told.database, table_id=told.table_id, before=before, after=after, partitioning=former)
        drops = any(isinstance(event, DropTableEvent) and event.table_id in self._tables for event in classified.events)
        like = self._partitionings.get(statement.like) if statement.like else None
        partitioning = partitioning_after(former, text, told.database, like)
        if statement.kind in _BEGINNINGS or any(isinstance(event, RenameTableEvent) for event in classified.events):
            self._beginnings.add((told.table_id, told.commit_ts))
        database = TableId(folded_name(told.database))
        if statement.kind in _OF_DATABASES:
            kept = self._collations[database] if statement.kind is StatementKind.ALTER_DATABASE else ""
            self._collations[database] = named_collation(statement.options) or kept
        collation = collation_after(statement, collation)
        gone = self._move(told, classified, after, partitioning, collation, is_view=statement.kind in _VIEWS)
        if not told.statement and not classified.events:
            return  # it only carries the shape of a table that another table's statement changes
        changes = classified.changes
        if not classified.parsed:
            # It is unknown what the text touches, so it must wait for everything, and everything for it.
            changes |= frozenset(self._tables) | {told.table_id}
        self.changes.append(
            SchemaChange(
                told.commit_ts,
                told.table_id,
                classified.events,
                text,
                told.database,
                changes,
                classified.reads - changes,
                None if gone else after,
                origin=told.place,
                database_collation=self._collations[database],
                partitioning=partitioning_to_text(self._partitionings.get(told.table_id)),
                collation=self._collations[told.table_id] if told.table_id.table and not gone else "",
                doubt=doubt,
                asks=told.if_it_drops if drops else "",
                unexplained=classified.unexplained,
                ran_ms=told.ran_ms,
            )
        )

    def _take_steps(self, told: StreamStatement, steps: tuple[Rename, ...]) -> None:
        """Takes the steps of a RENAME of several tables one after another: a later one may use a name that an earlier one frees.

        A statement that comes once for each of its tables is taken once. A number in the text distinguishes equal steps for the
        journal.
        """
        if (told.commit_ts, steps) in self._taken_steps:
            return
        self._taken_steps.add((told.commit_ts, steps))
        for number, (old, new) in enumerate(steps):
            times = steps[: number + 1].count((old, new))
            text = rename_statement((old, new)) + (f" /* {times} */" if times > 1 else "")
            step = replace(told, database=old.database, statement=text, table_id=new, current_is_known=True)
            self._take(step if new == told.table_id else replace(step, schema=None, tells_shape=False))

    def _with_databases(self, told: StreamStatement) -> tuple[str, str]:
        """The statement with the database of each table that it names without one, and why that may be wrong.

        The current database is unknown. A name that only one of the known tables has is that table's.
        """
        read = read_statement(told.statement, "")
        known: dict[str, list[TableId]] = defaultdict(list)
        for table_id in self._tables:
            known[folded_name(table_id.table)].append(table_id)
        loose = {mention.table_id for mention in read.mentions if not mention.table_id.database}
        meant = {name: known[folded_name(name.table)] for name in loose}
        text = spelled(told.statement, read, lambda name: meant[name][0] if len(meant.get(name, ())) == 1 else name)
        unknown = sorted(name.table for name, found in meant.items() if len(found) != 1)
        if not unknown:
            return text, ""
        return (
            text,
            f"the statement names {', '.join(unknown)} without a database, and the stream does not show which one is meant.",
        )

    def _recall(self, commit_ts: int) -> None:
        """Loads kept shapes from before a commit ts (TSO), but for those that follow from the statements so far.

        A table may have others after a statement: its writer begins again, and repeats that one first.
        """
        while self._kept and self._kept[-1].version < commit_ts:
            shape = self._kept.pop()
            table_id = shape.schema.table_id
            # A repeated statement may tell no shape: that of before it is not kept any more.
            if (table_id, shape.version) in self._told and (table_id.is_database or table_id in self._tables):
                continue
            if table_id.is_database:
                self._collations[TableId(folded_name(table_id.database))] = shape.collation
            else:
                self._tables[table_id] = shape.schema
                self._partitionings[table_id] = partitioning_from_text(shape.partitioning)
                self._collations[table_id] = shape.collation

    def _after(
        self,
        told: StreamStatement,
        statement: Statement,
        text: str,
        before: TableSchema | None,
        pattern: TableSchema | None,
        collation: str,
    ) -> TableSchema | None:
        """The shape after a statement.

        Raises UnreadDefinitionError if it has to be read from the text and cannot be, or is not what the record tells of it.
        """
        schema = told.schema
        if not told.tells_shape:
            schema = shape_after(statement, told.table_id, before, pattern, collation=collation)
        if schema is None or statement.kind in _VIEWS:
            return None
        after = annotate(text, replace(schema, table_id=told.table_id), pattern if statement.like else before)
        _require_bytes_or_text(told, after)
        return after if told.carries_stored else _without_stored(after)

    def _collation(self, told: StreamStatement, statement: Statement, origin: TableId) -> str:
        """The default collation that the statement's table has without the statement, as for :func:`collation_after`."""
        if statement.kind is StatementKind.CREATE_TABLE:
            return self._collations[statement.like or TableId(folded_name(told.table_id.database))]
        return self._collations[origin]

    def _move(
        self,
        told: StreamStatement,
        classified: Classified,
        after: TableSchema | None,
        partitioning: Partitioning | None,
        collation: str,
        *,
        is_view: bool,
    ) -> bool:
        """Applies the events to the known tables. Returns whether the statement's table is gone afterwards."""
        gone = False
        self._told |= {(table_id, told.commit_ts) for table_id in classified.changes | {told.table_id}}
        for event in classified.events:
            match event:
                case DropTableEvent(dropped):
                    self._tables.pop(dropped, None)
                    self._ends[dropped].add(told.commit_ts)
                    self._partitionings.pop(dropped, None)
                    gone |= dropped == told.table_id
                case DropDatabaseEvent(database):
                    for table_id in [t for t in self._tables if t.lies_in(database)]:
                        self._told.add((table_id, told.commit_ts))
                        self._ends[table_id].add(told.commit_ts)
                        del self._tables[table_id]
                        self._partitionings.pop(table_id, None)
                    gone = True
                case RenameTableEvent(old, new):
                    moved = self._tables.pop(old, None)
                    self._ends[old].add(told.commit_ts)
                    self._partitionings[new] = self._partitionings.pop(old, None)
                    self._collations[new] = self._collations.pop(old, "")
                    if moved is not None:
                        self._tables[new] = replace(moved, table_id=new)
                        self._versions.setdefault(new, {})[told.commit_ts] = self._tables[new]
                case _:
                    pass
        if after is not None and not gone and not is_view:
            self._tables[told.table_id] = after
            self._partitionings[told.table_id] = partitioning
            self._collations[told.table_id] = collation
            self._versions.setdefault(told.table_id, {})[told.commit_ts] = after
        return gone


def _without_stored(schema: TableSchema) -> TableSchema:
    """The shape in which stored generated columns are like virtual ones: rows do not have them, and they identify no row."""
    columns = tuple(replace(c, generated=Generated.VIRTUAL) if c.generated is not None else c for c in schema.columns)
    shape = replace(schema, columns=columns)
    key = [shape.column(name) for name in schema.handle_key]
    return shape if all(c.primary_key or c.generated is None for c in key) else replace(shape, handle_key=())


def _require_bytes_or_text(told: StreamStatement, after: TableSchema) -> None:
    """Raises UnreadDefinitionError if a column holds bytes by the record and text by the statements, or the other way round.

    The default charset of a table or database may be older than the stream.
    """
    for name, holds_bytes in told.holds_bytes:
        kinds, source, statements = (CHARACTER_KINDS, "bytes", "text") if holds_bytes else (BINARY_KINDS, "text", "bytes")
        if after.has_column(name) and after.column(name).type.kind in kinds:
            raise UnreadDefinitionError(
                f"column {name} holds {source} in the source, and {statements} by the schema changes. The default charset of its "
                "table or database may be older than the topic. Name the charset in the source, with ALTER TABLE … CONVERT TO "
                "CHARACTER SET or MODIFY COLUMN, or leave the table out with --tables."
            )


def _rename(told: StreamStatement) -> Rename | None:
    """The rename in the statement, if it has exactly one."""
    renames = read_statement(told.statement, told.database).renames
    return renames[0] if len(renames) == 1 else None


def _each_once(statements: Iterable[StreamStatement]) -> list[StreamStatement]:
    """The statements in the order of their commit ts, without repeats: every partition may have them, and repeat them.

    A RENAME TABLE may have the same step several times, as in ``a TO b, b TO a, a TO b``; the result then has it as often. The
    writer of a stream restarts with a watermark. So if a partition has a step again, with only statements of the same commit ts in
    between, it is another step; it cannot run directly after itself. A number in its text distinguishes the steps for the journal.
    """
    found: dict[tuple[int, TableId, str, int], StreamStatement] = {}
    times: Counter[tuple[int, TableId, str]] = Counter()
    last: StreamStatement | None = None
    last_key: tuple[int, TableId, str] | None = None
    for told in sorted(statements, key=lambda told: (told.commit_ts, told.partition, told.offset)):
        shape = f"{told.schema.told} {told.schema.named_in}" if told.is_inferred and told.schema is not None else ""
        key = (told.commit_ts, told.table_id, told.statement or shape)
        if last is None or (last.commit_ts, last.partition, last.offset) != (told.commit_ts, told.partition, told.before):
            times.clear()
            last_key = None
        if key != last_key:
            times[key] += 1
        number = times[key] if _rename(told) else 1
        found.setdefault((*key, number), told if number == 1 else replace(told, statement=f"{told.statement} /* {number} */"))
        last, last_key = told, key
    return list(found.values())
