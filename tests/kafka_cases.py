"""The golden records of TiCDC's Kafka protocols, and what the upstream held at each of their watermarks.

``tests/conformance/ticdc-kafka/README.md`` says how the data came about and how values are written.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness import ExpectedTable, State
from kafka_server import Record

CASES = Path(__file__).parent / "conformance" / "ticdc-kafka"
PARAMS: dict[str, dict[str, str]] = {"debezium": {"accept_unclear": "true"}, "debezium-avro": {"accept_unclear": "true"}}
"""What the source's URI says besides the protocol, to read all cases of a protocol."""
NULL_AS_DEFAULT = {("shop", "item"): {"qty": {None: 0}}}
"""Values that arrive as others, by table and column: for NULL, the Debezium protocol has the column's default."""
ARRIVES_AS: dict[str, dict[tuple[str, str], dict[str, dict[Any, Any]]]] = {
    "debezium-avro/basic": NULL_AS_DEFAULT,
    "debezium/basic-noschema": NULL_AS_DEFAULT,
    "debezium/basic-schema": NULL_AS_DEFAULT,
}
"""By case, what the wire does not carry. The README of the data names the losses of each protocol."""


@dataclass(frozen=True)
class GoldenRecord:
    """A record, and what is known of it besides its bytes."""

    record: Record
    kind: str
    """row, ddl, checkpoint, bootstrap."""
    offset: int
    topic: str = ""


@dataclass(frozen=True)
class KafkaCase:
    """One case of a protocol."""

    protocol: str
    name: str

    @property
    def _folder(self) -> Path:
        return CASES / self.protocol / self.name

    @cached_property
    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self._folder / "case.json").read_bytes())["config"]
        return config

    @cached_property
    def _expected(self) -> dict[str, Any]:
        expected: dict[str, Any] = json.loads((self._folder / "expected.json").read_bytes())
        for (schema, table), columns in ARRIVES_AS.get(f"{self.protocol}/{self.name}", {}).items():
            _arrived(expected, schema, table, columns)
        return expected

    @property
    def params(self) -> dict[str, str]:
        """Parameters of the source's URI with which the case is read."""
        return {"protocol": self.protocol, **PARAMS.get(self.protocol, {})}

    @property
    def codec(self) -> dict[str, Any]:
        """The settings of the encoder that wrote the records."""
        codec: dict[str, Any] = self._config["codec"]
        return codec

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The transactions: their commit ts, and their statements."""
        steps: list[dict[str, Any]] = json.loads((self._folder / "case.json").read_bytes())["steps"]
        return steps

    @property
    def claim_check(self) -> Path:
        """The folder of the case's claim-check storage."""
        return self._folder / "claim-check"

    @property
    def partitions(self) -> int:
        return int(self._config["partitions"])

    @cached_property
    def records(self) -> list[GoldenRecord]:
        """In the order in which TiCDC produced them."""
        return [_record(json.loads(line)) for line in (self._folder / "records.jsonl").read_bytes().splitlines()]

    @property
    def schemas(self) -> dict[int, str]:
        """The registered schemas by their ids; empty for a protocol without a registry."""
        file = self._folder / "schemas.json"
        return {told["id"]: told["schema"] for told in json.loads(file.read_bytes())} if file.is_file() else {}

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened upstream, in order; see the README of the data."""
        events: list[dict[str, Any]] = self._expected["events"]
        return events

    @property
    def final(self) -> State:
        """The state that all records lead to."""
        return State(0, self._databases, tuple(map(_table, self._expected["final_state"])))

    def rounds(self) -> list[list[Record]]:
        """The records up to each watermark of all partitions; those after the last one come with the last."""
        found: list[list[Record]] = [[]]
        watermarks = 0
        for golden in self.records:
            found[-1].append(golden.record)
            watermarks += golden.kind == "checkpoint"
            if golden.kind == "checkpoint" and watermarks % self.partitions == 0:
                found.append([])
        *rounds, rest = found
        return [*rounds[:-1], rounds[-1] + rest]

    def states(self) -> Iterator[State]:
        """The state at each watermark. Only for cases whose statements do nothing but to create."""
        rows: dict[tuple[str, str], dict[tuple[object, ...], Mapping[str, Any]]] = {}
        known = {(t["schema"], t["table"]): t for t in self._expected["final_state"]}
        for event in self.events:
            name = (event.get("schema", ""), event.get("table", ""))
            if event["kind"] == "watermark":
                tables = (
                    _table({**known[n], "rows": [[r[c] for c in known[n]["columns"]] for r in at.values()]})
                    for n, at in rows.items()
                )
                yield State(event["commit_ts"], self._databases, tuple(tables))
            elif event["kind"] == "ddl" and name[1]:
                rows[name] = {}
            elif event["kind"] == "row":
                for image in ("before", "after"):
                    if event.get(image) is not None:
                        key = tuple(event[image][column] for column in known[name]["primary_key"])
                        rows[name].pop(key, None)
                if event.get("after") is not None:
                    rows[name][key] = event["after"]

    @property
    def _databases(self) -> frozenset[str]:
        return frozenset(event["schema"] for event in self.events if event["kind"] == "ddl")


def _record(line: dict[str, Any]) -> GoldenRecord:
    key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key_b64", "value_b64"))
    return GoldenRecord(Record(value, line["partition"], key), line["type"], line["offset"], line["topic"])


def _arrived(expected: dict[str, Any], schema: str, table: str, columns: Mapping[str, Mapping[Any, Any]]) -> None:
    """Replaces values of a table by those that arrive."""
    for event in expected["events"]:
        if (event.get("schema"), event.get("table")) == (schema, table):
            for row in filter(None, (event.get("before"), event.get("after"))):
                row.update({name: values.get(row[name], row[name]) for name, values in columns.items() if name in row})
    for document in expected["final_state"]:
        if (document["schema"], document["table"]) == (schema, table):
            for name, values in columns.items():
                place = document["columns"].index(name)
                for row in document["rows"]:
                    row[place] = values.get(row[place], row[place])


def _table(document: dict[str, Any]) -> ExpectedTable:
    text = document["create_table"]
    types = {
        name: re.sub(" (NOT )?NULL.*| DEFAULT.*", "", of) for name, of in re.findall(r"^  `(.+?)` (.+?),?$", text, re.MULTILINE)
    }
    key = re.findall(r"`(.+?)`", "".join(re.findall(r"PRIMARY KEY \((.+?)\)", text)))
    assert list(types) == document["columns"] or text.startswith("CREATE ALGORITHM"), "the definition lists the columns in order"
    # Cases of the older encoders have the types only in the definition.
    types = dict(zip(document["columns"], document.get("column_types", types.values()), strict=True))
    rows = tuple(tuple(map(_text, row)) for row in document["rows"])
    kind = "VIEW" if document["create_table"].startswith("CREATE ALGORITHM") else "BASE TABLE"
    return ExpectedTable(document["schema"], document["table"], kind, types, tuple(document.get("primary_key", key)), rows)


def _text(value: Any) -> str | None:
    """The value as the storage cases write it."""
    if isinstance(value, dict):
        return str(value["hex"] if "hex" in value else value["text"])
    return value if value is None or isinstance(value, str) else repr(value)


COLUMNS = "id INT PRIMARY KEY, v VARCHAR(20)"


def tso(second: int) -> int:
    """A commit ts: so many seconds after one that all tests begin at."""
    return (1_750_000_000_000 + 1000 * second) << 18


def message(type: str, commit_ts: int, database: str = "shop", table: str = "a", **members: Any) -> bytes:
    """A canal-JSON message with the TiDB extension, as TiCDC writes it."""
    is_ddl = type in ("CREATE", "ALTER", "QUERY", "ERASE", "RENAME", "TRUNCATE")
    told = {"id": 0, "database": database, "table": table, "pkNames": None if is_ddl else ["id"], "isDdl": is_ddl, "type": type}
    told |= {"es": commit_ts >> 18, "ts": commit_ts >> 18, "sql": "", "data": None, "old": None, "_tidb": {"commitTs": commit_ts}}
    return json.dumps(told | members, ensure_ascii=False, separators=(",", ":")).encode()


def row(second: int, key: int, value: str = "x", table: str = "a") -> bytes:
    """An insert into a table of :data:`COLUMNS`."""
    types = {"id": "int", "v": "varchar"}
    return message("INSERT", tso(second), table=table, mysqlType=types, data=[{"id": str(key), "v": value}])


def statement(second: int, text: str, table: str = "a", type: str = "CREATE") -> bytes:
    return message(type, tso(second), table=table, sql=text)


def created(second: int, table: str = "a") -> bytes:
    return statement(second, f"CREATE TABLE `{table}` ({COLUMNS})", table)


def watermark(second: int) -> bytes:
    return message("TIDB_WATERMARK", tso(second), "", "", _tidb={"watermarkTs": tso(second)})


def database_created(second: int) -> bytes:
    return message("QUERY", tso(second), table="", sql="CREATE DATABASE shop")
