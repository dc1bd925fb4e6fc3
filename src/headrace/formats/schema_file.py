"""Parses TiCDC's schema files (``schema_<version>_<checksum>.json``, in older versions ``schema.json``).

Format: TiCDC documentation, "Replicate Data to Storage Services", section "Schema data". Also read: the dialect of the
user guides (``ColumnLength`` for ``ColumnPrecision``, totals as strings, no ``Type``). Unknown attributes are ignored.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.formats.json_lines import require_few_values
from headrace.model.table import Column, TableId, TableSchema, folded_name, is_possible_name, is_possible_text
from headrace.model.tso import MAX_TSO
from headrace.model.types import LONGEST_TEXT, ColumnType, TypeKind, unfit_members

MOST_BYTES = 64 << 20
"""A larger file is not a schema file of TiCDC: one with 4,096 columns and a statement of 16 MiB is far smaller."""
MOST_COLUMNS = 4_096
_LONGEST_NAME = 256
_LONGEST_TABLE_NAME = 64  # in TiDB; hidden columns of indexes have longer ones
_LONGEST_INTEGER = 20
"""The digits of the largest number that TiCDC writes (64 bits). Python needs long for thousands of digits, and refuses more."""
_SHOWN = 80
# Lengths in bytes or characters, digits, and digits after the point, for the types that have them in TiDB.
_MOST_LENGTH = {
    TypeKind.DECIMAL: 65,
    TypeKind.BIT: 64,
    TypeKind.CHAR: 255,
    TypeKind.BINARY: 255,
    TypeKind.VARCHAR: 65_535,
    TypeKind.VARBINARY: 65_535,
    TypeKind.VAR_STRING: 65_535,
}
_MOST_SCALE = {TypeKind.DECIMAL: 30}
_MOST_OTHER_LENGTH, _MOST_OTHER_SCALE = (1 << 32) - 1, 255
_UNSIGNED = " UNSIGNED"
_SPACE = " \t\r\n"
_INTEGER = re.compile("-?[0-9]+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^']|'')*'")
# The columns of views can be without a type; views have no rows, so any text type will do for them.
_KINDS = {str(kind): kind for kind in TypeKind} | {"UNSPECIFIED": TypeKind.VAR_STRING}


class SchemaFileError(ValueError):
    """A schema file cannot be used; ``str()`` is one plain sentence.

    ``incomplete`` is true for text that is not JSON at all: the file may still be being written, so another read may succeed.
    """

    def __init__(self, message: str, *, incomplete: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.incomplete = incomplete


@dataclass(frozen=True)
class SchemaFile:
    """One schema file.

    ``database`` and ``table`` are as written in the file (the path wins where they disagree), ``table`` is empty for a
    database-level file, and then ``schema`` is ``None``. ``version`` is the table version (TSO).
    ``statement`` is the DDL text, empty when the file only describes a shape; ``type_code`` is TiDB's DDL action code.
    ``schema.handle_key`` is the primary key in column order, empty without one. ``checksum`` is computed from the bytes.
    """

    database: str
    table: str
    version: int
    statement: str
    type_code: int
    schema: TableSchema | None
    checksum: int

    @property
    def table_id(self) -> TableId:
        return TableId(self.database, self.table)


def parse_schema_file(raw: bytes) -> SchemaFile:
    """The schema file in ``raw``. Raises SchemaFileError for broken JSON, an unknown column type or a missing part."""
    try:
        require_few_values(raw)
    except ValueError as error:
        raise SchemaFileError(f"The schema file cannot be read: {error}") from None
    try:
        document = _decoder.decode(raw.decode("utf-8", "replace"))
    except RecursionError:
        raise SchemaFileError("The schema file is nested too deeply.") from None
    except ValueError as error:
        raise SchemaFileError(f"The schema file is not valid JSON ({error}).", incomplete=True) from None
    if not isinstance(document, dict):
        raise SchemaFileError("The schema file holds no JSON object.")
    if isinstance(listed := document.get("TableColumns"), list) and len(listed) > MOST_COLUMNS:
        raise SchemaFileError(f"The schema file lists {len(listed)} columns, and TiDB has {MOST_COLUMNS} in a table at most.")
    table_id = TableId(_name(document, "Schema"), _name(document, "Table", required=False))
    columns = _columns(document)
    if table_id.table and not columns:
        raise SchemaFileError("The schema file of a table lists no columns in TableColumns.")
    schema = None
    if table_id.table:
        schema = TableSchema(table_id, columns, tuple(column.name for column in columns if column.primary_key))
    version = _integer(document, "TableVersion")
    if not 0 <= version <= MAX_TSO:
        raise SchemaFileError(f"TableVersion {version} in the schema file is no TSO.")
    return SchemaFile(
        database=table_id.database,
        table=table_id.table,
        version=version,
        statement=with_escapes(_text(document, "Query", required=False)),
        type_code=_integer(document, "Type", default=0),
        schema=schema,
        checksum=schema_checksum(raw),
    )


@dataclass(frozen=True)
class ToldParts:
    """The readable parts of a schema file that cannot be used. ``statement`` is ``None`` if it is incomplete."""

    database: str
    table: str
    version: int | None
    statement: str | None


def _bounded_integer(text: str) -> int | str:
    """The number, or its text if it is too long for any number in a schema file."""
    return int(text) if len(text) <= _LONGEST_INTEGER else text


_decoder = json.JSONDecoder(parse_int=_bounded_integer)


def told_parts(raw: bytes) -> ToldParts:
    """The complete parts at the start of a damaged or cut-off schema file: TiCDC writes names and statement first."""
    text = raw.decode("utf-8", "surrogateescape")
    found: dict[str, object] = {}
    try:
        for key, start, end in _members(text):
            # A number at the end of the text may be incomplete.
            if end < len(text) and key not in found:
                found[key] = _decoder.decode(text[start:end])
    except (ValueError, IndexError, RecursionError):
        pass

    def name(key: str) -> str:
        value = found.get(key)
        return value if isinstance(value, str) and not _LONE_SURROGATE.search(value) and is_possible_name(value) else ""

    version, statement = found.get("TableVersion"), found.get("Query")
    return ToldParts(
        name("Schema"),
        name("Table"),
        version if isinstance(version, int) else None,
        with_escapes(statement) if isinstance(statement, str) and not _LONE_SURROGATE.search(statement) else None,
    )


def with_escapes(query: str) -> str:
    """The statement in the form in which a server reads it: in its strings a backslash is an escape.

    In TiCDC's statements a backslash is a plain character, and only quotes are doubled: TiCDC restores the statement with
    ``RestoreStringSingleQuotes`` and without ``RestoreStringEscapeBackslash`` (``addSpecialComment``).
    """
    return _QUOTED.sub(lambda found: found[0].replace("\\", "\\\\") if found[0][0] == "'" else found[0], query)


def schema_checksum(raw: bytes) -> int:
    """The CRC-32 that TiCDC puts into the file's name, from the file's own bytes; print it as ``%010d``.

    TiCDC checksums a JSON text of table, database, version 0, columns sorted by the bytes of their names, and their count.
    The column objects in the file have the same indentation as in that text, so their bytes are used unchanged, with unknown
    attributes and with Go's own escapes. A file that was not written by Go gives a checksum that matches no file name. Raises
    SchemaFileError for broken JSON or missing parts.
    """
    text = raw.decode("utf-8", "surrogateescape")
    try:
        members = {key: text[start:end] for key, start, end in _members(text)}
        table, database, total = members["Table"], members["Schema"], members["TableColumnsTotal"]
        columns = [(_decoder.decode(item)["ColumnName"], item) for item in _items(members["TableColumns"])]
    except KeyError as error:
        raise SchemaFileError(f"The schema file has no {error.args[0]}.") from None
    except (ValueError, IndexError, TypeError) as error:
        raise SchemaFileError(f"The schema file is not valid JSON ({error}).", incomplete=True) from None
    columns.sort(key=lambda column: str(column[0]).encode("utf-8", "surrogateescape"))
    listed = ",\n".join(f"        {item}" for _, item in columns)
    array = f"[\n{listed}\n    ]" if columns else "[]"
    count = total.strip('"')
    payload = (
        f'{{\n    "Table": {table},\n    "Schema": {database},\n    "Version": 0,\n'
        f'    "TableColumns": {array},\n    "TableColumnsTotal": {count}\n}}'
    )
    return zlib.crc32(payload.encode("utf-8", "surrogateescape"))


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    """The members of the JSON object in ``text``: key, and start and end of the value."""
    decoder = _decoder
    position = _expect(text, 0, "{")
    position = _skip(text, position)
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        start = _skip(text, _expect(text, position, ":"))
        _, end = decoder.raw_decode(text, start)
        yield key, start, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _items(text: str) -> Iterator[str]:
    """The texts of the items of the JSON array in ``text``; nothing for ``null``."""
    if text == "null":
        return
    decoder = _decoder
    position = _skip(text, _expect(text, 0, "["))
    while text[position] != "]":
        _, end = decoder.raw_decode(text, position)
        yield text[position:end]
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    while text[position] in _SPACE:
        position += 1
    return position


def _expect(text: str, position: int, mark: str) -> int:
    position = _skip(text, position)
    if text[position] != mark:
        raise ValueError(f"expected {mark!r} at character {position}")
    return position + 1


def _text(document: dict[str, object], key: str, required: bool = True) -> str:
    value = document.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise SchemaFileError(f"The schema file has no text for {key}.")
    if _LONE_SURROGATE.search(value):
        raise SchemaFileError(f"{key} in the schema file is not Unicode: {_shown(value)}.")
    return value


def _name(document: dict[str, object], key: str, required: bool = True) -> str:
    value = _text(document, key, required)
    is_of_table = key in ("Table", "Schema")
    if len(value) > (_LONGEST_TABLE_NAME if is_of_table else _LONGEST_NAME):
        raise SchemaFileError(f"{key} in the schema file has {len(value)} characters, and no name is that long: {_shown(value)}.")
    if not is_possible_text(value) and (value or not is_of_table):
        raise SchemaFileError(f"{key} in the schema file is {_shown(value)}, and nothing has such a name.")
    if is_of_table and value and not is_possible_name(value):
        raise SchemaFileError(f"{key} in the schema file ends with a blank, and no name does: {_shown(value)}.")
    return value


def _shown(value: object) -> str:
    """A value for a message, shortened."""
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}…"


def _unicode(text: str) -> str:
    """The text with lone surrogates replaced, as undecodable bytes are."""
    return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _integer(document: dict[str, object], key: str, default: int | None = None, where: str = "") -> int:
    value = document.get(key)
    if value is None or value == "":
        if default is None:
            raise SchemaFileError(f"The schema file has no {key}.")
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_INTEGER and _INTEGER.fullmatch(value):
        return int(value)
    raise SchemaFileError(f"{key}{where} in the schema file is not an integer of 64 bits: {_shown(value)}.")


def _columns(document: dict[str, object]) -> tuple[Column, ...]:
    listed = document.get("TableColumns")
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise SchemaFileError("TableColumns in the schema file is not a list of objects.")
    columns = tuple(_column(entry) for entry in listed)
    names = Counter(folded_name(column.name) for column in columns)
    for column in columns:
        if names[folded_name(column.name)] > 1:
            raise SchemaFileError(f"The schema file lists column {column.name} more than once.")
    total = _integer(document, "TableColumnsTotal", default=len(columns))
    if total != len(columns):
        raise SchemaFileError(f"The schema file lists {len(columns)} columns, but TableColumnsTotal is {total}.")
    return columns


def _column(entry: dict[str, object]) -> Column:
    name = _name(entry, "ColumnName")
    default = entry.get("ColumnDefault")
    if default is not None:
        default = _unicode(default if isinstance(default, str) else json.dumps(default))
        if len(default) > LONGEST_TEXT:
            raise SchemaFileError(
                f"Column {name} has a default of {len(default)} characters, and none has more than {LONGEST_TEXT}."
            )
    column_id = entry.get("ColumnId")
    return Column(
        name=name,
        type=_column_type(entry, name),
        nullable=not _flag(entry, "ColumnNullable", "false"),
        primary_key=_flag(entry, "ColumnIsPk", "true"),
        default=default,
        column_id=None if column_id in (None, "") else str(column_id),
    )


def _column_type(entry: dict[str, object], name: str) -> ColumnType:
    written = _text(entry, "ColumnType").upper().strip()
    kind = _KINDS.get(written.removesuffix(_UNSIGNED))
    if kind is None:
        raise SchemaFileError(f"Column {name} has the type {_shown(written)}, which is not known.")
    elements = entry.get("ColumnElems") or []
    if not isinstance(elements, list):
        raise SchemaFileError(f"ColumnElems of column {name} in the schema file is not a list.")
    members = tuple(_unicode(str(element)) for element in elements)
    if unfit := unfit_members(kind, members):
        raise SchemaFileError(f"Column {name} {unfit}.")
    where = f" of column {name}"
    length = _integer(entry, "ColumnPrecision" if "ColumnPrecision" in entry else "ColumnLength", default=-1, where=where)
    scale = _integer(entry, "ColumnScale", default=-1, where=where)
    if length > _MOST_LENGTH.get(kind, _MOST_OTHER_LENGTH) or scale > _MOST_SCALE.get(kind, _MOST_OTHER_SCALE):
        raise SchemaFileError(f"Column {name} has the length {length} and the scale {scale}, which TiDB has for no {kind} column.")
    return ColumnType(
        kind=kind,
        unsigned=written.endswith(_UNSIGNED),
        length=None if length < 0 else length,
        scale=None if scale < 0 else scale,
        elements=members,
    )


def _flag(entry: dict[str, object], key: str, text: str) -> bool:
    """Whether the attribute's value is ``text``. TiCDC writes booleans as strings."""
    return str(entry.get(key, "")).lower() == text
