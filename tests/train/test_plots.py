"""The pictures: all that was measured is in them, and nothing else."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.patches import StepPatch

from sdm_runtime.train.data.corpus import Corpus
from sdm_runtime.train.report.plots import (
    plot_recall,
    plot_text,
    recall_figure,
    smoothed,
    text_figure,
)
from sdm_runtime.train.tasks.entropy import NgramEntropies, NgramModel, ngram_entropies
from sdm_runtime.train.tasks.evaluate import PositionCurve, Validation, validate
from sdm_runtime.train.trainer.history import History
from sdm_runtime.train.trainer.progress import SilentProgress

ENTROPIES = NgramEntropies(4.9, 3.6, 4.8, 3.0)
CURVE = PositionCurve([0, 32, 64, 100], [32, 32, 36], [5.0, 4.0, 3.0], [4.9] * 3, [3.6] * 3)


def ink(path: Path) -> float:
    """Return the share of pixels of a PNG that are not white."""
    pixels = matplotlib.image.imread(path)[..., :3]
    return float((pixels < 0.98).any(-1).mean())


def lines(axes: Any) -> dict[str, np.ndarray]:
    """Return the points of each line, [n, 2], by its label."""
    return {line.get_label(): line.get_xydata() for line in axes.get_lines()}


def is_shown(axes: Any, points: np.ndarray) -> bool:
    """Return whether points lie within the axes' limits, as matplotlib draws them."""
    places = axes.transData.transform(points)
    box = axes.get_window_extent()
    inside = (places >= (box.x0 - 1e-6, box.y0 - 1e-6)) & (places <= (box.x1 + 1e-6, box.y1 + 1e-6))
    return bool(inside.all())


def history_of(losses: list[float], evaluations: list[tuple[int, float]]) -> History:
    return History(losses=[loss * np.log(2.0) for loss in losses], evaluations=evaluations)


@pytest.mark.parametrize(
    ("losses", "values", "entropies"),
    [
        ([8.0, 4.0, 2.0, 1.0], [9.5, 8.0, 7.0, 6.0], ENTROPIES),  # validations above all losses
        ([8.0, 4.0, 2.0, 1.0], [2.0, 1.0, 0.5, 0.01], ENTROPIES),
        ([3.0, 2.0, 1.0, 0.5], [1.0] * 4, NgramEntropies(2.0, 7.5, 2.0, 1.0)),  # bigram on top
        ([1.0] * 400 + [9.0], [1.0] * 4, ENTROPIES),
        ([5.0], [5.5], ENTROPIES),
    ],
    ids=["rising", "falling", "bigram", "many", "one step"],
)
def test_all_that_was_measured_is_within_the_loss_curves_limits(
    losses: list[float], values: list[float], entropies: NgramEntropies
) -> None:
    evaluations = list(enumerate(values, 1))
    figure = text_figure(history_of(losses, evaluations), entropies, Validation(4.0, 100, CURVE))
    figure.canvas.draw()
    axes = figure.axes[0]
    drawn = lines(axes)
    assert drawn["validation (part)"].tolist() == [[step, value] for step, value in evaluations]
    mean = drawn["training (running mean)"]
    assert mean[:, 1].tolist() == pytest.approx(smoothed(losses, max(5, len(losses) // 40)))
    for name in ("validation (part)", "training (running mean)"):
        assert is_shown(axes, drawn[name]), name
    bottom, top = axes.get_ylim()
    for name, height in (("unigram", entropies.unigram), ("bigram", entropies.bigram)):
        assert set(drawn[name][:, 1]) == {height}
        assert bottom < height < top
    # The control: a limit below the highest of them is found.
    highest = max(*values, *mean[:, 1])
    axes.set_ylim(0, highest * 0.99)
    assert not all(is_shown(axes, drawn[n]) for n in drawn if n not in ("unigram", "bigram"))


def test_a_single_step_can_be_seen() -> None:
    for losses, seen in (([5.0], "o"), ([5.0, 4.0], "None")):
        figure = text_figure(history_of(losses, []), ENTROPIES, Validation(4.0, 100, CURVE))
        (mean,) = [
            line
            for line in figure.axes[0].get_lines()
            if line.get_label() == "training (running mean)"
        ]
        assert mean.get_marker() == seen


@pytest.mark.parametrize("longest", [1, 5, 20, 32, 33, 100])
def test_every_position_has_its_place(longest: int) -> None:
    edges = [0, *[edge for edge in (32, 64) if edge < longest], longest]
    count = len(edges) - 1
    curve = PositionCurve(edges, [1] * count, [5.0] * count, [4.0] * count, [3.0] * count)
    figure = text_figure(history_of([5.0], []), ENTROPIES, Validation(5.0, longest, curve))
    figure.canvas.draw()
    axes = figure.axes[1]
    assert len(axes.patches) == 3
    assert len(axes.get_xticks()) > 0
    for patch in axes.patches:
        assert isinstance(patch, StepPatch)
        found: Any = patch.get_data()  # a named tuple
        assert found.edges[-1] == longest
        assert all(b > a > 0 for a, b in itertools.pairwise(found.edges))
        corners = np.stack([found.edges[1:], found.values], 1)
        assert is_shown(axes, corners)


def test_recall_draws_what_was_measured_alone() -> None:
    learned = History(losses=[2.0, 1.0, 0.1], evaluations=[(1, 0.1), (3, 1.0)])
    stuck = History(losses=[2.0, 9.0, 2.0], evaluations=[(1, 0.06), (3, 0.0)])
    figure = recall_figure(learned, stuck, chance=1 / 16, gap=64, window=7)
    figure.canvas.draw()
    left, right = figure.axes
    for label, history in (("with memory", learned), ("without memory", stuck)):
        drawn = lines(right)[label]
        assert drawn.tolist() == [[step, share] for step, share in history.evaluations]
        assert is_shown(right, drawn)
        losses = lines(left)[label]
        assert losses.tolist() == [[i + 1, loss] for i, loss in enumerate(history.losses)]
        assert is_shown(left, losses)
    for axes, height in ((left, np.log(16)), (right, 1 / 16)):
        assert lines(axes)["chance"][:, 1] == pytest.approx([height] * 2)
        assert axes.get_ylim()[0] < height < axes.get_ylim()[1]


def test_chance_is_within_the_limits_of_small_losses() -> None:
    low = History(losses=[0.2, 0.1], evaluations=[(2, 1.0)])
    left = recall_figure(low, low, chance=1 / 16, gap=64, window=7).axes[0]
    assert left.get_ylim()[1] > np.log(16)


def test_a_picture_of_a_text_run_is_drawn(
    new_small_trainer, corpus: Corpus, tmp_path: Path
) -> None:
    trainer = new_small_trainer()
    trainer.run(6, SilentProgress())
    cpu = torch.device("cpu")
    found = validate(trainer.model, corpus.validation, NgramModel(corpus.train), cpu)
    entropies = ngram_entropies(corpus.train, corpus.validation)
    path = tmp_path / "made" / "report.png"
    plot_text(path, trainer.history, entropies, found)
    assert 0.01 < ink(path) < 0.4


def test_a_picture_of_a_recall_run_is_drawn(tmp_path: Path) -> None:
    learned = History(losses=[2.0, 1.0, 0.1], evaluations=[(1, 0.1), (3, 0.9)])
    stuck = History(losses=[2.0, 2.0, 2.0], evaluations=[(1, 0.06), (3, 0.06)])
    plot_recall(tmp_path / "report.png", learned, stuck, chance=1 / 16, gap=64, window=7)
    assert 0.01 < ink(tmp_path / "report.png") < 0.4


def test_smoothing_has_no_bias_at_the_start() -> None:
    assert smoothed([3.0] * 5, 10) == pytest.approx([3.0] * 5)
    assert smoothed([0.0, 1.0], 2) == pytest.approx([0.0, 2 / 3])
    assert smoothed([5.0, 1.0, 7.0], 1) == [5.0, 1.0, 7.0]
