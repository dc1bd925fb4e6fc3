"""Which tests show what the pages for users promise: ``evidence.yaml``, and the page ``docs/evidence.md`` that is made of it.

Each promise has an id. The section that makes the promise links to the id's heading in ``docs/evidence.md``, and the text there
leads back. ``test_evidence.py`` holds data, page and links against each other, or writes the page (``make docs``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "evidence.yaml"
PAGE = ROOT / "docs" / "evidence.md"

_INTRODUCTION = """# Evidence

This page lists the tests that show what the other pages promise, in the order of these pages. To run one, pass its name to
`pytest`. `make docs` writes this page from `tests/evidence.yaml`; nothing here is written by hand.
"""
_NAMES = ("DuckDB", "Java", "MySQL", "Spark", "TiCDC", "TiDB", "TLS")
"""Words of ids that are not written in lower case."""


@dataclass(frozen=True)
class Promise:
    """What a page promises, and the tests that show it."""

    id: str
    page: str
    """The page's path from the root of the repository."""
    section: str
    """The title of the nearest heading above the promise."""
    promise: str
    tests: tuple[str, ...]
    """As pytest takes them, or the path of a whole module."""
    how: str = ""
    """What the tests do, where their names do not say it."""


def promises() -> list[Promise]:
    """All promises, in the order of the data."""
    return [
        Promise(page=group["page"], section=group["section"], **{**entry, "tests": tuple(entry["tests"])})
        for group in yaml.safe_load(DATA.read_text(encoding="utf-8"))
        for entry in group["entries"]
    ]


def page(shown: list[Promise]) -> str:
    """The text of ``docs/evidence.md`` for these promises."""
    parts = [_INTRODUCTION]
    for source, of_page in groupby(shown, key=lambda promise: promise.page):
        parts.append(f"## {title(ROOT / source)}\n")
        for section, of_section in groupby(of_page, key=lambda promise: promise.section):
            parts += [f"### {section}\n", *map(_entry, of_section)]
    return "\n".join(parts)


def title(path: Path) -> str:
    """The title of a page."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def heading(id_: str) -> str:
    """The heading of an id: its words. The heading's anchor is the id."""
    text = id_[:1].upper() + id_[1:].replace("-", " ")
    for name in _NAMES:
        text = re.sub(rf"\b{name}\b", name, text, flags=re.IGNORECASE)
    return text


def anchor(text: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def links(path: Path) -> Iterator[tuple[str, str]]:
    """The sections of a page that link to evidence, each with the id."""
    section = ""
    fenced = False
    for line in path.read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        if not fenced and re.match(r"#+ ", line):
            section = line.lstrip("#").strip()
        for id_ in re.findall(rf"\({re.escape(_relative(PAGE, path))}#([^)]*)\)", line):
            yield section, id_


def _entry(promise: Promise) -> str:
    back = f"[{promise.section}]({_relative(ROOT / promise.page, PAGE)}#{anchor(promise.section)})"
    lines = [f"#### {heading(promise.id)}", "", promise.promise, f"Promised in {back}.", ""]
    if promise.how:
        lines += [promise.how]
    return "\n".join([*lines, *(f"- `{test}`" for test in promise.tests), ""])


def _relative(target: Path, source: Path) -> str:
    return Path(os.path.relpath(target, source.parent)).as_posix()
