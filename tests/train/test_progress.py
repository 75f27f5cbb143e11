"""What a run shows while it goes: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from sdm_runtime.train.trainer.history import History
from sdm_runtime.train.trainer.progress import LiveProgress, PlainProgress, make_progress


def history_of(step: int) -> History:
    losses = [math.log(2.0) * 4] * step
    return History(losses=losses, tokens=500 * step, seconds=0.25 * step)


def console_of(stream: io.StringIO, *, terminal: bool) -> Console:
    return Console(file=stream, force_terminal=terminal, width=120)


@pytest.mark.parametrize("terminal", [True, False])
def test_shows_loss_bits_pace_and_time_left(terminal: bool) -> None:
    stream = io.StringIO()
    progress = make_progress(console_of(stream, terminal=terminal), 400, 0, History())
    assert type(progress) is (LiveProgress if terminal else PlainProgress)
    if isinstance(progress, PlainProgress):
        progress._last = -math.inf  # The next line is due.
    with progress:
        progress.update(100, history_of(100))
        progress.message("step 100: said [aloud]")
    shown = stream.getvalue()
    for part in ("100/400", "2.773", "4.000", "2,000", "1:15", "said [aloud]"):
        assert part in shown
    assert ("\x1b[" in shown) == terminal


def test_pace_is_that_of_this_session() -> None:
    stream = io.StringIO()
    started = history_of(100)
    progress = PlainProgress(console_of(stream, terminal=False), 120, 100, started)
    later = history_of(110)
    later.seconds = started.seconds + 20.0
    progress._last = -math.inf
    progress.update(110, later)
    assert "tokens/s 250  left 0:20" in stream.getvalue()


def test_lines_are_rare_but_the_last_always_comes() -> None:
    stream = io.StringIO()
    progress = PlainProgress(console_of(stream, terminal=False), 50, 0, History())
    for step in range(1, 51):
        progress.update(step, history_of(step))
    assert stream.getvalue().splitlines() == [
        "step 50/50  loss 2.773  bits/byte 4.000  tokens/s 2,000  left 0:00"
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_unit_is_the_tasks(terminal: bool) -> None:
    stream = io.StringIO()
    progress = make_progress(console_of(stream, terminal=terminal), 1, 0, History(), "symbol")
    with progress:
        progress.update(1, history_of(1))
    assert "bits/symbol 4.000" in stream.getvalue()
    assert "bits/byte" not in stream.getvalue()
