"""The values that all parts of Headrace exchange. No I/O, no Spark."""
