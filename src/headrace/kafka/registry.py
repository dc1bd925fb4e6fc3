"""A client of a schema registry with Confluent's API: the text of a schema by its id.

API: Confluent documentation, "Schema Registry API Reference", ``GET /schemas/ids/{id}``. Karapace has the same, and Apicurio under
``/apis/ccompat/v7``. Only this request is made.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from headrace.abandonment import within
from headrace.errors import DefinitionError, SourceUnreachableError

PARAMETERS = frozenset({"schema-registry", "schema-registry-ca", "schema-registry-cert", "schema-registry-key"})
"""The parameters of a URI that say how to reach a registry."""
_SECONDS = 10.0
"""Of a whole request, from connecting to the last byte: a limit of each read would let a registry send a byte now and then."""
_TRIES = 3
_PAUSE_SECONDS = 0.5
_MOST_BYTES = 8 << 20
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CLIENT_ERRORS, _SERVER_ERRORS = 200, 401, 403, 404, 400, 500
_PASSING = frozenset({408, 425, 429})
"""Client errors that say nothing about the request: it came too slowly, too early or too often."""
_OF_A_PROXY = 407
_PORTS = {"http": 80, "https": 443}
_SHOWN = 120


class UnknownSchemaError(LookupError):
    """The registry answers, and has or gives no schema of an id; ``str()`` is the end of a sentence."""


@dataclass(frozen=True)
class RegisteredText:
    """A schema as a registry has it."""

    text: str
    type: str = "AVRO"
    """``AVRO``, ``JSON`` or ``PROTOBUF``."""
    has_references: bool = False
    """Whether it uses types of other schemas."""


@dataclass(frozen=True)
class SchemaRegistry:
    """How to reach a registry. Picklable; ``repr`` shows no login. It connects for each request."""

    scheme: str
    host: str
    port: int
    path: str = ""
    """Before the paths of the API; without a slash at its end."""
    login: tuple[str, str] | None = field(default=None, repr=False)
    """User and password."""
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Paths of ``ca``, ``cert`` and ``key``."""

    @property
    def url(self) -> str:
        """Without the login."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    def schema(self, schema_id: int) -> RegisteredText:
        """The schema of an id.

        Raises UnknownSchemaError if there is none, or if the registry refuses the request for this id in JSON, as its API does.
        Raises SourceUnreachableError if the registry cannot be asked or refuses the login. A request is tried three times if that
        may help.
        """
        for number in range(1, _TRIES + 1):
            try:
                return self._asked(schema_id)
            except (OSError, http.client.HTTPException) as error:
                if number == _TRIES or isinstance(error, ssl.SSLError):
                    raise self._unreachable(_cause(error), _hint(error)) from None
                time.sleep(_PAUSE_SECONDS * number)
        raise AssertionError("the last try returns or raises")

    def _asked(self, schema_id: int) -> RegisteredText:
        connection, opened = self._connection(), list[socket.socket]()
        try:
            status, body = within(_SECONDS, lambda: self._answer(connection, opened, schema_id))
        finally:
            for of_connection in opened:  # ends a reading that goes on, also of an answer that has no end
                with suppress(OSError):
                    of_connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            refused = "the login is refused" if status == _UNAUTHORIZED else "access is denied"
            raise self._unreachable(f"{refused} (HTTP {status})", "Write schema-registry=http://user:password@host:port.")
        if status in _PASSING or status >= _SERVER_ERRORS:
            raise http.client.HTTPException(f"it answers HTTP {status}")
        if status >= _CLIENT_ERRORS and status != _OF_A_PROXY and _is_json(body):
            has_none = f"has no schema with the id {schema_id}."
            refuses = f"refuses to give the schema with the id {schema_id} (HTTP {status})."
            raise UnknownSchemaError(f"the schema registry {self.url} {has_none if status == _NOT_FOUND else refuses}")
        found = _read(body) if status == _OK else None
        if found is None:
            told = f"its answer is none of a schema registry (HTTP {status})"
            raise self._unreachable(told, "Check schema-registry in the source's URI: host, port and path.")
        return found

    def _answer(self, connection: http.client.HTTPConnection, opened: list[socket.socket], schema_id: int) -> tuple[int, bytes]:
        """Status and body. Adds the socket to ``opened``: shutting it down ends the call."""
        headers = {"Accept": _ACCEPT, "Connection": "close"}
        if self.login is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        connection.connect()
        opened.append(connection.sock)
        connection.request("GET", f"{self.path}/schemas/ids/{schema_id}", headers=headers)
        answer = connection.getresponse()
        return answer.status, _body(answer)

    def _connection(self) -> http.client.HTTPConnection:
        if self.scheme == "http":
            return http.client.HTTPConnection(self.host, self.port, timeout=_SECONDS)
        context = ssl.create_default_context(cafile=self.files.get("ca"))
        if "cert" in self.files:
            context.load_cert_chain(self.files["cert"], self.files.get("key"))
        return http.client.HTTPSConnection(self.host, self.port, timeout=_SECONDS, context=context)

    def _unreachable(self, why: str, hint: str) -> SourceUnreachableError:
        return SourceUnreachableError(f"The schema registry {self.url} cannot be read: {why}.", hint)


def registry_of(params: Mapping[str, str]) -> SchemaRegistry | None:
    """The registry that a URI's parameters name; ``None`` if they name none. Raises DefinitionError. Does not connect."""
    text = params.get("schema-registry", "")
    files = {name: params[f"schema-registry-{name}"] for name in ("ca", "cert", "key") if params.get(f"schema-registry-{name}")}
    if not text:
        if files:
            raise DefinitionError("schema-registry-ca, -cert and -key need schema-registry, the registry's URL.")
        return None
    try:
        split = urlsplit(text)
        host, port = split.hostname, split.port
    except ValueError:
        host, port, split = None, None, urlsplit("")
    if split.scheme not in _PORTS or not host or split.query or split.fragment:
        raise DefinitionError("schema-registry is not the URL of a registry.", "Write schema-registry=http://host:8081.")
    if files and split.scheme != "https":
        raise DefinitionError("schema-registry-ca, -cert and -key need a registry with https.")
    login = (unquote(split.username or ""), unquote(split.password or "")) if split.username is not None else None
    return SchemaRegistry(split.scheme, host, port or _PORTS[split.scheme], split.path.rstrip("/"), login, files)


def _body(answer: http.client.HTTPResponse) -> bytes:
    """The answer's body. Raises HTTPException if it is too large."""
    parts, size = [], 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise http.client.HTTPException(f"its answer has more than {_MOST_BYTES} bytes")
    return b"".join(parts)


def _is_json(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def _read(body: bytes) -> RegisteredText | None:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    text = told.get("schema") if isinstance(told, dict) else None
    if not isinstance(text, str):
        return None
    return RegisteredText(text, str(told.get("schemaType") or "AVRO").upper(), bool(told.get("references")))


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"there is no complete answer within {_SECONDS:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails ({error.reason or error})"
    if isinstance(error, OSError):
        return error.strerror or str(error)[:_SHOWN] or "the connection breaks"
    return str(error)[:_SHOWN] or "the connection breaks"


def _hint(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "Check schema-registry-ca, and that the registry's name is in its certificate."
    return "Check schema-registry in the source's URI, and that the registry is up."
