"""Which texts servers hold for equal: the weights that MariaDB and TiDB give every character, as data, and what follows from them.

``python tests/collation_weights.py`` asks a MariaDB of its own, and a TiDB where ``make test-tidb`` has built one, for the weight
(WEIGHT_STRING) of each of the 1,112,064 characters in each collation, and writes :data:`TABLE`, which takes some minutes and is
what ``tests/model/test_collation.py`` reads. With ``letters`` it asks nobody, and writes ``headrace/model/collation_table.py`` from
the table; :data:`CHOSEN` says what no rule does.

A line of the table is ``first[-last] weights``, code points and weights in hexadecimal. Characters that are equal to nothing else
are not there.
"""

from __future__ import annotations

import lzma
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path

import pymysql

from headrace.model import collation, collation_table
from servers import MariaDb, running_mariadb
from tidb_server import PROGRAM, running_tidb

TABLE = Path(__file__).parent / "golden" / "collations.txt.xz"
Weight = tuple[str, ...]
"""What a character counts for: one symbol, none for an ignorable character, several for one that expands."""
Weights = dict[int, Weight]

_OF_MARIADB = (
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb4_uca1400_nopad_ai_ci",
    "gbk_chinese_ci",
)
_OF_TIDB = ("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci", "gbk_chinese_ci")
_BEHIND = "x"  # TiDB leaves trailing spaces out of a weight
_FAILS = frozenset({("tidb", "utf8mb4_0900_ai_ci", 0x2CEA1)})  # that TiDB's own table is one too short for, which ends the query
_ROWS = 10_000


def gather(server: MariaDb) -> Iterator[tuple[str, Weights]]:
    """The weights of all characters in each collation of the server that a source may have, or its equal here."""
    kind = "tidb" if server.is_tidb else "mariadb"
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE weights")
        cursor.execute("CREATE TABLE weights.t (n INT PRIMARY KEY, c VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)")
        codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
        for start in range(0, len(codes), _ROWS):
            rows = ",".join(f"({code},x'{chr(code).encode().hex()}')" for code in codes[start : start + _ROWS])
            cursor.execute(f"INSERT INTO weights.t VALUES {rows}")
            connection.commit()
        for collation in _OF_TIDB if server.is_tidb else _OF_MARIADB:
            yield f"{kind} {collation}", dict(_weights(cursor, kind, collation))


def _weights(cursor: pymysql.cursors.Cursor, kind: str, collation: str) -> Iterator[tuple[int, Weight]]:
    charset = collation.partition("_")[0]
    left_out = [str(code) for of_kind, of, code in _FAILS if (of_kind, of) == (kind, collation)] or ["-1"]
    text = f"CONVERT(CONCAT(c, '{_BEHIND}') USING {charset})"
    cursor.execute(f"SELECT HEX(WEIGHT_STRING(CONVERT('{_BEHIND}' USING {charset}) COLLATE {collation}))")
    ((behind,),) = cursor.fetchall()
    cursor.execute(
        f"SELECT n, HEX(WEIGHT_STRING({text} COLLATE {collation})),"
        f" CONVERT({text} USING utf8mb4) = CONCAT(c, '{_BEHIND}') COLLATE utf8mb4_bin"
        f" FROM weights.t WHERE n NOT IN ({', '.join(left_out)})"
    )
    for code, weight, is_in_charset in cursor.fetchall():
        if is_in_charset and weight:
            yield code, tuple(_symbols(weight.removesuffix(behind), of_gbk=charset == "gbk"))


def _symbols(weight: str, *, of_gbk: bool) -> Iterator[str]:
    """The weights one by one: two bytes, in GBK one for ASCII, and twice two for a character that no table of Unicode's has."""
    at = 0
    while at < len(weight):
        length = 2 if of_gbk and weight[at] < "8" else 8 if not of_gbk and weight.startswith("FB", at) else 4
        yield weight[at : at + length]
        at += length


def telling(weights: Weights) -> Weights:
    """Without the characters that are equal to nothing else."""
    count: dict[str, int] = defaultdict(int)
    for weight in weights.values():
        for symbol in weight:
            count[symbol] += 1
    return {code: weight for code, weight in weights.items() if len(weight) != 1 or count[weight[0]] > 1}


def write(tables: Mapping[str, Weights]) -> None:
    """Writes :data:`TABLE`."""
    lines: list[str] = []
    for name, weights in tables.items():
        lines.append(f"# {name}")
        ordered = sorted(telling(weights).items())
        for (_, weight), run in groupby(enumerate(ordered), lambda item: (item[1][0] - item[0], item[1][1])):
            codes = [code for _, (code, _) in run]
            lines.append(f"{codes[0]:x}{f'-{codes[-1]:x}' if len(codes) > 1 else ''} {' '.join(weight)}".rstrip())
    TABLE.write_bytes(lzma.compress("\n".join(lines).encode() + b"\n", preset=9))


@cache
def read() -> dict[str, Weights]:
    """What :func:`write` wrote, by server and collation."""
    tables: dict[str, Weights] = {}
    weights: Weights = {}
    for line in lzma.decompress(TABLE.read_bytes()).decode().splitlines():
        if line.startswith("#"):
            weights = tables[line[2:]] = {}
            continue
        codes, *weight = line.split(" ")
        first, _, last = codes.partition("-")
        for code in range(int(first, 16), int(last or first, 16) + 1):
            weights[code] = tuple(weight)
    return tables


def weighs_supplementary(collation: str) -> bool:
    """Whether a collation has a weight for each character beyond U+FFFF; for the others they are all one."""
    return any(tables in collation for tables in ("_0900_", "_uca1400_", "_520_"))


@dataclass(frozen=True)
class Contradiction:
    """A character for which a form is finer than a collation: ``folded`` is not ``wanted``, what its weights stand for."""

    code: int
    folded: str
    wanted: str
    weight: Weight

    def __str__(self) -> str:
        return f"U+{self.code:04X} folds to {self.folded!r}, its weights {' '.join(self.weight)} stand for {self.wanted!r}"


def contradictions(weights: Weights, fold: Callable[[str], str]) -> Iterator[Contradiction]:
    """Where ``fold`` is not as coarse as the collation with these weights.

    A collation gives a text the weights of its characters, one after another. So ``fold`` is coarser for all texts if what it makes
    of a character is put together from what each of the character's weights stands for.
    """
    meaning: dict[Weight, str] = {}
    folded = {code: fold(f"x{chr(code)}y")[1:-1] for code in weights}
    for code, weight in sorted(weights.items(), key=lambda item: (len(item[1]), item[0])):
        stands_for, known = "", not weight
        for symbol in weight if len(weight) > 1 else ():
            known = (symbol,) in meaning
            if not known:
                break
            stands_for += meaning[(symbol,)]
        if len(weight) > 1 and known:
            if fold(f"x{stands_for}y") != fold(f"x{folded[code]}y"):
                yield Contradiction(code, folded[code], stands_for, weight)
            continue
        wanted = meaning.setdefault(weight, folded[code] if weight else "")
        if folded[code] != wanted:
            yield Contradiction(code, folded[code], wanted, weight)


CHOSEN = {
    "\u00b7": "",  # nothing behind an l for some, and a sign for others
    "\u0387": "",
    "\u037a": "",  # an iota, as below a letter
    "\u0621": "",  # before the letter for some, behind it for others
    "\u0674": "",
    "\u2eb1": "n",  # as ? is, which this sign's equal is equal to
}
"""Characters of which collations contradict each other."""


def letters() -> dict[str, str]:
    """For each character that no rule of ``fold_text`` brings to the form of its equals, that form."""
    tables, found = read(), dict(CHOSEN)
    for _ in range(8):
        collation._EQUAL = str.maketrans(found)
        lacking: dict[str, str] = {}
        for name, weights in tables.items():
            weighs = weighs_supplementary(name)
            of_planes = {code: weight for code, weight in weights.items() if weighs or code <= 0xFFFF}
            for found_there in contradictions(of_planes, partial(collation.fold_text, weighs_supplementary=weighs)):
                lacking.setdefault(chr(found_there.code), found_there.wanted)
        if not lacking:
            return found
        found |= lacking
    raise AssertionError(f"collations contradict each other: {lacking}")


def write_letters(found: Mapping[str, str]) -> None:
    """Writes the module with the letters."""
    by_form: dict[str, list[str]] = defaultdict(list)
    for other, form in found.items():
        by_form[form].append(other)
    lines = [_HEAD]
    for form, others in sorted(by_form.items()):
        escaped = [f"\\U{ord(other):08x}" if ord(other) > 0xFFFF else f"\\u{ord(other):04x}" for other in sorted(others)]
        chunks = ["".join(escaped[at : at + 14]) for at in range(0, len(escaped), 14)]
        text = f'"{chunks[0]}"' if len(chunks) == 1 else "(\n" + "".join(f'        "{chunk}"\n' for chunk in chunks) + "    )"
        lines.append(f"    {form!a}: {text},\n")
    Path(collation_table.__file__).write_text("".join([*lines, "}\n"]), encoding="utf-8")


_HEAD = '''"""Letters and signs that some collation holds for equal to others though neither case, accents nor Unicode say so.

Written by ``tests/collation_weights.py`` from the weights that MariaDB and TiDB give all characters: for each form those that
become it, and for the empty text those that some collation ignores.
"""

from __future__ import annotations

EQUAL_LETTERS = {
'''


def main() -> None:
    """Writes the table, or the letters, anew."""
    if sys.argv[1:] == ["letters"]:
        write_letters(letters())
        return
    tables: dict[str, Weights] = {}
    with running_mariadb() as mariadb:
        tables.update(gather(mariadb))
    if PROGRAM.exists():
        with running_tidb() as tidb:
            tables.update(gather(tidb))
    write(tables)
    sys.stdout.write(f"{TABLE}: {TABLE.stat().st_size} bytes, {', '.join(tables)}\n")


if __name__ == "__main__":
    main()
