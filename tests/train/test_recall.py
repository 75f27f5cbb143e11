"""The key-value recall task."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from sdm_runtime.train.config import DEFAULTS, ConfigError, RecallConfig
from sdm_runtime.train.data.sampler import DOCUMENT_START, IGNORED
from sdm_runtime.train.tasks.recall import FILLER, RecallTask, recall_batch
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.loop import Trainer
from sdm_runtime.train.trainer.model import ByteModel
from sdm_runtime.train.trainer.progress import SilentProgress

TASK = RecallConfig(pairs=5, gap=20, keys=12, values=4)
CPU = torch.device("cpu")


class Lookup(nn.Module):
    """Answers from the first half of the sequence, or (blind) always with one value."""

    def __init__(self, *, blind: bool) -> None:
        super().__init__()
        self.blind = blind

    def forward(self, inputs: Tensor) -> Tensor:
        logits = torch.zeros(*inputs.shape, 256)
        for row, symbols in enumerate(inputs.tolist()):
            shown = dict(zip(symbols[1:11:2], symbols[2:12:2], strict=True))
            for at, symbol in enumerate(symbols):
                answer = TASK.keys if self.blind else shown.get(symbol, 0)
                logits[row, at, answer] = 1.0
        return logits


def test_sequences_are_pairs_gap_and_questions() -> None:
    inputs, targets = recall_batch(TASK, 50, torch.Generator().manual_seed(0))
    assert inputs.shape == targets.shape == (50, TASK.length)
    assert (inputs[:, 0] == DOCUMENT_START).all()
    for symbols, asked in zip(inputs.tolist(), targets.tolist(), strict=True):
        pairs = dict(zip(symbols[1:11:2], symbols[2:12:2], strict=True))
        assert len(pairs) == TASK.pairs
        assert all(key < 12 <= value < 16 for key, value in pairs.items())
        assert symbols[11:31] == [FILLER] * 20
        questions = {symbols[at]: value for at, value in enumerate(asked) if value != IGNORED}
        assert questions == pairs
        assert all(at >= 31 for at, value in enumerate(asked) if value != IGNORED)


def test_order_of_the_questions_says_nothing() -> None:
    inputs, targets = recall_batch(TASK, 400, torch.Generator().manual_seed(0))
    same_place = (inputs[:, 2:12:2] == targets[:, 31::2]).double().mean()
    assert 0.2 < same_place < 0.5


def test_evaluation_tells_looking_from_guessing() -> None:
    config = dataclasses.replace(DEFAULTS["recall"], recall=TASK)
    task = RecallTask(config)
    assert task.evaluate(Lookup(blind=False), CPU) == 1.0
    assert task.evaluate(Lookup(blind=True), CPU) == pytest.approx(0.25, abs=0.05)


def test_batches_are_seeded_and_resumable() -> None:
    config = dataclasses.replace(DEFAULTS["recall"], recall=TASK, batch_size=3)
    first, other = RecallTask(config), RecallTask(dataclasses.replace(config, seed=1))
    batches = [first.next_batch() for _ in range(3)]
    assert not torch.equal(batches[0].inputs, batches[1].inputs)
    assert not torch.equal(batches[0].inputs, other.next_batch().inputs)
    again = RecallTask(config)
    again.restore({"drawn": 2})
    assert torch.equal(again.next_batch().inputs, batches[2].inputs)
    assert again.state() == first.state() == {"drawn": 3}


def test_gap_must_leave_the_local_window() -> None:
    config = DEFAULTS["recall"]
    config.check()
    window = config.model.local_window
    with pytest.raises(ConfigError, match=f"gap: expected at least the local window {window}"):
        config.replaced({"recall.gap": window - 1}).check()
    with pytest.raises(ConfigError, match="memory_blocks: expected at least one block"):
        config.replaced({"model.memory_blocks": []}).check()


def test_memory_learns_what_the_control_cannot() -> None:
    config = DEFAULTS["recall"].replaced(
        {
            "steps": 120,
            "batch_size": 32,
            "eval_every": 120,
            "recall.pairs": 3,
            "recall.gap": 4,
            "recall.keys": 4,
            "recall.values": 4,
            "model.dim": 32,
            "model.slots": 64,
            "model.writes": 16,
            "model.reads": 16,
            "optim.learning_rate": 6e-3,
        }
    )
    config.check()
    accuracy = {}
    for name, blocks in (("memory", [1]), ("control", [])):
        chosen = config.replaced({"model.memory_blocks": blocks})
        torch.manual_seed(0)
        trainer = Trainer(
            chosen, ByteModel(chosen.model), RecallTask(chosen), World(0, 1, torch.device("cpu"))
        )
        trainer.run(chosen.steps, SilentProgress())
        accuracy[name] = trainer.history.evaluations[-1][1]
    assert accuracy["memory"] > 0.6, accuracy
    assert accuracy["control"] < 0.35, accuracy
