"""A sample of the tests leaves out variants of costly tests only, never all of one, and always the same."""

from __future__ import annotations

from dataclasses import dataclass

from sampling import SHARE, left_out


@dataclass(frozen=True)
class Item:
    """What a sample looks at of a collected test."""

    nodeid: str
    markers: tuple[str, ...] = ("pipeline",)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None


def taken(items: list[Item]) -> list[str]:
    out = left_out(items)  # type: ignore[arg-type]
    return [item.nodeid for item in items if item not in out]


def test_a_quarter_of_the_variants_is_taken_whatever_their_order() -> None:
    items = [Item(f"tests/test_a.py::test_history[{number}]") for number in range(10 * SHARE)]
    assert len(taken(items)) == 10
    assert sorted(taken(items)) == sorted(taken(items[::-1]))


def test_of_each_test_one_variant_is_taken_at_least() -> None:
    items = [
        Item(f"tests/test_a.py::test_{name}[{number}]", (mark,))
        for name in "ab"
        for mark in ("server", "spark", "long")
        for number in "12"
    ]
    assert {nodeid.partition("[")[0] for nodeid in taken(items)} == {"tests/test_a.py::test_a", "tests/test_a.py::test_b"}


def test_what_is_cheap_and_what_has_no_variants_is_taken() -> None:
    items = [Item(f"tests/ddl/test_a.py::test_text[{number}]", ()) for number in range(9)]
    items += [Item("tests/test_a.py::test_history"), Item("tests/test_a.py::test_faults")]
    assert taken(items) == [item.nodeid for item in items]


def test_what_writes_a_page_is_whole() -> None:
    items = [Item(f"tests/support/test_ddl.py::test_target[{number}]", ("server",)) for number in range(9)]
    assert taken(items) == [item.nodeid for item in items]
