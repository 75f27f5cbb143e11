"""Drawing training sequences."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from sdm_runtime.train.data.corpus import Documents, from_bytes
from sdm_runtime.train.data.sampler import (
    DOCUMENT_START,
    IGNORED,
    SamplerState,
    SequenceSampler,
    Spans,
    read_sequence,
)


@pytest.fixture
def documents() -> Documents:
    return from_bytes([("a", bytes(range(25))), ("b", bytes(range(100, 107))), ("c", b"\xff" * 8)])


def test_inputs_are_the_bytes_before_the_targets(documents: Documents) -> None:
    start = read_sequence(documents, 0, 0, 8)
    assert start.inputs.tolist() == [DOCUMENT_START, *range(7)]
    assert start.targets.tolist() == list(range(8))
    later = read_sequence(documents, 0, 16, 8)
    assert later.inputs.tolist() == list(range(15, 23))
    assert later.targets.tolist() == list(range(16, 24))
    short = read_sequence(documents, 1, 0, 8)
    assert short.targets.tolist() == [*range(100, 107), IGNORED]


def test_an_epoch_covers_every_byte(documents: Documents) -> None:
    sampler = SequenceSampler(documents, length=8, batch_size=1, seed=0)
    seen: Counter[int] = Counter()
    for _ in range(len(sampler.spans)):
        targets = sampler.next_batch().targets
        seen.update(targets[targets != IGNORED].tolist())
    assert sampler.state == SamplerState(epoch=1, drawn=0)
    assert set(seen) == {*range(25), *range(100, 107), 255}
    # 25 bytes are cut at 0, 8, 16; the last sequence ends with the document.
    assert [seen[value] for value in (0, 16, 17, 23, 24)] == [1, 1, 2, 2, 1]


def test_starts_are_found_as_they_are_cut() -> None:
    sizes = (25, 7, 8, 9, 16, 1)
    documents = from_bytes([(str(n), bytes(n)) for n in sizes])
    spans = Spans(documents, 8)
    assert [spans[i] for i in range(len(spans))] == [
        *[(0, 0), (0, 8), (0, 16), (0, 17)],
        *[(1, 0), (2, 0), (3, 0), (3, 1), (4, 0), (4, 8), (5, 0)],
    ]
    for outside in (-1, len(spans)):
        with pytest.raises(IndexError):
            spans[outside]


def test_seeds_and_epochs_differ(documents: Documents) -> None:
    def epochs(seed: int, count: int) -> list[list[int]]:
        sampler = SequenceSampler(documents, length=4, batch_size=12, seed=seed)
        assert len(sampler.spans) == 11
        sampler.batch_size = 11
        return [sampler.next_batch().targets[:, 0].tolist() for _ in range(count)]

    first, second = epochs(0, 2)
    assert epochs(0, 2) == [first, second]
    assert sorted(first) == sorted(second)
    assert first != second
    assert epochs(1, 1) != [first]


def test_resumes_across_an_epoch(documents: Documents) -> None:
    sampler = SequenceSampler(documents, length=4, batch_size=4, seed=3)
    for _ in range(4):
        sampler.next_batch()
    other = SequenceSampler(documents, length=4, batch_size=4, seed=3)
    other.state = sampler.state
    assert sampler.state.epoch == 1
    for _ in range(4):
        assert torch.equal(other.next_batch().inputs, sampler.next_batch().inputs)


def test_batch_larger_than_an_epoch(documents: Documents) -> None:
    batch = SequenceSampler(documents, length=25, batch_size=7, seed=0).next_batch()
    assert batch.inputs.shape == (7, 25)


@pytest.mark.parametrize(("name", "sizes"), [("length", (0, 1)), ("batch_size", (1, 0))])
def test_sizes_of_nothing_are_refused(
    documents: Documents, name: str, sizes: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        SequenceSampler(documents, *sizes, seed=0)
