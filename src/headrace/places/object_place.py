"""Folders and object stores that Headrace writes to: for the file ledger, dead letters and a run's work place.

No connection is opened before the store is used. Every error of a store becomes one sentence without secrets.
"""

from __future__ import annotations

import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from headrace.errors import DefinitionError, SinkUnreachableError
from headrace.model.uri import near_match, parse_uri, reject_unknown
from headrace.own_paths import make_own_folder, make_private, require_own_folder
from headrace.places.location import AZURE, FILE, GCS, S3, SERVICES, Location
from headrace.scratch import open_private

_PARAMETERS: Mapping[str, frozenset[str]] = {
    FILE: frozenset(),
    S3: frozenset(
        {
            "endpoint",
            "s3.endpoint",
            "region",
            "access-key",
            "secret-access-key",
            "session-token",
            "force-path-style",
            "provider",
        }
    ),
    GCS: frozenset({"credentials-file"}),
    AZURE: frozenset({"account-name", "account-key", "sas-token"}),
}
"""The parameters that obstore supports. Other parameters are rejected, so that none is ignored silently."""
# A store that does not answer is reported within a minute; the run keeps trying.
_CLIENT: dict[str, Any] = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=20)}
_RETRIES: dict[str, Any] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}


def open_place(location: str, what: str) -> Place:
    """The place that a path or a URL names. ``what`` is its name in messages ("ledger").

    Raises DefinitionError, also for a folder that other users own, can write to or can replace: its content is trusted, and links
    in it could cause this user's files to be removed or copied. The check is repeated whenever the folder is created or used.
    """
    return _private(named_place(location, what))


def named_place(location: str, what: str) -> Place:
    """As :func:`open_place`, but also for a shared folder in which the caller creates its own folder (``headrace.scratch``).

    Raises DefinitionError.
    """
    if "://" not in location:
        return Place(Location.of_folder(location), what)
    uri = parse_uri(location)
    service = SERVICES.get(uri.scheme, "")
    if service not in _PARAMETERS:
        raise DefinitionError(f"No {what} can be kept at {uri.redacted()}.", near_match(uri.scheme, _PARAMETERS))
    reject_unknown(uri.params, _PARAMETERS[service] or {"none at all"}, f"parameter of {uri.scheme}://")
    return Place(Location.of_uri(uri), what)


def place_at(location: Location, what: str) -> Place:
    """The place at a location whose URL has other parameters, too. It is not checked yet whether others can write there.

    Raises DefinitionError for a service or a parameter of the store that obstore does not support.
    """
    if location.service not in _PARAMETERS:
        raise DefinitionError(f"No {what} can be kept at {location.url}.", near_match(location.scheme, _PARAMETERS))
    known = _PARAMETERS[location.service] or {"none at all"}
    reject_unknown([name for name, _ in location.parameters], known, f"parameter of {location.scheme}://")
    return Place(location, what)


def _private(place: Place) -> Place:
    with suppress(OSError):
        try:
            place.require_own()
        except ValueError:  # a NUL, or a lone surrogate
            raise DefinitionError(f"{place.location.path!r} names no folder.", "Write a path without control characters.") from None
    return place


@dataclass(frozen=True)
class Place:
    """A folder or an object store's prefix. It can be pickled, with the credentials of its URL, and never shows them."""

    location: Location
    what: str
    """The place's name in messages ("ledger")."""
    _stores: list[ObjectStore] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[Place], tuple[Location, str]]:
        return (Place, (self.location, self.what))

    @property
    def is_local(self) -> bool:
        return self.location.is_local

    def require_own(self) -> None:
        """Raises DefinitionError for a folder that other users own, can write to or can replace. Raises ``OSError``."""
        if self.is_local:
            require_own_folder(Path(self.location.path), self.what)

    def store(self, create: bool) -> ObjectStore | None:
        """The store; ``None`` for a folder that does not exist, unless ``create`` is set."""
        if self.is_local and not create and not Path(self.location.path).is_dir():
            return None
        self.require_own()
        if not self._stores:
            self._stores.append(self._open())
        return self._stores[0]

    def put(self, key: str, data: bytes, *, create: bool = False) -> None:
        """Writes an object atomically. ``key`` is the key in the store. With ``create``, raises AlreadyExistsError if it exists.

        A file has mode 0600 from its creation on, and created folders have mode 0700, whatever the umask: the files contain rows.
        """
        if self.is_local:
            make_own_folder(Path(self.location.path), self.what)
            _put_file(Path(self.location.path), key, data, create)
        else:
            store = self.store(create=True)
            assert store is not None, "it is no folder that may be missing"
            obstore.put(store, key, data, mode="create" if create else "overwrite")

    def is_file(self, key: str) -> bool:
        """Whether a key is a regular object. In a folder, links must not be followed, and reading a pipe would never end."""
        if not self.is_local:
            return True
        with suppress(OSError):
            return stat.S_ISREG((Path(self.location.path) / key).lstat().st_mode)
        return False

    def keys(self, folder: str) -> list[str]:
        """The keys of all files below a folder; empty if there is no store yet."""
        store = self.store(create=False)
        listed = (item["path"] for chunk in obstore.list(store, folder) for item in chunk) if store else ()
        return [key for key in listed if self.is_file(key)]

    def _open(self) -> ObjectStore:
        location = self.location
        if location.is_local:
            make_own_folder(Path(location.path), self.what)
            return LocalStore(location.path)
        prefix = location.path.strip("/") or None
        if location.service == GCS:
            key = _given(service_account=location.parameter("credentials-file"))
            return GCSStore(location.bucket, prefix=prefix, client_options=_CLIENT, retry_config=_RETRIES, **key)
        if location.service == AZURE:
            given = _given(account_name=location.account, account_key=location.account_key, sas_key=location.parameter("sas-token"))
            return AzureStore(location.bucket, prefix=prefix, client_options=_CLIENT, retry_config=_RETRIES, **given)
        return S3Store(
            location.bucket,
            prefix=prefix,
            virtual_hosted_style_request=location.is_named_by_host,
            client_options={**_CLIENT, "allow_http": location.endpoint_scheme == "http"},
            retry_config=_RETRIES,
            **_given(
                endpoint=location.endpoint,
                region=location.region,
                access_key_id=location.parameter("access-key"),
                secret_access_key=location.parameter("secret-access-key"),
                session_token=location.parameter("session-token"),
            ),
        )

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turns the store's errors into SinkUnreachableError, without secrets."""
        try:
            yield
        except (BaseError, OSError) as error:
            # Only the first line, because the rest is a dump of the client's state.
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            told = self.location.masked(reason)
            raise SinkUnreachableError(f"The {self.what} {self.location.url} cannot be used: {told}") from None


def _put_file(root: Path, key: str, data: bytes, create: bool) -> None:
    """Writes a file as obstore does: first under a name that obstore's listings leave out. obstore itself would use the umask."""
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


def _given(**settings: str) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value}


@contextmanager
def ignoring_absence() -> Iterator[None]:
    """Ignores that an object to remove or read is already gone."""
    try:
        yield
    except (NotFoundError, FileNotFoundError):  # a fenced run sweeps too
        return


def folder_name(text: str) -> str:
    """Encodes any text as the name of one folder."""
    # quote() leaves dots alone, and a folder must not be named "." or "..".
    return quote(text, safe=" ").replace(".", "%2E")
