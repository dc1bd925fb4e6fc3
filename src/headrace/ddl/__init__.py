"""DDL text to typed schema changes and back, and the difference of two shapes. Pure: no I/O."""
