"""Unigram and bigram entropies against a count in plain Python."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from sdm_runtime.train.data.corpus import Corpus, Documents, from_bytes
from sdm_runtime.train.tasks import entropy
from sdm_runtime.train.tasks.entropy import PRIOR_WEIGHT, NgramModel, ngram_entropies, pair_counts

START = -1


def pairs_of(documents: Documents) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index in range(len(documents)):
        content = documents.document(index).tolist()
        found += zip([START, *content[:-1]], content, strict=True)
    return found


def brute_force(train: Documents, evaluated: Documents) -> tuple[float, float]:
    pairs = pairs_of(train)
    singles = Counter(b for _, b in pairs)
    doubles, contexts = Counter(pairs), Counter(a for a, _ in pairs)
    unigram_bits = bigram_bits = 0.0
    for before, byte in pairs_of(evaluated):
        unigram = (singles[byte] + 1) / (len(pairs) + 256)
        numerator = doubles[before, byte] + PRIOR_WEIGHT * unigram
        unigram_bits -= math.log2(unigram)
        bigram_bits -= math.log2(numerator / (contexts[before] + PRIOR_WEIGHT))
    count = evaluated.num_bytes
    return unigram_bits / count, bigram_bits / count


def conditional_entropy(documents: Documents) -> float:
    pairs = pairs_of(documents)
    doubles, contexts = Counter(pairs), Counter(a for a, _ in pairs)
    bits = -sum(n * math.log2(n / contexts[pair[0]]) for pair, n in doubles.items())
    return bits / len(pairs)


def test_against_a_plain_count(corpus: Corpus) -> None:
    found = ngram_entropies(corpus.train, corpus.validation)
    unigram, bigram = brute_force(corpus.train, corpus.validation)
    assert found.unigram == pytest.approx(unigram, rel=1e-12)
    assert found.bigram == pytest.approx(bigram, rel=1e-12)
    own = conditional_entropy(corpus.validation)
    assert found.bigram_in_sample == pytest.approx(own, rel=1e-9)
    # Controls: the sides are not interchangeable, and own counts cost least.
    assert brute_force(corpus.validation, corpus.train)[1] != pytest.approx(bigram, rel=1e-6)
    assert own < bigram


def test_entropies_of_known_texts() -> None:
    alternating = from_bytes([("ab", b"ab" * 50)])
    found = ngram_entropies(alternating, alternating)
    assert found.unigram_in_sample == pytest.approx(1.0)
    assert found.bigram_in_sample == pytest.approx(0.0, abs=1e-12)
    assert found.bigram > 0.0


def test_costs_add_up(corpus: Corpus) -> None:
    model = NgramModel(corpus.train)
    found = ngram_entropies(corpus.train, corpus.validation)
    documents = corpus.validation
    costs = [model.costs(documents.document(i)) for i in range(len(documents))]
    unigram = sum(float(one.sum()) for one, _ in costs) / documents.num_bytes
    bigram = sum(float(two.sum()) for _, two in costs) / documents.num_bytes
    assert [unigram, bigram] == pytest.approx([found.unigram, found.bigram])
    total = (2.0**-model.bigram_bits).sum(1)
    assert total.tolist() == pytest.approx([1.0] * 257)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_counts_do_not_depend_on_what_is_counted_at_once(
    corpus: Corpus, block: int, monkeypatch
) -> None:
    want = pair_counts(corpus.train)
    assert int(want.sum()) == corpus.train.num_bytes
    monkeypatch.setattr(entropy, "_COUNTED_BYTES", block)
    assert torch.equal(pair_counts(corpus.train), want)
