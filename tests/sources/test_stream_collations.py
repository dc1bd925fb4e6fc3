"""The default collations of tables in a stream of statements, which decide whether a column without its own has text or bytes."""

from __future__ import annotations

import pytest

from headrace.engine.shapes import told_shapes
from headrace.model.ledger import LedgerState
from headrace.model.shape_text import kept_shape_from_text, kept_shape_to_text
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId
from headrace.model.types import TypeKind
from headrace.sources.base import KeptShapes
from headrace.sources.stream.history import StreamHistory

T, DATABASE = TableId("d", "t"), TableId("d")
ADD = (T, "ALTER TABLE `t` ADD COLUMN `b` VARCHAR(9)")
OF_BYTES: dict[str, list[tuple[TableId, str]]] = {
    "the table's own": [(T, "CREATE TABLE `t` (`a` INT) CHARSET=binary"), ADD],
    "the database's": [(DATABASE, "CREATE DATABASE `d` CHARSET binary"), (T, "CREATE TABLE `t` (`a` INT)"), ADD],
    "changed later": [(T, "CREATE TABLE `t` (`a` INT)"), (T, "ALTER TABLE `t` DEFAULT CHARACTER SET binary"), ADD],
    "converted": [(T, "CREATE TABLE `t` (`a` INT)"), (T, "ALTER TABLE `t` CONVERT TO CHARACTER SET binary"), ADD],
    "renamed": [(TableId("d", "o"), "CREATE TABLE `o` (`a` INT) CHARSET binary"), (T, "RENAME TABLE `o` TO `t`"), ADD],
    "copied": [(TableId("d", "o"), "CREATE TABLE `o` (`a` INT) CHARSET binary"), (T, "CREATE TABLE `t` LIKE `o`"), ADD],
    "emptied": [(T, "CREATE TABLE `t` (`a` INT) COLLATE=binary"), (T, "TRUNCATE TABLE `t`"), ADD],
    "indexed": [(T, "CREATE TABLE `t` (`a` INT, KEY `k` (`a`)) CHARSET binary"), (T, "DROP INDEX `k` ON `t`"), ADD],
}
OF_TEXT: dict[str, list[tuple[TableId, str]]] = {
    "the database's, later": [(T, "CREATE TABLE `t` (`a` INT)"), (DATABASE, "ALTER DATABASE `d` CHARSET binary"), ADD],
    "created anew": [
        (T, "CREATE TABLE `t` (`a` INT) CHARSET binary"),
        (T, "DROP TABLE `t`"),
        (T, "CREATE TABLE `t` (`a` INT)"),
        ADD,
    ],
    "another database's": [(TableId("e"), "CREATE DATABASE `e` CHARSET binary"), (T, "CREATE TABLE `t` (`a` INT)"), ADD],
}


def told(commit_ts: int, table_id: TableId, statement: str) -> StreamStatement:
    return StreamStatement(commit_ts, table_id.database, statement, table_id, None, "0", commit_ts, tells_shape=False)


def kind_at_the_end(history: StreamHistory) -> TypeKind:
    assert not history.problems
    return history.versions(T)[-1][1].column("b").type.kind


def kept(history: StreamHistory, before: KeptShapes) -> KeptShapes:
    """The shapes that the ledger has for a source after a history, read back from their texts."""
    found = {table_id: list(shapes) for table_id, shapes in before.items()}
    for shape in told_shapes(LedgerState("p"), history.changes):
        again = kept_shape_from_text(shape.incarnation, shape.version, kept_shape_to_text(shape))
        found.setdefault(shape.schema.table_id, []).append(again)
    return {table_id: tuple(shapes) for table_id, shapes in found.items()}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        *(pytest.param(found, TypeKind.VARBINARY, id=name) for name, found in OF_BYTES.items()),
        *(pytest.param(found, TypeKind.VARCHAR, id=name) for name, found in OF_TEXT.items()),
    ],
)
def test_a_column_gets_the_charset_of_its_table_also_after_a_restart(
    statements: list[tuple[TableId, str]], expected: TypeKind
) -> None:
    stream = [told(n, *statement) for n, statement in enumerate(statements, 1)]
    assert kind_at_the_end(StreamHistory({}, stream)) is expected
    shapes: KeptShapes = {}
    for statement in stream:
        restarted = StreamHistory(shapes, [statement])
        shapes = kept(restarted, shapes)
    assert kind_at_the_end(restarted) is expected
