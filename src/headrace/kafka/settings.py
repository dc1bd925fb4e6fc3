"""The address and the settings of a Kafka cluster, as URIs name them: TiCDC's own parameters, and librdkafka's with ``kafka.``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import DefinitionError
from headrace.kafka.client import OWN_SETTINGS, WAIT_SECONDS, KafkaClient
from headrace.model.uri import Uri

PREFIX = "kafka."
"""``kafka.<name>`` in a URI is the setting ``<name>`` of librdkafka."""
DEFAULT_PORT = 9092
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0", ""})
_OF_TICDC = {
    "sasl-user": "sasl.username",
    "sasl-password": "sasl.password",
    "sasl-mechanism": "sasl.mechanism",
    "ca": "ssl.ca.location",
    "cert": "ssl.certificate.location",
    "key": "ssl.key.location",
    "kafka-client-id": "client.id",
    "sasl-gssapi-service-name": "sasl.kerberos.service.name",
    "sasl-gssapi-keytab-path": "sasl.kerberos.keytab",
    "sasl-gssapi-user": "sasl.kerberos.principal",
}
CLUSTER_PARAMETERS = frozenset({*_OF_TICDC, "enable-tls", "insecure-skip-verify"})
"""TiCDC's parameters that say how to reach a cluster."""


@dataclass(frozen=True)
class KafkaCluster:
    """How to reach a cluster. Picklable; ``repr`` shows no setting, since one may be a password."""

    servers: tuple[str, ...]
    """``host:port``."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """librdkafka's."""

    def connect(self, *, wait: float = WAIT_SECONDS) -> KafkaClient:
        """A new client, for one thread. Raises DefinitionError; see :meth:`KafkaClient.connect`."""
        return KafkaClient.connect(self.servers, self.settings, wait=wait)


def cluster_of(uri: Uri) -> KafkaCluster:
    """The cluster that a URI names. Raises DefinitionError. Parameters that do not concern a cluster are left to the caller."""
    if uri.username or uri.password:
        raise DefinitionError(
            f"{uri.redacted()} has a user before its host, and Kafka's URIs have none.",
            "Write sasl-user and sasl-password as parameters.",
        )
    servers = _servers(uri)
    settings = {of: uri.params[name] for name, of in _OF_TICDC.items() if name in uri.params}
    has_login = any(name.startswith("sasl.") for name in settings)
    # TiCDC uses TLS if it is asked for, or if it has a certificate.
    with_tls = _flag(uri, "enable-tls") or any(name.startswith("ssl.") for name in settings)
    settings["security.protocol"] = ("sasl_" if has_login else "") + ("ssl" if with_tls else "plaintext")
    if has_login:
        settings["sasl.mechanism"] = settings.get("sasl.mechanism", "PLAIN").upper()
    if _flag(uri, "insecure-skip-verify"):
        settings["enable.ssl.certificate.verification"] = "false"
    for name, value in uri.params.items():
        if name.startswith(PREFIX):
            settings[_allowed(name.removeprefix(PREFIX))] = value
    return KafkaCluster(servers, settings)


def is_topic_name(text: str) -> bool:
    """Whether Kafka accepts the name of a topic."""
    return _TOPIC.fullmatch(text) is not None and text not in (".", "..")


def _servers(uri: Uri) -> tuple[str, ...]:
    hosts = uri.host.split(",")
    if not all(hosts):
        raise DefinitionError(f"{uri.redacted()} does not name a server.", "Write kafka://host:9092/topic.")
    *others, last = hosts
    last = f"[{last}]" if ":" in last else last
    found = [*others, last if uri.port is None else f"{last}:{uri.port}"]
    return tuple(server if server.rpartition("]")[2].find(":") >= 0 else f"{server}:{DEFAULT_PORT}" for server in found)


def _allowed(name: str) -> str:
    if name in OWN_SETTINGS:
        raise DefinitionError(f"The setting {PREFIX}{name} cannot be set: what Headrace reads depends on it.")
    return name


def _flag(uri: Uri, name: str) -> bool:
    value = uri.params.get(name, "").lower()
    if value not in _TRUE | _FALSE:
        raise DefinitionError(f"{name} must be true or false, not {value!r}.")
    return value in _TRUE
