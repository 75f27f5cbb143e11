"""The kernel's values against float64: every tactic, odd sizes, nothing else written."""

from __future__ import annotations

import functools

import pytest
import torch
from linear_cases import error, operands, reference
from linear_gpu import ON_HOPPER, choices, forced, name, run_into

from sdm_runtime import bf16_linear, last_dispatch
from sdm_runtime.linear.launch import pick, tactics

pytestmark = ON_HOPPER

POISON = -1  # as int16: a bf16 NaN
# Depths with a tile cut short, K % 128 = 8; weight rows that no tile divides, even and odd.
WIDE, DEEP = (194, 1032), (65, 2056)


@functools.lru_cache(maxsize=256)
def case(m: int, n: int, k: int, bias: bool):
    given = operands(m, n, k, bias=bias, device="cuda")
    magnitude = reference(*(t.abs() for t in given if t is not None))
    return given, reference(*given), magnitude


def wrong_elements(y, expected, magnitude) -> int:
    """How many are further off than one rounding to bf16 and the error of a float32 sum."""
    bound = expected.abs() * 2**-8 * 1.01 + magnitude * 2**-20
    off = (y.cpu().double() - expected).abs()
    return int((~(off <= bound)).sum())


@pytest.mark.parametrize("tactic", list(choices()), ids=name)
@pytest.mark.parametrize("bias", [False, True])
def test_every_tactic_is_right_at_its_tiles_edges(tactic, bias):
    tile = tactics()[tactic.index]["tokens"]
    for m, (n, k) in ((1, WIDE), (tile - 1, DEEP), (tile, WIDE), (tile + 1, DEEP)):
        given, expected, magnitude = case(m, n, k, bias)
        with forced(tactic):
            y = bf16_linear(*given)
        assert wrong_elements(y, expected, magnitude) == 0, (m, n, k)
        library = torch.nn.functional.linear(*given)
        assert error(y, expected) <= 1.02 * error(library, expected), (m, n, k)


def test_the_check_sees_one_wrong_element():
    given, expected, magnitude = case(9, *WIDE, True)
    with forced(next(choices())):
        y = bf16_linear(*given)
    assert wrong_elements(y, expected, magnitude) == 0
    y[8, 193] += y[8, 193].abs() * 2**-6 + 1
    assert wrong_elements(y, expected, magnitude) == 1


@pytest.mark.parametrize("m", [1, 2, 7, 8, 9, 15, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129])
def test_all_token_counts_by_the_default_tactic(m):
    given, expected, magnitude = case(m, 1030, 520, True)
    with forced(pick((m, 1030, 520), 132)):
        y = bf16_linear(*given)
    assert wrong_elements(y, expected, magnitude) == 0


@pytest.mark.parametrize("k", [8, 16, 120, 128, 136])
@pytest.mark.parametrize("n", [1, 2, 63, 64, 129])
def test_small_and_odd_weights(n, k):
    given, expected, magnitude = case(5, n, k, True)
    for tactic in choices():
        with forced(tactic):
            assert wrong_elements(bf16_linear(*given), expected, magnitude) == 0, tactic


@pytest.mark.parametrize("tactic", list(choices()), ids=name)
def test_writes_its_output_and_nothing_else(tactic):
    tile = tactics()[tactic.index]["tokens"]
    for m, n in ((tile + 3, 194), (max(tile - 3, 1), 193)):
        given, expected, magnitude = case(m, n, WIDE[1], True)
        for offset in (n, 2 * n + 1):  # the second one also shifts y to an odd address
            page = torch.full(((m + 4) * n,), POISON, dtype=torch.int16, device="cuda")
            y = page.view(torch.bfloat16)[offset : offset + m * n].view(m, n)
            x, weight, bias = given
            run_into(y, x, weight, bias, tactic)
            assert wrong_elements(y, expected, magnitude) == 0
            around = torch.cat([page[:offset], page[offset + m * n :]])
            assert bool((around == POISON).all())


def test_rows_with_gaps_and_leading_dimensions():
    (x, weight, bias), expected, magnitude = case(12, 72, 136, True)
    gaps_x = torch.nn.functional.pad(x, (0, 24), value=torch.nan)[:, :136]
    gaps_w = torch.nn.functional.pad(weight, (0, 8), value=torch.nan)[:, :136]
    with forced(next(choices())):
        assert wrong_elements(bf16_linear(gaps_x, gaps_w, bias), expected, magnitude) == 0
        y = bf16_linear(gaps_x.unflatten(0, (3, 2, 2)), weight, bias)
    assert y.shape == (3, 2, 2, 72)
    assert wrong_elements(y.view(12, 72), expected, magnitude) == 0


DECLINED = {
    "K = 60 is not a multiple of 8": lambda x, w: (x[:, :60], w[:, :60]),
    "x is not K-major": lambda x, w: (x.t().contiguous().t(), w),
    "weight is not K-major": lambda x, w: (x, w.t().contiguous().t()),
    "x's address is not a multiple of 16": lambda x, w: (
        torch.cat([x.flatten()[:1], x.flatten()])[1:].view_as(x),
        w,
    ),
}


@pytest.mark.parametrize("reason", DECLINED)
def test_what_the_kernel_declines_the_library_serves(reason):
    (x, weight, _), _, _ = case(5, 16, 64, True)
    x, weight = DECLINED[reason](x, weight)
    y = bf16_linear(x, weight)
    assert torch.equal(y, torch.nn.functional.linear(x, weight))
    ran = last_dispatch()
    assert (ran["route"], ran["backend"]) == ("library", "cuda")
    assert reason in ran["gemm_reason"]
    with forced(next(choices())), pytest.raises(ValueError, match="the kernel cannot run"):
        bf16_linear(x, weight)
