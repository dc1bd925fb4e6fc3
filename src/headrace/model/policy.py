"""The user's policies: what to do with schema changes of each kind, and with bad records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.errors import DefinitionError
from headrace.model.uri import near_match


class ChangeKind(StrEnum):
    """The kinds of schema changes for which a policy can be set."""

    CREATE_DATABASE = "create-database"
    ALTER_DATABASE = "alter-database"
    DROP_DATABASE = "drop-database"
    CREATE_TABLE = "create-table"
    DROP_TABLE = "drop-table"
    TRUNCATE_TABLE = "truncate-table"
    RENAME_TABLE = "rename-table"
    ADD_COLUMN = "add-column"
    DROP_COLUMN = "drop-column"
    RENAME_COLUMN = "rename-column"
    ALTER_COLUMN = "alter-column"
    KEY = "key"
    """Adding or dropping the primary key."""
    INDEX = "index"
    PARTITION = "partition"
    VIEW = "view"
    OTHER = "other"


class Policy(StrEnum):
    APPLY = "apply"
    SKIP = "skip"
    """The change counts as done and is not run."""
    APPROVE = "approve"
    """The change's tables wait for ``headrace ddl approve``, ``skip`` or ``edit``."""


# Rows after such a change cannot be written to a target that skipped it.
_NEEDED_BY_ROWS = frozenset({ChangeKind.RENAME_TABLE, ChangeKind.ADD_COLUMN, ChangeKind.RENAME_COLUMN, ChangeKind.KEY})


@dataclass(frozen=True)
class SchemaChangePolicies:
    """A policy per kind. A kind without a policy is applied."""

    by_kind: Mapping[ChangeKind, Policy] = field(default_factory=dict)

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> SchemaChangePolicies:
        """Reads ``{"drop-table": "approve"}``.

        Raises DefinitionError for unknown words, and for a skip of a change that later rows need.
        """
        policies: dict[ChangeKind, Policy] = {}
        for name, word in settings.items():
            if name not in list(ChangeKind):
                raise DefinitionError(
                    f"{name!r} is no kind of schema change.", near_match(name, [str(kind) for kind in ChangeKind])
                )
            if word not in list(Policy):
                raise DefinitionError(f"{word!r} is no policy for {name}.", near_match(word, [str(policy) for policy in Policy]))
            kind, policy = ChangeKind(name), Policy(word)
            if policy is Policy.SKIP and kind in _NEEDED_BY_ROWS:
                raise DefinitionError(
                    f"{name} cannot be skipped: the rows that follow it need it.",
                    f"Set {name}=approve to decide each time, and leave tables out with tables (--tables on the command line).",
                )
            policies[kind] = policy
        return cls(policies)

    @classmethod
    def parse_text(cls, text: str) -> SchemaChangePolicies:
        """Reads ``drop-table=approve,index=skip``. Raises DefinitionError."""
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        return cls.parse({name.strip(): word.strip() for name, _, word in pairs})

    def of(self, kinds: Collection[ChangeKind]) -> Policy:
        """The policy for a change of these kinds. If only a part of the change would be skipped, a person has to decide."""
        found = {self.by_kind.get(kind, Policy.APPLY) for kind in kinds}
        if Policy.APPROVE in found or len(found) > 1:
            return Policy.APPROVE
        return found.pop() if found else Policy.APPLY


class OnError(StrEnum):
    """What happens to a table with a record that cannot be read, or a row whose values the target refuses."""

    STOP = "stop"
    """The table stops until the cause is repaired."""
    DEAD_LETTER = "dead-letter"
    """The table goes on without the record or row, which stays in a folder until it is replayed."""
