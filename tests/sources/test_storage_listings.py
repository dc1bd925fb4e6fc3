"""Listings that cannot be true: a folder that looks empty, a page that is missing, a key that is listed twice.

The store is moto behind a proxy that answers some listings as a login page or a broken gateway would.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from faulty_proxy import Fault, FaultyProxy, Kind, Request, faulty_proxy
from headrace.errors import NoWatermarkError, SourceUnreachableError
from headrace.model.uri import parse_uri
from headrace.sources.ticdc_storage.reader import StorageReader
from headrace.sources.ticdc_storage.stores import Entries, Store, store_location
from servers import S3Server
from storage_folder import StorageFolder

MEANINGLESS = (Fault.EMPTY, Fault.NO_CONTENT, Fault.HTML, Fault.NOT_FOUND)
DATA = "CDC00000000000000000001.json"
FILES = ["metadata", *(f"shop/{table}/100/{DATA}" for table in ("a", "b"))]


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with faulty_proxy(s3.endpoint) as proxy:
        yield proxy


class Bucket:
    """A changefeed's folder in a bucket, read through the proxy."""

    def __init__(self, s3: S3Server, proxy: FaultyProxy) -> None:
        self._client, self._name, self._proxy = s3.client(), s3.make_bucket(), proxy
        uri = replace(s3, endpoint=proxy.endpoint).uri(self._name, "cdc")
        self.reader = StorageReader(store_location(parse_uri(uri)).open())

    def put(self, *paths: str) -> None:
        def put(path: str) -> None:
            body = b'{"checkpoint-ts":500}' if path == "metadata" else b""
            self._client.put_object(Bucket=self._name, Key=f"cdc/{path}", Body=body)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(put, paths))

    def remove(self, path: str) -> None:
        self._client.delete_object(Bucket=self._name, Key=f"cdc/{path}")

    def files(self) -> list[str]:
        self.reader.checkpoint()
        return [file.path for file in self.reader.read_files()]

    def listings(self, read: Callable[[], object]) -> list[str]:
        """The folders that are listed meanwhile."""
        seen: list[str] = []

        def note(request: Request) -> None:
            if request.kind is Kind.LIST:
                seen.append(request.prefix)

        self._proxy.fault = note
        read()
        return sorted(seen)


@pytest.fixture
def bucket(s3: S3Server, proxy: FaultyProxy) -> Bucket:
    bucket = Bucket(s3, proxy)
    bucket.put(*FILES)
    return bucket


def answers(proxy: FaultyProxy, fault: Fault, prefix: str, times: int, *, continued: bool = False) -> None:
    """The next listings of a folder get this answer."""
    left = [fault] * times

    def choose(request: Request) -> Fault | None:
        wanted = request.kind is Kind.LIST and request.prefix == prefix and request.is_continued is continued
        return left.pop() if wanted and left else None

    proxy.fault = choose


@pytest.mark.server
@pytest.mark.parametrize("prefix", ["cdc/", "cdc/shop/", "cdc/shop/a/"])
@pytest.mark.parametrize("fault", MEANINGLESS)
def test_a_folder_that_is_listed_without_content_once_is_listed_again(
    fault: Fault, prefix: str, bucket: Bucket, proxy: FaultyProxy
) -> None:
    answers(proxy, fault, prefix, times=1)
    assert bucket.files() == FILES
    assert proxy.met[fault, Kind.LIST] == 1


@pytest.mark.server
@pytest.mark.parametrize("prefix", ["cdc/", "cdc/shop/", "cdc/shop/b/"])
def test_a_folder_that_cannot_be_empty_makes_the_source_unreachable(prefix: str, bucket: Bucket, proxy: FaultyProxy) -> None:
    bucket.reader.checkpoint()
    answers(proxy, Fault.HTML, prefix, times=100)
    with pytest.raises(SourceUnreachableError, match=r"Cannot read .*: its listing "):
        bucket.reader.read_files()
    proxy.fault = lambda _: None
    assert bucket.files() == FILES


@pytest.mark.server
def test_tables_whose_listings_all_stay_without_content_while_their_database_does_too(bucket: Bucket, proxy: FaultyProxy) -> None:
    """A gateway that begins to answer for the store while the folder is listed."""
    bucket.reader.checkpoint()
    tables = {"cdc/shop/a/", "cdc/shop/b/"}
    seen: set[str] = set()

    def choose(request: Request) -> Fault | None:
        seen.add(request.prefix)
        return Fault.NOT_FOUND if request.kind is Kind.LIST and seen & tables else None

    proxy.fault = choose
    with pytest.raises(SourceUnreachableError, match=r"Cannot read shop in s3://.*its listing is empty, and was not a moment ago"):
        bucket.reader.read_files()


@pytest.mark.server
def test_a_table_whose_files_expire_while_it_is_listed_is_gone(bucket: Bucket, proxy: FaultyProxy) -> None:
    def expire(request: Request) -> None:
        if request.prefix == "cdc/shop/a/":
            bucket.remove(FILES[1])

    proxy.fault = expire
    assert bucket.files() == [FILES[0], FILES[2]]


@pytest.mark.server
def test_an_empty_object_in_place_of_a_folder_does_not_hold_up_the_others(bucket: Bucket) -> None:
    bucket.put("archive/", "shop/old/")
    assert bucket.files() == FILES
    bucket.put("archive/new/100/CDC00000000000000000001.json")
    assert len(bucket.files()) == 4
    bucket.remove("archive/new/100/CDC00000000000000000001.json")
    assert bucket.files() == FILES


@pytest.mark.server
def test_every_folder_is_listed_once_if_nothing_is_wrong(bucket: Bucket) -> None:
    bucket.reader.checkpoint()
    assert bucket.listings(bucket.reader.read_files) == ["cdc/", "cdc/shop/", "cdc/shop/a/", "cdc/shop/b/"]


@pytest.mark.server
@pytest.mark.parametrize("marker", [(), ("shop/a/",)], ids=["", "with an object in place of the folder"])
def test_a_second_page_that_is_answered_without_content_is_asked_for_again(
    marker: tuple[str, ...], bucket: Bucket, proxy: FaultyProxy
) -> None:
    files = [f"shop/a/100/CDC{number:020}.json" for number in range(1, 1004)]
    bucket.put(*files, *marker)
    for fault in (Fault.EMPTY, Fault.HTML):
        answers(proxy, fault, "cdc/shop/a/", times=1, continued=True)
        assert len(bucket.files()) == 1005
        assert proxy.met[fault, Kind.LIST] == 1
    for path in files[-3:]:  # now the pages end where the files do
        bucket.remove(path)
    assert len(bucket.files()) == 1002
    proxy.fault = lambda _: None
    assert bucket.listings(bucket.reader.read_files).count("cdc/shop/a/") == (4 if marker else 2)


@pytest.mark.server
def test_a_second_page_that_is_never_answered_makes_the_source_unreachable(bucket: Bucket, proxy: FaultyProxy) -> None:
    """A gateway that refuses the long query of a continued listing."""
    bucket.put(*(f"shop/a/100/CDC{number:020}.json" for number in range(1, 1004)), "shop/a/meta/schema_100_1.json")
    answers(proxy, Fault.NOT_FOUND, "cdc/shop/a/", times=100, continued=True)
    with pytest.raises(SourceUnreachableError, match=r"Cannot read shop/a in .*: its listing ends after a page, before its schema"):
        bucket.files()
    proxy.fault = lambda _: None
    assert len(bucket.files()) == 1006


@pytest.mark.server
def test_a_key_that_is_listed_on_two_pages_is_there_once(bucket: Bucket, proxy: FaultyProxy) -> None:
    proxy.rewrite = lambda request, content: repeated(content) if request.kind is Kind.LIST else content
    assert bucket.files() == FILES


@pytest.mark.server
def test_a_file_that_is_written_again_between_two_pages_is_listed_again(bucket: Bucket, proxy: FaultyProxy) -> None:
    def rewritten(request: Request, content: bytes) -> bytes:
        if request.prefix == "cdc/shop/a/" and len(left) > 0:
            return repeated(content, left.pop())
        return content

    proxy.rewrite = rewritten
    left = [b"<Size>7</Size>"] * 2
    assert bucket.files() == FILES
    assert not left
    left = [b"<Size>7</Size>"] * 100
    with pytest.raises(SourceUnreachableError, match="each listing of shop/a is different"):
        bucket.files()


def repeated(listing: bytes, size: bytes = b"") -> bytes:
    """A listing with each of its entries a second time, of another size if that is given."""
    entries = b"".join(re.findall(rb"<(?:Contents|CommonPrefixes)>.*?</(?:Contents|CommonPrefixes)>", listing, re.DOTALL))
    entries = re.sub(rb"<Size>\d+</Size>", size, entries) if size else entries
    return listing.replace(b"</ListBucketResult>", entries + b"</ListBucketResult>")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_local_folder_that_is_unmounted_before_or_while_it_is_listed_is_not_read(is_there: bool, tmp_path: Path) -> None:
    folder = StorageFolder(tmp_path / "feed")
    folder.checkpoint(500)
    folder.data("shop/a/100", 1, "I 95 1 a")
    reader = StorageReader(store_location(parse_uri(folder.uri())).open())
    reader.checkpoint()
    aside = folder.root.rename(tmp_path / "aside")
    if is_there:
        folder.root.mkdir()
    with pytest.raises(SourceUnreachableError, match="its listing lacks the file metadata"):
        reader.read_files()
    if is_there:
        folder.root.rmdir()
    aside.rename(folder.root)
    assert len(reader.read_files()) == 2
    moved = MovedWhileListed(folder)
    reader = StorageReader(moved)
    reader.checkpoint()
    with pytest.raises(SourceUnreachableError, match="it was removed or replaced while it was listed"):
        reader.read_files()


class MovedWhileListed(Store):
    """A local folder that disappears as soon as its root was listed."""

    def __init__(self, folder: StorageFolder) -> None:
        inner = store_location(parse_uri(folder.uri())).open()
        super().__init__(inner._location, inner._filesystem)
        self._folder = folder.root

    def entries(self, path: str = "", recursive: bool = False) -> Entries:
        listed = super().entries(path, recursive)
        if not path:
            self._folder.rename(self._folder.with_name("elsewhere"))
        return listed


def test_a_local_folder_that_is_empty_or_has_no_metadata_yet_is_read(tmp_path: Path) -> None:
    folder = StorageFolder(tmp_path / "feed")
    path = folder.data("shop/a/100", 1, "I 95 1 a")
    (folder.root / "shop/b").mkdir()
    (folder.root / "empty").mkdir()
    reader = StorageReader(store_location(parse_uri(folder.uri())).open())
    with pytest.raises(NoWatermarkError):
        reader.checkpoint()
    assert [file.path for file in reader.read_files()] == [path]
    folder.checkpoint(500)
    reader.checkpoint()
    assert [file.path for file in reader.read_files()] == ["metadata", path]
