"""The settings in a sink URI of MySQL or TiDB: where to connect, and those parameters of TiCDC's sink URI that concern Headrace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import DefinitionError
from headrace.model.table import SYSTEM_DATABASES
from headrace.model.uri import Uri, escape_variables, parse_uri, reject_unknown, time_zone_of
from headrace.sinks.mysql.applying import ApplyRules

DEFAULT_WRITERS = 4
_DEFAULT_PORTS = {"mysql": 3306, "tidb": 4000}
_OURS = frozenset(
    {"worker-count", "ssl-ca", "ssl-cert", "ssl-key", "ssl-verify", "time-zone", "timeout", "ledger-database", "local-infile"}
    | {"silence-timeout", "apply", "apply-tables", "transaction-atomicity", "replay-connections"}
)
# Parameters of TiCDC's MySQL sink that tune its writing. Headrace writes in another way, so they are accepted and ignored.
_TICDC_ONLY = frozenset(
    {
        "batch-dml-enable",
        "batch-replace-enable",
        "batch-replace-size",
        "bdr-mode",
        "cache-prep-stmts",
        "dry-run",
        "enable-ddl-ts",
        "enable-old-value",
        "has-vector-type",
        "max-multi-update-row",
        "max-multi-update-row-size",
        "max-txn-row",
        "multi-stmt-enable",
        "prep-stmt-cache-size",
        "read-timeout",
        "safe-mode",
        "tidb-txn-mode",
        "write-timeout",
    }
)
LEDGER_DATABASE = "headrace"
"""The ledger's database, unless the URI names another one."""
_LOGIN = re.compile(r"\w+://[^/?#]*")
_MOST_REPLAY_CONNECTIONS = 64
_DATABASE_NAME = re.compile(r"[0-9A-Za-z_$-]{1,64}")


@dataclass(frozen=True)
class MySqlSettings:
    """Everything that a connection needs. Picklable, so that tasks can connect."""

    identity: str
    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    ssl_ca: str = ""
    """With ``ssl_ca`` a connection is encrypted, to a server whose certificate was signed by this CA. Without it, a connection is
    encrypted if the server supports that, to any server. ``ssl_ca``, ``ssl_cert`` and ``ssl_key`` are PEM files."""
    ssl_cert: str = ""
    ssl_key: str = ""
    verify_identity: bool = True
    """With ``ssl_ca``: the certificate must be for this very host."""
    time_zone: str = ""
    """The source's, for DDL only (data are written in UTC). Empty if not configured, which means UTC."""
    connect_timeout: float = 10
    """Seconds."""
    silence_timeout: float = 60
    """Seconds in which a network that drops packets is detected."""
    writers: int = DEFAULT_WRITERS
    local_infile: bool = True
    """Uses LOAD DATA LOCAL if the server allows it."""
    ledger_database: str = LEDGER_DATABASE
    apply: ApplyRules = field(default_factory=ApplyRules)
    replay_connections: int = 4
    """How many connections of a task replay the transactions of a table."""
    allow_non_transactional: bool = False
    """Not a parameter of the URI: tables with a key may have an engine without transactions."""


def read_settings(text: str) -> MySqlSettings:
    """Reads ``mysql://user:password@host:port/?…`` or ``tidb://…``. Raises DefinitionError."""
    escaped = escape_variables(text)
    login = _LOGIN.match(escaped)
    if "@" in escaped[login.end() if login else 0 :]:
        raise DefinitionError(
            "There is an @ behind the first /, ? or # of the sink's URI, so user or password hold signs that a URI has to escape.",
            "Put the password in as ${NAME} or ${file:PATH}, or write / as %2F, ? as %3F and # as %23.",
        )
    uri = parse_uri(text)
    if uri.scheme not in _DEFAULT_PORTS:
        raise DefinitionError(f"A MySQL sink's URI begins with mysql:// or tidb://, not {uri.scheme}://.")
    if uri.path.strip("/"):
        raise DefinitionError(
            f"{uri.redacted()} names a database, but tables keep the database of the source.",
            "Leave the database out: tables go to the databases they have in the source.",
        )
    reject_unknown(uri.params.keys(), _OURS | _TICDC_ONLY, f"parameter of a {uri.scheme}:// sink")
    params = uri.params
    _check_tls(params)
    return MySqlSettings(
        identity=uri.redacted(),
        host=uri.host or "127.0.0.1",
        port=uri.port or _DEFAULT_PORTS[uri.scheme],
        user=uri.username or "root",
        password=uri.password,
        ssl_ca=params.get("ssl-ca", ""),
        ssl_cert=params.get("ssl-cert", ""),
        ssl_key=params.get("ssl-key", ""),
        verify_identity=params.get("ssl-verify", "identity") == "identity",
        time_zone=time_zone_of(params.get("time-zone", "")),
        connect_timeout=_seconds(params, "timeout", "10s"),
        silence_timeout=_seconds(params, "silence-timeout", "60s"),
        writers=_positive(uri, "worker-count", DEFAULT_WRITERS),
        local_infile=_local_infile(params.get("local-infile", "auto")),
        ledger_database=_ledger_database(params.get("ledger-database", LEDGER_DATABASE)),
        apply=_apply(params),
        replay_connections=_replay_connections(uri),
    )


def _apply(params: Mapping[str, str]) -> ApplyRules:
    rules, atomicity = ApplyRules.read(params), params.get("transaction-atomicity", "table")
    if atomicity not in ("none", "table", "global"):
        raise DefinitionError(f"transaction-atomicity={atomicity} is neither none nor table.")
    if rules.may_replay and atomicity == "global":
        raise DefinitionError(
            "transaction-atomicity=global is not supported: transactions are whole and in order in each table, not across tables.",
            "Use transaction-atomicity=table.",
        )
    return rules


def _replay_connections(uri: Uri) -> int:
    count = _positive(uri, "replay-connections", MySqlSettings.replay_connections)
    if count > _MOST_REPLAY_CONNECTIONS:
        raise DefinitionError(f"replay-connections={count} is more than {_MOST_REPLAY_CONNECTIONS}.")
    return count


def _check_tls(params: Mapping[str, str]) -> None:
    """Raises DefinitionError for an empty parameter, which may come from an unset variable, and for one that needs ``ssl-ca``."""
    for name in ("ssl-ca", "ssl-cert", "ssl-key", "ssl-verify"):
        if name in params and not params[name].strip():
            raise DefinitionError(
                f"{name} of the sink's URI is empty.",
                f"Check the variable or file that it is filled from, or leave {name} out of the URI.",
            )
    for name in ("ssl-cert", "ssl-key", "ssl-verify"):
        if params.get(name) and not params.get("ssl-ca"):
            raise DefinitionError(
                f"{name} is given without ssl-ca, so the server's identity would not be checked.",
                "Name the file with the certificate of the server's CA as ssl-ca.",
            )
    if params.get("ssl-key") and not params.get("ssl-cert"):
        raise DefinitionError(
            "ssl-key is given without ssl-cert.", "Name the client certificate that the key belongs to as ssl-cert."
        )
    if params.get("ssl-verify", "identity") not in ("identity", "ca"):
        raise DefinitionError(
            f"ssl-verify={params['ssl-verify']} is neither identity nor ca.",
            "identity (the default) checks the certificate's signature and host name, ca the signature only.",
        )


def _positive(uri: Uri, name: str, default: int) -> int:
    text = uri.params.get(name, str(default))
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise DefinitionError(f"{name}={text} is not a number from 1 on.")
    return int(text)


def _seconds(params: Mapping[str, str], name: str, default: str) -> int:
    """TiCDC writes durations in Go's format: ``90s``, ``2m``."""
    text = params.get(name, default)
    found = re.fullmatch(r"([0-9]{1,9})(s|m)?", text)
    if found is None or int(found[1]) == 0:
        raise DefinitionError(f"{name}={text} is not a duration.", "Write it in seconds or minutes: 10s, 2m.")
    return int(found[1]) * (60 if found[2] == "m" else 1)


def _local_infile(text: str) -> bool:
    if text not in ("auto", "off"):
        raise DefinitionError(f"local-infile={text} is neither auto nor off.")
    return text == "auto"


def _ledger_database(text: str) -> str:
    if not _DATABASE_NAME.fullmatch(text):
        raise DefinitionError(f"ledger-database={text} is not the name of a database (letters, digits, _, $ and -).")
    if text.casefold() in SYSTEM_DATABASES:
        raise DefinitionError(
            f"ledger-database={text} is a database of the server's own.", "Name a database that does not exist yet."
        )
    return text
