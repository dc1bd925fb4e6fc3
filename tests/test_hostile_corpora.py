"""The corpora of hostile and of benign statements are what the tests that use them take them for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import yaml

from headrace.transform.filters import TableFilter
from hostile import FILTER, FOLDER, KNOWN, Ends, Statement, benign_statements, hostile_statements

CORPORA = pytest.mark.parametrize("corpus", [hostile_statements(), benign_statements()], ids=["hostile", "benign"])


def test_the_corpora_are_large_enough_to_mean_something() -> None:
    assert len(hostile_statements()) >= 350
    assert len(benign_statements()) >= 150


@CORPORA
def test_every_idea_is_tried_more_than_once(corpus: Sequence[Statement]) -> None:
    sizes = Counter(entry.group for entry in corpus)
    assert all(size >= 5 for size in sizes.values()), sizes


@CORPORA
def test_no_two_entries_are_the_same_statement_or_have_one_name(corpus: Sequence[Statement]) -> None:
    assert [found for found, times in Counter((entry.sql, entry.own) for entry in corpus).items() if times > 1] == []
    assert [found for found, times in Counter(entry.name for entry in corpus).items() if times > 1] == []


def test_no_statement_is_both() -> None:
    assert {(entry.sql, entry.own) for entry in hostile_statements()}.isdisjoint(
        (entry.sql, entry.own) for entry in benign_statements()
    )


@pytest.mark.long
def test_every_member_of_an_entry_is_known() -> None:
    entries = [
        entry
        for path in FOLDER.glob("*.yaml")
        for part in yaml.safe_load(path.read_text(encoding="utf-8"))
        for entry in part["statements"]
    ]
    assert {key for entry in entries for key in entry} == {"idea", "sql", "own", "ends", "never"}
    assert all(isinstance(value, str) for entry in entries for value in entry.values())


def test_what_is_cleaned_away_stands_in_the_statement() -> None:
    for entry in hostile_statements():
        said = " ".join(entry.sql.lower().split())
        assert (entry.ends is Ends.CLEANED) == bool(entry.never), entry.name
        assert entry.never.lower() in said, entry.name
        assert entry.is_cleaned(entry.sql) == (entry.ends is Ends.EITHER), entry.name


def test_the_filter_takes_what_the_corpus_says_it_takes() -> None:
    takes = TableFilter.parse(FILTER).includes
    assert all(takes(table_id) for table_id in KNOWN)
    assert all(takes(entry.own) for entry in hostile_statements())
