"""Whatever bytes come, the readers answer with rows and errors of their own, and keep what stands before the damage.

Inputs are texts of anything, and damaged pieces of what TiCDC itself wrote. ``HEADRACE_FUZZ_EXAMPLES`` makes it run longer, with
other examples each time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from changes import Row, canal, csv_escaped, csv_quoted, rows_of, table
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from recorded import CASES, CONFORMANCE, options_of, schemas_of

from headrace.ddl.classify import changes_rows_unseen, classify
from headrace.ddl.columns import annotate
from headrace.ddl.expression_values import UntranslatableError
from headrace.ddl.expressions import condition_to_duckdb, to_duckdb
from headrace.ddl.partitions import partitioning_after, row_events
from headrace.ddl.statement import read_statement
from headrace.errors import DefinitionError, SourceNotReadyError
from headrace.formats import canal_json
from headrace.formats.base import DecodeError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.csv_exact import Tokenizer, decode_exact
from headrace.formats.schema_file import SchemaFileError, parse_schema_file
from headrace.formats.storage_paths import DataPath, DateSeparator, SchemaPath, parse_path
from headrace.model.block import COMMIT_TS, META_COUNT, SEQ, ChangeBlock
from headrace.model.outcome import SplitReport
from headrace.model.split import Window
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.model.tso import MAX_TSO
from headrace.model.types import ColumnType, TypeKind, arrow_type
from headrace.model.uri import parse_uri
from headrace.sources.ticdc_storage import checkpoint, open_source
from headrace.sources.ticdc_storage.checkpoint import read_checkpoint
from headrace.sources.ticdc_storage.options import URI_PARAMETERS, Protocol, read_options
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.splits import FileSplit, read_split
from headrace.sources.ticdc_storage.stores import store_location
from storage_folder import StorageFolder

pytestmark = pytest.mark.long

_LONGER = int(os.environ.get("HEADRACE_FUZZ_EXAMPLES", "0"))
_REAL_BYTES = 4_000
_QUOTING = "The record is not valid CSV"
_GOLDEN = Path(__file__).parents[1] / "golden"
SCHEMA = table(id="BIGINT", u="BIGINT UNSIGNED", v="VARCHAR", d="DOUBLE", n="DECIMAL", b="BLOB", j="JSON", at="TIMESTAMP", y="YEAR")
ID_V = table(id="INT", v="VARCHAR")


def fuzz(examples: int) -> settings:
    """So many examples, always the same; or as many as asked for. An example that takes seconds counts as hanging."""
    return settings(
        max_examples=_LONGER or examples,
        derandomize=not _LONGER,
        database=None,
        deadline=timedelta(seconds=20),
        suppress_health_check=list(HealthCheck),
    )


TEXT = st.text(
    st.one_of(st.sampled_from("\"\\,\r\n\tNIUD0129.-+:{}[]()'`/_ \x00\u0085\u2028é€😀²٣\ufeff"), st.characters(codec="utf-8"))
)
SMALL = st.text(st.one_of(st.sampled_from('"\\,|[*]\r\n\t;²'), st.characters(codec="utf-8")), max_size=4)
NESTED = st.sampled_from([b"[" * 30_000, b'{"a":' * 30_000, b'{"old":[{"id":' + b"[" * 30_000])
BYTES = st.one_of(
    st.binary(max_size=200), TEXT.map(str.encode), NESTED.flatmap(lambda deep: st.sampled_from([deep, deep + b"\r\n"]))
)
PIECES = st.one_of(
    st.sampled_from(
        [
            b'"',
            b"\\",
            b"\n",
            b"\r\n",
            b",",
            b"\x00",
            b"\xff",
            b"{",
            b"}",
            b"[",
            b"null",
            b"\\N",
            b"-",
            b"9" * 30,
            b"9" * 5000,
            b"\\ud800",
        ]
    ),
    st.binary(min_size=1, max_size=6),
)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes after one to three accidents: flips, cuts, insertions, pieces that come twice, swap places or are lost."""
    data = whole
    for _ in range(draw(st.integers(1, 3))):
        a, b = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        match draw(st.sampled_from(["flip", "cut", "insert", "twice", "swap", "lose", "lose little"])):
            case "flip":
                data = data[:a] + bytes([data[a] ^ 1 << draw(st.integers(0, 7))]) + data[a + 1 :] if a < len(data) else data
            case "cut":
                data = data[:b]
            case "insert":
                data = data[:a] + draw(PIECES) + data[a:]
            case "twice":
                data = data[:b] + data[a:b] + data[b:]
            case "swap":
                data = data[b:] + data[a:b] + data[:a]
            case "lose":
                data = data[:a] + data[b:]
            case _:
                data = data[:a] + data[a + draw(st.integers(1, 4)) :]
    return data


def common_start(one: bytes, other: bytes) -> int:
    """How many first bytes are the same."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@cache
def written(suffix: str) -> tuple[tuple[bytes, TableSchema, CsvOptions, CanalJsonOptions], ...]:
    """The beginnings of data files that TiCDC wrote, one for each table version, with their options."""
    found = []
    for name in CASES:
        if "column-selector" in name:
            continue
        csv, canal_options = options_of(CONFORMANCE / name)
        for schema, files in schemas_of(CONFORMANCE / name):
            whole = next((raw for path in files if path.suffix == suffix and len(raw := path.read_bytes()) > 0), None)
            if whole is not None:
                found.append((beginning(whole, csv, canal_options, suffix), schema, csv, canal_options))
    return tuple(item for item in found if item[0])


def beginning(whole: bytes, csv: CsvOptions, canal_options: CanalJsonOptions, suffix: str) -> bytes:
    """The first whole records of a file."""
    if len(whole) <= _REAL_BYTES:
        return whole
    ends = csv_ends(whole, csv) if suffix == ".csv" else line_ends(whole, canal_options)
    return whole[: max((end for end in ends if end <= _REAL_BYTES), default=0)]


def csv_ends(data: bytes, options: CsvOptions) -> list[int]:
    """Where records end, header lines too."""
    starts = [start for start, _ in Tokenizer(options).records(memoryview(data))]
    return [*starts[1:], len(data)]


def line_ends(data: bytes, options: CanalJsonOptions) -> list[int]:
    mark = (options.terminator or "}]}").encode()
    return [n + len(mark) for n in range(len(data)) if data.startswith(mark, n)]


Outcome = tuple[list[Row], tuple[object, ...] | None]


def outcome(decode: Callable[[], object]) -> Outcome:
    """The rows and the place of the error, if there was one; anything but a DecodeError gets through."""
    batches: list[pa.RecordBatch] = []
    try:
        for batch in decode():  # type: ignore[attr-defined]
            batches.append(batch)
    except DecodeError as error:
        for text in (error.message, error.column, error.hint):
            text.encode()
        kind = "quoting" if error.message.startswith(_QUOTING) else type(error).__name__
        return readable(rows_of(batches)), (kind, error.line, error.column)
    return readable(rows_of(batches)), None


def readable(rows: list[Row]) -> list[Row]:
    """The rows with NaN, which equals nothing, as text."""
    return [tuple("nan" if isinstance(value, float) and value != value else value for value in row) for row in rows]  # noqa: PLR0124


def check_csv(data: bytes, schema: TableSchema, options: CsvOptions) -> Outcome:
    """Reads it both ways, which must agree; but Arrow's reader takes text behind a closing quote for a part of the value."""
    fast = outcome(lambda: decode_csv(data, schema, options))
    exact = outcome(lambda: decode_exact(memoryview(data), schema, options))
    if exact[1] is not None and exact[1][0] == "quoting":
        assert fast[0][: len(exact[0])] == exact[0]
    else:
        assert fast == exact
    return fast


def check_canal(data: bytes, schema: TableSchema, options: CanalJsonOptions) -> Outcome:
    """Reads it by blocks and by messages, which must agree on every value.

    In a block Arrow's reader also takes messages with line breaks in them, and passes over columns that the first one lacks.
    """
    blocks = outcome(lambda: decode_canal_json(data, schema, options))
    with patch.object(canal_json, "_decode_block", lambda block, mark, reader, number: (None, 0)):
        messages = outcome(lambda: decode_canal_json(data, schema, options))
    if messages[1] is not None and (messages[1][0] == "SchemaMismatchError" or not messages[1][2]):
        assert blocks[0][: len(messages[0])] == messages[0]
    else:
        assert blocks == messages
    return blocks


# --- data files -----------------------------------------------------------------------------------------------------------------

CSV_OPTIONS = st.builds(
    dict,
    delimiter=st.sampled_from([",", "\t", "|", "||", "[*]", "€"]) | SMALL,
    quote=st.sampled_from(['"', "'", ""]) | SMALL,
    null=st.sampled_from(["\\N", "NULL", ""]) | SMALL,
    terminator=st.sampled_from(["\r\n", "\n", "\r", "|\n", "<end>"]) | SMALL,
    include_commit_ts=st.sampled_from([None, True, False]),
    output_old_value=st.sampled_from([None, True, False]),
    output_handle_key=st.booleans(),
    header=st.sampled_from([None, True, False]),
    binary_encoding=st.sampled_from(["base64", "hex"]),
    time_zone=st.sampled_from(["UTC", "Europe/Berlin", "+08:00"]),
)


@st.composite
def csv_options(draw: st.DrawFn) -> CsvOptions:
    """Options that are accepted; all that is refused is refused in one way."""
    try:
        return CsvOptions(**draw(CSV_OPTIONS))
    except ValueError:
        assume(False)
        raise


@given(BYTES, csv_options())
@fuzz(200)
def test_any_bytes_as_csv(data: bytes, options: CsvOptions) -> None:
    check_csv(data, ID_V, options)


@given(st.data(), csv_options(), st.booleans())
@fuzz(100)
def test_damaged_csv_in_any_dialect(data: st.DataObject, options: CsvOptions, header: bool) -> None:
    """Written in the dialect, with whatever meta fields it has."""
    values = (
        2**63 - 1,
        2**64 - 1,
        'a "quoted",\r\n|text\\N',
        -1.5e-7,
        "9" * 65,
        b"\x00\xff",
        '{"a": 1}',
        "2024-06-05 09:30:23.1",
        2155,
    )
    write = csv_quoted if options.quote else csv_escaped
    assume(options.terminator in ("\r\n", "\n"))
    arguments = {"delimiter": options.delimiter} | ({"quote": options.quote} if options.quote else {})
    records = [write(values, SCHEMA, number, **arguments) for number in range(100, 104)]
    whole = b"".join(records).replace(b"\r\n", options.terminator.encode())
    if header:
        names = [
            "ticdc-meta$operation",
            "ticdc-meta$table",
            "ticdc-meta$schema",
            "ticdc-meta$commit-ts",
            *(c.name for c in SCHEMA.columns),
        ]
        whole = options.delimiter.join(names).encode() + options.terminator.encode() + whole
    check_csv(whole, SCHEMA, options)
    check_csv(data.draw(damaged(whole)), SCHEMA, options)


@given(st.data())
@fuzz(250)
def test_damaged_csv_of_ticdc_keeps_the_rows_before_the_damage(data: st.DataObject) -> None:
    whole, schema, options, _ = data.draw(st.sampled_from(written(".csv")))
    broken = data.draw(damaged(whole))
    found, _ = check_csv(broken, schema, options)
    intact = max((end for end in csv_ends(whole, options) if end <= common_start(whole, broken)), default=0)
    before, error = outcome(lambda: decode_csv(whole[:intact], schema, options))
    assert error is None
    assert found[: len(before)] == before


@given(BYTES, st.sampled_from(["\r\n", "\n", "\r", "", "|"]) | SMALL)
@fuzz(200)
def test_any_bytes_as_canal_json(data: bytes, terminator: str) -> None:
    check_canal(data, ID_V, CanalJsonOptions(terminator=terminator))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT | st.text(st.characters(), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "v", "data", "old"]) | TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message with strange members."""
    message = json.loads(canal("UPDATE", {"id": 1, "v": "b"}, {"id": 1, "v": "a"}))
    for key in draw(st.lists(st.sampled_from([*message, "_tidb", "commitTs"]), max_size=2)):
        message[key] = draw(JSON)
    if draw(st.booleans()):
        key = draw(st.sampled_from(["data", "old"]))
        message[key] = [{"id": draw(JSON), "v": draw(JSON)}]
    return json.dumps(message, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


@given(st.lists(messages(), min_size=1, max_size=4), st.sampled_from(["\r\n", "\n", ""]))
@fuzz(100)
def test_strange_messages_of_canal_json(parts: list[bytes], terminator: str) -> None:
    good = canal("INSERT", {"id": 7, "v": "first"})
    data = b"".join(part + terminator.encode() for part in (good, *parts))
    found, _ = check_canal(data, ID_V, CanalJsonOptions(terminator=terminator))
    assert [row[1:] for row in found[:1]] == [(100, 7, "first")]


@given(st.data())
@fuzz(200)
def test_damaged_canal_json_of_ticdc_keeps_the_rows_before_the_damage(data: st.DataObject) -> None:
    whole, schema, _, options = data.draw(st.sampled_from(written(".json")))
    broken = data.draw(damaged(whole))
    found, error = check_canal(broken, schema, options)
    intact = max((end for end in line_ends(whole, options) if end <= common_start(whole, broken)), default=0)
    before, problem = outcome(lambda: decode_canal_json(whole[:intact], schema, options))
    assert problem is None
    if error is None or error[0] != "SchemaMismatchError":
        # Which columns a file has is known only from a whole row, and then for all its messages.
        assert found[: len(before)] == before


@given(st.data(), st.integers(1, MAX_TSO))
@fuzz(80)
def test_a_damaged_or_swapped_file_always_gets_its_report(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, hi: int
) -> None:
    """Also a file of another table, or of the other format."""
    _, schema, csv, canal_options = data.draw(st.sampled_from((*written(".csv"), *written(".json"))))
    content = data.draw(st.sampled_from((*written(".csv"), *written(".json"))))[0]
    content = data.draw(damaged(content) | st.just(content))
    split = split_of(tmp_path_factory, content, schema, csv, canal_options, data.draw(st.sampled_from(Protocol)))
    *blocks, report = read_split(split, Window(0, hi), data.draw(st.booleans()))
    assert isinstance(report, SplitReport)
    if report.problem is not None:
        report.problem.sentence().encode()
    assert report.kept == sum(block.num_rows for block in blocks if isinstance(block, ChangeBlock)) <= report.rows
    last = -1
    for block in blocks:
        assert isinstance(block, ChangeBlock)
        check_block(block, Window(0, hi) if split.has_commit_ts else None)
        places = block.batch.column(SEQ).to_pylist()
        assert all(a < b for a, b in zip([last, *places], places, strict=False))
        last = places[-1]


def split_of(
    folders: pytest.TempPathFactory,
    content: bytes,
    schema: TableSchema,
    csv: CsvOptions,
    canal_options: CanalJsonOptions,
    protocol: Protocol,
) -> FileSplit:
    folder = StorageFolder(folders.getbasetemp() / "split")
    path = f"test/t/100/CDC000001.{protocol.extension}"
    modified = folder.write(path, content).stat().st_mtime_ns
    place = store_location(parse_uri(folder.uri()))
    return FileSplit(
        key=path,
        table_id=schema.table_id,
        version=100,
        rank=3,
        size=len(content),
        schema=schema,
        modified=modified,
        location=place,
        protocol=protocol,
        csv=csv,
        canal_json=canal_options,
        stale_from=50,
        stale_below=100,
    )


def check_block(block: ChangeBlock, window: Window | None) -> None:
    """The block is what its schema says, and inside the window."""
    block.batch.validate(full=True)
    for field in list(block.batch.schema)[META_COUNT:]:
        assert field.type == arrow_type(block.schema.column(field.name).type)
    if window is not None:
        assert all(window.lo < ts <= window.hi for ts in block.batch.column(COMMIT_TS).to_pylist())


# --- what a folder says of itself -----------------------------------------------------------------------------------------------

PATHS = [
    str(path.relative_to(CONFORMANCE / name / "data"))
    for name in CASES
    for path in sorted((CONFORMANCE / name / "data").rglob("*"))
]


@given(
    st.one_of(
        TEXT,
        st.sampled_from(PATHS),
        st.sampled_from(PATHS).flatmap(lambda p: damaged(p.encode())).map(lambda b: b.decode("utf-8", "replace")),
    )
)
@fuzz(250)
def test_every_path_is_something_and_only_that(key: str) -> None:
    for separator in (None, *DateSeparator):
        parsed = parse_path(key, separator, {"112"})
        assert parsed.key == key
        if isinstance(parsed, DataPath):
            assert 0 <= parsed.version <= MAX_TSO
            assert parsed.number >= 0
            assert len(parsed.order) == 6
        elif isinstance(parsed, SchemaPath):
            assert 0 <= parsed.version <= MAX_TSO
            assert parsed.legacy or int(parsed.checksum) >= 0
        else:
            assert parsed.key == key


@cache
def schema_files() -> tuple[bytes, ...]:
    found = {path.read_bytes() for name in CASES for path in (CONFORMANCE / name).glob("data/**/schema_*.json")}
    return tuple(sorted(found, key=lambda raw: (len(raw), raw))[:400])


@given(
    st.one_of(
        BYTES,
        JSON.map(lambda value: json.dumps(value).encode()),
        st.deferred(lambda: st.sampled_from(schema_files()).flatmap(damaged)),
    )
)
@fuzz(250)
def test_a_schema_file_is_read_or_refused(raw: bytes) -> None:
    check_schema_file(raw)


@given(st.sampled_from(["Table", "Schema", "Query", "Type", "TableVersion", "TableColumns", "TableColumnsTotal"]), JSON, st.data())
@fuzz(200)
def test_a_schema_file_with_a_strange_member_is_read_or_refused(key: str, value: object, data: st.DataObject) -> None:
    document = json.loads(data.draw(st.sampled_from(schema_files())))
    if data.draw(st.booleans()):
        document[key] = value
    elif document["TableColumns"]:
        column = data.draw(st.sampled_from(document["TableColumns"]))
        column[
            data.draw(
                st.sampled_from(["ColumnName", "ColumnType", "ColumnPrecision", "ColumnScale", "ColumnDefault", "ColumnElems"])
            )
        ] = value
    check_schema_file(json.dumps(document, indent=4).encode())


def check_schema_file(raw: bytes) -> None:
    try:
        file = parse_schema_file(raw)
    except SchemaFileError as error:
        error.message.encode()
        return
    assert 0 <= file.version <= MAX_TSO
    assert 0 <= file.checksum < 2**32
    for text in (file.database, file.table, file.statement):
        text.encode()
    if file.schema is None:
        return
    for column in file.schema.columns:
        for text in (column.name, column.default or "", *column.type.elements):
            text.encode()
    names = [folded_name(column.name) for column in file.schema.columns]
    assert len(set(names)) == len(names)
    assert pa.schema([pa.field(column.name, arrow_type(column.type)) for column in file.schema.columns]) is not None
    marked = annotate(file.statement, file.schema, None)
    classify(file.statement, database=file.database, table_id=file.table_id, before=None, after=marked)


@given(
    BYTES | JSON.map(lambda value: json.dumps({"checkpoint-ts": value}).encode()) | damaged(b'{"checkpoint-ts":450253271000000000}')
)
@fuzz(120)
def test_a_checkpoint_is_a_tso_or_none(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = StorageFolder(tmp_path_factory.getbasetemp() / "checkpoint")
    folder.write("metadata", raw)
    store = store_location(parse_uri(folder.uri())).open()
    try:
        assert 0 <= read_checkpoint(store, lambda _: None) <= MAX_TSO
    except SourceNotReadyError as error:
        str(error).encode()


@given(st.lists(st.tuples(st.sampled_from(["metadata", "data", "schema", "index"]), BYTES), max_size=4))
@fuzz(40)
def test_a_folder_of_anything_is_polled_and_inspected(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, bytes]]
) -> None:
    folder = StorageFolder(tmp_path_factory.mktemp("folder"))
    folder.checkpoint(200)
    folder.schema("t", 100)
    folder.data("test/t/100", 1, "I 110 1 a")
    places = {"metadata": "metadata", "data": "test/t/100/CDC000002.csv", "index": "test/t/100/meta/CDC.index"}
    for what, content in parts:
        folder.write(places.get(what, "test/u/meta/schema_100_0000000001.json"), content)
    consumer = folder.consumer()
    with patch.object(checkpoint, "_PAUSES", ()):
        try:
            consumer.cut()
        except SourceNotReadyError:
            return
    assert consumer.changes[:1] == ["110 1 a"] or consumer.checkpoint < 110
    for finding in open_source(folder.uri()).inspect(count_rows=True).findings:
        finding.message.encode()


# --- what a user says -----------------------------------------------------------------------------------------------------------

TOML = [json.loads((CONFORMANCE / name / "case.json").read_text())["changefeed_toml"].encode() for name in CASES]


@given(BYTES | st.sampled_from(TOML).flatmap(damaged), st.dictionaries(st.sampled_from(sorted(URI_PARAMETERS)), SMALL, max_size=3))
@fuzz(100)
def test_options_are_taken_or_refused(tmp_path_factory: pytest.TempPathFactory, toml: bytes, parameters: dict[str, str]) -> None:
    path = tmp_path_factory.getbasetemp() / "changefeed.toml"
    path.write_bytes(toml)
    for changefeed in (None, str(path)):
        try:
            options = read_options(parse_uri("file:///feed?" + urlencode(parameters)), changefeed)
        except DefinitionError as error:
            str(error).encode()
            continue
        # What is accepted works: it reads a file without falling over.
        check_csv(b'"I","t","test",110,1,"a"\r\n', ID_V, options.csv)
        check_canal(canal("INSERT", {"id": 1, "v": "a"}) + b"\r\n", ID_V, options.canal_json)


@given(TEXT)
@fuzz(150)
def test_a_source_s_uri_is_taken_or_refused(text: str) -> None:
    for uri in (text, f"file:///{text}", f"s3://{text}", f"s3://bucket/{text}?{text}"):
        try:
            open_source(uri)
        except DefinitionError as error:
            str(error).encode()


POSITIONS = [
    '{"v":1,"w":200,"s":{"test/t":150},"d":{"test/t/100":{"/6":"1-5,7"}},"o":{"test/t/100/CDC000009.csv":[10,20,null]},'
    '"i":{"test/t/100":{"CDC000007.csv":"0a1b2c3d"}},"e":[100,150,2]}',
    '{"v":2,"w":200,"s":{"test/t":150},"f":{"test/t":120},"d":{"test/t/100":{"/6":"1-5,7"}},'
    '"a":{"test/t/100":{"/6/10":"2026-01-01:3*60,5,,1-2;7"}},"m":{"test/t/100":17,"7/100":-1},'
    '"i":{"test/t/100":{"CDC000007.csv":"1f.0a1b2c3d","CDC000006.csv":"1f.0a1b2c3d.ff"}},"o":{"test/t/100/CDC000009.csv":[10,20,210]},'
    '"u":{"test/t/100":{"12/6.csv":["4-8",70]}},"l":[[100,150,{"test/t/100":{"/6.csv":"8-9"}}]],"e":[100,150,2]}',
]
PROBES = ["test/t/100/CDC000003.csv", "test/t/100/2026-01-05/CDC000003.csv", "7/100/CDC_12_000005.csv"]


def take_position(text: str) -> None:
    try:
        position = StoragePosition.parse(text)
    except ValueError:
        return
    again = StoragePosition.parse(position.to_text())
    assert again == position
    for key in PROBES:
        parsed = parse_path(key)
        assert isinstance(parsed, DataPath)
        position.needs_reading(parsed, 1, 2, 300)
        position.is_sealed(parsed.directory)


@given(
    st.one_of(
        TEXT, JSON.map(json.dumps), *(damaged(text.encode()).map(lambda raw: raw.decode("utf-8", "replace")) for text in POSITIONS)
    )
)
@fuzz(500)
def test_a_position_is_taken_or_refused(text: str) -> None:
    take_position(text)


@given(st.sampled_from(POSITIONS), st.sampled_from("vwsfdamioule"), JSON)
@fuzz(300)
def test_a_position_with_a_strange_member_is_taken_or_refused(text: str, key: str, value: object) -> None:
    take_position(json.dumps(json.loads(text) | {key: value}))


# --- statements -----------------------------------------------------------------------------------------------------------------


@cache
def statements() -> tuple[bytes, ...]:
    golden = (case["statement"] for path in sorted((_GOLDEN / "ddl").glob("*.json")) for case in json.loads(path.read_text()))
    return tuple(sorted({text.encode() for text in golden}))


STATEMENTS = TEXT | st.deferred(lambda: st.sampled_from(statements()).flatmap(damaged)).map(
    lambda raw: raw.decode("utf-8", "replace")
)


@given(STATEMENTS, st.sampled_from([None, ID_V]), st.sampled_from([None, ID_V, SCHEMA]))
@fuzz(250)
def test_a_statement_is_classified_whatever_it_is(text: str, before: TableSchema | None, after: TableSchema | None) -> None:
    read_statement(text, "test")
    classify(text, database="test", table_id=TableId("test", "t"), before=before, after=after)
    changes_rows_unseen(text, "test")
    if after is not None:
        marked = annotate(text, after, before)
        assert [(column.name, column.type) for column in marked.columns] == [(column.name, column.type) for column in after.columns]
        assert all(marked.has_column(name) for name in marked.handle_key)
    partitioning = partitioning_after(None, text, "test")
    row_events(text, "test", TableId("test", "t"), partitioning)


EXPRESSIONS: Sequence[bytes] = [
    b"`id` + 1",
    b"CONCAT(_UTF8MB4'a', UPPER(`v`), `v`)",
    b"JSON_UNQUOTE(JSON_EXTRACT(`j`, _UTF8MB4'$.a'))",
    b"CASE WHEN `d` > 1.5 THEN ROUND(`n`, 2) ELSE NULL END",
    b"DATE_FORMAT(`at`, _UTF8MB4'%Y-%m')",
    b"(`u` DIV 3) % 2 = 1 AND `v` IN (_UTF8MB4'x', _UTF8MB4'y') OR `y` IS NULL",
    b"SUBSTRING_INDEX(`v`, _UTF8MB4',', 1)",
]
TARGETS = [
    ColumnType(TypeKind.INT),
    ColumnType(TypeKind.VARCHAR),
    ColumnType(TypeKind.DECIMAL, length=10, scale=2),
    ColumnType(TypeKind.JSON),
]


@given(
    TEXT | st.sampled_from(EXPRESSIONS).flatmap(damaged).map(lambda raw: raw.decode("utf-8", "replace")), st.sampled_from(TARGETS)
)
@fuzz(150)
def test_an_expression_is_translated_or_refused(expression: str, target: ColumnType) -> None:
    for translate in (lambda: to_duckdb(expression, target, SCHEMA), lambda: condition_to_duckdb(expression, SCHEMA)):
        try:
            translate()
        except UntranslatableError:
            continue
