"""What librdkafka reports of failures, and the sentences that are made of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import DefinitionError, SourceUnreachableError

_LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
RIGHTS = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
"""The codes of errors for rights that the account lacks."""
_OF_GROUPS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._WAIT_COORD})
"""A reader belongs to no group, though librdkafka looks for the coordinator of one."""
_VAGUE = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})
_PASSING = _OF_GROUPS | {
    *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE),
    *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
}
_CAUSES = (
    (_LOGIN, "the login is refused", "Check the user, the password and the SASL mechanism in the URI."),
    (
        frozenset({KafkaError._SSL}),
        "TLS fails",
        "Check the certificate authority (ca) and that the server's name is in its certificate.",
    ),
    (RIGHTS, "access is denied", "The account needs the rights DESCRIBE and READ on the topic."),
    (frozenset({KafkaError._RESOLVE}), "the server's name is unknown", "Check the servers in the URI."),
)
_NO_CONNECTION = "Check the servers in the URI, and that the brokers' advertised listeners can be reached from this machine."


class Failures:
    """The failures of one client. librdkafka tries again by itself, so most only explain why a request took too long."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._latest: dict[int, KafkaError] = {}
        self.down_since = math.inf
        """When (``time.monotonic``) all brokers were found to be down."""

    def take(self, error: KafkaError) -> None:
        """Librdkafka's ``error_cb``."""
        code = error.code()
        if code == KafkaError._ALL_BROKERS_DOWN:
            self.down_since = min(self.down_since, time.monotonic())
        former = self._latest.get(code)
        # The longer text is that of the connection: it names the cause, where a request only says that it was not answered.
        if code not in _OF_GROUPS and (former is None or len(former.str()) <= len(error.str())):
            self._latest[code] = error

    def forget(self) -> None:
        """An answer came: what failed before explains nothing that follows."""
        self._latest.clear()
        self.down_since = math.inf

    @property
    def is_final(self) -> bool:
        """Whether trying again is of no use: a login that is refused stays refused."""
        return any(code in codes for codes, _, _ in _CAUSES[:3] for code in self._latest)

    def passes(self, error: KafkaError) -> bool:
        """Whether a message's error may pass by itself. If so it is remembered, for the case that it does not."""
        self.take(error)
        return error.code() in _PASSING or error.retriable()

    def unreachable(self, where: str, why: str = "") -> SourceUnreachableError:
        """The error to raise for what was asked of ``where``, with the cause, as far as librdkafka names one."""
        for codes, told, hint in _CAUSES:
            known = next((self._latest[code] for code in codes if code in self._latest), None)
            if known is not None:
                return SourceUnreachableError(f"Kafka at {self._servers} cannot be read ({where}): {told} ({known.str()}).", hint)
        told = (
            "; ".join(dict.fromkeys(error.str() for error in self._latest.values() if error.code() not in _VAGUE))
            or "there is no answer"
        )
        return SourceUnreachableError(f"Kafka at {self._servers} cannot be read ({where}): {told}. {why}".rstrip(), _NO_CONNECTION)


def refused_settings(error: KafkaException, settings: Mapping[str, str]) -> DefinitionError:
    """The error for settings that librdkafka does not accept. Values are not shown: one may be a password."""
    told = str(error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else error)
    for name, value in settings.items():
        if value and value in told:
            told = told.replace(f'"{value}"', "the value").replace(value, "the value")
        if f'"{name}"' in told:
            return DefinitionError(
                f"librdkafka refuses the setting {name}: {told}.", "See librdkafka's CONFIGURATION.md for its settings."
            )
    return DefinitionError(f"librdkafka refuses the settings of the Kafka client: {told}.", "See librdkafka's CONFIGURATION.md.")
