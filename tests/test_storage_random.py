"""Random changefeeds go through the storage sink, whose runs die anywhere, and a pipeline follows what it writes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import differential
from faulty_runs import OPTIONS, SmallHistory, comes_to_an_end
from following import Recorder
from harness import assert_state
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_OK
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.sinks.storage.publication import PUBLISH
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed, Fault, Moment, Passage, armed
from headrace.testing.memory_server import Server
from quick import without_pauses
from sampling import drawn
from simulated_target import SimulatedTarget
from storage_target import read_again

pytestmark = pytest.mark.pipeline

ACTIONS = (
    *["rows"] * 6,
    *["alter"] * 3,
    *("swap_rows", "create", "drop", "truncate", "recreate", "rename", "swap", "rename_many", "like"),
    *("recreate_database", "recreate_database", "deliver", "restart", "time", "half"),
)
OUTPUTS = (
    "protocol=csv&date-separator=none",
    "protocol=csv&output-old-value=true&output-field-header=true",
    "protocol=canal-json&date-separator=month",
    "protocol=csv&file-size=1024&quote=",
)
ROUNDS = 5


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


class Changes:
    """A random changefeed, the storage that it is written to, and the data files that were seen there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._chance = Random(seed)
        self.folder = folder
        protocol = self._chance.choice(("csv", "canal-json"))
        self.history = SmallHistory(
            folder, OPTIONS if protocol == "csv" else replace(OPTIONS, protocol="canal-json", enable_tidb_extension=True)
        )
        self.output = self._chance.choice(OUTPUTS)
        self.root = folder / "changes"
        self.server = Server()
        self.seen: dict[Path, bytes] = {}

    @property
    def uri(self) -> str:
        return f"{self.root.as_uri()}?{self.output}"

    def goes_on(self) -> None:
        """The upstream does something, and publishes a checkpoint."""
        for _ in range(self._chance.randint(1, 6)):
            self.history.take(differential.Step(self._chance.choice(ACTIONS), self._chance.randrange(1 << 20)))
        self.history.take(differential.Step("promise", self._chance.randrange(1 << 20)))

    def run(self, *faults: Fault) -> object:
        """A run to the watermark, in cuts of any size."""
        options = RunOptions(once=True, max_cut=self._chance.choice((0, 0, 1, 400)))
        definition = Definition(source=self.history.uri, sink=self.uri, changefeed=str(self.history.toml), options=options)
        run = PipelineRun(definition, Recorder(), LocalEngine())  # type: ignore[arg-type]
        run._source = self.history.opened()
        with armed(comes_to_an_end(), *faults):
            run._work()
        return run._result

    def dies(self) -> None:
        """A run dies, most often while it publishes. It may be followed by another that dies."""
        publishes, number = self._chance.random() < 0.6, self._chance.randint(1, 12)
        left = iter(range(number))

        def die(passage: Passage) -> None:
            is_place = passage.step == PUBLISH if publishes else passage.moment is Moment.AFTER
            if is_place and next(left, None) is None:
                raise Crashed(str(passage))

        found = self.run(die)
        assert found == EXIT_OK or isinstance(found, Crashed), found
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Asserts that data files are as they were when they were first seen."""
        for path in self.root.rglob("CDC*.*"):
            if path.suffix != ".index":
                assert path.read_bytes() == self.seen.setdefault(path, path.read_bytes()), path
        assert all(path.exists() for path in self.seen)

    def check(self) -> None:
        """A run that nothing disturbs, and then the reader has what the upstream had at the checkpoint."""
        assert self.run() == EXIT_OK
        self.require_unchanged()
        _, told = read_again(self.uri, self.folder, self.server)
        assert not told.stopped, [problem.sentence() for problem in told.stopped]
        assert_state(SimulatedTarget(self.server.contents), self.history.state())


@pytest.mark.parametrize("seed", range(drawn(80)))
def test_a_reader_has_what_the_upstream_had_whatever_died_between_them(seed: int, tmp_path: Path) -> None:
    changes, chance = Changes(tmp_path, seed), Random(f"deaths of {seed}")
    for _ in range(ROUNDS):
        changes.goes_on()
        for _ in range(chance.randint(0, 2)):
            changes.dies()
            if chance.random() < 0.5:
                changes.goes_on()
        if chance.random() < 0.7:
            changes.check()
    changes.history.finish()
    changes.check()
    shutil.rmtree(tmp_path)
