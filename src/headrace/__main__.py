"""``python -m headrace``."""

from headrace.cli.main import entry

entry()
