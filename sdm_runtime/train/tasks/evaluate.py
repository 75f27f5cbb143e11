"""Validation: bits per byte, in all and by position in the document."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sdm_runtime.train.data.corpus import Documents
from sdm_runtime.train.data.sampler import Batch, read_sequence
from sdm_runtime.train.tasks.entropy import NgramModel
from sdm_runtime.train.trainer.model import byte_costs

# Positions per evaluated batch: bounds the memory that logits take.
_MAX_BATCH_BYTES = 32768


@dataclass(frozen=True)
class PositionCurve:
    """Bits per byte by position in the document.

    Attributes:
        edges: bucket i holds positions edges[i] .. edges[i + 1] - 1, in bytes.
        num_bytes: evaluated bytes of each bucket.
        model: bits per byte of the model.
        unigram: of the unigram distribution fitted on the training side.
        bigram: of the bigram distribution fitted on the training side.
    """

    edges: list[int]
    num_bytes: list[int]
    model: list[float]
    unigram: list[float]
    bigram: list[float]


@dataclass(frozen=True)
class Validation:
    """Result of an evaluation.

    Attributes:
        bits_per_byte: of the model over all evaluated bytes.
        num_bytes: how many were evaluated.
        curve: the same by position.
    """

    bits_per_byte: float
    num_bytes: int
    curve: PositionCurve


def bits_per_byte(model: nn.Module, documents: Documents, device: torch.device) -> float:
    """Return the model's cost of whole documents, each from its first byte."""
    return float(_costs_by_position(model, documents, device).sum()) / documents.num_bytes


def validate(
    model: nn.Module, documents: Documents, ngrams: NgramModel, device: torch.device
) -> Validation:
    """Evaluate the model, and the n-gram models beside it, on whole documents.

    Args:
        model: maps symbols to logits.
        documents: read from their first byte to their last.
        ngrams: fitted on the training side.
        device: where the model is.
    """
    longest = int(documents.lengths().max())
    costs = _costs_by_position(model, documents, device)
    unigram, bigram = torch.zeros_like(costs), torch.zeros_like(costs)
    counts = torch.zeros_like(costs)
    for index in range(len(documents)):
        content = documents.document(index)
        one, two = ngrams.costs(content)
        unigram[: len(content)] += one
        bigram[: len(content)] += two
        counts[: len(content)] += 1
    edges = position_edges(longest)
    curve = PositionCurve(
        edges=edges,
        num_bytes=[int(n) for n in _bucket_sums(counts, edges)],
        model=_bucket_means(costs, counts, edges),
        unigram=_bucket_means(unigram, counts, edges),
        bigram=_bucket_means(bigram, counts, edges),
    )
    return Validation(float(costs.sum() / counts.sum()), documents.num_bytes, curve)


def position_edges(longest: int) -> list[int]:
    """Return bucket edges 0, 32, 64, 128, .. doubling, the last one ``longest``."""
    edges = [0]
    edge = 32
    while edge < longest:
        edges.append(edge)
        edge *= 2
    return [*edges, longest]


@torch.no_grad()
def _costs_by_position(model: nn.Module, documents: Documents, device: torch.device) -> Tensor:
    """Return the summed cost at each position in bits, float64 [longest document]."""
    sums = torch.zeros(int(documents.lengths().max()), dtype=torch.float64)
    was_training = model.training
    model.eval()
    for batch in _whole_documents(documents):
        costs = byte_costs(model, batch.inputs.to(device), batch.targets.to(device))
        sums[: costs.shape[1]] += costs.sum(0, dtype=torch.float64).cpu()
    model.train(was_training)
    return sums / math.log(2.0)


def _whole_documents(documents: Documents) -> Iterator[Batch]:
    """Yield all documents from their first byte, those of like length together."""
    lengths = documents.lengths()
    waiting: list[int] = []
    for index in [*lengths.argsort(stable=True).tolist(), None]:
        if waiting and (index is None or (len(waiting) + 1) * lengths[index] > _MAX_BATCH_BYTES):
            longest = int(lengths[waiting].max())
            rows = [read_sequence(documents, i, 0, longest) for i in waiting]
            yield Batch(
                torch.stack([r.inputs for r in rows]), torch.stack([r.targets for r in rows])
            )
            waiting = []
        if index is not None:
            waiting.append(index)


def _bucket_sums(values: Tensor, edges: list[int]) -> list[float]:
    return [float(values[a:b].sum()) for a, b in itertools.pairwise(edges)]


def _bucket_means(values: Tensor, counts: Tensor, edges: list[int]) -> list[float]:
    sums, numbers = _bucket_sums(values, edges), _bucket_sums(counts, edges)
    return [total / number for total, number in zip(sums, numbers, strict=True)]
