"""Folders and object stores that Headrace writes to: the file ledger and dead letters lie in one.

Nothing connects before the store is used; every error of a store becomes one sentence without secrets.
"""

from __future__ import annotations

import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from headrace.errors import DefinitionError, SinkUnreachableError
from headrace.model.uri import Uri, near_match, parse_uri, reject_unknown
from headrace.own_paths import make_own_folder, make_private, require_own_folder
from headrace.scratch import open_private

_PARAMETERS: Mapping[str, frozenset[str]] = {
    "file": frozenset(),
    "s3": frozenset({"endpoint", "region", "access-key", "secret-access-key", "session-token", "force-path-style"}),
    "gcs": frozenset({"credentials-file"}),
    "azure": frozenset({"account-name", "account-key", "sas-token"}),
}
# A store that does not answer is told within a minute; the run goes on trying.
_CLIENT: dict[str, Any] = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=20)}
_RETRIES: dict[str, Any] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
_ALIASES = {"gs": "gcs", "azblob": "azure"}


def open_place(location: str, what: str) -> Place:
    """The place that a path or a URL names; ``what`` is what messages call it ("ledger").

    Raises DefinitionError, also for a folder that other users own, can write to or can exchange: what lies there is trusted, and
    they could have files of this user's removed or copied through links. It is asked again whenever the folder is made or used.
    """
    if "://" not in location:
        try:
            folder = Path(location).expanduser().absolute()
        except RuntimeError:
            raise DefinitionError(f"{location} names no folder: there is no such user.", "Write the path in full.") from None
        return _private(Place(Uri("file", path=str(folder)), what))
    uri = parse_uri(location)
    uri = replace(uri, scheme=_ALIASES.get(uri.scheme, uri.scheme))
    if uri.scheme not in _PARAMETERS:
        raise DefinitionError(f"No {what} can be kept at {uri.redacted()}.", near_match(uri.scheme, _PARAMETERS))
    reject_unknown(uri.params, _PARAMETERS[uri.scheme] or {"none at all"}, f"parameter of {uri.scheme}://")
    return _private(Place(uri, what))


def _private(place: Place) -> Place:
    with suppress(OSError):
        try:
            place.require_own()
        except ValueError:  # a NUL, or what is no Unicode
            raise DefinitionError(f"{place.uri.path!r} names no folder.", "Write a path without control characters.") from None
    return place


@dataclass(frozen=True)
class Place:
    """A folder or an object store's prefix. It pickles, with the credentials that its URI carried, and never shows them."""

    uri: Uri = field(repr=False)
    what: str
    _stores: list[ObjectStore] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[Place], tuple[Uri, str]]:
        return (Place, (self.uri, self.what))

    @property
    def is_local(self) -> bool:
        return self.uri.scheme == "file"

    def require_own(self) -> None:
        """Raises DefinitionError for a folder that other users own, can write to, or can exchange, and ``OSError``."""
        if self.is_local:
            require_own_folder(Path(self.uri.path), self.what)

    def store(self, create: bool) -> ObjectStore | None:
        """The store; ``None`` for a folder that is not there and is not to be created."""
        if self.is_local and not create and not Path(self.uri.path).is_dir():
            return None
        self.require_own()
        if not self._stores:
            self._stores.append(self._open())
        return self._stores[0]

    def put(self, key: str, data: bytes, *, create: bool = False) -> None:
        """Writes an object whole, under a key as the store knows it. With ``create`` it must not be there: AlreadyExistsError.

        A file has mode 0600 from its beginning, and folders that are made have 0700, whatever the umask: what lies there are rows.
        """
        if self.is_local:
            make_own_folder(Path(self.uri.path), self.what)
            _put_file(Path(self.uri.path), key, data, create)
        else:
            store = self.store(create=True)
            assert store is not None, "it is no folder that may be missing"
            obstore.put(store, key, data, mode="create" if create else "overwrite")

    def is_file(self, key: str) -> bool:
        """Whether a key is worth reading: in a folder, links are not followed, and a pipe would be read for ever."""
        if not self.is_local:
            return True
        with suppress(OSError):
            return stat.S_ISREG((Path(self.uri.path) / key).lstat().st_mode)
        return False

    def keys(self, folder: str) -> list[str]:
        """The keys of all files below a folder; none where there is no store yet."""
        store = self.store(create=False)
        listed = (item["path"] for chunk in obstore.list(store, folder) for item in chunk) if store else ()
        return [key for key in listed if self.is_file(key)]

    def _open(self) -> ObjectStore:
        uri, params = self.uri, dict(self.uri.params)
        prefix = uri.path.strip("/") or None
        if uri.scheme == "file":
            make_own_folder(Path(uri.path), self.what)
            return LocalStore(uri.path)
        if uri.scheme == "gcs":
            key = _given(service_account=params.get("credentials-file"))
            return GCSStore(uri.host, prefix=prefix, client_options=_CLIENT, retry_config=_RETRIES, **key)
        if uri.scheme == "azure":
            names = {"account_name": "account-name", "account_key": "account-key", "sas_key": "sas-token"}
            given = _given(**{name: params.get(key) for name, key in names.items()})
            return AzureStore(uri.host, prefix=prefix, client_options=_CLIENT, retry_config=_RETRIES, **given)
        endpoint = params.get("endpoint")
        return S3Store(
            uri.host,
            prefix=prefix,
            virtual_hosted_style_request=params.get("force-path-style", "true").lower() == "false",
            client_options={**_CLIENT, "allow_http": bool(endpoint and endpoint.startswith("http://"))},
            retry_config=_RETRIES,
            **_given(
                endpoint=endpoint,
                region=params.get("region"),
                access_key_id=params.get("access-key"),
                secret_access_key=params.get("secret-access-key"),
                session_token=params.get("session-token"),
            ),
        )

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turns the store's errors into SinkUnreachableError, without secrets."""
        try:
            yield
        except (BaseError, OSError) as error:
            # The first line: the rest is a dump of the client's state.
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            for secret in self.uri.secrets():
                reason = reason.replace(secret, "***")
            raise SinkUnreachableError(f"The {self.what} {self.uri.redacted()} cannot be used: {reason}") from None


def _put_file(root: Path, key: str, data: bytes, create: bool) -> None:
    """As obstore does it, which gives files the mode of the umask: first under a name that its listings leave out."""
    path = root / key
    make_private(path.parent)
    fresh = path.with_name(f"{path.name}#{secrets.randbits(63)}")
    try:
        with open_private(fresh) as file:
            file.write(data)
        if create:
            path.hardlink_to(fresh)
        else:
            fresh.replace(path)
    except FileExistsError:
        raise AlreadyExistsError(f"{path} is there already") from None
    finally:
        fresh.unlink(missing_ok=True)


def _given(**settings: str | None) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value is not None}


@contextmanager
def ignoring_absence() -> Iterator[None]:
    """What is to be removed or read may be gone already."""
    try:
        yield
    except (NotFoundError, FileNotFoundError):  # a fenced run sweeps too
        return


def folder_name(text: str) -> str:
    """Any text as the name of one folder."""
    # quote() leaves dots alone, and a folder must not be named "." or "..".
    return quote(text, safe=" ").replace(".", "%2E")
