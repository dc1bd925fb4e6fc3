"""Data files that cannot be read from their first record on, so that nothing but their place tells where their rows lie."""

from __future__ import annotations

from pathlib import Path
from random import Random

_GARBAGE = b'"I","a","d1",no number\r\n'


class DamagedFiles:
    """The CSV files below a folder, and those of them that are damaged now, with what they hold."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._whole: dict[Path, bytes] = {}
        self._seen = set(self._there())

    def _there(self) -> list[Path]:
        return sorted(self._root.rglob("CDC*.csv"))

    def damage(self, chance: Random, most: int) -> list[Path]:
        """Damages some files that have come since the last call, at most so many; returns them."""
        fresh = [path for path in self._there() if path not in self._seen]
        self._seen.update(fresh)
        damaged = chance.sample(fresh, min(len(fresh), chance.randint(1, most)))
        for path in damaged:
            self._whole[path] = path.read_bytes()
            path.write_bytes(_GARBAGE + self._whole[path])
        return damaged

    def repair(self, chance: Random | None = None) -> list[Path]:
        """Repairs them, or with a ``chance`` about half of them; what was written anew meanwhile is left as it is."""
        repaired = [path for path in self._whole if chance is None or chance.random() < 0.5]
        for path in repaired:
            whole = self._whole.pop(path)
            if path.exists() and path.read_bytes() == _GARBAGE + whole:
                path.write_bytes(whole)
        return repaired
