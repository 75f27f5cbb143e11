"""Training sequences drawn from documents: seeded, and resumable from two integers."""

from __future__ import annotations

import bisect
import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.train.data.corpus import Documents

DOCUMENT_START = 256
"""Input symbol before a document's first byte; 0..255 are the bytes themselves."""

NUM_SYMBOLS = 257
IGNORED = -100
"""Target of a position that is not predicted (padding)."""


class Batch(NamedTuple):
    """One training batch: ``inputs[b, t]`` is the symbol before ``targets[b, t]``.

    Attributes:
        inputs: int64 [batch, length].
        targets: int64 [batch, length]; ``IGNORED`` where nothing is predicted.
    """

    inputs: Tensor
    targets: Tensor


class SamplerState(NamedTuple):
    """Where a sampler stands: the epoch and how many of its sequences were drawn."""

    epoch: int
    drawn: int


class Spans:
    """Where the sequences of documents start: (document, offset in it); found when asked for."""

    def __init__(self, documents: Documents, length: int) -> None:
        """Cut each document at multiples of ``length``; the last sequence ends with it."""
        self._length = length
        self._last: list[int] = (documents.lengths() - length).clamp(min=0).tolist()
        counts = ((last + length - 1) // length + 1 for last in self._last)
        self._ends = list(itertools.accumulate(counts))

    def __len__(self) -> int:
        """Return the number of sequences."""
        return self._ends[-1]

    def __getitem__(self, index: int) -> tuple[int, int]:
        """Return the start of a sequence."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        document = bisect.bisect_right(self._ends, index)
        before = self._ends[document - 1] if document else 0
        return document, min((index - before) * self._length, self._last[document])


class SequenceSampler:
    """Draws sequences of ``length`` bytes so that each epoch covers every document.

    A document is cut at multiples of ``length``; its last sequence is moved back to end with the
    document, and only a document shorter than ``length`` is padded. An epoch is a permutation of
    all sequences, made from (seed, epoch) alone, so the state is two integers. A batch never
    depends on how many processes share it: each takes its rows of the same global batch.
    """

    def __init__(self, documents: Documents, length: int, batch_size: int, seed: int) -> None:
        """Cut the documents.

        Args:
            documents: what to draw from.
            length: bytes in a sequence.
            batch_size: sequences in a (global) batch.
            seed: of the permutations.

        Raises:
            ValueError: a size below 1.
        """
        for name, value in (("length", length), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        self.documents, self.length, self.batch_size, self.seed = (
            documents,
            length,
            batch_size,
            seed,
        )
        self.spans = Spans(documents, length)
        self.state = SamplerState(epoch=0, drawn=0)

    def next_batch(self) -> Batch:
        """Return the next global batch and advance."""
        rows = [read_sequence(self.documents, *span, self.length) for span in self._next_spans()]
        return Batch(torch.stack([r.inputs for r in rows]), torch.stack([r.targets for r in rows]))

    def _next_spans(self) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        epoch, drawn = self.state
        while len(spans) < self.batch_size:
            order = _permutation(len(self.spans), self.seed, epoch)
            taken = order[drawn : drawn + self.batch_size - len(spans)]
            spans += [self.spans[int(i)] for i in taken]
            drawn += len(taken)
            if drawn == len(self.spans):
                epoch, drawn = epoch + 1, 0
        self.state = SamplerState(epoch, drawn)
        return spans


def read_sequence(documents: Documents, document: int, offset: int, length: int) -> Batch:
    """Return bytes ``offset .. offset + length`` of a document as one (unbatched) sequence.

    The first input is the byte before ``offset``, or ``DOCUMENT_START`` at offset 0; past the
    document's end targets are ``IGNORED`` and inputs 0.
    """
    content = documents.document(document)
    piece = content[offset : offset + length].to(torch.int64)
    inputs = torch.zeros(length, dtype=torch.int64)
    targets = torch.full((length,), IGNORED, dtype=torch.int64)
    targets[: len(piece)] = piece
    inputs[0] = content[offset - 1] if offset > 0 else DOCUMENT_START
    inputs[1 : len(piece)] = piece[:-1]
    return Batch(inputs, targets)


def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    # Weyl step: neighbouring (seed, epoch) pairs give unrelated generator seeds.
    mixed = (seed * 0x9E3779B97F4A7C15 + epoch) % 2**63
    return torch.randperm(count, generator=torch.Generator().manual_seed(mixed))
