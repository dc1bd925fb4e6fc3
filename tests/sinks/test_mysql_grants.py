"""Reading SHOW GRANTS as MariaDB, MySQL and TiDB spell it, and what is told of rights that a server here does not have."""

from __future__ import annotations

import pytest

from headrace.sinks.mysql.excess import NEEDED, Account, excess
from headrace.sinks.mysql.grants import ALL, Grant, Grants, Role, read_grants

ACCOUNT = Account("`repl`@`%`", "headrace")

# Of a MySQL 8.4 in which root has everything: two lines, and no comma is followed by a space in the second.
MYSQL_ROOT = [
    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, RELOAD, SHUTDOWN, PROCESS, FILE, REFERENCES, INDEX, ALTER, SHOW DATABASES,"
    " SUPER, CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, REPLICATION SLAVE, REPLICATION CLIENT, CREATE VIEW, SHOW VIEW, CREATE"
    " ROUTINE, ALTER ROUTINE, CREATE USER, EVENT, TRIGGER, CREATE TABLESPACE, CREATE ROLE, DROP ROLE ON *.* TO `repl`@`%`"
    " WITH GRANT OPTION",
    "GRANT ALLOW_NONEXISTENT_DEFINER,APPLICATION_PASSWORD_ADMIN,AUDIT_ABORT_EXEMPT,AUDIT_ADMIN,SET_ANY_DEFINER,SYSTEM_USER,"
    "SYSTEM_VARIABLES_ADMIN,XA_RECOVER_ADMIN ON *.* TO `repl`@`%` WITH GRANT OPTION",
]


def told(*lines: str, literal: bool = False) -> list[tuple[str, str]]:
    """What is told of an account with these lines, and how it is mended."""
    return [(found.sentence, found.mend) for found in excess(ACCOUNT, read_grants(lines, literal=literal), {})]


@pytest.mark.parametrize(
    ("line", "grant"),
    [
        (
            "GRANT USAGE ON *.* TO `repl`@`%` IDENTIFIED BY PASSWORD '*6C8989366EAF75BB670AD8EA7A7FC1176A95CEF4'",
            Grant(frozenset(), "*.*", "`repl`@`%`"),
        ),
        (
            "GRANT SELECT, INSERT ON `shop`.* TO 'repl'@'10.0.0.%' REQUIRE SSL WITH GRANT OPTION MAX_QUERIES_PER_HOUR 9",
            Grant(frozenset({"SELECT", "INSERT"}), "`shop`.*", "'repl'@'10.0.0.%'", may_be_passed_on=True),
        ),
        ("GRANT ALL PRIVILEGES ON *.* TO 'root'@'%'", Grant(frozenset({ALL}), "*.*", "'root'@'%'")),
        ("GRANT SELECT ON `a`` ON ``b`.* TO `repl`@`%`", Grant(frozenset({"SELECT"}), "`a`` ON ``b`.*", "`repl`@`%`")),
        ("GRANT CREATE VIEW ON `shop`.* TO PUBLIC", Grant(frozenset({"CREATE VIEW"}), "`shop`.*", "PUBLIC")),
        (
            "GRANT SELECT (`id`, `a)b`), INSERT, UPDATE (`id`) ON `shop`.`t` TO `repl`@`%`",
            Grant(frozenset({"INSERT"}), "`shop`.`t`", "`repl`@`%`"),
        ),
        (
            "GRANT EXECUTE ON PACKAGE BODY `s`.`p` TO `repl`@`%`",
            Grant(frozenset({"EXECUTE"}), "PACKAGE BODY `s`.`p`", "`repl`@`%`"),
        ),
        ("GRANT SELECT,INSERT ON `shop`.* TO 'a'@'%'", Grant(frozenset({"SELECT", "INSERT"}), "`shop`.*", "'a'@'%'")),
        ("GRANT SELECT(id),DELETE ON `shop`.`t` TO 'a'@'%'", Grant(frozenset({"DELETE"}), "`shop`.`t`", "'a'@'%'")),
        ("GRANT PROXY ON ``@`` TO `root`@`localhost`", Grant(frozenset({"PROXY"}), "``@``", "`root`@`localhost`")),
        ("REVOKE INSERT ON `mysql`.* FROM `repl`@`%`", Grant(frozenset({"INSERT"}), "`mysql`.*", "`repl`@`%`", takes=True)),
    ],
)
def test_a_line_is_read(line: str, grant: Grant) -> None:
    assert read_grants([line]).lines == (grant,)


def test_roles_are_read() -> None:
    lines = [
        "GRANT `one` TO `repl`@`%` WITH ADMIN OPTION",
        "GRANT `two`@`%`,`three`@`%` TO `repl`@`%`",
        "SET DEFAULT ROLE `one` FOR `repl`@`%`",
        "GRANT 'four'@'%', 'five'@'%' TO 'repl'@'%'",
    ]
    assert read_grants(lines) == Grants(
        (), (Role("`one`", may_be_passed_on=True), Role("`two`@`%`"), Role("`three`@`%`"), Role("'four'@'%'"), Role("'five'@'%'"))
    )


@pytest.mark.parametrize(
    ("pattern", "matched", "other"),
    [
        ("shop", ["shop"], ["shops", "Shop"]),
        ("sh_p%", ["shop", "ship_1"], ["shp"]),
        (r"my\_shop", ["my_shop"], ["myxshop", r"my\_shop"]),
        (r"a\%\\", ["a%\\"], ["ab\\"]),
        ("`.*", ["`.*"], ["``.*", "`.x"]),
    ],
)
def test_names_of_databases_are_patterns(pattern: str, matched: list[str], other: list[str]) -> None:
    assert all(Grants().matches(pattern, name) for name in matched)
    assert not any(Grants().matches(pattern, name) for name in other)


def test_names_are_no_patterns_where_partial_revokes_are_on() -> None:
    grants = read_grants(["GRANT SELECT ON `my_shop`.* TO `repl`@`%`"], literal=True)
    assert grants.on("my_shop", NEEDED) == {"SELECT"}
    assert not grants.on("myxshop", NEEDED)
    assert not told("GRANT SELECT ON `my_shop`.* TO `repl`@`%`", literal=True)


def test_case_does_not_matter_where_the_server_folds_names() -> None:
    lines = ["GRANT SELECT ON `sh%`.* TO `repl`@`%`"]
    assert read_grants(lines, folds=True).on("SHOP", NEEDED) == {"SELECT"}
    assert not read_grants(lines).on("SHOP", NEEDED)


def test_of_an_accounts_grants_the_most_specific_one_counts_and_those_of_roles_are_added() -> None:
    lines = ["GRANT SELECT ON `%`.* TO `a`@`%`", "GRANT INSERT ON `sh%`.* TO `a`@`%`", "GRANT DELETE ON `shop`.* TO `a`@`%`"]
    assert read_grants(lines).on("shop", NEEDED) == {"DELETE"}
    assert read_grants(lines).on("ship", NEEDED) == {"INSERT"}
    assert read_grants(lines).on("other", NEEDED) == {"SELECT"}
    assert read_grants([*lines, "GRANT DROP ON `shop`.* TO `role`"]).on("shop", NEEDED) == {"DELETE", "DROP"}


def test_on_tidb_only_what_all_patterns_that_match_give_is_sure() -> None:
    lines = [
        "GRANT INSERT,DROP ON `shop`.* TO 'a'@'%'",
        "GRANT SELECT,DROP ON `sh%`.* TO 'a'@'%'",
        "GRANT DELETE ON `shop`.* TO 'role'@'%'",
    ]
    assert read_grants(lines, any_may_count=True).on("shop", NEEDED) == {"DROP", "DELETE"}


def test_all_rights_on_one_pattern_and_some_on_another_have_those_in_common() -> None:
    lines = ["GRANT ALL PRIVILEGES ON `shop`.* TO 'a'@'%'", "GRANT SELECT ON `sh%`.* TO 'a'@'%'"]
    assert read_grants(lines, any_may_count=True).on("shop", NEEDED) == {"SELECT"}


def test_a_partial_revoke_takes_a_database_out_of_what_is_granted_everywhere() -> None:
    lines = ["GRANT SELECT, INSERT ON *.* TO `repl`@`%`", "REVOKE INSERT ON `mysql`.* FROM `repl`@`%`"]
    assert read_grants(lines).on("mysql", NEEDED) == {"SELECT"}
    assert read_grants(lines).on("shop", NEEDED) == {"SELECT", "INSERT"}
    assert told(*lines, literal=True)
    assert not told(lines[0], "REVOKE SELECT, INSERT ON `mysql`.* FROM `repl`@`%`", literal=True)


@pytest.mark.parametrize(
    ("right", "power"),
    [
        ("SYSTEM_VARIABLES_ADMIN", "change settings of the server for all connections"),
        ("SET_USER_ID", "make views and routines that run with the rights of any other account"),
        ("SET_ANY_DEFINER", "make views and routines that run with the rights of any other account"),
        ("ROLE_ADMIN", "give, take and drop roles, with all rights that they hold"),
        ("BACKUP_ADMIN", "stop all schema changes, or on TiDB copy the whole cluster"),
        ("RESTRICTED_TABLES_ADMIN", "see and change what the server hides from administrators"),
        ("CONFIG", "change settings of the server for all connections"),
        ("A_RIGHT_OF_NEXT_YEAR", "administer the server in a way that Headrace never does"),
    ],
)
def test_each_right_of_mysql_and_tidb_is_told_in_a_sentence_with_the_statement_that_takes_it_back(right: str, power: str) -> None:
    found = told(f"GRANT {right} ON *.* TO `repl`@`%`")
    assert found == [(f"{right} on *.*: it can {power}.", f"REVOKE {right} ON *.* FROM `repl`@`%`;")]


def test_an_administrator_is_told_in_one_sentence_however_its_rights_are_listed() -> None:
    sentences = [sentence for sentence, _ in told(*MYSQL_ROOT)]
    assert sentences == [
        "ALL PRIVILEGES on *.*: it is an administrator, who can do everything on this server.",
        "GRANT OPTION on *.*: it can give its rights there to any other account.",
    ]


def test_an_account_that_may_act_as_another_one_is_told() -> None:
    assert told("GRANT PROXY ON `dba`@`%` TO `repl`@`%`") == [
        ("PROXY on `dba`@`%`: it can act as that account.", "REVOKE PROXY ON `dba`@`%` FROM `repl`@`%`;")
    ]


def test_nothing_is_told_of_the_hash_of_a_password() -> None:
    line = "GRANT FILE ON *.* TO `repl`@`%` IDENTIFIED BY PASSWORD '*6C8989366EAF75BB670AD8EA7A7FC1176A95CEF4'"
    assert "6C89" not in repr(told(line))


def test_a_role_whose_rights_the_server_does_not_tell_is_told() -> None:
    (found,) = excess(ACCOUNT, read_grants(["GRANT `dba`@`%` TO `repl`@`%`"]), {"`dba`@`%`": None})
    assert found.sentence == "the role `dba`@`%`: the server does not tell what it gives."
    assert found.mend.endswith("then REVOKE `dba`@`%` FROM `repl`@`%`;")
