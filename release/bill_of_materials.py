"""Writes ``headrace.cdx.json``: the packages of requirements.txt as a CycloneDX bill of materials.

``make lock`` runs it as ``python release/bill_of_materials.py``. The file goes into the wheel and the sdist (PEP 770). It names
what Headrace was tested with; pyproject.toml says what else it accepts. The same lock gives the same bytes: there is no time in
it, and the serial number follows from the content.
"""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from headrace import __version__

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.txt"
BILL = ROOT / "headrace.cdx.json"
_PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^ +# (?:via|  ) ?(.*)$", re.MULTILINE)
_NAMESPACE = uuid.UUID("6f0c7d5e-6d7b-5d43-9a39-9f6a7a1a35b1")


@dataclass(frozen=True)
class Locked:
    """One package of the lock: its files' SHA-256 in hex, and who needs it, as pip-compile noted that."""

    name: str
    version: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]


def read_lock(text: str) -> Iterator[Locked]:
    """The packages of a lock with hashes, in its order. Raises ValueError for one without a hash."""
    found = list(_PINNED.finditer(text))
    for match, following in zip(found, [*found[1:], None], strict=True):
        block = text[match.end() : following.start() if following else len(text)]
        hashes = tuple(_HASH.findall(block))
        if not hashes:
            raise ValueError(f"{match[1]} has no hash in the lock: run make lock")
        yield Locked(match[1], match[2], hashes, tuple(name for name in _VIA.findall(block) if name))


def bill_of_materials(lock: str) -> str:
    """The bill of a lock's text as JSON."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, f"{__version__}\n{lock}"))
    headrace = _component(ComponentType.APPLICATION, "headrace", __version__)
    headrace.description = project["description"]
    bom.metadata.component = headrace
    locked = list(read_lock(lock))
    components = {package.name: _component(ComponentType.LIBRARY, package.name, package.version) for package in locked}
    for package in locked:
        component = components[package.name]
        component.hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in package.hashes]
        bom.components.add(component)
    for package in locked:
        for name in package.needed_by:
            # Others than packages are the files that name Headrace's own requirements.
            parent = components.get(name, headrace)
            if not name.startswith("-c "):
                bom.register_dependency(parent, [components[package.name]])
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["metadata"]["timestamp"]  # a build on another day shall give the same bytes
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _component(kind: ComponentType, name: str, version: str) -> Component:
    return Component(type=kind, name=name, version=version, bom_ref=name, purl=PackageURL("pypi", name=name, version=version))


if __name__ == "__main__":
    BILL.write_text(bill_of_materials(LOCK.read_text()))
