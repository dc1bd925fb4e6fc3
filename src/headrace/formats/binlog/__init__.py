"""TiDB's secondary binlog: the messages that TiDB Binlog's Drainer writes to Kafka, one for each transaction or DDL job.

``messages`` reads one message and checks it. ``row_events`` gives its rows as Python values, ``columns`` the rows of many messages
as blocks. The format is that of TiDB's "Binlog Consumer Client User Guide", section "Data format", with the fields that later
releases added.
"""
