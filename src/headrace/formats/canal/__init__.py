"""Canal's protobuf messages, as TiCDC writes them to Kafka with ``protocol=canal``; canal-JSON is in modules of its own.

``messages`` tells what a message is about, ``rows`` reads the rows. The format is that of Canal's ``CanalProtocol.proto`` and
``EntryProtocol.proto`` (``canal.proto`` has the part that is read).
"""
