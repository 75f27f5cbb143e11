"""The main task: predict the next byte of text files."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sdm_runtime.train.checkpoints.checks import expect_count, expect_names
from sdm_runtime.train.config import RunConfig
from sdm_runtime.train.data.corpus import Corpus
from sdm_runtime.train.data.sampler import Batch, SamplerState, SequenceSampler
from sdm_runtime.train.tasks.evaluate import bits_per_byte

# A part of the validation side for the evaluations on the way; the whole of it comes at the end.
_QUICK_DOCUMENTS, _QUICK_BYTES = 24, 2048


class TextTask:
    """Batches of a corpus, judged by bits per byte.

    Attributes:
        length: bytes of a sequence: the config's, or those of the longest training document.
    """

    metric = "validation bits per byte (part)"

    def __init__(self, corpus: Corpus, config: RunConfig) -> None:
        """Make the sampler over the training side."""
        # Padding beyond the longest document would only cost memory and time.
        self.length = min(config.length, int(corpus.train.lengths().max()))
        self.sampler = SequenceSampler(
            corpus.train, self.length, config.batch_size, seed=config.seed
        )
        documents = range(min(_QUICK_DOCUMENTS, len(corpus.validation)))
        quick_bytes = min(_QUICK_BYTES, config.eval_length)
        self._quick = corpus.validation.take(documents).truncated(quick_bytes)

    def next_batch(self) -> Batch:
        """Return the next global batch, on the CPU."""
        return self.sampler.next_batch()

    def state(self) -> dict[str, Any]:
        """Return where the sampler stands."""
        return self.sampler.state._asdict()

    def restore(self, state: dict[str, Any]) -> None:
        """Go to where ``state`` was taken; ContentError where it is not such a state."""
        expect_names("task", state, SamplerState._fields)
        expect_count("task.epoch", state["epoch"])
        expect_count("task.drawn", state["drawn"], most=len(self.sampler.spans) - 1)
        self.sampler.state = SamplerState(**state)

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """Return bits per byte of a fixed small part of the validation side."""
        return bits_per_byte(model, self._quick, device)
