"""Key-value recall: pairs are shown, and asked for beyond the reach of local layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sdm_runtime.train.checkpoints.checks import expect_count, expect_names
from sdm_runtime.train.config import RecallConfig, RunConfig
from sdm_runtime.train.data.sampler import DOCUMENT_START, IGNORED, Batch

FILLER = 255
_EVAL_SEQUENCES, _EVAL_BATCH = 256, 64
# Far from the training batches, which count up from 0.
_EVAL_STREAM = 2**40


class RecallTask:
    """Sequences ``k v k v .. filler .. k v k v``: only the last values are to be predicted.

    Keys of a sequence differ, values are uniform, and the questions come in random order, so a
    model that does not see the first half is right one time in ``RecallConfig.values``.
    """

    metric = "recall accuracy"

    def __init__(self, config: RunConfig) -> None:
        """Start at the first batch."""
        self.config, self.batch_size, self.seed = config.recall, config.batch_size, config.seed
        self.drawn = 0

    def next_batch(self) -> Batch:
        """Return the next global batch, on the CPU."""
        batch = recall_batch(self.config, self.batch_size, _generator(self.seed, self.drawn))
        self.drawn += 1
        return batch

    def state(self) -> dict[str, Any]:
        """Return how many batches were drawn."""
        return {"drawn": self.drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to where ``state`` was taken; ContentError where it is not such a state."""
        expect_names("task", state, ("drawn",))
        expect_count("task.drawn", state["drawn"], most=_EVAL_STREAM - 1)
        self.drawn = state["drawn"]

    @torch.no_grad()
    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """Return the share of questions answered right, on sequences never trained on."""
        right = asked = 0
        for part in range(_EVAL_SEQUENCES // _EVAL_BATCH):
            batch = recall_batch(
                self.config, _EVAL_BATCH, _generator(self.seed, _EVAL_STREAM + part)
            )
            answers = model(batch.inputs.to(device)).argmax(-1).cpu()
            questions = batch.targets != IGNORED
            right += int((answers == batch.targets)[questions].sum())
            asked += int(questions.sum())
        return right / asked


def recall_batch(config: RecallConfig, batch_size: int, generator: torch.Generator) -> Batch:
    """Draw sequences.

    Keys are symbols 0 .. keys - 1, values the ``values`` symbols after them.

    Returns:
        A batch with inputs and targets int64 [batch_size, config.length].
    """
    pairs = config.pairs
    keys = torch.rand(batch_size, config.keys, generator=generator).argsort(1)[:, :pairs]
    values = torch.randint(config.values, (batch_size, pairs), generator=generator) + config.keys
    order = torch.rand(batch_size, pairs, generator=generator).argsort(1)
    gap = torch.full((batch_size, config.gap), FILLER)
    asked = _interleave(keys.gather(1, order), values.gather(1, order))
    symbols = torch.cat([_interleave(keys, values), gap, asked], 1)
    start = torch.full((batch_size, 1), DOCUMENT_START)
    targets = torch.full_like(symbols, IGNORED)
    targets[:, -2 * pairs + 1 :: 2] = symbols[:, -2 * pairs + 1 :: 2]
    return Batch(torch.cat([start, symbols[:, :-1]], 1), targets)


def _interleave(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], 2).flatten(1)


def _generator(seed: int, draw: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + draw) % 2**63)
