"""Names of tables: as keys no two share one, and a person can say which is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.ledger import JournalEntry, JournalState
from headrace.model.table import TableId

NAMES = st.text(st.sampled_from("a.`1/:") | st.characters(codec="utf-8"), min_size=1, max_size=6)
TABLE_IDS = st.builds(TableId, NAMES, st.just("") | NAMES)


def split_at_a_dot(name: str) -> list[TableId]:
    """All that have these signs for a name."""
    parts = (TableId(name[:place], name[place + 1 :]) for place, sign in enumerate(name) if sign == ".")
    return [TableId(name), *(part for part in parts if part.database and part.table)]


@given(TABLE_IDS, TABLE_IDS)
def test_no_two_tables_have_one_key(one: TableId, other: TableId) -> None:
    assert (one.key == other.key) == (one == other)
    assert (one.quoted == other.quoted) == (one == other)
    alike = [*split_at_a_dot(str(one)), *split_at_a_dot(one.key)]
    assert len({table_id.key for table_id in alike}) == len(set(alike))


@given(TABLE_IDS)
def test_a_key_tells_its_table(table_id: TableId) -> None:
    assert TableId.of_key(table_id.key) == table_id
    assert len(table_id.key) <= len(str(table_id)) + 4


@pytest.mark.parametrize("table_id", [TableId("shop"), TableId("shop", "a"), TableId("数据", "a/b c:1")])
def test_names_without_dots_are_their_own_keys(table_id: TableId) -> None:
    """They lie in journals of all versions."""
    assert table_id.key == str(table_id)


@pytest.mark.parametrize("table_id", [TableId("a", "b.c"), TableId("a.b", "c"), TableId("a", "`b`"), TableId("a", "b")])
def test_a_journal_entry_of_an_older_version_has_the_place_of_its_table(table_id: TableId) -> None:
    for name in (str(table_id), table_id.key):
        entry = JournalEntry(f"200/{name}/digest", 200, (TableId("a"), table_id), "", JournalState.DONE)
        assert entry.place == f"200/{table_id.key}"


def test_a_person_names_a_table_with_quotes_or_without() -> None:
    assert [TableId("a", "b.`c").is_named(name) for name in ("a.b.`c", "`a`.`b.``c`", "`a.b`.```c`")] == [True, True, False]
