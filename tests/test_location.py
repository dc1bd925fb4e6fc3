"""Sources, ledgers, dead letters and work places read a URL of a store in one way."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace.errors import DefinitionError
from headrace.model.uri import parse_uri
from headrace.places.location import SERVICES, Location
from headrace.places.object_place import open_place
from headrace.sources.ticdc_storage.stores import store_location

WRITTEN = ["s3", "gcs", "gs", "azure", "azblob"]


def located(url: str) -> Location:
    return Location.of_uri(parse_uri(url))


@pytest.mark.parametrize("scheme", WRITTEN)
def test_readers_and_writers_find_the_same_store(scheme: str) -> None:
    url = f"{scheme}://bucket/a/b/"
    read, written = store_location(parse_uri(url)), open_place(url, "ledger").location
    assert (read.service, read.root, read.url) == (written.service, written.root, written.url)
    assert read.url == f"{scheme}://bucket/a/b"
    assert written.service == SERVICES[scheme]


def test_two_names_of_a_service_are_one() -> None:
    assert located("gs://b/p").service == located("gcs://b/p").service
    assert located("azblob://b/p").service == located("azure://b/p").service


@pytest.mark.parametrize(
    ("endpoint", "url", "host", "scheme"),
    [
        ("http://minio:9000", "http://minio:9000", "minio:9000", "http"),
        ("minio:9000", "https://minio:9000", "minio:9000", "https"),
        ("https://me:pw@minio", "https://me:pw@minio", "minio", "https"),
    ],
)
@pytest.mark.parametrize("name", ["endpoint", "s3.endpoint"])
def test_an_endpoint_may_be_written_with_and_without_its_scheme(name: str, endpoint: str, url: str, host: str, scheme: str) -> None:
    location = located(f"s3://bucket/p?{name}={endpoint}")
    assert (location.endpoint, location.endpoint_host, location.endpoint_scheme) == (url, host, scheme)
    assert location.place == f"s3://bucket/p at {host}"


@pytest.mark.parametrize(
    ("query", "by_host"), [("", False), ("force-path-style=true", False), ("force-path-style=false", True), ("provider=oss", True)]
)
def test_a_bucket_is_a_part_of_the_path_unless_the_url_says_otherwise(query: str, by_host: bool) -> None:
    assert located(f"s3://bucket/p?{query}").is_named_by_host is by_host


def test_a_token_in_the_url_counts_and_not_a_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "key")
    assert (located("azure://c/p").account, located("azure://c/p").account_key) == ("mine", "key")
    assert located("azure://c/p?account-name=other&sas-token=t").account == "other"
    assert located("azure://c/p?sas-token=t").account_key == ""


def test_a_plain_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_place("work", "ledger").location == Location("file", str(tmp_path / "work"))
    assert located(f"file://{tmp_path}/folder/") == Location("file", str(tmp_path / "folder"))


@pytest.mark.parametrize("url", ["file://folder/x", "s3:///prefix"])
def test_a_url_without_folder_or_bucket_is_refused_for_writing_too(url: str) -> None:
    with pytest.raises(DefinitionError, match=r"names (the host|no bucket)"):
        open_place(url, "ledger")


def test_a_location_shows_no_secret_and_pickles_with_all() -> None:
    secret = "s3://bucket/a?access-key=AKID&secret-access-key=hush&endpoint=http://me:pw@h:9000"
    location = located(secret)
    assert pickle.loads(pickle.dumps(location)) == location
    told = f"{location!r} {location.url} {location.place} {location.masked('AKID, hush and http://me:pw@h:9000')}"
    assert not any(word in told for word in ("AKID", "hush", "pw"))
    assert "http://***@h:9000" in told


def test_a_clients_text_shows_no_part_of_a_signed_url() -> None:
    location = located("azure://c/p?account-name=a&sas-token=%3Fsv%3D2026%26sig%3Dx%252By")
    assert location.masked("no http://h/a/c?sig=x%2By&sv=2026 (x+y, x%2by)") == "no http://h/a/c?*** (***, ***)"
