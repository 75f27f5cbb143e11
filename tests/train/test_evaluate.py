"""Validation by position, against one document at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sdm_runtime.train.data.corpus import Corpus, from_bytes
from sdm_runtime.train.data.sampler import read_sequence
from sdm_runtime.train.tasks import evaluate
from sdm_runtime.train.tasks.entropy import NgramModel, ngram_entropies
from sdm_runtime.train.tasks.evaluate import bits_per_byte, position_edges, validate
from sdm_runtime.train.trainer.model import ByteModel, byte_costs

from .conftest import SMALL

CPU = torch.device("cpu")


class Uniform(nn.Module):
    """Gives every byte one bit in 256."""

    def forward(self, symbols: Tensor) -> Tensor:
        return torch.zeros(*symbols.shape, 256)


def test_uniform_costs_eight_bits_everywhere(corpus: Corpus) -> None:
    found = validate(Uniform(), corpus.validation, NgramModel(corpus.train), CPU)
    assert found.bits_per_byte == pytest.approx(8.0)
    assert found.curve.model == pytest.approx([8.0] * len(found.curve.model))
    assert sum(found.curve.num_bytes) == found.num_bytes == corpus.validation.num_bytes


@pytest.mark.parametrize("batch_bytes", [1, 500, 10**6])
def test_equals_documents_one_by_one(corpus: Corpus, batch_bytes: int, monkeypatch) -> None:
    monkeypatch.setattr(evaluate, "_MAX_BATCH_BYTES", batch_bytes)
    torch.manual_seed(0)
    model = ByteModel(SMALL.model)
    documents = corpus.train
    found = validate(model, documents, NgramModel(corpus.train), CPU)
    total = 0.0
    first_bucket: list[float] = []
    for index, length in enumerate(documents.lengths().tolist()):
        one = read_sequence(documents, index, 0, length)
        with torch.no_grad():
            costs = byte_costs(model, one.inputs[None], one.targets[None])[0] / math.log(2.0)
        total += float(costs.sum())
        first_bucket += costs[:32].tolist()
    assert found.bits_per_byte == pytest.approx(total / documents.num_bytes, rel=1e-5)
    assert found.curve.model[0] == pytest.approx(sum(first_bucket) / len(first_bucket), rel=1e-5)
    assert bits_per_byte(model, documents, CPU) == pytest.approx(found.bits_per_byte, rel=1e-6)


def test_ngrams_by_position_average_to_their_entropies(corpus: Corpus) -> None:
    found = validate(Uniform(), corpus.validation, NgramModel(corpus.train), CPU).curve
    entropies = ngram_entropies(corpus.train, corpus.validation)
    for curve, whole in ((found.unigram, entropies.unigram), (found.bigram, entropies.bigram)):
        total = sum(bits * n for bits, n in zip(curve, found.num_bytes, strict=True))
        assert total / sum(found.num_bytes) == pytest.approx(whole)


def test_training_mode_is_left_as_it_was() -> None:
    documents = from_bytes([("a", b"abc")])
    model = nn.Sequential(Uniform())
    for mode in (True, False):
        model.train(mode)
        bits_per_byte(model, documents, CPU)
        assert model.training is mode


@pytest.mark.parametrize(
    ("longest", "edges"), [(5, [0, 5]), (32, [0, 32]), (33, [0, 32, 33]), (100, [0, 32, 64, 100])]
)
def test_position_edges(longest: int, edges: list[int]) -> None:
    assert position_edges(longest) == edges
