"""The sources pass through the public suite, as those of other authors would."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.registry import open_source
from headrace.testing.memory_source import MemorySource, MemoryStream
from headrace.testing.source_suite import SourceSuite, SourceUnderTest
from upstreams import Changefeed

pytestmark = pytest.mark.pipeline


class TestStream(SourceSuite):
    @pytest.fixture
    def source(self) -> SourceUnderTest:
        stream = MemoryStream(3)
        return SourceUnderTest(lambda: MemorySource(stream).event_source, stream)


class TestStorage(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SourceUnderTest:
        changefeed = Changefeed(tmp_path / "changefeed")
        options = {"changefeed": str(changefeed.toml)}
        return SourceUnderTest(lambda: open_source(changefeed.uri, options).event_source, changefeed.writer)
