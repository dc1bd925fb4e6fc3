"""The clauses of ALTER TABLE."""

from __future__ import annotations

from headrace.ddl.grammar import definitions, expressions, partitioning
from headrace.ddl.grammar.reader import MOST_PARTS, Reader


def clauses(reader: Reader) -> None:
    """Reads all clauses, with the commas between them. Raises NotAcceptedError."""
    for _ in range(MOST_PARTS):
        if reader.done:
            return
        _clause(reader)
        definitions.partitioned(reader)
        if not reader.accept(","):
            return
    reader.fail(f"it has more than {MOST_PARTS:,} clauses")


def _clause(reader: Reader) -> None:
    of_word = {
        "ADD": _add,
        "DROP": _drop,
        "MODIFY": _modify,
        "CHANGE": _change,
        "ALTER": _alter,
        "RENAME": _rename,
        "TRUNCATE": _truncate,
        "EXCHANGE": _exchange,
        "REORGANIZE": _reorganize,
        "COALESCE": _coalesce,
        "REMOVE": _remove,
        "CONVERT": _convert,
        "ORDER": _order,
        "PARTITION": _partition,
        "SPLIT": _split,
        "MERGE": _merge,
        "FIRST": _first_partition,
        "LAST": _last_partition,
    }
    word = reader.peek()
    rule = None if word.is_name or word.is_literal else of_word.get(word.text.upper())
    if rule is not None:
        reader.next()
        rule(reader)
    elif not _without_parts(reader):
        if not definitions.table_option(reader):
            reader.fail()
        definitions.table_options(reader)


def _without_parts(reader: Reader) -> bool:
    """Reads a clause about how the statement runs, or a switch that only TiDB has. Returns whether one came next."""
    if reader.accept("LOCK") or reader.accept("ALGORITHM"):
        reader.value()
        return True
    if reader.accept("WITH", "VALIDATION") or reader.accept("WITHOUT", "VALIDATION"):
        return True
    if reader.accept_any("CACHE", "NOCACHE"):
        return True
    if reader.accept("FORCE") and not reader.says_any("AUTO_INCREMENT", "AUTO_RANDOM_BASE"):
        return True
    if reader.accept("COMPACT"):
        if reader.accept("PARTITION"):
            reader.identifiers()
        if reader.accept("TIFLASH"):
            reader.expect("REPLICA")
        return True
    return definitions.tiflash(reader)


def _position(reader: Reader) -> None:
    if not reader.accept("FIRST") and reader.accept("AFTER"):
        reader.identifier()


def _column(reader: Reader) -> None:
    reader.column()
    definitions.column(reader)
    _position(reader)


def _add(reader: Reader) -> None:
    if reader.accept("PARTITION"):
        reader.existence()
        reader.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if reader.accept("PARTITIONS"):
            reader.number()
        else:
            reader.in_parentheses(lambda: partitioning.definition(reader))
    elif reader.accept("STATS_EXTENDED"):
        _statistics(reader)
    elif definitions.is_constraint(reader):
        definitions.constraint(reader)
    else:
        reader.accept("COLUMN")
        reader.existence()
        if reader.peek().says("("):
            reader.in_parentheses(lambda: _added_part(reader))
        else:
            _column(reader)


def _added_part(reader: Reader) -> None:
    behind = 2 if reader.peek(1).text and not reader.peek(1).says("FOREIGN") else 1
    if reader.says_any("FOREIGN") or (reader.peek().says("CONSTRAINT") and reader.peek(behind).says("FOREIGN")):
        reader.fail("it adds a foreign key among columns")
    definitions.part(reader)


def _statistics(reader: Reader) -> None:
    reader.existence()
    reader.identifier()
    if reader.accept_any("CARDINALITY", "DEPENDENCY", "CORRELATION"):
        reader.in_parentheses(reader.column)


def _drop(reader: Reader) -> None:
    if reader.accept("PRIMARY", "KEY"):
        return
    if reader.accept("PARTITION"):
        reader.existence()
        reader.identifiers()
        return
    if reader.accept("FOREIGN", "KEY") or reader.accept_any("INDEX", "KEY", "CHECK", "CONSTRAINT", "STATS_EXTENDED"):
        reader.existence()
        reader.identifier()
        return
    reader.accept("COLUMN")
    reader.existence()
    reader.identifier()
    reader.accept_any("RESTRICT", "CASCADE")


def _modify(reader: Reader) -> None:
    reader.accept("COLUMN")
    reader.existence()
    _column(reader)


def _change(reader: Reader) -> None:
    reader.accept("COLUMN")
    reader.existence()
    reader.column()
    _column(reader)


def _alter(reader: Reader) -> None:
    if reader.accept("INDEX"):
        reader.identifier()
        # IGNORED is MariaDB's word, and occurs in statements that were adapted for MariaDB.
        if not reader.accept_any("VISIBLE", "INVISIBLE", "IGNORED") and not reader.accept("NOT", "IGNORED"):
            reader.fail()
    elif reader.accept_any("CHECK", "CONSTRAINT"):
        reader.identifier()
        reader.accept("NOT")
        reader.expect("ENFORCED")
    else:
        reader.accept("COLUMN")
        reader.identifier()
        if reader.accept("SET", "DEFAULT"):
            expressions.default(reader)
        else:
            reader.expect("DROP", "DEFAULT")


def _rename(reader: Reader) -> None:
    if reader.accept_any("COLUMN", "INDEX", "KEY"):
        reader.identifier()
        reader.expect("TO")
        reader.identifier()
    else:
        reader.accept_any("TO", "AS", "=")
        reader.table()


def _partitions(reader: Reader) -> None:
    reader.expect("PARTITION")
    if not reader.accept("ALL"):
        reader.identifiers()


def _truncate(reader: Reader) -> None:
    _partitions(reader)


def _exchange(reader: Reader) -> None:
    reader.expect("PARTITION")
    reader.identifier()
    reader.expect("WITH", "TABLE")
    reader.table()
    if reader.accept_any("WITH", "WITHOUT"):
        reader.expect("VALIDATION")


def _reorganize(reader: Reader) -> None:
    reader.expect("PARTITION")
    if reader.is_name():
        reader.identifiers()
        reader.expect("INTO")
        reader.in_parentheses(lambda: partitioning.definition(reader))


def _coalesce(reader: Reader) -> None:
    reader.expect("PARTITION")
    reader.number()


def _remove(reader: Reader) -> None:
    if not reader.accept("PARTITIONING"):
        reader.expect("TTL")


def _convert(reader: Reader) -> None:
    reader.expect("TO")
    if not reader.character_set():
        reader.fail()
    reader.character_set()


def _order(reader: Reader) -> None:
    reader.expect("BY")
    reader.column()
    reader.accept_any("ASC", "DESC")
    while reader.accept(","):
        reader.column()
        reader.accept_any("ASC", "DESC")


def _partition(reader: Reader) -> None:
    """Reads ``PARTITION BY …``, or the options of one partition, from the word after PARTITION on."""
    if reader.accept("BY"):
        partitioning.partition_by(reader)
        return
    reader.identifier()
    if not definitions.table_option(reader):
        reader.fail()


def _split(reader: Reader) -> None:
    reader.accept("MAXVALUE")
    reader.expect("PARTITION")
    partitioning.less_than(reader)


def _merge(reader: Reader) -> None:
    reader.expect("FIRST", "PARTITION")
    partitioning.less_than(reader)


def _first_partition(reader: Reader) -> None:
    reader.expect("PARTITION")
    partitioning.less_than(reader)


def _last_partition(reader: Reader) -> None:
    reader.expect("PARTITION")
    partitioning.less_than(reader)
