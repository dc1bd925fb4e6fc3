"""The errors that Headrace raises, and the exit code with which each one ends a command.

Bad data is not raised as an error across Spark: a task returns it as a :class:`headrace.model.outcome.Problem`. A raised error
stops the command. Its message is one sentence that says what is wrong, and its ``hint`` says what to do.
"""

from __future__ import annotations

from typing import Self

EXIT_OK = 0
EXIT_USAGE = 2
EXIT_TABLE_STOPPED = 3
EXIT_UNREACHABLE = 4
EXIT_INTERRUPTED = 130


class HeadraceError(Exception):
    """Base of every error a user can meet. ``str()`` is the message, followed by the hint if there is one."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class DefinitionError(HeadraceError):
    """The command line, a URI, a changefeed file or a pipeline definition is wrong."""


class MissingPartError(HeadraceError):
    """Java or an extra of the package is not installed."""


class SourceUnreachableError(HeadraceError):
    """The store that holds the change data cannot be read at all."""

    exit_code = EXIT_UNREACHABLE


class SourceLostError(HeadraceError):
    """The source no longer has changes that were not applied yet."""

    exit_code = EXIT_UNREACHABLE


class SourceNotReadyError(HeadraceError):
    """The folder exists but is not (yet) a readable changefeed output: ``metadata`` is missing or cannot be read."""

    exit_code = EXIT_UNREACHABLE


class NoWatermarkError(SourceNotReadyError):
    """There is change data, but the source has not yet published up to which TSO it is complete."""


class SinkUnreachableError(HeadraceError):
    """The target refuses connections, or the login."""

    exit_code = EXIT_UNREACHABLE


class LedgerUnreadableError(SinkUnreachableError):
    """The ledger exists and can be reached, but its record of the pipeline cannot be read."""


class FencedError(HeadraceError):
    """Another run of the same pipeline took over. This run must not write any more."""

    exit_code = EXIT_UNREACHABLE

    @classmethod
    def forgotten(cls, pipeline: str) -> Self:
        """The error for a ledger that no longer has a record of the pipeline."""
        hint = "The pipeline was reset, or the target was restored to a time before the pipeline began. The next run begins anew."
        return cls(f"The ledger's record of pipeline {pipeline!r} is gone.", hint)

    @classmethod
    def taken_over(cls, pipeline: str, epoch: int, found: int | None) -> Self:
        """The error for a run with ``epoch`` whose ledger shows the token of another run.

        ``found`` is the epoch in the ledger, or ``None`` if it cannot be read.

        The ledger does not show whether that run took over, or whether the target was restored to the time of an earlier run. If
        both epochs are equal, a restore is as likely: after a restore to a time before both runs, each of them can take this epoch.
        """
        took_over = f"Another run of pipeline {pipeline!r} took over"
        if found == epoch:
            message = (
                f"{took_over}, or the target was restored to the time of another run: the ledger shows the token of that run, with "
                f"epoch {epoch}."
            )
        else:
            message = f"{took_over} ({f'epoch {found}, ' if found is not None else ''}this run had {epoch})."
        return cls(
            message,
            "Keep only one run of a pipeline, or give the other one its own --name. If there is no other run, a restore or a "
            "failover brought back the ledger of an earlier run: start this run again.",
        )


class TransientError(HeadraceError):
    """The target failed, and a retry may succeed (lost connection, deadlock, lock held by a reader)."""

    exit_code = EXIT_UNREACHABLE


class TargetWentBackError(TransientError):
    """The ledger is not as this run left it, so the target is not in the state that this run wrote.

    A failover lost the last transactions, or a backup was restored. The ledger's present content is valid.
    """


class TerminalError(HeadraceError):
    """The target refused, and a retry cannot succeed."""

    exit_code = EXIT_TABLE_STOPPED


class JobFailedError(HeadraceError):
    """A Spark job failed for a reason other than data: a lost executor, or a bug. The cut may be retried."""

    exit_code = 1
