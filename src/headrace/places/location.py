"""Parses the paths and URLs of folders and object stores, for sources, ledgers, dead letters and work places.

The parameters are those of TiDB's external storage URIs (TiDB documentation, "URI Formats of External Storage Services"). Which
parameters are supported depends on the client: pyarrow reads change data, obstore writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from headrace.errors import DefinitionError
from headrace.model.secret_texts import without, without_parts_of_urls
from headrace.model.uri import Uri, secrets_in

FILE, S3, GCS, AZURE, HDFS = "file", "s3", "gcs", "azure", "hdfs"
SERVICES: Mapping[str, str] = {
    "file": FILE,
    "s3": S3,
    "gcs": GCS,
    "gs": GCS,
    "azure": AZURE,
    "azblob": AZURE,
    "hdfs": HDFS,
}
"""The storage services by the schemes of their URLs."""

STORE_PARAMETERS = frozenset(
    {
        "access-key",
        "access-tier",
        "account-key",
        "account-name",
        "acl",
        "credentials-file",
        "encryption-key",
        "encryption-scope",
        "endpoint",
        "external-id",
        "force-path-style",
        "predefined-acl",
        "provider",
        "region",
        "role-arn",
        "role-session-name",
        "s3.endpoint",
        "sas-token",
        "secret-access-key",
        "session-token",
        "sse",
        "sse-kms-key-id",
        "storage-class",
        "use-accelerate-endpoint",
    }
)
"""The parameters that a URL may have for its store. Storage class, ACL and encryption concern only writing."""


@dataclass(frozen=True)
class Location:
    """A folder, or a prefix in an object store. It can be pickled, with the credentials of its URL, and never shows them."""

    scheme: str
    """The scheme as it was written; :attr:`service` is its meaning."""
    path: str
    """For a folder the whole path; for a store the prefix, with a leading slash and no trailing slash."""
    bucket: str = ""
    """The bucket or container, or the host of HDFS; empty for a folder."""
    port: int = 0
    user: str = ""
    parameters: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and values of :data:`STORE_PARAMETERS`, sorted, without empty ones."""

    @classmethod
    def of_uri(cls, uri: Uri) -> Self:
        """The location that a URL names. Raises DefinitionError for an unsupported scheme or an invalid form."""
        if uri.scheme not in SERVICES:
            raise DefinitionError(f"{uri.scheme}:// is not a storage service.", f"Known are: {', '.join(sorted(SERVICES))}.")
        path = uri.path.rstrip("/")
        if SERVICES[uri.scheme] == FILE:
            if uri.host not in ("", "localhost"):
                raise DefinitionError(
                    f"{uri.redacted()} names the host {uri.host!r}, not a folder.", f"Write file:///{uri.host}{uri.path}."
                )
            if not path:
                raise DefinitionError("The URI names no folder.", "Write file:///path/of/the/folder.")
            return cls(uri.scheme, path)
        parameters = tuple(sorted((name, value) for name, value in uri.params.items() if name in STORE_PARAMETERS and value))
        location = cls(uri.scheme, path, uri.host, uri.port or 0, uri.username, parameters)
        if not uri.host and location.service != HDFS:
            raise DefinitionError(f"{uri.redacted()} names no bucket.", f"Write {uri.scheme}://bucket/prefix.")
        _host_of(location.endpoint)
        return location

    @classmethod
    def of_folder(cls, path: str) -> Self:
        """The location of a plain path; ``~`` is the user's home. Raises DefinitionError."""
        try:
            return cls(FILE, str(Path(path).expanduser().absolute()))
        except (RuntimeError, UnicodeEncodeError):  # the second for a name with a lone surrogate
            raise DefinitionError(f"{path} names no folder: there is no such user.", "Write the path in full.") from None

    @property
    def service(self) -> str:
        """One of the values of :data:`SERVICES`."""
        return SERVICES[self.scheme]

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine. On any other machine the same path is another folder, or none."""
        return self.service == FILE

    @property
    def root(self) -> str:
        """The path inside the service, with the bucket."""
        if self.service == HDFS:
            return self.path or "/"
        return f"{self.bucket}{self.path}"

    @property
    def url(self) -> str:
        """The URL without user, password or parameters. It may be printed, and stored as an identity."""
        host = f"[{self.bucket}]" if ":" in self.bucket else self.bucket
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}{self.path}"

    @property
    def place(self) -> str:
        """The location's name in messages: a plain path, or the URL with the endpoint's host."""
        if self.is_local:
            return self.path
        return f"{self.url} at {self.endpoint_host}" if self.endpoint and self.service != HDFS else self.url

    @property
    def endpoint(self) -> str:
        """The URL of the store's endpoint, with its scheme (default ``https``); empty for the service's own endpoint."""
        endpoint = self.parameter("endpoint") or self.parameter("s3.endpoint")
        return endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}"

    @property
    def endpoint_host(self) -> str:
        """``host:port`` of the endpoint, without user and password; empty without one."""
        return _host_of(self.endpoint)

    @property
    def endpoint_scheme(self) -> str:
        """``http`` or ``https``."""
        return urlsplit(self.endpoint).scheme

    @property
    def is_named_by_host(self) -> bool:
        """Whether an S3 bucket is a part of the host's name. TiDB's default is the path; Alibaba only accepts bucket.host."""
        by_path = self.parameter("force-path-style") or "true"
        return self.parameter("provider") in ("alibaba", "oss") or by_path.lower() in ("false", "0")

    @property
    def region(self) -> str:
        """The region of S3, from the URL or the environment; empty if neither has it."""
        return self.parameter("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""

    @property
    def account(self) -> str:
        """The account of Azure, from the URL or the environment; empty if neither has it."""
        named = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
        return self.parameter("account-name") or next((os.environ[name] for name in named if os.environ.get(name)), "")

    @property
    def account_key(self) -> str:
        """The account's key, from the URL or the environment; empty if neither has it, or if the URL has a ``sas-token``."""
        if self.parameter("sas-token"):
            return ""
        named = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
        return self.parameter("account-key") or next((os.environ[name] for name in named if os.environ.get(name)), "")

    def parameter(self, name: str) -> str:
        """The value of a parameter; empty if the URL does not have it."""
        return dict(self.parameters).get(name, "")

    def masked(self, text: str) -> str:
        """A text of the store's client without the secret values of the location's parameters, and without parameters of URLs."""
        secrets = [secret for name, value in self.parameters for secret in secrets_in(name, value)]
        return without_parts_of_urls(without(text, secrets))


def _host_of(endpoint: str) -> str:
    """``host:port`` of an endpoint; user and password, if any, are left out. Raises DefinitionError."""
    try:
        return urlsplit(endpoint).netloc.rpartition("@")[2]
    except ValueError:  # of brackets
        hint = "Write an address of IPv6 as http://[::1]:9000."
        raise DefinitionError("The endpoint is not a URL: the part in [] is not an address.", hint) from None
