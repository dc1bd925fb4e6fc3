"""A real Kafka broker for the tests: Apache Kafka in one process (KRaft), from its Maven artifacts, on free loopback ports.

The artifacts are fetched once into ``.kafka``, by the Ivy that comes with pyspark, from where Ivy is configured to look
(``~/.ivy2/ivysettings.xml`` if there is one). They must have the hashes of :data:`_DIGEST`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyspark
import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from certificates import Authority
from headrace.engine.java import find_java
from servers import end_with_parent, free_port, stop

_VERSION = "4.1.1"
_DIGEST = "db0e7b45f86a3c02b605405befb51352dd42d2913276849e741797bf0bd6d7f5"
"""The SHA-256 of a text with one line for each artifact, its own SHA-256 and its name, in the order of the names."""
CACHE = Path(__file__).parents[1] / ".kafka"
JARS = CACHE / f"kafka-{_VERSION}"
_START_SECONDS = 60
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
# The smallest that works: 160 MB, up in 4 s. Without the limit for its buffer the log cleaner alone wants 128 MB.
_JVM = ("-Xms64m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{more_listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{more_listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL
listener.name.ssl.ssl.keystore.type=PEM
listener.name.ssl.ssl.keystore.location={folder}/keystore.pem
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_{user}="{password}";
log.dirs={folder}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=8388608
"""
LOGIN = ("headrace", "pass:w@rd/1%")


@dataclass(frozen=True)
class Record:
    """A record to write."""

    value: bytes | None
    partition: int = 0
    key: bytes | None = None
    timestamp_ms: int = 0
    """0: now."""
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class KafkaBroker:
    """A running broker. ``secured`` is where it wants the login :data:`LOGIN` (SASL PLAIN)."""

    port: int
    secured: int
    encrypted: int
    """Where it uses TLS, with a certificate of :attr:`authority` for 127.0.0.1."""
    authority: Path
    admin: AdminClient
    command: tuple[str, ...]
    """What starts it."""
    log: Path
    pid: int = 0

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    def make_topic(self, partitions: int = 1, *, name: str = "", **config: str) -> str:
        """A new topic, and its name. It keeps records of any age: retention goes by their own timestamps."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
        return name

    def add_partitions(self, topic: str, count: int) -> None:
        """The topic has so many partitions from now on."""
        self.admin.create_partitions([NewPartitions(topic, count)])[topic].result()

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()

    def make_again(self, topic: str) -> None:
        """Deletes a topic and makes another one of its name, with one partition."""
        self.delete_topic(topic)
        deadline = time.monotonic() + 10
        while True:
            try:
                self.admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result()
            except KafkaException:  # the former one is not gone yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def write(self, topic: str, records: Iterable[Record], **settings: Any) -> None:
        """Appends records, and waits until they are there."""
        producer = Producer({"bootstrap.servers": self.server, "message.max.bytes": 100_000_000, "linger.ms": 0, **settings})
        failures: list[object] = []
        for record in records:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers) or None,
                on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            )
        assert producer.flush(30) == 0
        assert not failures

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Removes the records before an offset, as retention does."""
        for done in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result()

    def uri(self, topic: str, port: int = 0, **params: object) -> str:
        """``kafka://127.0.0.1:port/topic?protocol=canal-json&…``; underscores in names become dashes."""
        query = {"protocol": "canal-json", **{name.replace("_", "-"): str(value) for name, value in params.items()}}
        return f"kafka://127.0.0.1:{port or self.port}/{topic}?{urlencode(query)}"


@contextmanager
def running_kafka() -> Iterator[KafkaBroker]:
    """Runs a broker of its own, stopped and removed at the end."""
    jars, java = _jars(), str(find_java().home / "bin" / "java")
    folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
    ports = {"port": free_port(), "controller": free_port(), "secured": free_port(), "encrypted": free_port()}
    properties = folder / "server.properties"
    more = f",SASL_PLAINTEXT://127.0.0.1:{ports['secured']},SSL://127.0.0.1:{ports['encrypted']}"
    authority = Authority.made(folder, "authority")
    certificate, key = authority.issue("broker", "127.0.0.1")
    (folder / "keystore.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    user, password = LOGIN
    properties.write_text(
        _PROPERTIES.format(**ports, more_listeners=more, folder=folder, user=user, password=password), encoding="utf-8"
    )
    log, classes = folder / "log", ["-cp", f"{jars}/*"]
    try:
        _run([java, *classes, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)])
        command = (java, *_JVM, *classes, "kafka.Kafka", str(properties))
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports['port']}", "log_level": 0})
        with started_again(
            KafkaBroker(ports["port"], ports["secured"], ports["encrypted"], authority.path, admin, command, log)
        ) as broker:
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started_again(broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """Starts a broker that has ended on the ports and the data it had."""
    with broker.log.open("ab") as output:
        process = subprocess.Popen(broker.command, stdout=output, stderr=output, preexec_fn=end_with_parent)  # noqa: PLW1509
    try:
        _wait(process, broker.admin, broker.log)
        yield replace(broker, pid=process.pid)
    finally:
        stop(process)


def _wait(process: subprocess.Popen[bytes], admin: AdminClient, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            admin.list_topics(timeout=1)
        except KafkaException:
            continue
        return
    pytest.fail(f"Kafka did not start: {log.read_text(errors='replace')[-2000:]}", pytrace=False)


def _jars() -> Path:
    """The folder of the artifacts, fetched when they are not there yet. One process fetches, others wait for it."""
    if JARS.is_dir():
        return JARS
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not JARS.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                _fetch(Path(folder))
                found = _digest(Path(folder, "jars"))
                if found != _DIGEST:
                    pytest.fail(f"The artifacts of Kafka have the digest {found}, where {_DIGEST} was expected.", pytrace=False)
                Path(folder, "jars").rename(JARS)
    return JARS


def _fetch(folder: Path) -> None:
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    settings = Path.home() / ".ivy2" / "ivysettings.xml"
    _run(
        [
            *(str(find_java().home / "bin" / "java"), "-jar", str(ivy), "-warn", "-cache", str(folder / "cache")),
            *(["-settings", str(settings)] if settings.is_file() else []),
            *("-dependency", "org.apache.kafka", "kafka_2.13", _VERSION, "-confs", "default", "-types", "jar", "bundle"),
            *("-retrieve", f"{folder}/jars/[artifact]-[revision](-[classifier]).[ext]"),
        ]
    )


def _digest(jars: Path) -> str:
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(jars.iterdir())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _run(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        pytest.fail(f"{command[0]} failed: {(done.stderr or done.stdout)[-2000:]}", pytrace=False)
