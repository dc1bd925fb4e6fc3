"""Features that only TiDB has: left out for servers that lack them, with notices that name them."""

from __future__ import annotations

import re
from itertools import pairwise

from headrace.ddl.lexer import Cursor, words
from headrace.sinks.mysql.adaptation.draft import Draft, UnadaptableError, closing

_PLAIN_NOT = re.compile(r"\)[^()]*?\s(?P<special>GLOBAL\b|WHERE\b.*)", re.IGNORECASE | re.DOTALL)
_UNIQUE = re.compile(r"(?:\bCONSTRAINT\s+(?:(?!UNIQUE\b)\S+\s+)?)?\bUNIQUE\b(?:\s+(?:INDEX|KEY)\b)?", re.IGNORECASE)
_INDEX = re.compile(r"\s*(?:ADD\s+|CREATE\s+)?(?:CONSTRAINT\s+(?:\S+\s+)?)?(?:UNIQUE\s+)?(?:INDEX|KEY|UNIQUE)\b", re.IGNORECASE)
_VALUE = r"\s*=?\s*(?:DEFAULT\b|[\w.]+)"
_LEFT_OUT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bAUTO_RANDOM\b(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?",
        rf"\b(?:(?:FORCE\s+)?AUTO_RANDOM_BASE|SHARD_ROW_ID_BITS|PRE_SPLIT_REGIONS|AUTO_ID_CACHE|AFFINITY){_VALUE}",
        rf"\bPLACEMENT\s+POLICY(?:\s+SET\s+DEFAULT\b|{_VALUE})",
        r"\bTTL\s*=\s*\S+\s*\+\s*INTERVAL\s+\S+\s+\w+",
        r"\b(?:TTL_ENABLE|TTL_JOB_INTERVAL)\s*=?\s*\.+",
        rf"\b(?:STATS_BUCKETS|STATS_TOPN|STATS_COL_CHOICE|STATS_COL_LIST|STATS_SAMPLE_RATE|SECONDARY_ENGINE){_VALUE}",
        r"\bATTRIBUTES\s*=?\s*(?:\.+|DEFAULT\b)",
        r"\bSET\s+(?:HYPO\s+)?TIFLASH\s+REPLICA\s+\d+(?:\s+LOCATION\s+LABELS\s+[.,\s]+)?",
        r"\bWITH\s+PARSER\s+(?:STANDARD|MULTILINGUAL)\b",
    )
)
_SILENT = re.compile(r"\b(?:NONCLUSTERED|CLUSTERED|FORCE(?=\s+AUTO_INCREMENT\b))", re.IGNORECASE)
_CLAUSES = re.compile(
    r"\s*(?:(?:NO)?CACHE\s*$|REMOVE\s+TTL\b|COMPACT\b|(?:ADD|DROP)\s+STATS_EXTENDED\b"
    r"|(?:ADD\s+|CREATE\s+)?(?:VECTOR|COLUMNAR|HYBRID)\s+(?:INDEX|KEY)\b)",
    re.IGNORECASE,
)
_ENGINE = re.compile(r"\b(?:STORAGE\s+)?ENGINE\s*=\s*(?!INNODB\b)(?:\w+|\.+)", re.IGNORECASE)
_HINT = re.compile(r"\s*(?:LOCK|ALGORITHM)\s*=?\s*\w+\s*;?\s*", re.IGNORECASE)
_CHECK = re.compile(r"(?:\bCONSTRAINT\s+(?:(?!CHECK\b)\S+\s+)?)?\bCHECK\s*(?=\()", re.IGNORECASE)
_ENFORCED = re.compile(r"\s*(?:NOT\s+)?ENFORCED\b", re.IGNORECASE)
_CHECK_CLAUSE = re.compile(r"\s*(?:ALTER|DROP)\s+(?:CHECK|CONSTRAINT)\b", re.IGNORECASE)
_ENCRYPTION = re.compile(r"\b(?:DEFAULT\s+)?ENCRYPTION\s*=?\s*\.+", re.IGNORECASE)
_SEQUENCE = re.compile(
    r"\b(?P<altered>SET\s+)?DEFAULT\s*(?P<opened>\(\s*)?(?:NEXT\s+VALUE\s+FOR\b\s*[\w.]+"
    r"|NEXTVAL\s*\(\s*[\w.]+\s*\))(?(opened)\s*\))",
    re.IGNORECASE,
)
_IGNORE = re.compile(r"(?P<head>\s*ALTER\s+)IGNORE(?=\s+TABLE\b)", re.IGNORECASE)
_NOT_LOGGED = re.compile(
    r"(?P<head>\b(?:ADD|COALESCE|REORGANIZE)\s+PARTITION\s+(?:IF\s+NOT\s+EXISTS\s+)?)(?:NO_WRITE_TO_BINLOG|LOCAL)\b", re.IGNORECASE
)
_INDEX_STATEMENT = re.compile(r"\s*(?:CREATE|DROP)\s+(?:\w+\s+)?INDEX\b", re.IGNORECASE)
_WAY_OF_INDEX = re.compile(
    r"\b(?:LOCK\s*=?\s*(?:DEFAULT|NONE|SHARED|EXCLUSIVE)|ALGORITHM\s*=?\s*(?:DEFAULT|INSTANT|INPLACE|NOCOPY|COPY))\b", re.IGNORECASE
)
_FUNCTION_OF_TIDB = re.compile(
    r"TIDB_\w+|VITESS_HASH|SM3|VEC_\w+|APPROX_\w+|JSON_SUM_CRC32|JSON_MEMBEROF|FORMAT_NANO_TIME|UUID_V\d|UUID_VERSION|UUID_TIMESTAMP|TRANSLATE",
    re.IGNORECASE,
)
_PRIMARY = re.compile(r"\bPRIMARY\s+KEY\b", re.IGNORECASE)


def make_views_own(draft: Draft) -> None:
    """Gives a view the user as which Headrace connects, in place of its user in the source."""
    head = Cursor(words(draft.text) or ())
    head.accept("CREATE")
    head.accept("OR", "REPLACE")
    if head.accept("ALGORITHM", "="):
        head.next()
    start = head.peek().start
    if not head.accept("DEFINER", "=") or head.peek().says("CURRENT_USER"):
        return
    head.next()  # any word may be a name here, such as VIEW
    while head.accept("@"):
        head.next()
    end = head.last.end
    draft.tell("{clause} became the user that Headrace connects as.", draft.text[start:end])
    draft.edit([(start, end, "DEFINER = CURRENT_USER")])


def refuse_functions_of_tidb(statement: str, server: str) -> None:
    """Raises UnadaptableError for functions that only TiDB has: a stored function of that name would be called instead."""
    found = words(statement) or ()
    called = (word for word, behind in pairwise(found) if behind.says("(") and not word.is_name and not word.is_literal)
    name = next((word.text for word in called if _FUNCTION_OF_TIDB.fullmatch(word.text)), "")
    if name:
        raise UnadaptableError(
            f"{server} has no function {name}.", "Make the view by hand without it, and skip the change; or edit it."
        )


def leave_out_of_others(draft: Draft) -> None:
    """Removes what is not meant for any target: encryption, sequences, which are not replicated, and words that TiDB ignores.

    TiDB parses ``ALTER IGNORE TABLE`` and ``ADD PARTITION NO_WRITE_TO_BINLOG``, and executes them without these words (the grammar
    of its parser). MariaDB would delete rows and change values, or keep the change from its own replicas.
    """
    if ignore := _IGNORE.match(draft.masked):
        draft.tell("IGNORE was left out: TiDB takes no notice of it, and the target could delete rows.")
        draft.edit([(ignore.end("head"), ignore.end(), "")])
    draft.replace(_NOT_LOGGED, r"\g<head>", "{clause} is written to the target's binlog: TiDB takes no notice of the last word.")
    draft.replace(_ENCRYPTION, "", "")
    draft.replace(
        _SEQUENCE,
        lambda found: "DROP DEFAULT" if found["altered"] else "",
        "{clause} was left out: rows come with their values, and the sequence is not replicated.",
    )


def leave_out(draft: Draft, server: str) -> None:
    """Removes what neither MySQL nor MariaDB has. ``server`` is its name, for people."""
    unknown = f"{{clause}} was left out, which {server} does not know."
    for pattern in _LEFT_OUT:
        draft.replace(pattern, "", unknown)
    draft.replace(_SILENT, "", "")
    draft.drop_clauses(lambda _, masked: bool(_CLAUSES.match(masked)), unknown)
    draft.drop_clauses(lambda _, masked: bool(_HINT.fullmatch(masked)), f"{{clause}} was left out: {server} chooses its own way.")
    if _INDEX_STATEMENT.match(draft.masked):
        draft.replace(_WAY_OF_INDEX, "", f"{{clause}} was left out: {server} chooses its own way.")
    draft.replace(_ENGINE, "", "{clause} was left out: TiDB takes no notice of it, and Headrace needs transactions.")
    _leave_out_checks(draft)
    _make_plain_indexes(draft, server)
    draft.tidy()


def _leave_out_checks(draft: Draft) -> None:
    """The source has checked the rows, or was configured not to. If the target checked them again, it could only refuse them."""
    notice = "{clause} was left out: rows are checked where they are written, at the source."
    masked, checks, at = draft.masked, [], 0
    while (found := _CHECK.search(masked, at)) is not None:
        at = closing(masked, found.end())
        enforced = _ENFORCED.match(masked, at)
        at = enforced.end() if enforced else at
        draft.tell(notice, draft.text[found.start() : at])
        checks.append((found.start(), at, ""))
    draft.edit(checks)
    draft.drop_clauses(lambda _, masked: bool(_CHECK_CLAUSE.match(masked)), notice)


def _make_plain_indexes(draft: Draft, server: str) -> None:
    """Global and partial indexes become ordinary ones on the same columns. What they keep unique is unique at the source."""
    edits = []
    has_primary = bool(_PRIMARY.search(draft.masked))
    for start, end in reversed(draft.clauses()):
        clause, masked = draft.text[start:end], draft.masked[start:end]
        special = _PLAIN_NOT.search(masked) if _INDEX.match(masked) else None
        if special is None:
            continue
        unique = _UNIQUE.search(masked, 0, special.start("special"))
        if unique is not None and draft.is_create_table and not has_primary:
            raise UnadaptableError(
                f"{server} knows no such index, which is the only key of the table: {' '.join(clause.split())}.",
                "Create the table by hand with the key that it is to have; it is then taken as it is.",
            )
        draft.tell(f"{{clause}} became a plain index, as {server} knows no other.", clause)
        edits.append((start + special.start("special"), start + special.end("special"), ""))
        if unique is not None:
            edits.append((start + unique.start(), start + unique.end(), "INDEX"))
    draft.edit(edits)
