"""Each promise of the pages for users leads to its tests in ``docs/evidence.md``, and these tests exist."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from evidence import DATA, PAGE, ROOT, Promise, anchor, heading, links, page, promises, title

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FOR_CONTRIBUTORS = {
    ROOT / "CONTRIBUTING.md",
    PAGE,
    *(ROOT / "docs" / f"{name}.md" for name in ("architecture", "performance", "sink-component", "types-and-ddl")),
}
FOR_USERS = [path for path in PAGES if path not in FOR_CONTRIBUTORS and path.parent.name != "decisions"]

_TEST = re.compile(r"\b(tests/[\w/]+\.py)((?:::\w+)*)")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def shown() -> list[Promise]:
    return promises()


def test_the_page_says_what_the_data_says(shown: list[Promise]) -> None:
    text = page(shown)
    if os.environ.get("HEADRACE_WRITE_DOCS"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "The page differs from tests/evidence.yaml: run make docs"


def test_each_id_is_one_anchor(shown: list[Promise]) -> None:
    others = {anchor(text) for promise in shown for text in (title(ROOT / promise.page), promise.section)}
    assert not [promise.id for promise in shown if promise.id in others or anchor(heading(promise.id)) != promise.id]
    assert not [id_ for id_, times in Counter(promise.id for promise in shown).items() if times > 1]


def test_each_promise_is_a_sentence_with_tests(shown: list[Promise]) -> None:
    assert not [p.id for p in shown if not p.promise.endswith(".") or not p.tests or len(set(p.tests)) < len(p.tests)]


def test_each_section_links_to_the_tests_of_its_promises(shown: list[Promise]) -> None:
    linked = {(name(path), section, id_) for path in PAGES for section, id_ in links(path)}
    assert linked == {(promise.page, promise.section, promise.id) for promise in shown}


@pytest.mark.parametrize("path", [*PAGES, DATA], ids=name)
def test_tests_that_are_named_exist(path: Path) -> None:
    named = _TEST.findall(path.read_text(encoding="utf-8"))
    assert not [file + names for file, names in named if not exists(ROOT / file, names.split("::")[1:])]


def exists(file: Path, names: list[str]) -> bool:
    """Whether the file has the classes and the test that are named, which may be none."""
    text = file.read_text(encoding="utf-8") if file.exists() else None
    return text is not None and all(f"def {name}(" in text or re.search(rf"^class {name}\b", text, re.MULTILINE) for name in names)


@pytest.mark.parametrize("path", FOR_USERS, ids=name)
def test_pages_for_users_name_no_test(path: Path) -> None:
    assert not re.findall(r"\btests/[\w/]+\.py\S*|\btest_\w+", path.read_text(encoding="utf-8"))
