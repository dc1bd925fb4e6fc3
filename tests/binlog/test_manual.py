"""docs/binlog-driver.md: its programs run, and it names every argument of the Driver."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path
from typing import Any

import pymysql
import pytest

from binlog_cases import records, told
from headrace.binlog import Driver
from headrace.formats.binlog.messages import read_binlog
from kafka_server import KafkaBroker, Record
from servers import PERSON, MariaDb

PAGE = (Path(__file__).parents[2] / "docs" / "binlog-driver.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_names_every_argument_of_the_driver() -> None:
    settings = PAGE.split("## Settings")[1].split("## Where")[0]
    rows = [re.findall(r"`(\w+)`", line)[0] for line in settings.splitlines() if re.match(r"\| (`|[A-Z]\w+ \|)", line)]
    assert sorted(rows) == sorted(set(inspect.signature(Driver.__init__).parameters) - {"self"})


def write(kafka: KafkaBroker, case: str) -> str:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(record.value) for record in records(case)])
    return topic


@pytest.mark.server
def test_the_first_program_prints_a_topic(kafka: KafkaBroker) -> None:
    program = PROGRAMS[0].replace("localhost:9092", kafka.server)
    assert len(program.strip().splitlines()) <= 6
    program = program.replace('cluster_id="6823548660393262086"', f"topic={write(kafka, 'basic')!r}, follow=False")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, {})
    assert len(printed.getvalue().splitlines()) == sum(len(m) for m in mutations("basic"))


def mutations(case: str) -> list[list[Any]]:
    return [list(changes) for record in records(case) for changes in read_binlog(record.value).tables]


@pytest.mark.server
@pytest.mark.parametrize("case", ["basic", "keys", "restart"])
def test_the_second_program_gives_mysql_the_rows_of_the_upstream(case: str, kafka: KafkaBroker, mariadb: MariaDb) -> None:
    names: dict[str, Any] = {}
    (program,) = [program for program in PROGRAMS if "def replicate" in program]
    exec(program, names)
    user, password = PERSON  # who may create any database
    target = {"host": mariadb.host, "port": mariadb.port, "user": user, "password": password}
    topic = write(kafka, case)
    for _ in range(2):  # the second time goes on behind the last transaction
        names["replicate"]([kafka.server], topic, target, time_zone="UTC", follow=False)
        with pymysql.connect(**target) as connection, connection.cursor() as cursor:
            for table in told(case, "final_state")["tables"]:
                columns = ", ".join(f"`{name}`" for name in table["columns"])
                cursor.execute(f"SELECT {columns} FROM `{table['schema']}`.`{table['table']}`")
                found = [tuple(str(value) for value in row) for row in cursor.fetchall()]
                assert sorted(found) == sorted(tuple(str(value) for value in row) for row in table["rows"] or ())
    with pymysql.connect(**target) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT position FROM progress.progress")
        assert len(cursor.fetchall()) == 1
