"""How a cut becomes visible: what it publishes is written down first, and then done, so that a run that dies is completed.

1. Tasks write staged files, which no reader of the layout sees.
2. The driver writes the publication below the cut's folder: each step with all of its content and names.
3. The ledger's step names the publication. With it the cut is committed.
4. The steps are done, in order: data files and schema files of one round after the other, the indexes, and at last ``metadata``.

A run that dies before 3 leaves files that are removed. One that dies later is completed by the next run before it does anything
else: each step has its content in the publication and may be done again. So a data file never has two contents, numbers have no
gaps, and a cut that is taken again with another end has published nothing before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from headrace import faults
from headrace.errors import SinkUnreachableError
from headrace.faults import OwnStep
from headrace.formats.storage_paths import METADATA
from headrace.sinks.storage.target_store import OWN, TargetStore

_Item = TypeVar("_Item")
PUBLISH = OwnStep("storage", "publish a file")
_AT_ONCE = 16
_NAME, _DONE = "publication.json", "published"
CUTS = f"{OWN}/cuts"
"""The folder of staged files and publications."""


@dataclass(frozen=True)
class Publication:
    """What a committed cut writes to its final place, in this order."""

    folder: str
    """The folder of the cut. It stays until the next cut is published, to show that this one is."""
    rounds: Sequence[Round] = ()
    texts: dict[str, str] = field(default_factory=dict)
    """Index files and notes, by path."""
    checkpoint: int = 0
    """The checkpoint (TSO) for ``metadata``; 0 leaves it as it is."""

    def to_text(self) -> str:
        rounds = [{"texts": one.texts, "files": one.files} for one in self.rounds]
        return json.dumps({"rounds": rounds, "texts": self.texts, "checkpoint": str(self.checkpoint)}, ensure_ascii=False)

    @classmethod
    def of_text(cls, folder: str, text: str) -> Publication:
        """Raises ValueError for a text that is not whole."""
        told = json.loads(text)
        return cls(folder, [Round(**one) for one in told["rounds"]], told["texts"], int(told["checkpoint"]))

    def write(self, store: TargetStore) -> None:
        """Writes the publication into the cut's folder. Raises SinkUnreachableError."""
        store.put(f"{self.folder}/{_NAME}", self.to_text().encode())

    @classmethod
    def read(cls, store: TargetStore, folder: str) -> Publication:
        """The publication of a committed cut. Raises SinkUnreachableError, also if it is gone or not whole."""
        raw = store.read(f"{folder}/{_NAME}")
        try:
            return cls.of_text(folder, (raw or b"").decode())
        except (ValueError, KeyError, TypeError):
            raise SinkUnreachableError(
                f"{folder}/{_NAME} in {store.name} {'cannot be read' if raw else 'is gone'}: the last cut cannot be published.",
                "Restore it. Otherwise write to another folder, with a new pipeline.",
            ) from None

    @staticmethod
    def is_completed(store: TargetStore, folder: str) -> bool:
        """Whether the publication of a committed cut is complete. Raises SinkUnreachableError."""
        return store.read(f"{folder}/{_DONE}") is not None

    def complete(self, store: TargetStore, still_ours: Callable[[], None]) -> None:
        """Does all steps; those that were done before have no effect. Raises SinkUnreachableError.

        ``still_ours`` raises FencedError if another run has taken over. Index files and ``metadata`` are written over, so it is
        called right before them.
        """
        for one in self.rounds:
            _each(one.texts.items(), lambda text: _published(text[0], lambda: store.put(text[0], text[1].encode())))
            _each(one.files.items(), lambda file: _published(file[1], lambda: store.publish(*file)))
        still_ours()
        _each(self.texts.items(), lambda text: _published(text[0], lambda: store.put(text[0], text[1].encode())))
        if self.checkpoint:
            still_ours()
            _published(METADATA, lambda: store.put(METADATA, f'{{"checkpoint-ts":{self.checkpoint}}}'.encode()))
        still_ours()
        store.put(f"{self.folder}/{_DONE}", b"")
        remove_others(store, self.folder, still_ours)


def remove_others(store: TargetStore, folder: str, still_ours: Callable[[], None]) -> None:
    """Removes the folders of all cuts but one. Raises FencedError, SinkUnreachableError.

    A run that takes over does so before it makes a folder. So what was listed before this run is found to be the owner is of this
    run, or of earlier ones.
    """
    found = [f"{CUTS}/{name}" for name in store.folders(CUTS)]
    still_ours()
    for other in found:
        if other != folder:
            store.remove(other)


@dataclass(frozen=True)
class Round:
    """What one round publishes: schema files, and then the data files behind them."""

    texts: dict[str, str] = field(default_factory=dict)
    """Schema files, by path."""
    files: dict[str, str] = field(default_factory=dict)
    """Data files: the staged path, and the final one."""


def _published(key: str, act: Callable[[], None]) -> None:
    faults.before(PUBLISH, key)
    act()
    faults.after(PUBLISH, key)


def _each(items: Iterable[_Item], act: Callable[[_Item], None]) -> None:
    """Does the same for all items, several at once."""
    waiting = list(items)
    if len(waiting) <= 1:
        for item in waiting:
            act(item)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(act, waiting):
            pass
