"""The files that a run leaves: JSON, pictures, the last chain."""

from __future__ import annotations

import json
import math
from pathlib import Path

import matplotlib.image
import pytest
import torch

from sdm_runtime import StepChain, sdm_write_read
from sdm_runtime.dispatch import keep_last_chain, last_chain
from sdm_runtime.train.data import Corpus
from sdm_runtime.train.entropy import NgramModel, ngram_entropies
from sdm_runtime.train.evaluate import validate
from sdm_runtime.train.loop import History
from sdm_runtime.train.plots import plot_recall, plot_text, smoothed
from sdm_runtime.train.progress import SilentProgress
from sdm_runtime.train.report import describe_run, save_last_chain, write_json

from .conftest import SMALL


def ink(path: Path) -> float:
    """Return the share of pixels of a PNG that are not white."""
    pixels = matplotlib.image.imread(path)[..., :3]
    return float((pixels < 0.98).any(-1).mean())


def test_text_picture(new_small_trainer, corpus: Corpus, tmp_path: Path) -> None:
    trainer = new_small_trainer()
    trainer.run(6, SilentProgress())
    cpu = torch.device("cpu")
    found = validate(trainer.model, corpus.validation, NgramModel(corpus.train), cpu)
    entropies = ngram_entropies(corpus.train, corpus.validation)
    path = tmp_path / "made" / "report.png"
    plot_text(path, trainer.history, entropies, found)
    assert 0.01 < ink(path) < 0.4


def test_recall_picture(tmp_path: Path) -> None:
    learned = History(losses=[2.0, 1.0, 0.1], evaluations=[(1, 0.1), (3, 0.9)])
    stuck = History(losses=[2.0, 2.0, 2.0], evaluations=[(1, 0.06), (3, 0.06)])
    plot_recall(tmp_path / "report.png", learned, stuck, chance=1 / 16, gap=64, window=7)
    assert 0.01 < ink(tmp_path / "report.png") < 0.4


def test_smoothing_has_no_bias_at_the_start() -> None:
    assert smoothed([3.0] * 5, 10) == pytest.approx([3.0] * 5)
    assert smoothed([0.0, 1.0], 2) == pytest.approx([0.0, 2 / 3])
    assert smoothed([5.0, 1.0, 7.0], 1) == [5.0, 1.0, 7.0]


def test_json_is_json(tmp_path: Path, alone) -> None:
    path = tmp_path / "made" / "report.json"
    write_json(path, describe_run(SMALL, alone, captured=False))
    content = json.loads(path.read_text())
    assert content["config"] == SMALL.to_dict()
    assert content["environment"]["torch"] == torch.__version__
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": math.nan})
    assert json.loads(path.read_text()) == content


def backward_once() -> None:
    bank = torch.zeros(16, 8)
    index = torch.tensor([[[0, 1]] * 20], dtype=torch.int32)
    weight = torch.full((1, 20, 2), 0.5)
    v = torch.randn(1, 20, 8, requires_grad=True)
    gate = torch.full((1, 20, 1), 0.5)
    options = {"chunk_size": 16, "num_memory_slots": 16}
    sdm_write_read(bank, index, weight, v, gate, -gate, index, weight, **options).sum().backward()


def test_last_chain(tmp_path: Path) -> None:
    path = tmp_path / "made" / "last.chain"
    keep_last_chain()
    try:
        assert not save_last_chain(path)
        backward_once()
        assert save_last_chain(path)
        assert "gx_pa2" in path.with_suffix(".html").read_text()
        loaded = StepChain.load(path)
        assert [plan.kernel for plan in loaded.plans] == ["gx_gwr", "gx_gemm", "gx_pa2", "gx_gds"]
        assert loaded.steps == 2
        assert not any(plan.bound for plan in last_chain().plans)
    finally:
        keep_last_chain(False)
    backward_once()
    assert last_chain() is None
