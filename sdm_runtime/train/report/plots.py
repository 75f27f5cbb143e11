"""The pictures of a run."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdm_runtime.files.writing import write_file
from sdm_runtime.train.tasks.entropy import NgramEntropies
from sdm_runtime.train.tasks.evaluate import PositionCurve, Validation
from sdm_runtime.train.trainer.history import History

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MODEL, _CONTROL, _POINT = "#1f6fb4", "#c8553d", "#123f66"
_GREY, _DARK_GREY = "#8a8a8a", "#4d4d4d"
_BIT = math.log(2.0)


def plot_text(
    path: Path, history: History, entropies: NgramEntropies, validation: Validation
) -> None:
    """Draw the loss curve, and bits per byte by position in the document, as one PNG.

    Raises:
        OSError: the file cannot be written.
    """
    _save(text_figure(history, entropies, validation), path)


def text_figure(history: History, entropies: NgramEntropies, validation: Validation) -> Figure:
    """Return what ``plot_text`` draws; all that was measured is within its limits."""
    figure = _new_figure()
    left, right = figure.subplots(1, 2)
    _loss_curve(left, history, entropies)
    _position_curve(right, validation.curve)
    return figure


def plot_recall(
    path: Path, with_memory: History, without: History, chance: float, gap: int, window: int
) -> None:
    """Draw loss and accuracy of the model with the memory layer and without it, as one PNG.

    Raises:
        OSError: the file cannot be written.
    """
    _save(recall_figure(with_memory, without, chance, gap, window), path)


def recall_figure(
    with_memory: History, without: History, chance: float, gap: int, window: int
) -> Figure:
    """Return what ``plot_recall`` draws; every point of it was measured."""
    figure = _new_figure()
    left, right = figure.subplots(1, 2)
    for history, color, label in (
        (with_memory, _MODEL, "with memory"),
        (without, _CONTROL, "without memory"),
    ):
        steps = range(1, len(history.losses) + 1)
        left.plot(steps, history.losses, _dot_alone(steps), color=color, linewidth=1.2, label=label)
        points = zip(*history.evaluations, strict=True)
        right.plot(*points, color=color, marker="o", markersize=3.5, label=label)
    left.axhline(-math.log(chance), color=_GREY, linestyle="--", linewidth=1, label="chance")
    right.axhline(chance, color=_GREY, linestyle="--", linewidth=1, label="chance")
    left.set(title="Training loss", xlabel="step", ylabel="nats per answer", ylim=(0, None))
    title = f"Recall over a gap of {gap} (local window {window})"
    right.set(title=title, xlabel="step", ylabel="answers right", ylim=(-0.01, 1.03))
    right.set_xlim(left=0)
    right.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    for axes in (left, right):
        _tidy(axes)
        axes.legend(frameon=False, loc="best")
    return figure


def smoothed(values: list[float], span: int) -> list[float]:
    """Return the exponential mean over about ``span`` steps, without a bias at the start."""
    keep = 1.0 - 1.0 / max(span, 1)
    total = weight = 0.0
    means = []
    for value in values:
        total, weight = keep * total + value, keep * weight + 1.0
        means.append(total / weight)
    return means


def _loss_curve(axes: Any, history: History, entropies: NgramEntropies) -> None:
    bits = [loss / _BIT for loss in history.losses]
    steps = range(1, len(bits) + 1)
    axes.plot(steps, bits, color=_MODEL, alpha=0.25, linewidth=0.8)
    mean = smoothed(bits, max(5, len(bits) // 40))
    dot = _dot_alone(steps)
    axes.plot(steps, mean, dot, color=_MODEL, linewidth=1.8, label="training (running mean)")
    measured = [value for _, value in history.evaluations]
    if measured:
        points = zip(*history.evaluations, strict=True)
        axes.plot(*points, "o", color=_POINT, markersize=4, label="validation (part)")
    axes.axhline(entropies.unigram, color=_GREY, linestyle=":", linewidth=1.3, label="unigram")
    axes.axhline(entropies.bigram, color=_DARK_GREY, linestyle="--", linewidth=1.3, label="bigram")
    # Single steps may reach beyond: one of an outburst would press all else to the ground.
    top = max(*mean, *measured, entropies.unigram, entropies.bigram) + 0.4
    axes.set(title="Loss curve", xlabel="step", ylabel="bits per byte", ylim=(0, top))
    _tidy(axes)
    axes.legend(frameon=False, loc="best")


def _position_curve(axes: Any, curve: PositionCurve) -> None:
    # The first bucket, which starts at 0, is drawn an octave wide on the logarithmic axis.
    edges = [max(curve.edges[1] / 2, 0.5), *curve.edges[1:]]
    for values, color, style, width, label in (
        (curve.unigram, _GREY, ":", 1.3, "unigram"),
        (curve.bigram, _DARK_GREY, "--", 1.3, "bigram"),
        (curve.model, _MODEL, "-", 2.0, "model"),
    ):
        axes.stairs(
            values, edges, baseline=None, color=color, linestyle=style, linewidth=width, label=label
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(curve.edges[1:-1:2] or curve.edges[1:])
    axes.xaxis.set_major_formatter(lambda position, _: f"{position:.0f}")
    axes.xaxis.set_minor_locator(_no_ticks())
    title = "Validation by position in the document"
    top = 1.06 * max(*curve.model, *curve.unigram, *curve.bigram)
    axes.set(title=title, xlabel="position (bytes)", ylabel="bits per byte", ylim=(0, top))
    _tidy(axes)
    axes.legend(frameon=False, loc="best")


def _new_figure() -> Figure:
    from matplotlib.figure import Figure

    # A Figure of its own, not pyplot's: no window system is looked for and no state is shared.
    return Figure(figsize=(11, 4.2), dpi=130, layout="constrained")


def _dot_alone(steps: range) -> str:
    """Return a line's format: a single step has no line to be seen by."""
    return "o-" if len(steps) == 1 else "-"


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def _save(figure: Figure, path: Path) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, picture.getvalue())
