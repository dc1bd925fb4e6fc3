"""Section 8.2 of the specification of TiCDC's storage output: schema files and checksums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from building import Bucket

from headrace.formats.schema_file import schema_checksum
from headrace.model.table import TableId
from storage_folder import ID, OPTIONS, C, V

pytestmark = pytest.mark.pipeline

GOLDEN = Path(__file__).parents[1] / "golden" / "ticdc-schema"
STRICT = OPTIONS + "&strict=true"
T = TableId("test", "t")


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def column(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"ColumnName": name, "ColumnType": kind, **more}


def kinds_and_types(bucket: Bucket) -> dict[str, str]:
    """The columns of ``test.t`` in the target with their types."""
    with duckdb.connect(str(bucket.database), read_only=True) as connection:
        found = connection.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 't'")
        return dict(found.fetchall())


LAST = column("LastName", "VARCHAR", ColumnDefault="Default LastName", ColumnPrecision="128", ColumnNullable="false")
FIRST = column("FirstName", "VARCHAR", ColumnDefault="Default FirstName", ColumnPrecision="64")
KEY = column("Id", "INT", ColumnDefault=10, ColumnPrecision="11", ColumnNullable="false", ColumnIsPk="true")
SHORT = (column("col1", "INT", ColumnPrecision="11"), column("col2", "VARCHAR", ColumnPrecision="5"))


@pytest.mark.parametrize(
    ("name", "columns", "digits"),
    [
        ("test.table1", SHORT, "4192708364"),
        ("test.t", (ID, V), "3633961634"),
        ("test.t", (V, ID), "3633961634"),
        ("test.t", (ID, V, C), "0563607735"),
        ("test.t", (ID,), "1402926011"),
        ("test.t2", (ID, V), "0298321067"),
        ("test.p", (ID, V), "0772639659"),
        ("test.e", (ID, V), "4283680726"),
        ("test.a", (ID, V), "0164075231"),
        ("test.b", (ID, V), "3561777321"),
        ("test.x", (ID, V), "0408170488"),
        ("test.n", (V,), "0802005493"),
        ("test.t", ({"ColumnId": "1"} | ID, {"ColumnId": "2"} | V), "0420257597"),
        ("test.", (), "3668434463"),
        ("shop.", (), "2805160324"),
        ("schema1.", (), "3233644819"),
        ("schema1.table1", (KEY, LAST, FIRST, column("Birthday", "DATETIME", ColumnDefault=12345678)), "3752767265"),
    ],
)
def test_t16_the_checksum_is_the_one_in_the_file_s_name(
    bucket: Bucket, name: str, columns: tuple[dict[str, Any], ...], digits: str
) -> None:
    database, _, table = name.partition(".")
    raw = bucket.folder.schema_text(table, 100, "", columns if table else (), database)
    assert f"{schema_checksum(raw):010d}" == digits
    folder = f"{database}/{table}" if table else database
    bucket.write(f"{folder}/meta/schema_100_{digits}.json", raw)
    bucket.write(f"{folder}/meta/schema_101_{int(digits) ^ 1:010d}.json", raw.replace(b": 100,", b": 101,"))
    bucket.checkpoint(200)
    (notice,) = bucket.consumer().poll().notices
    assert notice.message == f"The schema file's content has the checksum {digits}, not the one in its name."


def test_t16_members_of_types_take_part_in_the_checksum() -> None:
    raw = (GOLDEN / "orders.json").read_bytes()
    assert schema_checksum(raw) == 4039745375
    elements = b',\n            "ColumnElems": [\n                "new",\n                "paid"\n            ]'
    assert elements in raw
    assert schema_checksum(raw.replace(elements, b"")) == 3608961103


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("literal", [False, True])
def test_t17_a_wrong_checksum_is_a_warning_and_with_strict_an_error(tmp_path: Path, literal: bool, strict: bool) -> None:
    bucket = Bucket(tmp_path, STRICT if strict else OPTIONS)
    raw = (GOLDEN / "orders.json").read_bytes()
    version = json.loads(raw)["TableVersion"]
    assert rb"\u003cnone\u003e" in raw
    if literal:
        raw = raw.replace(rb"\u003cnone\u003e", b"<none>")
    path = f"shop/orders/meta/schema_{version}_4039745375.json"
    bucket.write(path, raw)
    bucket.checkpoint(version + 100)
    offer = bucket.consumer().poll()
    if not literal:
        assert (offer.notices, offer.problems) == ((), ())
    elif strict:
        (problem,) = offer.problems
        assert (problem.table_id, problem.file, offer.schema_changes) == (TableId("shop", "orders"), path, ())
        assert "checksum" in problem.message
    else:
        (notice,) = offer.notices
        assert (notice.file, offer.problems) == (path, ())
        assert "checksum" in notice.message
    if not (literal and strict):
        (change,) = offer.schema_changes
        assert change.schema is not None
        assert change.schema.column("note").default == "<none>"


def test_t18_rows_are_in_the_order_of_the_columns_of_their_own_version(bucket: Bucket) -> None:
    first = bucket.schema("t", 100, "v,id")
    second = bucket.schema("t", 200, "id,v")
    assert first.endswith("_3633961634.json")
    assert second.endswith("_3633961634.json")
    bucket.rows("t/100/1", "I 110 one 1", "I 120 2 2")
    bucket.rows("t/200/1", "I 210 3 three", "U 220 1 uno")
    ran = bucket.at(300)
    assert (ran.code, ran.problems) == (0, [])
    # The table came to be with the first order.
    assert bucket.state() == [("2", 2), ("three", 3), ("uno", 1)]


def test_t19_unknown_attributes_and_members_load_and_count_in_the_checksum(bucket: Bucket) -> None:
    e = column("e", "ENUM", ColumnElems=["new", "it's"], ColumnCharset="utf8mb4", ColumnExtra={"a": [1, "{"]})
    path = bucket.schema("t", 100, (ID, e))
    plain = bucket.folder.schema_text("t", 100, "", (ID, column("e", "ENUM")))
    assert f"{schema_checksum(plain):010d}" not in path
    bucket.rows("t/100/1", ("I", 110, 1, "it's"))
    ran = bucket.at(200)
    assert (ran.code, ran.notices, bucket.state()) == (0, [], [(1, "it's")])


def test_t20_a_version_above_2_to_the_53_is_exact(bucket: Bucket) -> None:
    version = 450253245302439940
    assert int(float(version)) != version
    bucket.create("t", version)
    bucket.rows(f"t/{version}/1", f"I {version + 1} 1 a", f"I {version + 2} 2 b")
    bucket.checkpoint(version + 1)
    (change,) = bucket.consumer().poll().schema_changes
    assert change.commit_ts == version
    assert bucket.run().code == 0
    assert bucket.state() == [(1, "a")]


@pytest.mark.parametrize("length", [0, 1, 50, -2])
def test_t21_a_half_written_schema_file_holds_its_table_and_no_other(bucket: Bucket, length: int) -> None:
    path = bucket.create("t")
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:length])
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.create("u")
    bucket.rows("u/100/1", "I 110 2 b")
    ran = bucket.at(200)
    assert ran.code == 3
    assert list(ran.stopped) == ["test.t"]
    assert path in ran.stopped["test.t"]
    assert (bucket.state("t"), bucket.state("u")) == (None, [(2, "b")])
    (problem,) = bucket.consumer().poll().problems
    assert (problem.table_id, problem.transient) == (T, True)
    bucket.write(path, raw)
    ran = bucket.at(300)
    assert (ran.code, ran.problems) == (0, [])
    assert (bucket.state("t"), bucket.state("u")) == ([(1, "a")], [(2, "b")])


def test_t22_unsigned_bits_and_years_are_the_same_types_as_plain_ones(bucket: Bucket) -> None:
    bits = (column("a", "BIT UNSIGNED", ColumnPrecision="8"), column("b", "BIT", ColumnPrecision="8"))
    years = (column("c", "YEAR UNSIGNED", ColumnPrecision="4"), column("d", "YEAR", ColumnPrecision="4"))
    bucket.schema("t", 100, (ID, *bits, *years))
    bucket.rows("t/100/1", "I 110 1 255 255 2155 2155")
    assert bucket.at(200).code == 0
    types = kinds_and_types(bucket)
    assert types["a"] == types["b"] != types["c"] == types["d"]
    assert bucket.state() == [(1, 255, 255, 2155, 2155)]


def test_t23_names_that_are_swapped_in_the_file_give_way_to_its_path(bucket: Bucket) -> None:
    raw = bucket.folder.schema_text("test", 100, database="t")
    bucket.write("test/t/100/schema.json", raw)
    bucket.rows("t/100/1", "I 110 1 a")
    ran = bucket.at(200)
    assert (ran.code, bucket.tables(), bucket.state()) == (0, {("test", "t")}, [(1, "a")])
    (notice,) = ran.notices
    assert (notice.table_id, notice.file) == (T, "test/t/100/schema.json")
    assert notice.message == "The schema file has the names of database and table swapped; its path counts."


def test_t23_the_guide_s_own_sample_is_read(bucket: Bucket) -> None:
    raw = (GOLDEN / "user-guide.json").read_bytes()
    document = json.loads(raw)
    database, table, version = document["Table"], document["Schema"], document["TableVersion"]
    bucket.write(f"{database}/{table}/{version}/schema.json", raw)
    bucket.checkpoint(version + 1)
    offer = bucket.consumer().poll()
    assert offer.problems == ()
    assert [change.table_id for change in offer.schema_changes] == [TableId(database, table)]
    assert "swapped" in offer.notices[0].message
