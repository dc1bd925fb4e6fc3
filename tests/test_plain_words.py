"""Sentences that had to be read twice do not come back: in messages, help and docs (the pages are wrapped, so lines are joined)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "src").rglob("*.py"))
DROPPED = (
    "for what no bucket tells",
    "no list of processes",
    "is nothing that can be done",
    "Nobody is here",
    "no matter of single",
    "a run that goes on takes it up",
    "seconds of silence nowhere",
    "Is the folder sound",
    "was not looked into",
    "is no YAML",
    "tells the world",
    "its beginning will do",
    "Where it has to end",
    "offer no look",
    "what options say wins",
    "it is known what is given up",
    "comes to be with the first",
    "is to be held already",
    "stopped before it or is held",
    "what it waits behind",
    "There are some of:",
    "nothing was asked for",
    "it alone is forgotten",
    "nothing must change before",
    "none for a record of no known",
    "and stands elsewhere",
    "and nothing tells which row it means",
    "so nothing tells which of them",
    "it was decided to {decision.verdict}",
    "the source tells something else there",
    "there though they were deleted",
    "lie as dead letters in",
    "nobody needs it any more",
    "Mend its rows by hand",
    "still bad are",
    "which says where they lie",
    "went back to the time of another run",
    "they count from here on",
    "What had the name",
    "Let it come to that first",
    "what it tells is not in the target",
    "whether that one is meant its schema files tell",
    "it did not come to the end of its answer",
    "and take back what did",
    "what became of it cannot be seen",
    "take from nobody",
    "does not vouch for",
    "no event tells what came of it",
    "what is to be sent in place of its statement",
    "has the keys of later",
    "keys that are two there",
    "which is taken again",
    "nothing would prove who",
    "holds nobody up",
    "so one that is applied twice could not be told",
    "would leave a part of itself",
    "reader of the standard output has gone",
    "put folders of theirs",
    "in which order the values of each",
    "rows that it has otherwise now",
    "read once more, they would be applied once more",
    "which nothing in the folder tells",
    "metadata promises",
    "is followed only inside",
    "is the place of a member",
    "what brings the files here",
    "was ever promised",
    "which is another one on each",
    "made of one another",
    "what the view is made of",
    "begins no schema change",
    "cannot be taken apart",
    "as they are escaped, look like",
    "nothing tells whether it did",
    "nor the histories of keys tell",
)


@cache
def _texts() -> dict[str, str]:
    """What pages and modules say, in lower case: the name of each with its words."""
    return {
        path.relative_to(ROOT).as_posix(): re.sub(r'"\s*f?"', "", re.sub(r"\s+", " ", path.read_text())).lower()
        for path in (*PAGES, *MODULES)
    }


@pytest.mark.parametrize("words", DROPPED)
def test_words_that_were_dropped_stand_nowhere(words: str) -> None:
    assert not [name for name, text in _texts().items() if words.lower() in text]
