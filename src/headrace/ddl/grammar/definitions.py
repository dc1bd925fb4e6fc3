"""Definitions of columns, keys and checks, and the options of tables and databases."""

from __future__ import annotations

from headrace.ddl.grammar import expressions, partitioning
from headrace.ddl.grammar.reader import Reader
from headrace.ddl.grammar.vocabulary import OF_TYPES, TABLE_OPTIONS, TIMES, TYPES
from headrace.model.types import MOST_COMPARED, compared, too_many_compared

_INDEX_KINDS = ("FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")
_CONSTRAINTS = ("CONSTRAINT", "PRIMARY", "UNIQUE", "INDEX", "KEY", "FOREIGN", "CHECK", *_INDEX_KINDS)
_INDEX_FLAGS = (
    *("VISIBLE", "INVISIBLE", "IGNORED", "GLOBAL", "LOCAL", "CLUSTERED", "NONCLUSTERED"),
    "ADD_COLUMNAR_REPLICA_ON_DEMAND",
)
_MOST_ATTRIBUTES = 32
_MOST_OPTIONS = 64
_NOT_HERE = {
    "DATA": "it names a place in the server's file system (DATA DIRECTORY)",
    "CONNECTION": "it connects the table to another server (CONNECTION)",
    "UNION": "it makes a table of other tables (UNION)",
    "TABLESPACE": "it names a tablespace",
    "SELECT": "it copies rows by a query",
    "AS": "it copies rows by a query",
}


def is_constraint(reader: Reader) -> bool:
    """Whether a key or a check comes next, not a column."""
    if reader.peek().is_name or not reader.says_any(*_CONSTRAINTS):
        return False
    # VECTOR, COLUMNAR and HYBRID are not reserved, so a column may have such a name.
    return not reader.says_any("VECTOR", "COLUMNAR", "HYBRID") or reader.peek(1).says("INDEX") or reader.peek(1).says("KEY")


def part(reader: Reader) -> None:
    """Reads one part of CREATE TABLE's parenthesis: a column, a key or a check. Raises NotAcceptedError."""
    if is_constraint(reader):
        constraint(reader)
    else:
        reader.column()
        column(reader)


def column(reader: Reader) -> None:
    """Reads what follows the name of a column: its type and attributes. Raises NotAcceptedError."""
    _type(reader)
    for _ in range(_MOST_ATTRIBUTES):
        if not _attribute(reader):
            return
    reader.fail(f"a column has more than {_MOST_ATTRIBUTES} attributes")


def _type(reader: Reader) -> None:
    word = reader.next()
    if word.is_name or word.is_literal or word.text.upper() not in TYPES:
        reader.fail(f"{word.text!r} is not a type of column that is known")
    if reader.accept("<"):  # VECTOR<FLOAT>
        reader.expect("FLOAT")
        reader.expect(">")
    while _goes_on(reader):
        reader.next()
    inside = _in_type(reader)
    if word.text.upper() in ("ENUM", "SET"):
        reader.compared += compared(inside)
        if reader.compared > MOST_COMPARED:
            reader.fail(too_many_compared())
    for _ in range(_MOST_ATTRIBUTES):
        if _goes_on(reader):
            reader.next()
        elif not reader.character_set():
            return


def _in_type(reader: Reader) -> list[str]:
    """Reads the parenthesis of a type, if one comes next: its length, its digits or its members."""
    found: list[str] = []
    if reader.accept("("):
        while not reader.accept(")"):
            if reader.done or not (reader.peek().is_literal or reader.peek().says(",")):
                reader.fail()
            word = reader.next()
            if word.is_literal:
                found.append(word.text)
    return found


def _goes_on(reader: Reader) -> bool:
    """Whether a word of the type comes next. The CHAR of ``CHAR SET`` is none."""
    word = reader.peek()
    of_type = word.text.upper() in OF_TYPES and not word.is_name and not word.is_literal
    return of_type and not (word.says("CHAR") and reader.peek(1).says("SET"))


def _attribute(reader: Reader) -> bool:
    return _flag(reader) or _default(reader) or _computed(reader) or reader.character_set()


def _flag(reader: Reader) -> bool:
    """Reads an attribute of fixed words. Returns whether one came next."""
    if reader.accept("COLUMN_FORMAT") or reader.accept("STORAGE"):
        if not reader.accept_any("DEFAULT", "FIXED", "DYNAMIC", "DISK", "MEMORY"):
            reader.fail()
        return True
    several = (("NOT", "NULL"), ("PRIMARY", "KEY"), ("UNIQUE", "KEY"), ("SERIAL", "DEFAULT", "VALUE"))
    single = ("NULL", "AUTO_INCREMENT", "CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL", "KEY", "UNIQUE")
    return any(reader.accept(*words) for words in several) or reader.accept_any(*single)


def _default(reader: Reader) -> bool:
    """Reads a default, ON UPDATE, or a comment. Returns whether one came next."""
    if reader.accept("DEFAULT"):
        expressions.default(reader)
    elif reader.accept("ON", "UPDATE"):
        if reader.peek().text.upper() not in TIMES:
            reader.fail()
        expressions.call(reader)
    elif reader.accept("COMMENT"):
        reader.accept("=")
        reader.text()
    else:
        return False
    return True


def _computed(reader: Reader) -> bool:
    """Reads an attribute that can have parentheses. Returns whether one came next."""
    if reader.accept("AUTO_RANDOM"):
        if reader.peek().says("("):
            reader.in_parentheses(reader.number)
        return True
    if reader.accept("GENERATED", "ALWAYS", "AS") or reader.accept("AS"):
        expressions.in_parentheses(reader)
        reader.accept_any("VIRTUAL", "STORED", "PERSISTENT")
        return True
    if reader.says_any("CONSTRAINT", "CHECK"):
        named = reader.accept("CONSTRAINT")
        if named and not reader.peek().says("CHECK"):
            reader.identifier()
        reader.expect("CHECK")
        _check(reader)
        return True
    if reader.accept("REFERENCES"):
        _references(reader)
        return True
    return False


def constraint(reader: Reader) -> None:
    """Reads a key, a foreign key or a check, with or without its name. Raises NotAcceptedError."""
    if reader.accept("CONSTRAINT") and not reader.says_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        reader.identifier()
    if reader.accept("CHECK"):
        _check(reader)
    elif reader.accept("FOREIGN", "KEY"):
        reader.existence()
        if reader.is_name():
            reader.identifier()
        reader.in_parentheses(reader.column)
        reader.expect("REFERENCES")
        _references(reader)
    else:
        if not reader.accept("PRIMARY", "KEY"):
            reader.accept_any("UNIQUE", *_INDEX_KINDS)
            reader.accept_any("INDEX", "KEY")
        reader.existence()
        if not reader.peek().says("(") and not _names_method(reader):
            reader.identifier()
        index(reader)


def index(reader: Reader) -> None:
    """Reads what follows the name of an index: method, columns, options. Raises NotAcceptedError."""
    _method(reader)
    reader.in_parentheses(lambda: _index_part(reader))
    while _index_option(reader):
        pass


def _names_method(reader: Reader) -> bool:
    return reader.peek().says("USING") or (reader.peek().says("TYPE") and reader.peek(2).says("("))


def _method(reader: Reader) -> bool:
    if not reader.accept("USING") and not reader.accept("TYPE"):
        return False
    if not reader.accept_any("BTREE", "HASH", "RTREE", "HNSW", "INVERTED", "HYPO"):
        reader.fail()
    return True


def _index_part(reader: Reader) -> None:
    if reader.peek().says("("):
        expressions.in_parentheses(reader)
    else:
        reader.column()
        if reader.peek().says("("):
            reader.in_parentheses(reader.number)
    reader.accept_any("ASC", "DESC")


def _index_option(reader: Reader) -> bool:
    # IGNORED is MariaDB's word, and occurs in statements that were adapted for MariaDB.
    if reader.accept("NOT", "IGNORED") or reader.accept_any(*_INDEX_FLAGS):
        return True
    if reader.accept_any(
        "KEY_BLOCK_SIZE", "LOCK", "ALGORITHM", "COMMENT", "PARAMETER", "PRE_SPLIT_REGIONS", "SECONDARY_ENGINE_ATTRIBUTE"
    ):
        reader.value()
        return True
    if reader.accept("WITH", "PARSER"):
        if not reader.accept_any("STANDARD", "MULTILINGUAL", "NGRAM"):
            reader.fail()  # any other parser is a plugin
        return True
    if reader.accept("WHERE"):
        expressions.without_parentheses(reader)
        return True
    return _method(reader)


def _check(reader: Reader) -> None:
    expressions.in_parentheses(reader)
    reader.accept("NOT")
    reader.accept("ENFORCED")


def _references(reader: Reader) -> None:
    reader.table()
    if reader.peek().says("("):
        reader.in_parentheses(lambda: _index_part(reader))
    if reader.accept("MATCH") and not reader.accept_any("FULL", "PARTIAL", "SIMPLE"):
        reader.fail()
    while reader.says_any("ON") and (reader.peek(1).says("DELETE") or reader.peek(1).says("UPDATE")):
        reader.next()
        reader.next()
        done = reader.accept_any("RESTRICT", "CASCADE") or reader.accept("SET", "NULL") or reader.accept("SET", "DEFAULT")
        if not done:
            reader.expect("NO", "ACTION")


def encryption(reader: Reader) -> bool:
    """Reads ``ENCRYPTION = 'N'``, which has no effect. Returns whether it came next. Raises NotAcceptedError for other values."""
    if not reader.accept("DEFAULT", "ENCRYPTION") and not reader.accept("ENCRYPTION"):
        return False
    reader.accept("=")
    if reader.peek().text.upper() != "N":
        reader.fail("it asks for encryption, which is the target's to decide")
    reader.text()
    return True


def table_options(reader: Reader) -> None:
    """Reads the options of a table, with or without commas between them, up to the first other word. Raises NotAcceptedError."""
    for _ in range(_MOST_OPTIONS):
        if not table_option(reader):
            return
        if reader.peek().says(","):
            reader.next()
    reader.fail(f"it has more than {_MOST_OPTIONS} options")


def table_option(reader: Reader) -> bool:
    """Reads one option of a table. Returns whether one came next. Raises NotAcceptedError."""
    word = reader.peek()
    text = "" if word.is_name or word.is_literal else word.text.upper()
    if text in _NOT_HERE and (text != "DATA" or reader.peek(1).says("DIRECTORY")):
        reader.fail(_NOT_HERE[text])
    if text == "INDEX" and reader.peek(1).says("DIRECTORY"):
        reader.fail("it names a place in the server's file system (INDEX DIRECTORY)")
    if text == "FORCE" and (reader.peek(1).says("AUTO_INCREMENT") or reader.peek(1).says("AUTO_RANDOM_BASE")):
        reader.next()
        text = "AUTO_INCREMENT"
    if reader.character_set() or encryption(reader):
        return True
    if reader.accept("PLACEMENT", "POLICY"):
        reader.accept("SET")
        reader.value()
        return True
    if reader.accept("TTL"):
        reader.accept("=")
        reader.column()
        reader.expect("+")
        reader.expect("INTERVAL")
        expressions.default(reader)
        if not reader.next().text.replace("_", "").isalpha():
            reader.fail()
        return True
    if text not in TABLE_OPTIONS:
        return False
    reader.next()
    if text == "ENGINE" and not reader.peek().says("="):
        reader.fail()  # TiDB writes the equals sign; adaptation for a target finds the option by it
    reader.value()
    return True


def database_option(reader: Reader) -> bool:
    """Reads one option of a database. Returns whether one came next. Raises NotAcceptedError."""
    if reader.character_set() or encryption(reader):
        return True
    if reader.accept("PLACEMENT", "POLICY"):
        reader.accept("SET")
        reader.value()
        return True
    return tiflash(reader)


def database_options(reader: Reader) -> None:
    """Reads the options of a database, up to the first other word. Raises NotAcceptedError."""
    for _ in range(_MOST_OPTIONS):
        if not database_option(reader):
            return
    reader.fail(f"it has more than {_MOST_OPTIONS} options")


def tiflash(reader: Reader) -> bool:
    """Reads ``SET TIFLASH REPLICA 2 LOCATION LABELS 'a', 'b'``. Returns whether it came next. Raises NotAcceptedError."""
    if not (reader.accept("SET", "TIFLASH", "REPLICA") or reader.accept("SET", "HYPO", "TIFLASH", "REPLICA")):
        return False
    reader.number()
    if reader.accept("LOCATION", "LABELS"):
        reader.text()
        while reader.accept(","):
            reader.text()
    return True


def partitioned(reader: Reader) -> None:
    """Reads ``PARTITION BY …``, if it comes next. Raises NotAcceptedError."""
    if reader.accept("PARTITION", "BY"):
        partitioning.partition_by(reader)
