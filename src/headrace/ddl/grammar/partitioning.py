"""PARTITION BY, and the definitions of partitions."""

from __future__ import annotations

from headrace.ddl.grammar import expressions
from headrace.ddl.grammar.reader import Reader

_OPTIONS = ("COMMENT", "MAX_ROWS", "MIN_ROWS", "NODEGROUP")


def partition_by(reader: Reader) -> None:
    """Reads what follows ``PARTITION BY``. Raises NotAcceptedError."""
    _method(reader)
    if reader.accept("INTERVAL"):
        _interval(reader)
    if reader.accept("PARTITIONS"):
        reader.number()
    if reader.accept("SUBPARTITION", "BY"):
        _method(reader)
        if reader.accept("SUBPARTITIONS"):
            reader.number()
    if reader.peek().says("("):
        reader.in_parentheses(lambda: definition(reader))
    if reader.accept("UPDATE", "INDEXES"):
        reader.in_parentheses(lambda: _index(reader))


def definition(reader: Reader) -> None:
    """Reads ``PARTITION p VALUES LESS THAN (1) COMMENT = 'x'``. Raises NotAcceptedError."""
    reader.expect("PARTITION")
    reader.identifier()
    if not reader.accept("DEFAULT"):
        values(reader)
    _options(reader)
    if reader.peek().says("("):
        reader.in_parentheses(lambda: _subpartition(reader))


def values(reader: Reader) -> None:
    """Reads ``VALUES LESS THAN (…)`` or ``VALUES IN (…)``, if one comes next. Raises NotAcceptedError."""
    if reader.accept("VALUES", "LESS", "THAN"):
        if not reader.accept("MAXVALUE"):
            expressions.constants(reader)
    elif reader.accept("VALUES", "IN"):
        expressions.constants(reader)


def less_than(reader: Reader) -> None:
    """Reads ``LESS THAN (…)``. Raises NotAcceptedError."""
    reader.expect("LESS", "THAN")
    expressions.constants(reader)


def _method(reader: Reader) -> None:
    reader.accept("LINEAR")
    if reader.accept("KEY"):
        if reader.accept("ALGORITHM"):
            reader.expect("=")
            reader.number()
        if reader.accept("(", ")"):
            return
        reader.in_parentheses(reader.column)
        return
    if not reader.accept_any("HASH", "RANGE", "LIST"):
        reader.fail()
    reader.accept("COLUMNS")
    expressions.in_parentheses(reader)


def _interval(reader: Reader) -> None:
    """TiDB's ``INTERVAL (10) FIRST PARTITION LESS THAN (0) LAST PARTITION LESS THAN (90) NULL PARTITION MAXVALUE PARTITION``."""
    expressions.in_parentheses(reader)
    if reader.accept("FIRST", "PARTITION"):
        less_than(reader)
        reader.expect("LAST", "PARTITION")
        less_than(reader)
    reader.accept("NULL", "PARTITION")
    reader.accept("MAXVALUE", "PARTITION")


def _subpartition(reader: Reader) -> None:
    reader.expect("SUBPARTITION")
    reader.identifier()
    _options(reader)


def _options(reader: Reader) -> None:
    while True:
        if reader.accept("STORAGE", "ENGINE") or reader.accept("ENGINE"):
            if not reader.peek().says("="):
                reader.fail()  # see definitions.table_option
            reader.value()
        elif reader.accept("PLACEMENT", "POLICY") or reader.accept_any(*_OPTIONS):
            reader.value()
        else:
            return


def _index(reader: Reader) -> None:
    reader.identifier()
    if not reader.accept_any("GLOBAL", "LOCAL"):
        reader.fail()
