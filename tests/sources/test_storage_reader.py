"""The StorageReader of TiCDC's guide, and the checkpoint it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import NoWatermarkError, SourceNotReadyError, SourceUnreachableError
from headrace.model.tso import MAX_TSO, tso_from_ms
from headrace.model.uri import parse_uri
from headrace.sources.ticdc_storage.checkpoint import read_checkpoint
from headrace.sources.ticdc_storage.reader import StorageReader
from headrace.sources.ticdc_storage.stores import Entries, Store, StoredFile, store_location
from storage_folder import StorageFolder


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    return StorageFolder(tmp_path / "feed")


def store(folder: StorageFolder) -> Store:
    return store_location(parse_uri(folder.uri())).open()


def test_each_file_is_offered_once_as_new(folder: StorageFolder) -> None:
    """The guide's ExposeNewFiles. A run that follows knows it from the position."""
    folder.checkpoint(100)
    folder.schema("t", 90)
    first = folder.data("test/t/90", 1, "I 95 1 a")
    consumer = folder.consumer()
    assert [split.key for split in consumer.cut().splits] == [first]
    folder.checkpoint(200)
    second = folder.data("test/t/90", 2, "I 150 1 a")
    assert [split.key for split in consumer.restarted().poll().splits] == [second]
    assert [split.key for split in consumer.cut().splits] == [second]
    folder.checkpoint(300)
    assert consumer.cut().splits == ()


def test_the_watermark_is_read_before_the_listing_and_rows_above_it_wait(
    folder: StorageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.checkpoint(100)
    folder.schema("t", 90)
    folder.data("test/t/90", 1, "I 95 1 a", "I 150 2 b")
    entries = Store.entries

    def moving(self: Store, path: str = "", recursive: bool = False) -> Entries:
        folder.checkpoint(200)
        return entries(self, path, recursive)

    monkeypatch.setattr(Store, "entries", moving)
    consumer = folder.consumer()
    assert consumer.cut().watermark == 100
    assert consumer.changes == ["95 1 a"]
    assert consumer.cut().watermark == 200
    assert consumer.changes == ["150 2 b"]


def test_a_file_that_vanished_is_forgotten_and_there_when_it_comes_back(folder: StorageFolder) -> None:
    folder.checkpoint(100)
    path = folder.data("test/t/90", 1, "I 95 1 a")
    reader = StorageReader(store(folder))
    assert path in [file.path for file in reader.read_files()]
    (folder.root / path).unlink()
    assert [file.path for file in reader.read_files()] == ["metadata"]
    folder.data("test/t/90", 1, "I 95 1 a")
    assert path in [file.path for file in reader.read_files()]


class CountingStore(Store):
    """Remembers which folders were listed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner._location, inner._filesystem)
        self.listed: list[str] = []

    def entries(self, path: str = "", recursive: bool = False) -> Entries:
        self.listed.append(path)
        return super().entries(path, recursive)


def test_old_versions_are_listed_too(folder: StorageFolder) -> None:
    """TiCDC may go on in a directory that it left long ago."""
    folder.checkpoint(1000)
    data = []
    for version in (100, 200, 300):
        data.append(folder.data(f"test/t/{version}/2024-06-05", 1, "I 350 1 a"))
        folder.write(f"test/old/{version}/schema.json", folder.schema_text("old", version))
        data.append(folder.data(f"test/old/{version}", 1, "I 350 1 a"))
        folder.schema("t", version)
    files = StorageReader(store(folder)).read_files()
    assert [file.path for file in files if "CDC" in file.path] == sorted(data)
    assert sum("schema" in file.path for file in files) == 6


def test_a_checkpoint_that_is_being_written_is_read_again(folder: StorageFolder) -> None:
    folder.write("metadata", "")
    pauses: list[float] = []

    def finish(seconds: float) -> None:
        pauses.append(seconds)
        folder.write("metadata", '{"checkpoint-' if len(pauses) == 1 else '{"checkpoint-ts":470605980485287936}')

    assert read_checkpoint(store(folder), finish) == 470605980485287936
    assert len(pauses) == 2


@pytest.mark.parametrize("content", ["", "[1]", '{"checkpoint-ts":"5"}', '{"checkpoint-ts":-1}', '{"other":5}'])
def test_metadata_that_stays_unreadable_is_never_taken_for_zero(folder: StorageFolder, content: str) -> None:
    folder.write("metadata", content)
    with pytest.raises(SourceNotReadyError, match="holds no checkpoint"):
        read_checkpoint(store(folder), lambda seconds: None)


def test_a_checkpoint_of_the_future_is_none(folder: StorageFolder) -> None:
    now = 1_764_000_000.0
    minute = tso_from_ms(60_000)
    folder.checkpoint(tso_from_ms(int(now * 1000)) + 9 * minute)
    assert read_checkpoint(store(folder), clock=lambda: now) == tso_from_ms(int(now * 1000)) + 9 * minute
    for far in (tso_from_ms(int(now * 1000)) + 11 * minute, 10**18, MAX_TSO):
        folder.checkpoint(far)
        with pytest.raises(SourceNotReadyError, match=f"{far}.*minutes ahead of this machine's clock .2025-11-24 16:00:00"):
            read_checkpoint(store(folder), clock=lambda: now)


def test_what_is_missing_is_told_apart(folder: StorageFolder, tmp_path: Path) -> None:
    with pytest.raises(SourceNotReadyError, match="is empty"):
        read_checkpoint(store(folder))
    folder.write("holiday/photo.jpg", "x")
    with pytest.raises(SourceNotReadyError, match="does not look like the output of a changefeed"):
        read_checkpoint(store(folder))
    folder.data("test/t/100", 1, "I 110 1 a")
    with pytest.raises(SourceNotReadyError, match="has no file metadata yet"):
        read_checkpoint(store(folder))
    with pytest.raises(SourceNotReadyError, match="There is no folder"):
        read_checkpoint(store_location(parse_uri(f"file://{tmp_path}/nowhere")).open())


def test_the_folder_above_a_changefeeds_is_told_apart(folder: StorageFolder) -> None:
    folder.write("feed/metadata", '{"checkpoint-ts":5}')
    folder.data("feed/test/t/100", 1, "I 110 1 a")
    with pytest.raises(SourceNotReadyError, match="has no file metadata, but its folder feed has one") as caught:
        read_checkpoint(store(folder))
    assert not isinstance(caught.value, NoWatermarkError)
    assert caught.value.hint.endswith(f"{folder.root}/feed.")


def test_files_of_a_listing_know_their_name() -> None:
    assert StoredFile("a/b/c.csv", 1, 2).name == "c.csv"


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises((SourceUnreachableError, SourceNotReadyError), match=r"Cannot read|There is no folder"):
        read_checkpoint(store_location(parse_uri(f"file://{tmp_path}/file")).open())
