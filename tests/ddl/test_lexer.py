"""Words as TiDB's scanner reads them, and the text that every server reads as the same words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ddl.lexer import Word, quoted_text, rendered, unescaped, words

READ = {
    "a /* b */ c -- d\ne # f\ng": "a c e g",
    "a /*! b */ c /*!50110 d */ /*!9 e */": "a b c d 9 e",
    "a /*T! b */ /*T![ttl,x] c */ /*M! d */ /*M!100100 e */ /*+ f */": "a b c",
    "a /*! b /* c */ d */ e": "a b d e",
    "a '/* b */' `-- c` \"# d\"": "a '/* b */' `-- c` '# d'",
    "a--1": "a- -1",
    "a --1": "a - -1",
    "a/ *b": "a/ *b",
    "NOW () NOW() NOW/**/()": "NOW () NOW() NOW ()",
    r"'it\'s' 'it''s' " '"it""s" "it\'s"': "'it''s' 'it''s' 'it\"s' 'it''s'",
    r"'\n\t\0\Z\%\_\\\x'": "'\\n\t\\0\\Z\\\\%\\\\_\\\\x'",
    "n'a' N'a' _utf8mb4'a' _utf8mb4 'a'": "'a' 'a' _utf8mb4'a' _utf8mb4 'a'",
    "x'4a' X'' 0x4A b'01' 0b01 0xg": "x'4a' X'' 0x4A b'01' 0b01 0xg",
    "1 1.5 .5 1e5 1E+5 1e t.5 t.1e5 5t": "1 1.5 .5 1e5 1E+5 1e t.5 t.1e5 5t",
    "`a``b` . `c`": "`a``b`.`c`",
    "a;;": "a",
    "é.`ü`": "é.`ü`",
}
NOT_READ = ("'a", '"a', "`a", "/* a", "/*! a", "/*T! a", "a */", "'a\\'", "a\x00b", "a\x1bb", "\\N", "{a}", "a\ud800b", "`\x00`")


@pytest.mark.parametrize("text", READ)
def test_words_are_written_down_in_one_way(text: str) -> None:
    found = words(text)
    assert found is not None
    assert rendered(found) == READ[text]
    assert words(rendered(found)) == found


@pytest.mark.parametrize("text", NOT_READ)
def test_a_text_that_no_server_reads_as_a_whole_has_no_words(text: str) -> None:
    assert words(text) is None


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a /*T! , b */ c", "a , b c"),
        ("a /*T![ttl] TTL=`d` + INTERVAL 1 DAY TTL_ENABLE = 'OFF' */", "a TTL=`d` + INTERVAL 1 DAY TTL_ENABLE = 'OFF'"),
        ("a /*T![auto_rand] AUTO_RANDOM(5, 54) */ /*T! SHARD_ROW_ID_BITS=4 */", "a AUTO_RANDOM(5, 54) SHARD_ROW_ID_BITS=4"),
        ("a /*T![placement] PLACEMENT POLICY=eu */ /*T![ttl] REMOVE TTL */", "a PLACEMENT POLICY=eu REMOVE TTL"),
        ("a /*T! TTL_ENABLE='*/ x' */", "a TTL_ENABLE='*/ x'"),
        ("a /*T! TTL=`*/` */", "a TTL=`*/`"),
        ("a /*T! TTL_ENABLE='/*' */", "a TTL_ENABLE='/*'"),
        ("a /*T! GLOBAL, b */", "a GLOBAL, b"),
        ("a /*T! AUTO_RANDOM(5 */ )", "a AUTO_RANDOM(5 )"),
        ("a ( /*T! GLOBAL ) */", "a ( GLOBAL )"),
        ("a /*T! `GLOBAL` */ /*T! 'GLOBAL' */ /*T! AUTO_ID_CACHE 1 FROM b */", "a `GLOBAL` 'GLOBAL' AUTO_ID_CACHE 1 FROM b"),
        ("FROM a./*T! remove */ `b`", "FROM a.remove `b`"),
        ("/*T! affinity */.`b`", "affinity.`b`"),
    ],
)
def test_what_stands_in_comments_of_tidb_is_written_outside_of_them(text: str, written: str) -> None:
    """A server that skips the comment would read another statement, or the end of the comment elsewhere."""
    assert rendered(words(text) or ()) == written


def test_keywords_between_backquotes_and_in_strings_are_none() -> None:
    name, text, keyword = words("`drop` 'drop' drop") or ()
    assert [word.says("DROP") for word in (name, text, keyword)] == [False, False, True]
    assert (name, text, keyword) == (Word("drop", is_name=True), Word("drop", is_literal=True), Word("drop"))


_SIGNS = "a1.,()-+/*@;é'\"`\\ \n\0"
_PARTS = (
    "`b`",
    "``",
    "/*",
    "*/",
    "/*!",
    "/*!50100",
    "/*T![x]",
    "/*T!",
    "/*M!",
    "--",
    "-- ",
    "1e5",
    "0x1f",
    "x'41'",
    "n'a'",
    "''",
    "t.1",
)
_PIECES = st.sampled_from([*_SIGNS, *_PARTS, "#", "_utf8'a'", ":=", "'a''b'", "DROP"])


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_every_text_is_refused_or_written_down_as_the_same_words_without_comments(text: str) -> None:
    found = words(text)
    if found is None:
        return
    written = rendered(found)
    assert words(written) == found
    assert rendered(words(written) or ()) == written
    plain = "".join(" " if word.is_literal or word.is_name else word.written for word in found)
    assert "/*" not in plain
    assert "#" not in plain


@given(st.text())
def test_a_string_keeps_its_value(text: str) -> None:
    assert unescaped(quoted_text(text)) == text
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert words(quoted_text(text)) == (Word(text, is_literal=True),)


@pytest.mark.long
@pytest.mark.parametrize(
    "piece", ["a ", "'a' ", "'a", "''", "\\'", "`a`", "`", "/*", "/**/", "/*! ", "*/", "-- \n", "((", "1.", "0x", ".", "a.", "\\"]
)
def test_reading_takes_time_in_proportion_to_the_text(piece: str) -> None:
    def seconds(count: int) -> float:
        text = piece * count
        return min(_seconds(text + " " * turn) for turn in range(3))

    assert seconds(40_000) < 40 * seconds(4_000) + 0.05


def _seconds(text: str) -> float:
    begun = time.process_time()
    words(text)
    return time.process_time() - begun
