"""Settings of a changefeed with which its files contain more information."""

from __future__ import annotations

from headrace.model.advice import SourceAdvice
from headrace.sources.ticdc_storage.options import Protocol

_EXACT_COMMIT_TS = {
    Protocol.CSV: "Set include-commit-ts = true under [sink.csv] of the changefeed",
    Protocol.CANAL_JSON: "Set enable-tidb-extension=true in the changefeed's sink URI",
}
_WEAKER = {
    Protocol.CSV: (
        "The files carry no commit ts: changes are applied file by file, at least once, and tables are not consistent with "
        "each other in between."
    ),
    Protocol.CANAL_JSON: (
        "The files carry only the millisecond of the commit ts: within a millisecond the order of the files decides, and a "
        "transaction may be seen in parts."
    ),
}


def advice_for(protocol: Protocol) -> SourceAdvice:
    """The advice for a changefeed of this protocol."""
    is_csv = protocol is Protocol.CSV
    return SourceAdvice(
        exact_commit_ts=f"{_EXACT_COMMIT_TS[protocol]}.",
        old_rows="Set output-old-value = true under [sink.csv] of the changefeed (it holds for files written from then on)."
        if is_csv
        else "",
        whole_deletes="Or set delete-only-output-handle-key-columns = false in the changefeed.",
        one_writer="Set enable-table-across-nodes = false under [scheduler] of the changefeed and copy the table anew.",
    )


def no_commit_ts(protocol: Protocol) -> str:
    """What is lost if files of this protocol carry no exact commit ts, and what to set."""
    return f"{_WEAKER[protocol]} {_EXACT_COMMIT_TS[protocol]} for more."
