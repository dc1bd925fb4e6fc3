"""TiCDC's Craft protocol, a binary format with the parts of several events behind one another.

There is no description of it but TiCDC's code (``pkg/sink/codec/craft``). ``messages`` splits a message into events and reads what
they are about, ``rows`` reads the rows. Numbers are those of Protocol Buffers: a ``uvarint`` is a varint, a ``varint`` a zigzag
one.
"""
