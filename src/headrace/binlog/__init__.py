"""Reads TiDB's secondary binlog, which TiDB Binlog's Drainer writes to Kafka::

    from headrace.binlog import Driver
    with Driver(kafka_addr=["localhost:9092"], topic="6823548660393262086_obinlog") as driver:
        for transaction in driver:
            for row in transaction:
                print(row.op, row.table_id, row.before, row.after)

``docs/binlog-driver.md`` is the manual.
"""

from __future__ import annotations

from headrace.binlog.driver import NEWEST, OLDEST, BinlogWarning, Driver, Transaction, find_offset, topic_name
from headrace.binlog.errors import BadRecordError, CommitTsTooOldError, OffsetGapError
from headrace.binlog.position import Position
from headrace.binlog.seek import SeekResult
from headrace.formats.binlog.cell_values import EnumOrdinal, LocalTimestamp, SetMask
from headrace.formats.binlog.messages import DdlStatement, MutationType
from headrace.formats.binlog.row_events import RowEvent
from headrace.model.table import TableId

__all__ = [
    "NEWEST",
    "OLDEST",
    "BadRecordError",
    "BinlogWarning",
    "CommitTsTooOldError",
    "DdlStatement",
    "Driver",
    "EnumOrdinal",
    "LocalTimestamp",
    "MutationType",
    "OffsetGapError",
    "Position",
    "RowEvent",
    "SeekResult",
    "SetMask",
    "TableId",
    "Transaction",
    "find_offset",
    "topic_name",
]
