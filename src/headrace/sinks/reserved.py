"""The databases of a target to which the source's tables must not be written."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.commands import in_quotes


@dataclass(frozen=True)
class Reserved:
    """Databases of the target to which nothing of the source may be written.

    All names are compared without case, as the source does; whether the target does depends on its settings.
    """

    ledger: str = ""
    """The database of Headrace's own tables."""
    move: str = ""
    """How to move the ledger, for hints."""
    system: frozenset[str] = frozenset()
    """The target's own databases."""

    def sentence(self, database: str) -> str:
        """Why the source's database cannot be written to this target; empty if it can."""
        folded = database.casefold()
        if self.ledger and folded == self.ledger.casefold():
            return f"the source's database {database} has the name of the database in which Headrace keeps its ledger here."
        return f"a database named {database} belongs to the target's own system." if folded in self.system else ""

    def hint(self, database: str) -> str:
        """What to do about it."""
        leave_out = f"eave the database out with --tables {in_quotes(f'*.*,!{database}.*')}."
        return f"L{leave_out}" if database.casefold() in self.system else f"{self.move}, or l{leave_out}"
