"""The storage source on S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SourceNotReadyError, SourceUnreachableError
from headrace.sources.ticdc_storage import open_source
from servers import S3Server
from storage_folder import Consumer, StorageFolder

pytestmark = pytest.mark.server

CSV = {"protocol": "csv", "terminator": "\n", "date_separator": "none"}


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(200)
    made.schema("t", 100, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))")
    made.schema("ta ble", 100)
    made.data("test/t/100", 1, "I 110 1 a", "I 250 2 b")
    made.data("test/ta ble/100", 1, "x 110 1 a")
    made.write("test/ta ble/100/CDC000001.csv", '"I","ta ble","test",120,5,"e"\n')
    return made


def test_a_bucket_is_followed(folder: StorageFolder, s3: S3Server) -> None:
    bucket = s3.make_bucket()
    s3.upload(folder.root, bucket, "feed/one")
    s3.client().put_object(Bucket=bucket, Key="feed/one/test/t/", Body=b"")
    consumer = Consumer(open_source(s3.uri(bucket, "feed/one", **CSV)).event_source)
    offer = consumer.cut()
    assert offer.problems == ()
    assert consumer.changes == ["110 1 a", "120 5 e"]
    folder.data("test/t/100", 2, "I 260 3 c")
    folder.checkpoint(300)
    s3.upload(folder.root, bucket, "feed/one")
    consumer = consumer.restarted()
    consumer.cut()
    assert consumer.changes == ["250 2 b", "260 3 c"]


def test_the_root_of_a_bucket_can_be_the_folder(folder: StorageFolder, s3: S3Server) -> None:
    bucket = s3.make_bucket()
    s3.upload(folder.root, bucket)
    consumer = Consumer(open_source(s3.uri(bucket, **CSV)).event_source)
    consumer.cut()
    assert len(consumer.rows) == 2


def test_what_is_wrong_with_a_store_is_one_sentence_without_secrets(s3: S3Server) -> None:
    with pytest.raises(SourceUnreachableError, match="there is no such bucket") as missing:
        Consumer(open_source(s3.uri("headrace-nowhere", "p", **CSV)).event_source).poll()
    with pytest.raises(SourceNotReadyError, match="is empty"):
        Consumer(open_source(s3.uri(s3.make_bucket(), "p", **CSV)).event_source).poll()
    nobody = S3Server("http://127.0.0.1:9")
    with pytest.raises(SourceUnreachableError, match="does not answer") as unreachable:
        Consumer(open_source(nobody.uri("bucket", "p", **CSV)).event_source).poll()
    for error in (missing.value, unreachable.value):
        assert s3.secret_key not in str(error)
        assert "127.0.0.1" in str(error)
