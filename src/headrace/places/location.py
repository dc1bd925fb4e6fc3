"""How a path or a URL names a folder or an object store: the one reading of it for sources, ledgers, dead letters and work places.

The parameters are those of TiDB's external storage URIs (TiDB documentation, "URI Formats of External Storage Services"). Which of
them a client can follow is the client's matter: pyarrow reads change data, obstore writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from headrace.errors import DefinitionError
from headrace.model.uri import SECRET_PARAMETERS, Uri

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
"""What a URL may say of its store. Storage class, ACL and encryption only concern writing."""


@dataclass(frozen=True)
class Location:
    """A folder, or a prefix in an object store. It pickles, with the credentials that its URL carried, and never shows them."""

    scheme: str
    """As it was written; :attr:`service` is what it means."""
    path: str
    """Of a folder the whole path; of a store the prefix, with a slash in front and none at its end."""
    bucket: str = ""
    """The bucket or container, the host of HDFS, empty for a folder."""
    port: int = 0
    user: str = ""
    parameters: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and values of :data:`STORE_PARAMETERS`, sorted, without empty ones."""

    @classmethod
    def of_uri(cls, uri: Uri) -> Self:
        """The location that a URL names. Raises DefinitionError for a scheme or a form that is not one."""
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
        except (RuntimeError, UnicodeEncodeError):  # the second of a name with half of a character
            raise DefinitionError(f"{path} names no folder: there is no such user.", "Write the path in full.") from None

    @property
    def service(self) -> str:
        """One of the values of :data:`SERVICES`."""
        return SERVICES[self.scheme]

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of the machine, and so another one, or none, on every other machine."""
        return self.service == FILE

    @property
    def root(self) -> str:
        """The path inside the service, with the bucket."""
        if self.service == HDFS:
            return self.path or "/"
        return f"{self.bucket}{self.path}"

    @property
    def url(self) -> str:
        """The URL without user, password or parameters: what may be printed, and stored as an identity."""
        host = f"[{self.bucket}]" if ":" in self.bucket else self.bucket
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}{self.path}"

    @property
    def place(self) -> str:
        """What messages call it: a plain path, or the URL with the endpoint's host."""
        if self.is_local:
            return self.path
        return f"{self.url} at {self.endpoint_host}" if self.endpoint and self.service != HDFS else self.url

    @property
    def endpoint(self) -> str:
        """The URL of the store's endpoint, with its scheme (``https`` where none was written); empty: the service's own."""
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
        """Whether an S3 bucket is a part of the host's name. TiDB's default is the path; Alibaba only answers on bucket.host."""
        by_path = self.parameter("force-path-style") or "true"
        return self.parameter("provider") in ("alibaba", "oss") or by_path.lower() in ("false", "0")

    @property
    def region(self) -> str:
        """The region of S3, from the URL or the environment; empty where neither tells."""
        return self.parameter("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""

    @property
    def account(self) -> str:
        """The account of Azure, from the URL or the environment; empty where neither tells."""
        named = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
        return self.parameter("account-name") or next((os.environ[name] for name in named if os.environ.get(name)), "")

    @property
    def account_key(self) -> str:
        """The account's key, from the URL or the environment; empty where neither tells, or the URL has a ``sas-token``."""
        if self.parameter("sas-token"):
            return ""
        named = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
        return self.parameter("account-key") or next((os.environ[name] for name in named if os.environ.get(name)), "")

    def parameter(self, name: str) -> str:
        """The value of a parameter, empty where the URL does not say it."""
        return dict(self.parameters).get(name, "")

    def masked(self, text: str) -> str:
        """The text without what is secret in the location's parameters."""
        secrets = [value for name, value in self.parameters if name in SECRET_PARAMETERS]
        if "@" in self.endpoint:
            secrets.append(self.endpoint.partition("://")[2].rpartition("@")[0])
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def _host_of(endpoint: str) -> str:
    """``host:port`` of an endpoint; user and password, if any, are left out. Raises DefinitionError."""
    try:
        return urlsplit(endpoint).netloc.rpartition("@")[2]
    except ValueError:  # of brackets
        hint = "Write an address of IPv6 as http://[::1]:9000."
        raise DefinitionError("The endpoint is not a URL: the part in [] is not an address.", hint) from None
