"""The progress of a run: one moving line on a terminal; elsewhere a line for each cut, and a line every few seconds in between.

The figures are plain values, and pure functions format them. The two classes only decide when to show something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace.model.tso import format_tso, tells_time, tso_to_ms

if TYPE_CHECKING:
    from headrace.model.ledger import CutRecord

HEARTBEAT_SECONDS = 5.0
NOTHING_APPLIED = "nothing applied yet"
"""The text for a checkpoint of 0."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_REFRESH_PER_SECOND = 4


@dataclass(frozen=True)
class Figures:
    """How far a run is."""

    phase: str = ""
    since: float = 0.0
    """When the phase began (Unix seconds)."""
    waiting: bool = False
    files_done: int = 0
    files_total: int = 0
    rows: int = 0
    cut_ts: int = 0
    """TSO of the end of the cut being applied; 0 between cuts."""
    cut_since: float = 0.0
    """When the cut began (Unix seconds)."""
    checkpoint: int = 0
    """TSO up to which everything is applied; 0 while it is unknown."""
    noun: str = "file"
    """The word for what the last cut consisted of: files, or pieces of a stream."""


class Progress(Protocol):
    """Shows the progress of a command. The methods may be called from any thread."""

    def phase(self, text: str) -> None:
        """A new phase begins: ``starting Spark``. Its text is shown at once, unless it is shown already."""
        ...

    def idle(self, text: str, checkpoint: int) -> None:
        """The run waits for the source. A terminal shows this with the lag; elsewhere nothing is shown."""
        ...

    def cut_started(self, files_total: int, cut_ts: int, noun: str = "file") -> None:
        """A cut up to ``cut_ts`` (TSO) with ``files_total`` files begins. ``noun`` is the word for one of them."""
        ...

    def advance(self, files_done: int, rows: int) -> None:
        """How many files and rows of the cut are done, counted from the start of the cut."""
        ...

    def cut_finished(self, record: CutRecord) -> None:
        """The cut is durable. Its ``hi`` is now the checkpoint, unless it was a cut for tables that catch up."""
        ...


class FiguresProgress:
    """Keeps the figures. The subclasses decide what to show."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.figures = Figures()

    def phase(self, text: str) -> None:
        """See :class:`Progress`."""
        self._put_phase(text)

    def _put_phase(self, text: str) -> bool:
        """Sets the phase. Returns whether it is a new one."""
        if text == self.figures.phase and not self.figures.waiting:
            return False
        self._put(phase=text, since=time.time(), waiting=False)
        return True

    def idle(self, text: str, checkpoint: int) -> None:
        """See :class:`Progress`."""
        if not self.figures.waiting or self.figures.checkpoint != checkpoint:
            self._put(phase=text, since=time.time(), waiting=True, checkpoint=checkpoint, cut_ts=0)

    def cut_started(self, files_total: int, cut_ts: int, noun: str = "file") -> None:
        """See :class:`Progress`."""
        now = time.time()
        counts = {"files_done": 0, "files_total": files_total, "noun": noun, "rows": 0}
        self._put(phase="applying", since=now, waiting=False, cut_since=now, cut_ts=cut_ts, **counts)

    def advance(self, files_done: int, rows: int) -> None:
        """See :class:`Progress`."""
        self._put(files_done=files_done, rows=rows)

    def cut_finished(self, record: CutRecord) -> None:
        """See :class:`Progress`."""
        checkpoint = max(record.hi, self.figures.checkpoint)
        self._put(phase="looking for more", since=time.time(), waiting=True, cut_ts=0, checkpoint=checkpoint)

    def _put(self, **changes: object) -> None:
        with self._lock:
            self.figures = replace(self.figures, **changes)  # type: ignore[arg-type]


class HeartbeatProgress(FiguresProgress):
    """Prints a line for each phase and cut, and one every ``every`` seconds while a phase takes long."""

    def __init__(
        self,
        *,
        phase: Callable[[str], None],
        beat: Callable[[Figures], None],
        cut: Callable[[CutRecord, str], None],
        every: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__()
        self._show_phase, self._show_beat, self._show_cut, self._every = phase, beat, cut, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="headrace-progress", daemon=True)

    def phase(self, text: str) -> None:
        if self._put_phase(text):
            self._show_phase(text)

    def cut_finished(self, record: CutRecord) -> None:
        super().cut_finished(record)
        self._show_cut(record, self.figures.noun)

    def _beat(self) -> None:
        told = time.time()
        while not self._ended.wait(self._every / 5):
            figures, now = self.figures, time.time()
            if figures.phase and not figures.waiting and now - max(figures.since, told) >= self._every:
                self._show_beat(figures)
                told = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()


class LiveProgress(FiguresProgress):
    """Shows one line at the bottom of a terminal, with a spinner and the elapsed time, drawn by a thread of its own.

    At the end the line is replaced by one that sums up all cuts.
    """

    def __init__(self, console: Console, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._console, self._redact = console, redact
        self._total: CutRecord | None = None
        self._live = Live(
            console=console, get_renderable=self._render, transient=True, refresh_per_second=_REFRESH_PER_SECOND, auto_refresh=True
        )

    def _render(self) -> Text:
        figures = self.figures
        if not figures.phase:
            return Text("")
        frame = _FRAMES[int(time.time() * _REFRESH_PER_SECOND) % len(_FRAMES)]
        return Text(f"{frame} {self._redact(figures_text(figures))}", no_wrap=True, overflow="ellipsis")

    def cut_finished(self, record: CutRecord) -> None:
        super().cut_finished(record)
        self._total = record if self._total is None else _together(self._total, record)

    def _put(self, **changes: object) -> None:
        super()._put(**changes)
        if "phase" in changes and self._live.is_started:
            self._live.refresh()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._live.stop()
        if self._total is not None:
            self._console.print(Text(self._redact(cut_text(self._total, noun=self.figures.noun))), soft_wrap=True)


def _together(earlier: CutRecord, later: CutRecord) -> CutRecord:
    return replace(
        later,
        seconds=earlier.seconds + later.seconds,
        files=earlier.files + later.files,
        read_rows=earlier.read_rows + later.read_rows,
        upserts=earlier.upserts + later.upserts,
        deletes=earlier.deletes + later.deletes,
        read_bytes=earlier.read_bytes + later.read_bytes,
        schema_changes=earlier.schema_changes + later.schema_changes,
        netted=earlier.netted + later.netted,
        refused=earlier.refused + later.refused,
        left=earlier.left + later.left,
        passed=earlier.passed + later.passed,
    )


def figures_text(figures: Figures, now: float | None = None) -> str:
    """``applying: 3 of 12 files, 90,000 rows, 45,000 rows/s, up to 2024-06-05 09:30:23.694 UTC, 2 s``."""
    now = time.time() if now is None else now
    parts: list[str] = []
    if figures.cut_ts:
        if figures.files_total:
            parts.append(f"{figures.files_done:,} of {counted(figures.files_total, figures.noun)}")
        if figures.rows:
            parts.append(counted(figures.rows, "row"))
            parts.append(f"{rows_per_second(figures, now):,} rows/s")
        parts.append(f"up to {format_tso(figures.cut_ts)}")
    elif figures.checkpoint:
        parts.append(f"applied up to {format_tso(figures.checkpoint)}")
    if figures.checkpoint and figures.waiting:
        parts += [lag] if (lag := _lag_text(figures.checkpoint, now)) else []
    else:
        parts.append(seconds_text(max(0.0, now - figures.since)))
    return f"{figures.phase}: {', '.join(parts)}"


def figures_fields(figures: Figures, now: float | None = None) -> dict[str, object]:
    """The same figures for machines. TSOs are integers, times are in seconds."""
    now = time.time() if now is None else now
    return {
        "phase": figures.phase,
        "elapsed_seconds": round(max(0.0, now - figures.since), 1),
        "files_done": figures.files_done,
        "files_total": figures.files_total,
        "rows": figures.rows,
        "rows_per_second": rows_per_second(figures, now),
        "cut_ts": figures.cut_ts,
        "checkpoint": figures.checkpoint,
    }


def cut_text(record: CutRecord, now: float | None = None, noun: str = "file") -> str:
    """One line about a finished cut: its end, its amounts, how long it took, and how far it lags behind the clock."""
    changes = f", {counted(record.schema_changes, 'schema change')}" if record.schema_changes else ""
    rate = f" ({round(record.read_rows / record.seconds):,} rows/s)" if record.seconds > 0 and record.read_rows else ""
    lag = _lag_text(record.hi, now)
    return (
        f"applied up to {format_tso(record.hi)}: {counted(record.files, noun)}, {counted(record.read_rows, 'row')} read, "
        f"{counted(record.upserts, 'upsert')}, {counted(record.deletes, 'delete')}{changes} "
        f"in {seconds_text(record.seconds)}{rate}" + (f", {lag}" if lag else "")
    )


def cut_fields(record: CutRecord, now: float | None = None) -> dict[str, object]:
    """The fields of a finished cut for machines. TSOs are integers, times are in seconds."""
    return {
        "checkpoint": record.hi,
        "checkpoint_time": format_tso(record.hi),
        "lag_seconds": round(lag_seconds(record.hi, now), 1),
        "finished_at": record.finished_at,
        "seconds": record.seconds,
        "files": record.files,
        "read_rows": record.read_rows,
        "read_bytes": record.read_bytes,
        "upserts": record.upserts,
        "deletes": record.deletes,
        "schema_changes": record.schema_changes,
    }


def rows_per_second(figures: Figures, now: float) -> int:
    """The rate since the cut began."""
    elapsed = now - figures.cut_since
    return round(figures.rows / elapsed) if elapsed > 0 and figures.rows else 0


def lag_seconds(checkpoint: int, now: float | None = None) -> float:
    """How far a checkpoint (TSO) lies behind the clock; 0 where the clocks disagree."""
    return max(0.0, (time.time() if now is None else now) - tso_to_ms(checkpoint) / 1000)


def counted(count: int, noun: str) -> str:
    """``1 file``, ``1,200 files``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def checkpoint_text(checkpoint: int) -> str:
    """``2024-06-05 09:30:23.694 UTC (450253107233619969), lag 42 s``. For a checkpoint of 0, use :data:`NOTHING_APPLIED`."""
    lag = _lag_text(checkpoint)
    return f"{format_tso(checkpoint)} ({checkpoint}), {lag}" if lag else str(checkpoint)


def _lag_text(checkpoint: int, now: float | None = None) -> str:
    """``lag 42 s``; empty if the checkpoint (TSO) tells no time."""
    return f"lag {seconds_text(lag_seconds(checkpoint, now))}" if tells_time(checkpoint) else ""


def size_text(size: int) -> str:
    """``812 bytes``, ``4.0 KiB``, ``1.5 GiB``."""
    if size < 1 << 10:
        return counted(size, "byte")
    power = min((size.bit_length() - 1) // 10, 4)
    return f"{size / (1 << 10 * power):.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def seconds_text(seconds: float) -> str:
    """``0.4 s``, ``42 s``, ``3 min 20 s``, ``5 h 3 min``, ``12 d 4 h``: two units at most."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    if whole < 2 * 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
