"""TLS to the server. ``ssl-ca`` checks the certificate's signature and its host name; ``ssl-verify=ca`` the signature only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pymysql
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import Authority, pem_of
from headrace.errors import DefinitionError, HeadraceError, SinkUnreachableError
from headrace.sinks.mysql import open_sink
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import read_settings
from hostile_server import hostile_server
from servers import DATABASES, MariaDb, documented, running_mariadb
from severing import severable


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("ca"), "headrace-ca")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[MariaDb]:
    """A MariaDB with a certificate for 127.0.0.1, and a user that has to show a certificate."""
    certificate, key = authority.issue("server", "127.0.0.1")
    with running_mariadb(ssl_ca=authority.path, ssl_cert=certificate, ssl_key=key) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE USER shows@'%' IDENTIFIED BY 'w0rd' REQUIRE X509")
            for statement in documented().on_databases("shows@'%'", DATABASES):
                cursor.execute(statement)
        yield server


def cipher(uri: str) -> str:
    """The cipher of a connection; empty where it is not encrypted."""
    with MySqlSession(read_settings(uri)) as session:
        return str(session.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1])


def refusal(uri: str, kind: type[HeadraceError] = SinkUnreachableError) -> str:
    with pytest.raises(kind) as raised:
        MySqlSession(read_settings(uri))
    (check,) = open_sink(uri).check()
    assert check.detail == raised.value.message
    assert raised.value.hint
    return raised.value.message


@pytest.mark.server
def test_a_protection_that_is_empty_is_refused_and_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of a unit file that nobody filled."""
    monkeypatch.setenv("EMPTY", "")
    for name in ("ssl-ca", "ssl-cert", "ssl-key", "ssl-verify"):
        for value in ("", "%20", "${EMPTY}"):
            given = "" if name == "ssl-ca" else "ssl-ca=/ca.pem&"
            with pytest.raises(DefinitionError, match=f"{name} of the sink's URI is empty"):
                read_settings(f"mysql://u:p@db/?{given}{name}={value}")


@pytest.mark.long
def test_a_server_that_the_ca_vouches_for_is_connected_to_encrypted(server: MariaDb, authority: Authority) -> None:
    assert cipher(server.uri(ssl_ca=authority.path))
    assert cipher(server.uri(ssl_ca=authority.path, ssl_verify="ca"))


@pytest.mark.server
def test_silence_is_told_from_a_long_statement_on_an_encrypted_connection_too(server: MariaDb, authority: Authority) -> None:
    with (
        severable(server) as proxy,
        MySqlSession(read_settings(proxy.server.uri(ssl_ca=authority.path, silence_timeout="2s"))) as s,
    ):
        assert s.execute("SELECT SLEEP(1.5), REPEAT('x', 100000)") == [(0, "x" * 100_000)]
        assert s.scalar("SELECT CONNECTION_ID()") == s.connection_id
        proxy.swallow()
        with pytest.raises(pymysql.err.OperationalError, match="2013"):
            s.execute("SELECT 1")


@pytest.mark.server
def test_without_a_ca_a_connection_is_encrypted_where_the_server_can(server: MariaDb) -> None:
    assert cipher(server.uri())


@pytest.mark.server
def test_a_server_of_another_ca_is_refused(server: MariaDb, tmp_path: Path) -> None:
    other = Authority.made(tmp_path, "other-ca")
    for verify in ("identity", "ca"):
        told = refusal(server.uri(ssl_ca=other.path, ssl_verify=verify))
        assert "shows a certificate that cannot be verified with ssl-ca: self-signed certificate in certificate chain." in told


@pytest.mark.server
def test_a_certificate_of_another_host_is_refused_unless_only_its_signature_counts(server: MariaDb, authority: Authority) -> None:
    uri = server.uri(ssl_ca=authority.path).replace("127.0.0.1", "localhost")
    assert "shows a certificate of another host: Hostname mismatch, certificate is not valid for 'localhost'." in refusal(uri)
    assert cipher(f"{uri}&ssl-verify=ca")


@pytest.mark.server
def test_a_user_that_has_to_show_a_certificate_gets_in_with_it_only(server: MariaDb, authority: Authority) -> None:
    certificate, key = authority.issue("client")
    base = f"mysql://shows:w0rd@127.0.0.1:{server.port}/?{urlencode({'ssl-ca': authority.path})}"
    assert "refuses the login of user 'shows'" in refusal(base)
    assert cipher(f"{base}&{urlencode({'ssl-cert': certificate, 'ssl-key': key})}")


def test_a_server_without_tls_is_refused_before_anything_is_sent(authority: Authority) -> None:
    with hostile_server(lambda _: None) as plain:
        told = refusal(f"{plain.uri}?{urlencode({'ssl-ca': authority.path})}")
    assert told.endswith("does not offer TLS, which ssl-ca asks for; nothing was sent.")
    assert plain.logins == []


def test_files_that_are_not_what_they_should_be_are_told(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("any", "127.0.0.1")
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(pem_of(ec.generate_private_key(ec.SECP256R1()), serialization.BestAvailableEncryption(b"locked")))
    text = tmp_path / "text"
    text.write_text("no certificate")
    gone = tmp_path / "gone"
    for params, told in (
        ({"ssl-ca": gone}, f"ssl-ca={gone} cannot be read: No such file or directory."),
        ({"ssl-ca": text}, f"ssl-ca={text} is not the certificates of CAs in PEM form:"),
        ({"ssl-cert": gone}, f"ssl-cert={gone} cannot be read:"),
        ({"ssl-cert": certificate}, f"ssl-cert={certificate} is not a certificate and its key, unencrypted, in PEM form"),
        ({"ssl-cert": certificate, "ssl-key": text}, f"ssl-cert={certificate} with ssl-key={text} is not a certificate"),
        ({"ssl-cert": certificate, "ssl-key": encrypted}, "is not a certificate and its key, unencrypted, in PEM form"),
    ):
        uri = f"mysql://127.0.0.1:1/?{urlencode({'ssl-ca': authority.path, **params})}"
        with pytest.raises(DefinitionError) as raised:
            MySqlSession(read_settings(uri))
        assert told in raised.value.message
    assert key.exists()


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ("ssl-cert=c.pem", "ssl-cert is given without ssl-ca"),
        ("ssl-key=c.key", "ssl-key is given without ssl-ca"),
        ("ssl-verify=ca", "ssl-verify is given without ssl-ca"),
        ("ssl-ca=ca.pem&ssl-key=c.key", "ssl-key is given without ssl-cert"),
        ("ssl-ca=ca.pem&ssl-verify=none", "ssl-verify=none is neither identity nor ca"),
    ],
)
def test_parameters_that_would_check_nothing_are_refused(params: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        read_settings(f"mysql://db/?{params}")
