"""The stream and the target of a test under the scheme ``memory``, for commands: registered as anybody registers connectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.pipeline import registry
from headrace.testing.memory_sink import CAPABILITIES, MemorySink
from headrace.testing.memory_source import MemorySource
from streams import World

_served: list[World] = []


def serve(world: World, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """From now on commands find this world as ``memory://``."""
    about = folder / "served-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: served\nVersion: 1\n")
    groups = {"headrace.sources": "open_source", "headrace.sinks": "open_sink"}
    lines = (f"[{group}]\nmemory = served:{function}\n" for group, function in groups.items())
    (about / "entry_points.txt").write_text("".join(lines))
    patch.syspath_prepend(str(folder))
    patch.setattr("served._served", [world])
    registered = {entry.name for entry in registry.entry_points(group="headrace.sources")}
    assert "memory" in registered


def open_source(uri: str, options: Mapping[str, object]) -> MemorySource:
    """The stream."""
    return MemorySource(_served[-1].stream)


def open_sink(uri: str, options: Mapping[str, object]) -> MemorySink:
    """The target."""
    world = _served[-1]
    return MemorySink(world.server, CAPABILITIES[world.capability])
