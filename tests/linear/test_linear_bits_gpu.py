"""Equal bits: repeated, captured, launched programmatically, whatever the other rows hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from linear_cases import operands
from linear_gpu import ON_HOPPER, captured, choices, forced, name, run_into

from sdm_runtime import bf16_linear
from sdm_runtime.linear import static_weights
from sdm_runtime.linear.launch import tactics

pytestmark = ON_HOPPER

N, K = 328, 2056
CHOICES = list(choices())


def call(tactic, *given):
    with forced(tactic):
        return bf16_linear(*given)


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_repeated_and_captured(tactic):
    given = operands(tactics()[tactic.index]["tokens"] + 1, N, K, device="cuda")
    first = call(tactic, *given)
    assert all(torch.equal(call(tactic, *given), first) for _ in range(4))
    graph, y = captured(lambda: call(tactic, *given))
    for _ in range(3):
        y.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, first)
    given[0][0, 0] += 1  # a captured call reads its operands when it is replayed
    graph.replay()
    assert not torch.equal(y, first)


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_a_row_whatever_the_batch(tactic):
    tile = tactics()[tactic.index]["tokens"]
    x, weight, bias = operands(tile + 2, N, K, device="cuda")
    y = call(tactic, x, weight, bias)
    for row in (0, tile - 1, tile + 1):
        assert torch.equal(call(tactic, x[row : row + 1], weight, bias)[0], y[row])
        alone = torch.full_like(x, torch.nan)
        alone[row] = x[row]
        among_nan = call(tactic, alone, weight, bias)
        assert torch.equal(among_nan[row], y[row])
        assert bool(among_nan[row - 1].isnan().all())  # the control: NaN does reach its own row


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_programmatic_chain(tactic):
    """Each product reads the one before, through one buffer that two of them reuse."""
    m, width = tactics()[tactic.index]["tokens"], 1032
    x, first, _ = operands(m, width, width, bias=False, device="cuda")
    weights = [first / 16] + [
        operands(1, width, width, bias=False, seed=s, device="cuda")[1] / 16 for s in range(1, 4)
    ]
    buffers = [torch.empty(m, width, dtype=torch.bfloat16, device="cuda") for _ in range(2)]

    def chain(pdl: bool) -> torch.Tensor:
        given = x
        for i in range(8):
            run_into(buffers[i % 2], given, weights[i % 4], None, tactic, pdl=pdl)
            given = buffers[i % 2]
        return given.clone()

    expected = chain(pdl=False)
    assert bool(expected.isfinite().all())
    assert float(expected.float().std()) > 0
    assert all(torch.equal(chain(pdl=True), expected) for _ in range(3))
    graph, y = captured(lambda: chain(pdl=True))
    for _ in range(20):
        y.zero_()
        graph.replay()
        assert torch.equal(y, expected)


def test_behind_a_kernel_that_does_not_start_its_dependents_early():
    """x and the bias come from ordinary kernels just before a programmatic launch."""
    tactic = CHOICES[0]
    x, weight, bias = operands(8, N, K, device="cuda")
    expected = call(tactic, x * 2, weight, bias * 2)
    late_x, late_bias = torch.zeros_like(x), torch.zeros_like(bias)

    def work() -> torch.Tensor:
        late_x.zero_()
        late_bias.zero_()
        torch.mul(bias, 2, out=late_bias)
        torch.mul(x, 2, out=late_x)
        with static_weights():
            return call(tactic, late_x, weight, late_bias)

    assert torch.equal(work(), expected)
    graph, y = captured(work)
    for _ in range(20):
        graph.replay()
        assert torch.equal(y, expected)


def test_neither_rings_nor_sharers_show_in_the_bits():
    """Tactics that differ in nothing else add in the same order."""
    given = operands(64, N, K, device="cuda")
    outputs: dict[Any, list[Any]] = {}
    for tactic in CHOICES:
        row = tactics()[tactic.index]
        key = (row["rows"], row["tokens"], row["depth"], tactic.splits)
        outputs.setdefault(key, []).append(call(tactic, *given))
    assert any(len(same) > 1 for same in outputs.values())
    for first, *others in outputs.values():
        assert all(torch.equal(first, other) for other in others)


def test_another_tactic_may_round_differently():
    """The control of this file: sums in another order do show in the bits."""
    given = operands(64, N, K, device="cuda")
    outputs = [call(tactic, *given) for tactic in CHOICES]
    assert any(not torch.equal(outputs[0], other) for other in outputs[1:])
