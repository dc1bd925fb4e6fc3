"""Divides a message of several tables into one for each of them."""

from __future__ import annotations

from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.formats.binlog.messages import read_binlog
from headrace.model.table import TableId


def by_table(data: bytes) -> dict[TableId, bytes]:
    """For each table with rows in a transaction, a message with its changes only, in their order. Raises BinlogError."""
    names = [changes.table_id for changes in read_binlog(data).tables]
    whole = pb.Binlog.FromString(data)
    found: dict[TableId, pb.Binlog] = {}
    for table_id, changes in zip(names, whole.dml_data.tables, strict=True):
        if not changes.mutations:
            continue
        if table_id not in found:
            found[table_id] = pb.Binlog(type=whole.type, commit_ts=whole.commit_ts, time_zone=whole.time_zone)
        found[table_id].dml_data.tables.append(changes)
    return {table_id: message.SerializeToString() for table_id, message in found.items()}
