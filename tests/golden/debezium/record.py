"""Records what Debezium sends of a MariaDB, with and without schemas; see README.md.

``mvn dependency:copy-dependencies -DoutputDirectory=lib`` fetches Debezium, ``javac -cp 'lib/*' Recorder.java`` makes the recorder.
``PYTHONPATH=src:tests python tests/golden/debezium/record.py FOLDER`` then needs the folder with ``lib`` and the class.
"""

from __future__ import annotations

import base64
import json
import lzma
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from servers import PERSON, MariaDb, running_mariadb
from targets import canonical_rows_from_mariadb

HERE = Path(__file__).parent
PROPERTIES = """
name=shop
connector.class=io.debezium.connector.mysql.MySqlConnector
offset.storage=org.apache.kafka.connect.storage.FileOffsetBackingStore
offset.storage.file.filename={folder}/offsets
schema.history.internal=io.debezium.storage.file.history.FileSchemaHistory
schema.history.internal.file.filename={folder}/history
database.hostname=127.0.0.1
database.port={port}
database.user={user}
database.password={password}
database.server.id={server_id}
database.ssl.mode=disabled
database.include.list=shop
topic.prefix=shopdb
skipped.operations=none
provide.transaction.metadata=true
converter.schemas.enable={schemas}
"""
SECONDS = 60


def execute(server: MariaDb, script: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in (HERE / script).read_text(encoding="utf-8").split(";\n"):
            if statement.strip():
                cursor.execute(statement)


def started(server: MariaDb, program: Path, folder: Path, server_id: int, schemas: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    user, password = PERSON
    told = {"folder": folder, "port": server.port, "user": user, "password": password, "server_id": server_id, "schemas": schemas}
    (folder / "properties").write_text(PROPERTIES.format(**told), encoding="utf-8")
    command = ["java", "-Xmx256m", "-cp", f"{program}:{program}/lib/*", "Recorder", str(folder / "properties"), str(folder / "out")]
    with (folder / "errors").open("wb") as errors:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=errors, stderr=errors)


def lines(folder: Path) -> list[dict[str, Any]]:
    out = folder / "out"
    found = []
    for line in out.read_text(encoding="utf-8").splitlines() if out.exists() else []:
        topic, *told = line.split(" ")
        key, value = (None if text == "-" else base64.b64decode(text).decode() for text in told)
        found.append({"topic": topic, "key": key, "value": value})
    return found


def wait_for(folder: Path, text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not any(text in (line["value"] or "") for line in lines(folder)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder}: {text} did not come")
        time.sleep(0.5)


def state(server: MariaDb) -> list[dict[str, Any]]:
    found = []
    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        for (table,) in sorted(cursor.fetchall()):
            cursor.execute(f"SHOW COLUMNS FROM `{table}`")
            columns = cursor.fetchall()
            types = {name: of for name, of, *_ in columns}
            key = [name for name, _, _, kind, *_ in columns if kind == "PRI"]
            rows = canonical_rows_from_mariadb(connection, "shop", table, types)
            found.append({"schema": "shop", "table": table, "types": types, "primary_key": key, "rows": rows})
    return found


def main(program: Path) -> None:
    options = {"log_bin": "binlog", "binlog_format": "ROW", "binlog_row_image": "FULL", "server_id": 7}
    with (
        tempfile.TemporaryDirectory() as work,
        running_mariadb(**options, version="5.7.19-MariaDB-log") as server,
    ):
        execute(server, "before.sql")
        folders = {name: Path(work) / name for name in ("true", "false")}
        recorders = [started(server, program, folder, 85000 + n, name) for n, (name, folder) in enumerate(folders.items())]
        for folder in folders.values():
            wait_for(folder, '"snapshot":"last"')
        time.sleep(5)  # the reading of the binlog begins
        execute(server, "after.sql")
        for folder in folders.values():
            wait_for(folder, '"code":"end"')
        for recorder in recorders:
            recorder.communicate()
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines(folders["true"]))
        (HERE / "with-schema.jsonl.xz").write_bytes(lzma.compress(text.encode()))
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines(folders["false"]))
        (HERE / "without-schema.jsonl").write_text(text, encoding="utf-8")
        (HERE / "expected.json").write_text(json.dumps(state(server), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
