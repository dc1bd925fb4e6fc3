"""The errors that Headrace raises, and the exit code that each one ends a command with.

Bad data is never raised across Spark: a task returns it as a :class:`headrace.model.outcome.Problem`. What is raised
stops the command, so each message is one sentence that says what is wrong and, as ``hint``, what to do about it.
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
    """Something that must be installed is not: Java, or an extra of the package."""


class SourceUnreachableError(HeadraceError):
    """The store that holds the change data cannot be read at all."""

    exit_code = EXIT_UNREACHABLE


class SourceLostError(HeadraceError):
    """The source does not keep any more what was not applied yet."""

    exit_code = EXIT_UNREACHABLE


class SourceNotReadyError(HeadraceError):
    """The folder is there but is no readable changefeed output (yet): no ``metadata``, or none that can be read."""

    exit_code = EXIT_UNREACHABLE


class NoWatermarkError(SourceNotReadyError):
    """There are change data, but the source has not promised yet up to where they are complete."""


class SinkUnreachableError(HeadraceError):
    """The target refuses connections, or the login."""

    exit_code = EXIT_UNREACHABLE


class LedgerUnreadableError(SinkUnreachableError):
    """The ledger is there and can be reached, but nothing that it holds of the pipeline can be read."""


class FencedError(HeadraceError):
    """Another run of the same pipeline took over; this one must not write any more."""

    exit_code = EXIT_UNREACHABLE

    @classmethod
    def forgotten(cls, pipeline: str) -> Self:
        """The ledger has no record of the pipeline any more."""
        hint = "The pipeline was reset, or the target was restored to a time before the pipeline began. The next run begins anew."
        return cls(f"The ledger's record of pipeline {pipeline!r} is gone.", hint)

    @classmethod
    def taken_over(cls, pipeline: str, epoch: int, found: int | None) -> Self:
        """What a run with ``epoch`` is told whose ledger shows another run, with the epoch ``found`` where that can be read.

        The ledger does not tell a run that took over from one of another time, to which the target was restored. With the same
        epoch the second is as likely: a restore to before both runs lets each of them take it.
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
    """The target failed in a way that a repetition may mend (lost connection, deadlock, lock held by a reader)."""

    exit_code = EXIT_UNREACHABLE


class TargetWentBackError(TransientError):
    """The ledger is not as this run left it: the target is in another state than the one that this run brought about.

    A failover lost the last transactions, or a backup was restored. What the ledger says now counts.
    """


class TerminalError(HeadraceError):
    """The target refused in a way that no repetition will mend."""

    exit_code = EXIT_TABLE_STOPPED


class JobFailedError(HeadraceError):
    """A Spark job broke for another reason than data: a lost executor, or a bug. The cut may be tried again."""

    exit_code = 1
