"""Rights of an account beyond those that Headrace needs: what each of them allows, and the statement that revokes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import pymysql

from headrace.sinks.mysql.grants import ALL, EVERYWHERE, PROXY, Asking, Grant, Grants, Role, escaped, literal_name, read_grants
from headrace.sinks.mysql.text import quote_name

NEEDED = ("SELECT", "INSERT", "DELETE", "CREATE", "DROP", "ALTER", "INDEX")
"""The rights that the account needs on every replicated database."""
ON_LEDGER = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "CREATE VIEW", "SHOW VIEW")
"""The rights that the documentation grants on the ledger's database."""
ON_DATABASES = (*ON_LEDGER[:8], "REFERENCES", "CREATE VIEW", "SHOW VIEW", "TRIGGER")
"""The rights that the documentation grants on every replicated database. UPDATE, which allows nothing beyond INSERT and DELETE, is
for statements that a person gives."""
TO_SEE_ALL = ("EVENT", "EXECUTE")
"""Optional rights there, with which a DROP DATABASE can see whether anything is left."""
PLACEHOLDER = "DATABASE"
"""The placeholder for each replicated database in statements for people to run."""
_OF_DATABASES = frozenset(ON_DATABASES + TO_SEE_ALL)
_SYSTEM = ("mysql", "sys", "performance_schema")
_POWERS = frozenset({"SUPER", "FILE", "CREATE USER", "SHUTDOWN", "RELOAD", "PROCESS"})
"""An account with all of these is unrestricted, however many rights the server lists."""

_CHANGE_VARIABLES = "change settings of the server for all connections"
_DEFINE = "make views and routines that run with the rights of any other account"
_ON_READ_ONLY = "write to a server that is read-only, a replica among them"
_END_CONNECTIONS = "end the connections of other accounts"
_BINLOG = "delete binary logs and keep changes out of them"
_READ_BINLOG = "read every change of the whole server from its binary log"
_REPLICATE = "stop replication, or let the server replicate from another one"
_SEE_REPLICATION = "see the state of replication and the names of binary logs"
_ROLES = "give, take and drop roles, with all rights that they hold"
_FLUSH = "flush logs, tables and counters, which slows the server down"
_HIDDEN = "see and change what the server hides from administrators"
_GIVES: Mapping[str, str] = {
    "FILE": "read and write files on the server's machine, where the server may",
    "SUPER": "change any setting, end any connection and write to a read-only server",
    "PROCESS": "see the statements of all connections, with the values in them",
    "RELOAD": "load changed accounts and flush logs and tables, which can stop all writing",
    "SHUTDOWN": "stop the server",
    "CREATE USER": "change the password of any account, the administrator's too, and so become it",
    "CREATE ROLE": _ROLES,
    "DROP ROLE": _ROLES,
    "ROLE_ADMIN": _ROLES,
    "SHOW DATABASES": "see the names of all databases",
    "CREATE TABLESPACE": "make and drop files of tablespaces",
    "CREATE ROUTINE": "store routines, which stay and run with its rights when others call them",
    "ALTER ROUTINE": "change and drop the routines of others",
    "SHOW CREATE ROUTINE": "read the text of all routines",
    "SHOW_ROUTINE": "read the text of all routines",
    "LOCK TABLES": "lock everybody else out of tables",
    "CREATE TEMPORARY TABLES": "fill the server's space for temporary tables",
    "DELETE HISTORY": "delete the history of tables with system versions",
    "REPLICATION SLAVE": _READ_BINLOG,
    "REPLICATION CLIENT": _SEE_REPLICATION,
    "BINLOG MONITOR": _SEE_REPLICATION,
    "SLAVE MONITOR": _SEE_REPLICATION,
    "REPLICA MONITOR": _SEE_REPLICATION,
    "BINLOG ADMIN": _BINLOG,
    "BINLOG_ADMIN": _BINLOG,
    "BINLOG_ENCRYPTION_ADMIN": _BINLOG,
    "BINLOG REPLAY": "apply changes in the name of other accounts and times",
    "REPLICATION_APPLIER": "apply changes in the name of other accounts and times",
    "REPLICATION SLAVE ADMIN": _REPLICATE,
    "REPLICATION MASTER ADMIN": _REPLICATE,
    "REPLICATION_SLAVE_ADMIN": _REPLICATE,
    "GROUP_REPLICATION_ADMIN": _REPLICATE,
    "CONNECTION ADMIN": _END_CONNECTIONS,
    "CONNECTION_ADMIN": _END_CONNECTIONS,
    "READ_ONLY ADMIN": _ON_READ_ONLY,
    "RESTRICTED_REPLICA_WRITER_ADMIN": _ON_READ_ONLY,
    "SET USER": _DEFINE,
    "SET_USER_ID": _DEFINE,
    "SET_ANY_DEFINER": _DEFINE,
    "ALLOW_NONEXISTENT_DEFINER": _DEFINE,
    "FEDERATED ADMIN": "make the server connect to other servers",
    "SYSTEM_VARIABLES_ADMIN": _CHANGE_VARIABLES,
    "PERSIST_RO_VARIABLES_ADMIN": _CHANGE_VARIABLES,
    "CONFIG": _CHANGE_VARIABLES,
    "SESSION_VARIABLES_ADMIN": "change settings of its connections that are kept from others, such as whether changes are logged",
    "SYSTEM_USER": "change accounts that ordinary administrators may not change",
    "APPLICATION_PASSWORD_ADMIN": "keep a second password for accounts",
    "PASSWORDLESS_USER_ADMIN": "make accounts without a password",
    "AUTHENTICATION_POLICY_ADMIN": "change how accounts prove who they are",
    "BACKUP_ADMIN": "stop all schema changes, or on TiDB copy the whole cluster",
    "RESTORE_ADMIN": "overwrite the whole cluster from a backup",
    "CLONE_ADMIN": "replace all data of the server by those of another one",
    "ENCRYPTION_KEY_ADMIN": "change the keys that data are encrypted with",
    "TABLE_ENCRYPTION_ADMIN": "leave tables unencrypted",
    "INNODB_REDO_LOG_ENABLE": "switch the redo log off, so that a crash loses all data",
    "INNODB_REDO_LOG_ARCHIVE": "copy the redo log, which holds all changes",
    "XA_RECOVER_ADMIN": "see the prepared transactions of others",
    "AUDIT_ADMIN": "switch the audit log off",
    "AUDIT_ABORT_EXEMPT": "do what an audit rule forbids",
    "FIREWALL_EXEMPT": "do what a firewall rule forbids",
    "SENSITIVE_VARIABLES_OBSERVER": "read settings that hold secrets",
    "FLUSH_TABLES": _FLUSH,
    "FLUSH_STATUS": _FLUSH,
    "FLUSH_OPTIMIZER_COSTS": _FLUSH,
    "FLUSH_USER_RESOURCES": _FLUSH,
    "RESTRICTED_TABLES_ADMIN": _HIDDEN,
    "RESTRICTED_STATUS_ADMIN": _HIDDEN,
    "RESTRICTED_VARIABLES_ADMIN": _HIDDEN,
    "RESTRICTED_USER_ADMIN": _HIDDEN,
    "RESTRICTED_CONNECTION_ADMIN": _END_CONNECTIONS,
    "PLACEMENT_ADMIN": "move tables to other machines of the cluster",
    "RESOURCE_GROUP_ADMIN": "take processor time from others",
    "RESOURCE_GROUP_USER": "take processor time from others",
    "DASHBOARD_CLIENT": "see the statements of the whole cluster in TiDB Dashboard",
}
"""What a right allows, by its name in MariaDB, MySQL or TiDB; completes the sentence: it can …"""
_UNKNOWN = "administer the server in a way that Headrace never does"


@dataclass(frozen=True)
class Excess:
    """A right that is not needed: a sentence about what it allows, and the statements that revoke it."""

    sentence: str
    mend: str


@dataclass(frozen=True)
class Account:
    """The account whose rights are checked, quoted for GRANT. ``ledger`` is the name of the ledger's database."""

    name: str
    ledger: str
    is_mariadb: bool = False

    def to_grant(self, pattern: str = "") -> str:
        """The documented grants: on the databases of a pattern, or on the ledger's database and each replicated one."""
        rights = [right for right in ON_DATABASES if not (self.is_mariadb and right == "REFERENCES")]
        if pattern:
            return f"GRANT {', '.join(rights)} ON {quote_name(pattern)}.* TO {self.name};"
        return (
            f"{self.to_grant_on_ledger()} and for each replicated database "
            f"GRANT {', '.join(rights)} ON {quote_name(PLACEHOLDER)}.* TO {self.name};"
        )

    def to_grant_on_ledger(self) -> str:
        """The documented grant on the ledger's database."""
        return f"GRANT {', '.join(ON_LEDGER)} ON {quote_name(escaped(self.ledger))}.* TO {self.name};"


def roles_grants(session: Asking, roles: Collection[Role], direct: Grants) -> dict[str, Grants | None]:
    """The rights that each role adds to the account's own; ``None`` if the server does not show them.

    Changes the session's active role, so the session must not be used for anything else afterwards.
    """
    found: dict[str, Grants | None] = {}
    own = set(direct.lines)
    for role in roles:
        try:
            session.execute(f"SET ROLE {role.name}")
            held = read_grants(str(row[0]) for row in session.execute("SHOW GRANTS"))
        except pymysql.err.MySQLError:
            found[role.name] = None
        else:
            found[role.name] = replace(direct, lines=tuple(line for line in held.lines if line not in own), roles=())
    return found


def excess(
    account: Account, direct: Grants, of_roles: Mapping[str, Grants | None], databases: Collection[str] = ()
) -> Iterator[Excess]:
    """All rights that the account has and Headrace does not need. ``databases`` are the target's databases that it sees."""
    yield from _of_grants(account, direct, databases)
    for role in direct.roles:
        take = f"REVOKE {role.name} FROM {account.name};"
        instead = f"{account.to_grant()} then {take}"
        if role.may_be_passed_on:
            sentence = f"the role {role.name} WITH ADMIN OPTION: it can give the role to any other account."
            yield Excess(sentence, f"{take} GRANT {role.name} TO {account.name};")
        grants = of_roles.get(role.name)
        if grants is None:
            sentence = f"the role {role.name}: the server does not tell what it gives."
            yield Excess(sentence, instead)
            continue
        for found in _of_grants(account, grants, databases):
            yield Excess(f"through the role {role.name} {found.sentence}", instead)


def _of_grants(account: Account, grants: Grants, databases: Collection[str]) -> Iterator[Excess]:
    for grantee in sorted({line.grantee for line in grants.lines}):
        lines = tuple(line for line in grants.lines if line.grantee == grantee)
        own = replace(grants, lines=lines)
        yield from _everywhere(account, own, grantee)
        # MySQL 8 lists the rights on one object in two lines.
        for place in dict.fromkeys(line.place for line in lines if line.may_be_passed_on and PROXY not in line.rights):
            sentence = f"GRANT OPTION on {place}: it can give its rights there to any other account."
            yield Excess(sentence, f"REVOKE GRANT OPTION ON {place} FROM {grantee};")
        for line in (line for line in lines if not line.takes):
            if line.pattern is not None:
                yield from _on_databases(account, own, line, line.pattern, databases)
            elif line.place != EVERYWHERE:
                yield from _on_single_things(line)


def _everywhere(account: Account, grants: Grants, grantee: str) -> Iterator[Excess]:
    rights = grants.everywhere
    if ALL in rights or rights >= _POWERS:
        yield Excess(
            "ALL PRIVILEGES on *.*: it is an administrator, who can do everything on this server.",
            f"{account.to_grant()} then REVOKE ALL PRIVILEGES ON *.* FROM {grantee};",
        )
        return
    for right in sorted(rights - _OF_DATABASES):
        sentence = f"{right} on *.*: it can {_GIVES.get(right, _UNKNOWN)}."
        yield Excess(sentence, f"REVOKE {right} ON *.* FROM {grantee};")
    on_all = [right for right in ON_DATABASES + TO_SEE_ALL if right in rights]
    if set(on_all) & grants.on("mysql", _OF_DATABASES):
        yield Excess(
            f"{', '.join(on_all)} on *.*: this includes the database mysql, where the accounts are kept, so it can take any right; "
            "only a changefeed whose source creates databases of any name needs it.",
            f"{account.to_grant()} then REVOKE {', '.join(on_all)} ON *.* FROM {grantee};",
        )


def _on_databases(account: Account, grants: Grants, line: Grant, pattern: str, databases: Collection[str]) -> Iterator[Excess]:
    covered = [name for name in _SYSTEM if grants.may_count(line, name)]
    take = f"REVOKE ALL PRIVILEGES ON {line.place} FROM {line.grantee};"
    if covered:
        sentence = f"{', '.join(sorted(line.rights))} on {line.place}: {_of_system(covered, line.rights)}."
        yield Excess(sentence, f"{account.to_grant()} then {take}" if grants.has_wildcards(pattern) else take)
    elif grants.has_wildcards(pattern, "_"):
        sentence = f"rights on {line.place}: _ stands for any character, so databases of other names are included."
        instead = " ".join(map(account.to_grant, _instead_of(account, grants, pattern, databases)))
        also = f"the same on each other database of the source that {line.place} covers, then {take}"
        yield Excess(sentence, f"{instead} {also}")
    if ALL in line.rights:
        rights = account.to_grant(pattern) if literal_name(pattern) != account.ledger else account.to_grant()
        sentence = f"ALL PRIVILEGES on {line.place}: it can also store routines and events, run those of others, and lock tables."
        yield Excess(sentence, f"{take} {rights}")
    for right in sorted(line.rights - _OF_DATABASES - {ALL}):
        sentence = f"{right} on {line.place}: it can {_GIVES.get(right, _UNKNOWN)}."
        yield Excess(sentence, f"REVOKE {right} ON {line.place} FROM {line.grantee};")


def _instead_of(account: Account, grants: Grants, pattern: str, databases: Collection[str]) -> list[str]:
    """The patterns to grant on before a grant on a pattern with ``_`` is revoked, so that no database loses its rights.

    That is the pattern with each ``_`` escaped, if that matches any database, and each database that it does not match.
    """
    whole = pattern.replace("\\_", "_").replace("_", "\\_")
    held = sorted(name for name in databases if grants.matches(pattern, name) and name != account.ledger)
    others = [name for name in held if not grants.matches(whole, name)]
    keeps_whole = len(others) < len(held) or not others or grants.has_wildcards(pattern, "%")
    return [*([whole] if keeps_whole else []), *map(escaped, others)]


def _of_system(covered: Collection[str], rights: frozenset[str]) -> str:
    """What rights on the server's own databases allow."""
    if "mysql" not in covered:
        return f"this includes {' and '.join(covered)}, where the server shows what others do"
    power = "read the hashes of all passwords" if rights <= {"SELECT", "SHOW VIEW", *TO_SEE_ALL} else "take any right"
    return f"this includes the database mysql, where the accounts are kept, so it can {power}"


def _on_single_things(line: Grant) -> Iterator[Excess]:
    take = f"REVOKE {', '.join(sorted(line.rights))} ON {line.place} FROM {line.grantee};"
    if PROXY in line.rights:
        yield Excess(f"PROXY on {line.place}: it can act as that account.", take)
    elif "EXECUTE" in line.rights:
        yield Excess(f"EXECUTE on {line.place}: it can run that with the rights of who made it.", take)
    elif line.place.lower().startswith("`mysql`."):
        yield Excess(f"{', '.join(sorted(line.rights))} on {line.place}: the server keeps its own data there.", take)
