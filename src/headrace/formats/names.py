"""The tables that the records of a data file name. Only checks need this: for reading rows, the path names the table."""

from __future__ import annotations

import json
import re

from headrace.formats.base import DecodeError
from headrace.formats.csv_exact import Tokenizer
from headrace.formats.csv_layout import HEADER_OPERATION, CsvOptions
from headrace.model.table import TableId

_NAMES = 3
# The id is a number. In rows every value is a string, so no row can contain this.
_MESSAGE = re.compile(rb'\{"id":\d+,"database":("(?:[^"\\]|\\.)*"),"table":("(?:[^"\\]|\\.)*"),')


def csv_tables(data: memoryview, options: CsvOptions) -> frozenset[TableId]:
    """The tables that the complete records of a CSV file name, up to the first bad one.

    A file of one table, as every valid file is, needs only a search. Any other file is split record by record.
    """
    tokenizer = Tokenizer(options)
    first = tokenizer.first(data)
    if first is None:
        return frozenset()
    raw = first[1][1:_NAMES] if first[1][0] != HEADER_OPERATION else None
    if raw is not None and _is_all_of(data, raw, options):
        return frozenset({_table(tokenizer, raw)})
    found: set[TableId] = set()
    try:
        for _, record in tokenizer.records(data):
            if len(record) >= _NAMES and record[0] != HEADER_OPERATION:
                found.add(_table(tokenizer, record[1:_NAMES]))
    except DecodeError:
        # The error is reported when the file's rows are read.
        pass
    return frozenset(found)


def canal_tables(data: memoryview) -> frozenset[TableId]:
    """The tables that the messages of a canal-JSON file name, as TiCDC writes them."""
    pairs = set(_MESSAGE.findall(data))
    return frozenset(TableId(json.loads(database), json.loads(table)) for database, table in pairs)


def _table(tokenizer: Tokenizer, raw: list[bytes]) -> TableId:
    table, database = ((tokenizer.value(field) or b"").decode("utf-8", "replace") for field in raw)
    return TableId(database, table)


def _is_all_of(data: memoryview, raw: list[bytes], options: CsvOptions) -> bool:
    """Whether everything that looks like the start of a record names this table. Text inside a row may look like one too."""
    quote, delimiter = re.escape(options.quote.encode()), re.escape(options.delimiter.encode())
    field = b"(?:" + quote + b"[^" + quote + b"]*" + quote + b"|[^\r\n]*?)" if quote else b"[^\r\n]*?"
    operation = b"(?:" + quote + b")?[IUD](?:" + quote + b")?"
    line_end = re.escape(options.terminator.encode()[-1:])
    beginning = rb"(?:\A|" + line_end + b")" + operation + delimiter + b"(" + field + delimiter + field + b")" + delimiter
    expected = options.delimiter.encode().join(raw)
    return all(match == expected for match in re.findall(beginning, data))
