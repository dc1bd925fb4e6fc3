"""Records what Maxwell sends of a MariaDB; see README.md.

``mvn dependency:copy-dependencies -DoutputDirectory=lib`` fetches Maxwell, ``javac -d stub ScriptObjectMirror.java`` makes a class
that it looks for and newer releases of Java lack. ``PYTHONPATH=src:tests python tests/golden/maxwell/record.py FOLDER`` then needs
the folder with ``lib`` and ``stub``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from servers import PERSON, MariaDb, running_mariadb
from targets import canonical_rows_from_mariadb

HERE = Path(__file__).parent
SECONDS = 60


def started(server: MariaDb, program: Path, out: Path) -> subprocess.Popen[bytes]:
    user, password = PERSON
    command = ["java", "-Xmx256m", "-cp", f"{program}/stub:{program}/lib/*", "com.zendesk.maxwell.Maxwell", "--producer=stdout"]
    command += ["--host=127.0.0.1", f"--port={server.port}", f"--user={user}", f"--password={password}", "--log_level=warn"]
    command += ["--output_ddl=true", "--output_binlog_position=true", "--output_xoffset=true", "--jdbc_options=useSSL=false"]
    with out.open("wb") as lines:
        return subprocess.Popen(command, stdout=lines, stderr=subprocess.DEVNULL)


def run(server: MariaDb, statements: list[str]) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def prepare(server: MariaDb, program: Path, out: Path) -> None:
    """Lets Maxwell make its own tables, and gives them a character set whose name it knows."""
    maxwell = started(server, program, out)
    time.sleep(10)
    maxwell.terminate()
    maxwell.wait()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES FROM maxwell")
        tables = [table for (table,) in cursor.fetchall()]
    run(server, ["ALTER DATABASE maxwell CHARACTER SET utf8mb4"])
    run(server, [f"ALTER TABLE maxwell.`{table}` CONVERT TO CHARACTER SET utf8mb4" for table in tables])
    run(server, [f"DELETE FROM maxwell.`{table}`" for table in tables])


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
    options = {"log_bin": "binlog", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_annotate_row_events": "OFF"}
    with tempfile.TemporaryDirectory() as work, running_mariadb(**options, server_id=7, version="5.7.19-MariaDB-log") as server:
        out = Path(work) / "out"
        prepare(server, program, out)
        maxwell = started(server, program, out)
        time.sleep(15)
        run(server, [text for text in (HERE / "statements.sql").read_text(encoding="utf-8").split(";\n") if text.strip()])
        deadline = time.monotonic() + SECONDS
        while '"code":"end"' not in out.read_text(encoding="utf-8"):
            if time.monotonic() > deadline:
                raise TimeoutError("the last row did not come")
            time.sleep(0.5)
        maxwell.terminate()
        maxwell.wait()
        (HERE / "records.jsonl").write_bytes(out.read_bytes())
        (HERE / "expected.json").write_text(json.dumps(state(server), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
