"""Unigram and bigram entropies in bits per byte: the bars that a byte model must pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sdm_runtime.train.data.corpus import Documents
from sdm_runtime.train.data.sampler import DOCUMENT_START, NUM_SYMBOLS

PRIOR_WEIGHT = 4.0
"""Pseudo-counts, spread like the unigram distribution, that each bigram context starts with."""


# Bytes counted at once: each takes some integers of eight bytes meanwhile.
_COUNTED_BYTES = 1 << 22


@dataclass(frozen=True)
class NgramEntropies:
    """Bits per byte of the evaluated bytes.

    Attributes:
        unigram: cross-entropy of byte frequencies counted on the training side (add-one).
        bigram: cross-entropy of p(byte | byte before it), counted on the training side and
            smoothed by ``PRIOR_WEIGHT`` pseudo-counts of the unigram distribution.
        unigram_in_sample: entropy of the evaluated bytes' own frequencies.
        bigram_in_sample: conditional entropy of the evaluated bytes' own pairs. No bigram model,
            however fitted, costs less on these bytes.
    """

    unigram: float
    bigram: float
    unigram_in_sample: float
    bigram_in_sample: float


class NgramModel:
    """Unigram and bigram distributions fitted on documents."""

    def __init__(self, documents: Documents) -> None:
        """Count the documents' bytes; a document's first byte has ``DOCUMENT_START`` before it."""
        counts = pair_counts(documents).double()
        totals = counts.sum(0)
        unigram = (totals + 1.0) / (totals.sum() + 256.0)
        contexts = counts.sum(1, keepdim=True) + PRIOR_WEIGHT
        self.unigram_bits = -unigram.log2()
        """float64 [256]: cost of each byte."""
        self.bigram_bits = -((counts + PRIOR_WEIGHT * unigram) / contexts).log2()
        """float64 [257, 256]: cost of each byte after each symbol."""

    def costs(self, content: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unigram and bigram cost of every byte of one document, float64 [bytes]."""
        following = content.to(torch.int64)
        preceding = _preceding(following)
        return self.unigram_bits[following], self.bigram_bits[preceding, following]


def ngram_entropies(train: Documents, evaluated: Documents) -> NgramEntropies:
    """Fit on ``train``, evaluate on ``evaluated``; see ``NgramEntropies``."""
    model = NgramModel(train)
    counts = pair_counts(evaluated).double()
    total = counts.sum()
    return NgramEntropies(
        unigram=float((counts.sum(0) * model.unigram_bits).sum() / total),
        bigram=float((counts * model.bigram_bits).sum() / total),
        unigram_in_sample=float(_entropy_bits(counts.sum(0)) / total),
        bigram_in_sample=float((_entropy_bits(counts) - _entropy_bits(counts.sum(1))) / total),
    )


def pair_counts(documents: Documents) -> Tensor:
    """Return int64 [257, 256]: how often each byte follows each symbol within a document."""
    counts = torch.zeros(NUM_SYMBOLS * 256, dtype=torch.int64)
    for first in range(0, documents.num_bytes, _COUNTED_BYTES):
        following = documents.data[first : first + _COUNTED_BYTES].to(torch.int64)
        preceding = _preceding(following)
        if first:
            preceding[0] = documents.data[first - 1]
        starts = documents.bounds[:-1] - first
        preceding[starts[(starts >= 0) & (starts < len(following))]] = DOCUMENT_START
        counts += torch.bincount(preceding * 256 + following, minlength=len(counts))
    return counts.view(NUM_SYMBOLS, 256)


def _preceding(following: Tensor) -> Tensor:
    start = torch.full((1,), DOCUMENT_START, dtype=torch.int64)
    return torch.cat([start, following[:-1]])


def _entropy_bits(counts: Tensor) -> Tensor:
    """Return total * H(counts / total), summed over everything counted, in bits."""
    positive = counts[counts > 0]
    return positive.sum() * positive.sum().log2() - (positive * positive.log2()).sum()
