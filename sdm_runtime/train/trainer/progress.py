"""Progress of a training run: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from sdm_runtime.train.trainer.history import History

if TYPE_CHECKING:
    from rich.console import Console

_SMOOTHING_STEPS = 20
_LINE_EVERY_S = 10.0


class Progress(Protocol):
    """Told of each step; a context manager."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End, keeping what was shown."""

    def update(self, step: int, history: History) -> None:
        """Show that ``step`` steps are done."""

    def message(self, text: str) -> None:
        """Print a line that stays."""


class SilentProgress:
    """Shows nothing (processes other than the first)."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def update(self, step: int, history: History) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Print nothing."""


class PlainProgress:
    """One line every ten seconds, and one at the end."""

    def __init__(
        self, console: Console, steps: int, step: int, history: History, unit: str = "byte"
    ) -> None:
        """Begin at ``step`` of ``steps``; the loss is shown in bits per ``unit``."""
        self._console, self._steps = console, steps
        self._pace = _Pace(steps, step, history, unit)
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def update(self, step: int, history: History) -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if step < self._steps and now - self._last < _LINE_EVERY_S:
            return
        self._last = now
        shown = self._pace.fields(step, history)
        left = _clock(float(shown.pop("left_s")))
        words = "  ".join(f"{name} {value}" for name, value in shown.items())
        self.message(f"step {step}/{self._steps}  {words}  left {left}")

    def message(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """A bar with loss, bits per byte, tokens per second and time left, redrawn in place."""

    def __init__(
        self, console: Console, steps: int, step: int, history: History, unit: str = "byte"
    ) -> None:
        """Begin at ``step`` of ``steps``; the loss is shown in bits per ``unit``."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn(f"bits/{unit} {{task.fields[bits]}}"),
            TextColumn("{task.fields[rate]} tokens/s"),
            TextColumn("left {task.fields[left]}"),
            console=console,
        )
        self._pace = _Pace(steps, step, history, unit)
        blank: dict[str, Any] = {"loss": "-", "bits": "-", "rate": "-", "left": "-:--"}
        self._task = self._bar.add_task("", total=steps, completed=step, **blank)

    def __enter__(self) -> Self:
        """Draw the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def update(self, step: int, history: History) -> None:
        """Redraw."""
        shown = self._pace.fields(step, history)
        bits = shown[self._pace.bits]
        self._bar.update(
            self._task,
            completed=step,
            loss=shown["loss"],
            bits=bits,
            rate=shown["tokens/s"],
            left=_clock(float(shown["left_s"])),
        )

    def message(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, markup=False, highlight=False)


def make_progress(
    console: Console, steps: int, step: int, history: History, unit: str = "byte"
) -> Progress:
    """Return a live bar for a terminal, plain lines for anything else."""
    kind = LiveProgress if console.is_terminal else PlainProgress
    return kind(console, steps, step, history, unit)


class _Pace:
    """Turns a history into the shown figures; the pace is that of this session alone."""

    def __init__(self, steps: int, step: int, history: History, unit: str) -> None:
        self.bits = f"bits/{unit}"
        self._steps, self._first = steps, step
        self._tokens, self._seconds = history.tokens, history.seconds

    def fields(self, step: int, history: History) -> dict[str, str]:
        recent = history.losses[-_SMOOTHING_STEPS:]
        loss = sum(recent) / len(recent)
        seconds = max(history.seconds - self._seconds, 1e-9)
        left_s = seconds / max(step - self._first, 1) * (self._steps - step)
        return {
            "loss": f"{loss:.3f}",
            self.bits: f"{loss / math.log(2.0):.3f}",
            "tokens/s": f"{(history.tokens - self._tokens) / seconds:,.0f}",
            "left_s": f"{left_s:.0f}",
        }


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes}:{second:02d}"
