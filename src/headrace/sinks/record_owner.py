"""To which source a pipeline's record in a ledger belongs."""

from __future__ import annotations

from headrace.errors import DefinitionError


def require_owner(pipeline: str, owner: str, source_identity: str) -> None:
    """Raises DefinitionError if the record, which belongs to the source ``owner``, belongs to another one."""
    if owner != source_identity:
        raise DefinitionError(
            f"The ledger's pipeline {pipeline!r} belongs to the source {owner}, not to {source_identity}.",
            "Give this pipeline another name with --name, or forget the former one with headrace reset.",
        )
