"""The stores of files: local disks, S3, GCS, Azure Blob Storage and HDFS, all through ``pyarrow.fs``.

A :class:`StoreLocation` is a value that is sent to tasks; :meth:`StoreLocation.open` gives the :class:`Store` of this process.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from headrace.abandonment import within
from headrace.errors import DefinitionError, SourceUnreachableError
from headrace.model.uri import Uri
from headrace.places.location import AZURE, GCS, HDFS, S3, Location
from headrace.sources.ticdc_storage.local_folders import LocalFile, Stray, local_entries, opened_inside, stat_inside

_T = TypeVar("_T")
_R = TypeVar("_R")
_REMOTE_THREADS = 32
_CONNECT_SECONDS = 5
_SILENT_SECONDS = 20
_TRIES = 3
_REQUEST_SECONDS = 120.0
"""The total time limit for a response, for a store that never pauses for as long as ``_SILENT_SECONDS``."""
_BYTES_PER_SECOND = 16 << 10
"""Reading a file has a further second for each of these many bytes."""
_LISTING_SECONDS = 1800.0
"""A page of 1,000 entries takes a tenth of a second, so this is enough for many millions of entries."""
_CLIENT_SECONDS = 60.0
"""The time limit for creating a new client."""
_PAGE_KEYS = 1000
"""Every store answers a listing in pages of this many keys, or of a multiple."""
_LISTINGS = 4
"""So often a folder is listed until its listing can be believed."""
_MESSAGE_LIMIT = 200
_OF_THE_FILE = frozenset({errno.EACCES, errno.EPERM, errno.EIO})
"""Errors of the operating system that say nothing about other files. A disk may fail to read the blocks of one file alone."""
_GONE = r"NO_SUCH_KEY|NoSuchKey|RESOURCE_NOT_FOUND|BlobNotFound|HTTP status 404"
"""Error texts for a file that was removed between two requests about it."""
_DENIED = r"ACCESS_DENIED|AccessDenied|Forbidden|HTTP status 403|HTTP response code 403|AuthorizationFailure|Permission denied"
_ARCHIVED = r"InvalidObjectState|not valid for the object's (storage class|access tier)"
_UNTOLD = r"Failed to flush response stream"
"""The AWS SDK's error text for an error of the store that is longer than the requested bytes, and so is lost."""
# Error texts of the AWS SDK, the Azure SDK and the operating system, with their meaning for people. The first match counts.
_CAUSES = (
    (r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|bucket does not exist", "there is no such bucket", "Check its name."),
    (
        r"INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|AuthenticationFailed",
        "the store does not accept the credentials",
        "Check access-key and secret-access-key, or the environment they are taken from.",
    ),
    (_ARCHIVED, "it is archived", "Restore it to a storage class whose objects can be read at any time."),
    (
        _UNTOLD,
        "the store answers with an error instead of its content",
        "Check that it is not archived, and that its encryption key may be used.",
    ),
    (
        _DENIED,
        "access is denied",
        "Reading needs the permissions to list the folder and to get its objects.",
    ),
    (
        r"NETWORK_CONNECTION|curlCode|Couldn't connect|Could not connect|Connection refused|resolve host|timed? ?out",
        "the store does not answer",
        "Check the endpoint and the network.",
    ),
)


class UnreadableFileError(SourceUnreachableError):
    """The store answers, and does not give this file: access to it is denied, it is archived, or the disk cannot read it."""


Content = bytes | UnreadableFileError | None
"""The bytes of a file, or why it cannot be read; ``None`` for a file that is gone."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as listed: path relative to the root, bytes, and modification time in ns since 1970 (0 if unknown)."""

    path: str
    size: int
    modified: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Entries:
    """The content of one folder: its files, the names of its folders, and entries that are neither."""

    files: tuple[StoredFile, ...]
    folders: tuple[str, ...]
    strays: tuple[Stray, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.folders or self.strays)

    @property
    def is_contradictory(self) -> bool:
        """Whether one file is listed with two states: it was written again between two pages of the listing."""
        return len({file.path for file in self.files}) < len(self.files)

    def keys(self, recursive: bool) -> int:
        """How many keys of an object store the listing shows."""
        return len(self.files) if recursive else len(self.files) + len(self.folders)

    def may_lack_pages(self, recursive: bool) -> bool:
        """Whether a listing of an object store may have ended with a full page, although there were more.

        pyarrow's S3 client takes an answer without content, a 404 or a page of HTML for a last page without keys. One key may be
        missing from the count: an empty object that stands for the listed folder itself.
        """
        keys = self.keys(recursive)
        return keys > 1 and (keys + 1) % _PAGE_KEYS < 2


@dataclass(frozen=True)
class StoreLocation(Location):
    """Where a changefeed's folder is."""

    def open(self) -> Store:
        """The store, connected at most once per process. Raises SourceUnreachableError, DefinitionError."""
        return _open(self)


def store_location(uri: Uri) -> StoreLocation:
    """The location named by a storage URI. Raises DefinitionError for an unknown scheme or form."""
    return StoreLocation.of_uri(uri)


def too_large(size: int, most: int) -> tuple[str, str]:
    """The sentence for a data file of more than ``most`` bytes, and what to do."""
    hint = "TiCDC begins a new file at file-size, of at most 512 MiB. If it wrote this one, set max-file-bytes in the source's URI."
    return f"The file has {size:,} bytes, and files of more than {most:,} are not read.", hint


class Store:
    """The files under one root. Every error of the store becomes a SourceUnreachableError with one sentence.

    It is an UnreadableFileError if only the requested file cannot be read. Whether the store can be read at all is shown by
    ``metadata``, which each poll reads first.

    No request waits forever: one whose response does not end in time is abandoned.
    """

    def __init__(self, location: StoreLocation, filesystem: pafs.FileSystem) -> None:
        self._location = location
        self._filesystem = filesystem

    @property
    def place(self) -> str:
        """The name of the root in messages."""
        return self._location.place

    @property
    def is_local(self) -> bool:
        return self._location.is_local

    @property
    def root(self) -> str:
        """The root inside the file system."""
        return self._location.root

    def exists(self) -> bool:
        """Whether the root exists. In an object store, a folder exists only while it has an object."""
        with self._explained():
            return bool(self._info(self._location.root).type == pafs.FileType.Directory)

    def require_bucket(self) -> None:
        """Raises SourceUnreachableError if the root's bucket does not exist. A listing would show it like an empty one."""
        if self.is_local or self._location.service == HDFS:
            return
        with self._explained():
            found = self._info(self._location.root.split("/", 1)[0]).type
        if found == pafs.FileType.NotFound:
            raise unreachable(self._location, FileNotFoundError("NoSuchBucket"))

    def stat(self, path: str) -> StoredFile | None:
        """The file at ``path``; ``None`` if there is none."""
        with self._explained(path):
            if self.is_local:
                found = stat_inside(self._location.root, path)
                return StoredFile(path, found.size, found.modified) if found else None
            info = self._info(self._absolute(path))
        return _stored(path, info) if info.type == pafs.FileType.File else None

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises ``FileNotFoundError`` if there is none."""
        return bytes(self.read_buffer(path).to_pybytes())

    def read_buffer(self, path: str) -> pa.Buffer:
        """The bytes of a file, not copied into a Python object. Raises ``FileNotFoundError``."""
        with self._explained(path):
            if self.is_local:
                return self._local_buffer(path)
            return self._remote_buffer(path)

    def read_start(self, path: str, length: int) -> bytes:
        """Up to ``length`` bytes from the beginning of a file. Raises ``FileNotFoundError``."""
        with self._explained(path):
            if self.is_local:
                return bytes(self._local_buffer(path, length).to_pybytes())
            return bytes(self._remote_buffer(path, length).to_pybytes())

    def _remote_buffer(self, path: str, length: int | None = None) -> pa.Buffer:
        """A file, or its start."""
        stream, size = self._request(lambda filesystem: _opened(filesystem, self._absolute(path)))
        wanted = size if length is None else min(length, size)
        # Closed by the call itself, because an abandoned call continues to read.
        return self._request(lambda _: _read_and_closed(stream, wanted), _REQUEST_SECONDS + wanted / _BYTES_PER_SECOND)

    def _info(self, path: str) -> pafs.FileInfo:
        return self._request(lambda filesystem: filesystem.get_file_info(path))

    def _request(self, ask: Callable[[pafs.FileSystem], _T], seconds: float | None = None) -> _T:
        """The store's response to one request. Raises ``TimeoutError`` if it takes longer than ``seconds``."""
        if self.is_local:
            return ask(self._filesystem)
        # The client stays, with one connection less: pyarrow creates no new S3 client while a request is running.
        return within(_REQUEST_SECONDS if seconds is None else seconds, lambda: ask(self._filesystem))

    def _local_buffer(self, path: str, length: int | None = None) -> pa.Buffer:
        """A file, or its beginning, in memory of Arrow's pool, which is reused: allocating new memory takes longer than reading."""
        with opened_inside(self._location.root, path) as file:
            size = os.fstat(file.fileno()).st_size
            buffer = pa.allocate_buffer(size if length is None else min(length, size))
            view, filled = memoryview(buffer).cast("B"), 0
            while filled < len(view) and (count := file.readinto(view[filled:])):
                filled += count
            return buffer.slice(0, filled)

    def entries(self, path: str = "", recursive: bool = False) -> Entries:
        """The content of a folder, with ``recursive`` also of its folders. Each file and each folder is there once.

        Empty if there is no such folder. An object store's empty listing may also be a wrong answer, such as a page of HTML;
        the caller must know whether the folder can be empty.
        """
        listed = Entries((), ())
        for _ in range(_LISTINGS):
            before = listed
            listed = self._local_entries(path, recursive) if self.is_local else self._remote_entries(path, recursive)
            is_repeated = listed.keys(recursive) == before.keys(recursive)
            if (self.is_local or is_repeated or not listed.may_lack_pages(recursive)) and not listed.is_contradictory:
                return listed
        raise SourceUnreachableError(
            f"Cannot read {self.place}: each listing of {path or 'the folder'} is different.",
            "It is listed again. If this stays, check the store, and the proxy or gateway in front of it.",
        )

    def _local_entries(self, path: str, recursive: bool) -> Entries:
        files, folders, strays = [], [], []
        with self._explained():
            for entry in local_entries(self._location.root, path, recursive):
                if isinstance(entry, LocalFile):
                    files.append(StoredFile(entry.path, entry.size, entry.modified))
                elif isinstance(entry, Stray):
                    strays.append(entry)
                else:
                    folders.append(entry)
        return Entries(tuple(files), tuple(folders), tuple(strays))

    def _remote_entries(self, path: str, recursive: bool) -> Entries:
        selector = pafs.FileSelector(self._absolute(path), allow_not_found=True, recursive=recursive)
        with self._explained():
            infos = self._request(lambda filesystem: filesystem.get_file_info(selector), _LISTING_SECONDS)
        start = len(self._location.root.rstrip("/")) + 1
        files, folders, strays = [], [], []
        for info in infos:
            name = info.path[start:]
            if info.type == pafs.FileType.File:
                files.append(_stored(name, info))
            elif info.type == pafs.FileType.Directory and name.rstrip("/") == path:
                # Its keys have an empty name in their path: listing it would return the folder itself again.
                strays.append(Stray(f"{path}//", "keys below have an empty name in them"))
            elif info.type == pafs.FileType.Directory:
                folders.append(name.rstrip("/"))
        # A key may be listed on two pages.
        return Entries(tuple(dict.fromkeys(files)), tuple(dict.fromkeys(folders)), tuple(strays))

    def entries_of_many(self, requests: list[tuple[str, bool]]) -> list[Entries]:
        """:meth:`entries` for each ``(path, recursive)``, in their order; concurrently if a request takes a round trip."""
        if self.is_local or len(requests) < 2:
            return [self.entries(path, recursive) for path, recursive in requests]
        return _at_once(lambda request: self.entries(*request), requests)

    def read_many(self, paths: list[str]) -> list[Content]:
        """:meth:`read` for each path."""
        return self._each(self.read, paths)

    def read_starts(self, paths: list[str], length: int) -> list[Content]:
        """:meth:`read_start` for each path."""
        return self._each(lambda path: self.read_start(path, length), paths)

    def _each(self, read: Callable[[str], bytes], paths: list[str]) -> list[Content]:
        def found(path: str) -> Content:
            try:
                return read(path)
            except FileNotFoundError:
                return None
            except UnreadableFileError as error:
                return error

        if self.is_local or len(paths) < 2:
            return [found(path) for path in paths]
        return _at_once(found, paths)

    def _absolute(self, path: str) -> str:
        return f"{self._location.root.rstrip('/')}/{path}" if path else self._location.root

    @contextmanager
    def _explained(self, path: str | None = None) -> Iterator[None]:
        """Turns errors into sentences. ``path`` is the file that is requested, if it is one."""
        try:
            yield
        except FileNotFoundError as error:
            if re.search(_CAUSES[0][0], str(error)):
                raise unreachable(self._location, error) from None  # a client's text may hold a signed URL
            raise
        except (OSError, pa.ArrowException) as error:
            if path is not None and not re.search(_CAUSES[0][0], str(error)):
                if not self.is_local and re.search(_GONE, str(error)):
                    raise FileNotFoundError(f"{path} is gone") from None
                if _is_of_the_file(error):
                    raise UnreadableFileError(*_told(self._location, error, f"{path} in {self.place}")) from None
            raise unreachable(self._location, error) from None


def _is_of_the_file(error: Exception) -> bool:
    """Whether an error of reading a file says nothing about other files."""
    return getattr(error, "errno", None) in _OF_THE_FILE or bool(
        re.search(f"{_ARCHIVED}|{_UNTOLD}|{_DENIED}", str(error), re.IGNORECASE)
    )


def _at_once(ask: Callable[[_T], _R], things: list[_T]) -> list[_R]:
    """The results, in the order of ``things``. If one fails, or on an interrupt, the others are not awaited."""
    pool = ThreadPoolExecutor(min(_REMOTE_THREADS, len(things)))
    try:
        return list(pool.map(ask, things))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def unreachable(location: StoreLocation, error: Exception) -> SourceUnreachableError:
    """One sentence for an error of a store's client, without secrets."""
    return SourceUnreachableError(*_told(location, error, location.place))


def _told(location: StoreLocation, error: Exception, what: str) -> tuple[str, str]:
    """The sentence for an error of reading something, and what to do."""
    text = str(error)
    for pattern, cause, hint in _CAUSES:
        if re.search(pattern, text, re.IGNORECASE):
            return f"Cannot read {what}: {cause}.", hint
    text = location.masked(text)
    text = " ".join(text.split())
    return f"Cannot read {what}: {text[:_MESSAGE_LIMIT].rstrip('.')}.", ""


@lru_cache(maxsize=32)
def _open(location: StoreLocation) -> Store:
    try:
        return Store(location, _connected(location))
    except (OSError, pa.ArrowException) as error:
        raise unreachable(location, error) from None
    except (ValueError, TypeError) as error:
        told = location.masked(str(error))
        raise DefinitionError(f"The parameters of {location.place} do not fit together: {told}.") from None


def _connected(location: StoreLocation) -> pafs.FileSystem:
    """A new client. Some clients query their store's region, or connect."""
    return within(_CLIENT_SECONDS, lambda: _filesystem(location))


def _filesystem(location: StoreLocation) -> pafs.FileSystem:
    if location.service == S3:
        return _s3(location)
    if location.service == GCS:
        return _gcs(location)
    if location.service == AZURE:
        return _azure(location)
    if location.service == HDFS:
        return pafs.HadoopFileSystem(location.bucket or "default", location.port, user=location.user or None)
    return pafs.LocalFileSystem()


def _s3(location: StoreLocation) -> pafs.S3FileSystem:
    options: dict[str, object] = {}
    if location.endpoint:
        options["endpoint_override"] = location.endpoint_host
        options["scheme"] = location.endpoint_scheme
    for name, option in (
        ("access-key", "access_key"),
        ("secret-access-key", "secret_key"),
        ("session-token", "session_token"),
        ("role-arn", "role_arn"),
        ("role-session-name", "session_name"),
        ("external-id", "external_id"),
    ):
        if value := location.parameter(name):
            options[option] = value
    options["force_virtual_addressing"] = location.is_named_by_host
    region = location.region
    if not region and not location.endpoint:
        region = pafs.resolve_s3_region(location.bucket)
    return pafs.S3FileSystem(
        region=region or "us-east-1", connect_timeout=_CONNECT_SECONDS, request_timeout=_SILENT_SECONDS, **options
    )


def _gcs(location: StoreLocation) -> pafs.GcsFileSystem:
    options: dict[str, object] = {}
    credentials = location.parameter("credentials-file")
    if credentials:
        # The client library accepts a credentials file only from here.
        os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = credentials
    if location.endpoint:
        options["endpoint_override"] = location.endpoint_host
        options["scheme"] = location.endpoint_scheme
        options["anonymous"] = not credentials
    return pafs.GcsFileSystem(**options)


def _azure(location: StoreLocation) -> pafs.AzureFileSystem:
    if not location.account:
        raise DefinitionError(
            "Azure Blob Storage needs an account.", "Add account-name=… to the URI, or set AZURE_STORAGE_ACCOUNT."
        )
    options: dict[str, object] = {}
    if token := location.parameter("sas-token"):
        options["sas_token"] = f"?{token.removeprefix('?')}"  # Azure's tools print it without the ?, and pyarrow appends it to URLs
    elif location.account_key:
        options["account_key"] = location.account_key
    if location.endpoint:
        options["blob_storage_authority"] = options["dfs_storage_authority"] = location.endpoint_host
        options["blob_storage_scheme"] = options["dfs_storage_scheme"] = location.endpoint_scheme
    return pafs.AzureFileSystem(location.account, **options)


def _opened(filesystem: pafs.FileSystem, path: str) -> tuple[pa.NativeFile, int]:
    stream = filesystem.open_input_file(path)
    return stream, stream.size()


def _read_and_closed(stream: pa.NativeFile, length: int) -> pa.Buffer:
    with stream:
        return _whole(stream, length)


def _whole(stream: pa.NativeFile, length: int) -> pa.Buffer:
    """The first ``length`` bytes. Raises ``OSError`` if the store sends fewer.

    pyarrow's S3 client does not notice a short response: it reports everything as read, and leaves the rest of the buffer
    unchanged. So the last byte shows whether it was written; if it is unchanged, a second read with another byte in its place
    decides.
    """
    buffer = pa.allocate_buffer(length)
    view = memoryview(buffer).cast("B")
    for mark in (0, 255) if length else ():
        view[-1] = mark
        stream.seek(0)
        if stream.readinto(buffer) == length and view[-1] != mark:
            return buffer
    if length:
        raise OSError(f"it sent fewer than the {length} bytes that it has of a file")
    return buffer


def _stored(path: str, info: pafs.FileInfo) -> StoredFile:
    return StoredFile(path, int(info.size or 0), int(info.mtime_ns or 0))
