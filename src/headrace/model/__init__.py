"""The values that every part of Headrace speaks. No I/O, no Spark."""
