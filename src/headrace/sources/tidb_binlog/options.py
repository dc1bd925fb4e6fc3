"""What a URI ``tidb-binlog://host:9092[,host:9092]/[topic]?cluster-id=…`` says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headrace.errors import DefinitionError
from headrace.formats.binlog.cell_values import ValueOptions
from headrace.kafka.settings import CLUSTER_PARAMETERS, PREFIX, is_topic_name
from headrace.model.uri import Uri, reject_unknown

_OWN = frozenset({"cluster-id", "time-zone", "charset", "allow-gap"})
URI_PARAMETERS = CLUSTER_PARAMETERS | _OWN
"""All parameters that such a URI may have, besides those of librdkafka (``kafka.…``)."""
_CLUSTER_ID = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True)
class BinlogOptions:
    """How to read a Drainer's topic."""

    topic: str
    allow_gap: bool = False
    """Whether a pipeline may begin although changes after its start may not be kept any more."""
    values: ValueOptions = field(default_factory=ValueOptions)


def read_options(uri: Uri) -> BinlogOptions:
    """The options of a URI. Without a topic it is ``<cluster-id>_obinlog``, as Drainer names it. Raises DefinitionError."""
    reject_unknown([name for name in uri.params if not name.startswith(PREFIX)], URI_PARAMETERS, "parameter of a binlog source")
    try:
        values = ValueOptions(uri.params.get("time-zone", ""), uri.params.get("charset", "utf-8"))
    except ValueError as error:
        raise DefinitionError(f"{error}.") from None
    allow_gap = uri.params.get("allow-gap", "false").lower()
    if allow_gap not in ("true", "false"):
        raise DefinitionError(f"allow-gap must be true or false, not {allow_gap!r}.")
    return BinlogOptions(_topic(uri), allow_gap == "true", values)


def _topic(uri: Uri) -> str:
    topic, cluster_id = uri.path.strip("/"), uri.params.get("cluster-id", "")
    if cluster_id and not _CLUSTER_ID.fullmatch(cluster_id):
        raise DefinitionError(f"cluster-id must be a number, not {cluster_id!r}.")
    if not topic and not cluster_id:
        raise DefinitionError(
            f"{uri.redacted()} names neither a topic nor a cluster id.",
            "Write tidb-binlog://host:9092/topic, or add ?cluster-id=… for the topic that Drainer names by itself.",
        )
    topic = topic or f"{int(cluster_id)}_obinlog"
    if not is_topic_name(topic):
        raise DefinitionError(f"{topic!r} is not a name of a Kafka topic.")
    return topic
