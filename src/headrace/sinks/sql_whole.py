"""Whether the tables of a SQL ledger are there together."""

from __future__ import annotations

from headrace.errors import DefinitionError

_FROM_THE_FIRST = ("pipelines", "tables", "ddl_journal")
"""The tables that every ledger has, also one of an older Headrace. They are created before ``cuts``."""


def whole(present: dict[str, set[str]], namespace: str) -> dict[str, set[str]]:
    """The ledger's tables that exist, with their columns. Raises DefinitionError if the ledger was created and lost some since.

    A missing table must not be taken for an empty one: what it held would be forgotten, and applied again or passed over.
    """
    missing = [f"{namespace}.{name}" for name in _FROM_THE_FIRST if name not in present] if "cuts" in present else []
    if missing:
        there = "it" if len(missing) == 1 else "them"
        raise DefinitionError(
            f"The ledger in {namespace} is damaged: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
            f'Restore {there} from a backup, together with the target (docs/operations.md, "Restore a backup"). To begin anew '
            f"instead, drop the other tables of {namespace} and the pipeline's tables in the target, and start the run again.",
        )
    return present
