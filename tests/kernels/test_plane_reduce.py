"""plane_reduce's host twin against the scalar reference, bit for bit."""

from __future__ import annotations

import kernel_reference
import pytest
import torch
from kernel_cases import Draw
from kernel_checks import as_bits

from sdm_runtime import kernels


def reduce_both(planes, factor=None, **sizes):
    out = torch.full((planes.shape[1],), -7.25e30)
    expected = out.clone()
    kernels.plane_reduce(planes, out, factor=factor, **sizes)
    kernel_reference.plane_reduce(planes, expected, factor=factor, **sizes)
    return out, expected


@pytest.mark.parametrize("count", [1, 2, 3, 9, 70])
@pytest.mark.parametrize("group", [0, 1, 3])
@pytest.mark.parametrize("special", [False, True])
def test_sums_and_factors_match_the_reference(count, group, special):
    draw = Draw(count, special)
    entries = 2 * 2 * 4 * 3  # steps, sequences, chunk, width
    planes = draw.floats(count, entries)
    factor = draw.floats(entries // group) if group else None
    for negate in {False, group > 0}:
        out, expected = reduce_both(
            planes, factor, negate=negate, group=max(group, 1), num_tokens=7, num_parallel=2,
            chunk_size=4,
        )  # fmt: skip
        assert torch.equal(as_bits(out), as_bits(expected))


@pytest.mark.parametrize("num_tokens", [5, 6, 7, 8])
def test_padding_tokens_get_zeros(num_tokens):
    planes = torch.randn(2, 2 * 3 * 4 * 5)
    out, expected = reduce_both(planes, num_tokens=num_tokens, num_parallel=3, chunk_size=4)
    assert torch.equal(as_bits(out), as_bits(expected))
    assert (out == 0).sum() == 3 * 5 * (8 - num_tokens)


def test_order_of_planes_matters():
    """The control: planes in another order have another sum."""
    planes = torch.randn(7, 64)
    sizes = {"num_tokens": 16, "num_parallel": 1, "chunk_size": 16}
    out, _ = reduce_both(planes, **sizes)
    other, _ = reduce_both(planes.flip(0).contiguous(), **sizes)
    assert not torch.equal(out, other)
    torch.testing.assert_close(out, other)
