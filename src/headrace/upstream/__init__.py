"""The TiDB or MySQL server that is replicated: where it is, and a careful connection to it."""
