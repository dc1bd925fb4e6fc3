"""Where the server is that is replicated, and how to reach it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec

from headrace.errors import DefinitionError, MissingPartError
from headrace.model.uri import parse_uri, reject_unknown

_PARAMETERS = frozenset({"ssl-ca", "ssl-cert", "ssl-key", "ssl-verify"})
_DEFAULT_PORT = 4000


@dataclass(frozen=True)
class Upstream:
    """Where it is. Picklable; ``repr`` does not show the password."""

    place: str
    """Its name in messages: the URI without user, password and parameters."""
    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    ssl_ca: str = ""
    """With it, a connection is encrypted, to a server whose certificate was signed by this CA."""
    ssl_cert: str = ""
    ssl_key: str = ""
    verify_identity: bool = True
    """With ``ssl_ca``: the certificate must be for this very host."""


def upstream_of(text: str, setting: str = "upstream") -> Upstream:
    """The server of ``mysql://user:password@host:port/?ssl-ca=…``. Does not connect. Raises DefinitionError, MissingPartError.

    ``setting`` is the setting's name for messages.
    """
    uri = parse_uri(text)
    if uri.scheme not in ("mysql", "tidb") or not uri.host:
        raise DefinitionError(f"{setting}: {uri.redacted()} does not name a server.", f"Write {setting}=mysql://user@host:4000/.")
    if uri.path.strip("/"):
        raise DefinitionError(f"{setting}: {uri.redacted()} names a database.", "Leave it out: the tables' databases are known.")
    params = uri.params
    reject_unknown(params, _PARAMETERS, f"parameter of {setting}")
    verify = params.get("ssl-verify", "identity")
    if verify not in ("identity", "ca"):
        raise DefinitionError(f"ssl-verify of {setting} is identity or ca, not {verify!r}.")
    if params and not params.get("ssl-ca"):
        raise DefinitionError(f"{setting} has parameters of TLS and no ssl-ca.", "Name the CA with ssl-ca.")
    if find_spec("pymysql") is None:
        raise MissingPartError(f"{setting} needs PyMySQL.", "Install it with: pip install 'headrace[mysql]'.")
    return Upstream(
        uri.redacted(),
        uri.host,
        uri.port or _DEFAULT_PORT,
        uri.username or "root",
        uri.password,
        params.get("ssl-ca", ""),
        params.get("ssl-cert", ""),
        params.get("ssl-key", ""),
        verify == "identity",
    )
