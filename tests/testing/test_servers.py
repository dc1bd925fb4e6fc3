"""The servers that other tests rely on."""

from __future__ import annotations

import pymysql
import pytest

from headrace.model.uri import parse_uri
from servers import MariaDb, S3Server, running_mariadb

pytestmark = pytest.mark.server


def databases(server: MariaDb) -> set[str]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        return {name for (name,) in cursor.fetchall()}


def test_a_fresh_mariadb_has_no_databases_and_no_connections_of_earlier_tests(mariadb: MariaDb) -> None:
    leftover = mariadb.connect(autocommit=False)
    with leftover.cursor() as cursor:
        cursor.execute("CREATE DATABASE `odd``name`")
        cursor.execute("CREATE TABLE `odd``name`.t (id INT)")
        cursor.execute("INSERT INTO `odd``name`.t VALUES (1)")  # holds a lock that DROP DATABASE would wait for
    mariadb.fresh()
    assert "odd`name" not in databases(mariadb)
    with pytest.raises(pymysql.err.MySQLError):
        leftover.ping(reconnect=False)


def test_the_uri_leads_to_the_server_whatever_its_password_holds(mariadb: MariaDb) -> None:
    uri = parse_uri(mariadb.uri(time_zone="+00:00"))
    assert (uri.host, uri.port, uri.username, uri.password) == (mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    assert uri.params == {"time-zone": "+00:00"}


def test_the_default_collation_is_debians(mariadb: MariaDb) -> None:
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@global.collation_server, @@global.local_infile")
        assert cursor.fetchone() == ("utf8mb4_general_ci", 1)


def test_a_second_server_can_forbid_local_infile(mariadb: MariaDb) -> None:
    with running_mariadb(local_infile="OFF") as other:
        assert other.port != mariadb.port
        with other.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@global.local_infile")
            assert cursor.fetchone() == (0,)
    with pytest.raises(pymysql.err.MySQLError):
        other.connect()


def test_each_bucket_is_new_and_empty(s3: S3Server) -> None:
    first, second = s3.make_bucket(), s3.make_bucket()
    s3.client().put_object(Bucket=first, Key="a/metadata", Body=b"{}")
    assert "Contents" not in s3.client().list_objects_v2(Bucket=second)
    assert parse_uri(s3.uri(first, "a", protocol="csv")).params["endpoint"] == s3.endpoint
