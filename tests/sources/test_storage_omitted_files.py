"""Which files bounded cuts did without."""

from __future__ import annotations

from typing import Any, cast

from headrace.formats.storage_paths import DataPath
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.omitted_files import LeftOutFiles
from headrace.sources.ticdc_storage.split_selection import Candidate
from headrace.sources.ticdc_storage.stores import StoredFile


class Version:
    table_id = TableId("test", "t")


FILE = StoredFile("test/t/100/CDC000001.csv", 10, 1)
CANDIDATE = cast(Candidate, (FILE, cast(DataPath, object()), cast(Any, Version())))


def test_a_cut_does_not_do_without_what_is_applied_up_to_its_end() -> None:
    """A table without key may be: a cut wrote it, and broke off."""
    left = LeftOutFiles()
    left = left.leaving([CANDIDATE], (), 100, lambda _: 50)
    left = left.leaving([CANDIDATE], (), 120, lambda _: 120)
    assert left.windows == {FILE: Window(50, 100)}
    left = left.leaving([CANDIDATE], (), 130, lambda _: 120)
    assert left.windows == {FILE: Window(50, 130)}
