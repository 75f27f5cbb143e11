"""bf16_linear_group on a GPU: the bits of single launches, float64, chains, graphs, plans."""

from __future__ import annotations

import functools

import pytest
import torch
from group_cases import LAYER, make_group
from linear_cases import reference
from linear_gpu import (
    ON_HOPPER,
    captured,
    forced,
    group_choices,
    name,
    run_group_into,
    run_into,
)

from sdm_runtime import Plan, StepChain, bf16_linear
from sdm_runtime.linear import forced_tactic, plan_bf16_linear, static_weights
from sdm_runtime.linear.group import bf16_linear_group, plan_bf16_linear_group
from sdm_runtime.linear.launch import tactics

pytestmark = ON_HOPPER

POISON = -1  # as int16: a bf16 NaN
# Tiles cut short and narrow weights, odd ones among them, between others; K % 128 = 8.
ROWS, K = (194, 2, 8, 130, 1, 16, 65, 64), 1032
CHOICES = list(group_choices())
# The layers that decode: q, k, v, a, b, the output gate.
LAYERS = {
    "medium": (2048, (4096, 4096, 2048, 16, 16, 2048)),
    "large": (2048, (1024, 1024, 2048, 2, 2)),
    "small": (512, (1024, 1024, 512, 8, 8, 512)),
}


def exact_of(x, weight, bias) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the size of its terms."""
    terms = (x, weight) if bias is None else (x, weight, bias)
    return reference(*terms), reference(*(t.abs() for t in terms))


@functools.lru_cache(maxsize=64)
def case(m, rows, k, biases="some", seed=0):
    """A group and, for every member, the float64 result and the size of its terms."""
    group = make_group(m, rows, k, biases=biases, seed=seed, device="cuda")
    return group, [exact_of(group.x, weight, bias) for weight, bias, _ in group.members()]


def wrong_elements(y, exact) -> int:
    """How many are further off than one rounding to bf16 and the error of a float32 sum."""
    expected, magnitude = exact
    bound = expected.abs() * 2**-8 * 1.01 + magnitude * 2**-20
    return int((~((y.cpu().double() - expected).abs() <= bound)).sum())


def assert_right(ys, exact) -> None:
    assert [wrong_elements(y, of) for y, of in zip(ys, exact, strict=True)] == [0] * len(exact)


def grouped(group, tactic=None) -> list[torch.Tensor]:
    """New outputs of one launch."""
    ys = [torch.full_like(y, torch.nan) for y in group.ys]
    run_group_into(ys, group.x, group.weights, group.biases, tactic)
    return ys


def singles(group, tactic) -> list[torch.Tensor]:
    """The same by a launch for each weight."""
    with forced(tactic):
        return [bf16_linear(group.x, weight, bias) for weight, bias, _ in group.members()]


def equal(some, others) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(some, others, strict=True)]


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_the_bits_of_single_launches(tactic):
    tile = tactics()[tactic.index]["tokens"]
    for m in (1, tile - 1, tile, tile + 1):
        group, exact = case(m, ROWS, K)
        ys = grouped(group, tactic)
        assert equal(ys, singles(group, tactic)) == [True] * len(ROWS), m
        assert_right(ys, exact)


def test_another_tactic_or_split_shows_in_the_bits():
    """The control: what the equalities above compare can differ."""
    group, _ = case(64, ROWS, 2056)
    outputs = [grouped(group, tactic) for tactic in CHOICES]
    assert any(not all(equal(outputs[0], other)) for other in outputs[1:])


def test_the_check_sees_one_wrong_element():
    group, exact = case(8, ROWS, K)
    ys = grouped(group)
    assert_right(ys, exact)
    ys[3][7, 129] += ys[3][7, 129].abs() * 2**-6 + 1
    assert wrong_elements(ys[3], exact[3]) == 1


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("biases", [False, True, "some"])
def test_any_number_of_weights(count, biases):
    for rows in (ROWS[:count], ROWS[::-1][:count], (1,) * count, (128,) * count):
        for m in (1, 40):
            group, exact = case(m, rows, 264, biases)
            assert_right(grouped(group), exact)


@pytest.mark.parametrize("m", [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 129])
@pytest.mark.parametrize("k", [8, 136, 2048])
def test_all_token_counts_by_the_default_tactic(m, k):
    group, exact = case(m, LAYER, k)
    assert_right(grouped(group), exact)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("m", [1, 8, 32, 64, 128])
def test_the_projections_of_a_layer(layer, m):
    k, rows = LAYERS[layer]
    group, exact = case(m, rows, k, False)
    ys = bf16_linear_group(group.x, group.weights)
    assert_right(ys, exact)
    assert equal(ys, grouped(group)) == [True] * len(rows)


def test_every_tactic_at_the_medium_layer():
    """More blocks than SMs: later ones start where others ended."""
    k, rows = LAYERS["medium"]
    group, exact = case(1, rows, k, False)
    for tactic in CHOICES:
        ys = grouped(group, tactic)
        assert_right(ys, exact)
        assert equal(ys, singles(group, tactic)) == [True] * len(rows), tactic


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_writes_its_outputs_and_nothing_else(tactic):
    tile = tactics()[tactic.index]["tokens"]
    for m in (max(tile - 3, 1), tile + 3):
        group, exact = case(m, ROWS, K)
        for odd in (False, True):  # at odd addresses pairs of columns cannot be stored together
            pages, ys, starts = [], [], []
            for y in group.ys:
                before = 2 * y.shape[1] + odd
                page = torch.full(
                    (before + y.numel() + 300,), POISON, dtype=torch.int16, device="cuda"
                )
                ys.append(page.view(torch.bfloat16)[before : before + y.numel()].view(y.shape))
                pages.append(page)
                starts.append(before)
            run_group_into(ys, group.x, group.weights, group.biases, tactic)
            assert_right(ys, exact)
            for page, y, start in zip(pages, ys, starts, strict=True):
                around = torch.cat([page[:start], page[start + y.numel() :]])
                assert bool((around == POISON).all())


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_nan_reaches_its_own_outputs_alone(tactic):
    """A row of x, a weight and a bias reach what they are for."""
    clean, _ = case(tactics()[tactic.index]["tokens"], ROWS, K)
    expected = grouped(clean, tactic)
    group = make_group(clean.x.shape[0], ROWS, K, biases="some", device="cuda")
    assert equal(grouped(group, tactic), expected) == [True] * len(ROWS)
    group.weights[3][7] = torch.nan
    assert group.biases[6] is not None
    group.biases[6][64] = torch.nan
    ys = grouped(group, tactic)
    assert bool(ys[3][:, 7].isnan().all())
    assert bool(ys[6][:, 64].isnan().all())
    ys[3][:, 7], ys[6][:, 64] = expected[3][:, 7], expected[6][:, 64]
    assert equal(ys, expected) == [True] * len(ROWS)
    group.x[-1] = torch.nan
    ys = grouped(group, tactic)
    assert all(bool(y[-1].isnan().all()) for y in ys)


def test_rows_with_gaps_and_leading_dimensions():
    group, exact = case(12, ROWS, 136)

    def gaps(t, columns):
        return torch.nn.functional.pad(t, (0, columns), value=torch.nan)[:, : t.shape[1]]

    weights = [gaps(weight, 8 * (i + 1)) for i, weight in enumerate(group.weights)]
    x = gaps(group.x, 24)
    assert_right(bf16_linear_group(x, weights, group.biases), exact)
    ys = bf16_linear_group(x.unflatten(0, (3, 2, 2)), weights, group.biases)
    assert [y.shape for y in ys] == [(3, 2, 2, n) for n in ROWS]
    assert_right([y.view(12, -1) for y in ys], exact)
    (y,) = bf16_linear_group(group.x[3], weights[:1], group.biases[:1])
    assert torch.equal(y, bf16_linear_group(group.x[3:4], weights[:1], group.biases[:1])[0][0])


def test_forced_tactics_and_mistakes():
    group, _ = case(8, ROWS, K)
    with forced(CHOICES[1]):
        ys = bf16_linear_group(group.x, group.weights, group.biases)
    assert equal(ys, singles(group, CHOICES[1])) == [True] * len(ROWS)
    only_single = next(i for i in range(len(tactics())) if i not in {c.index for c in CHOICES})
    with (
        forced_tactic(only_single, 1),
        pytest.raises(ValueError, match=r"\[bf16_linear_group\] tactic: expected one that groups"),
    ):
        bf16_linear_group(group.x, group.weights)
    with pytest.raises(ValueError, match="bias_0: expected a tensor on cuda"):
        bf16_linear_group(group.x, group.weights[:1], [torch.zeros(ROWS[0]).bfloat16()])


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_repeated_and_captured(tactic):
    group = make_group(tactics()[tactic.index]["tokens"] + 1, ROWS, K, biases="some", device="cuda")
    first = grouped(group, tactic)
    assert all(all(equal(grouped(group, tactic), first)) for _ in range(3))
    graph, ys = captured(lambda: grouped(group, tactic))
    for _ in range(3):
        for y in ys:
            y.fill_(torch.nan)
        graph.replay()
        assert equal(ys, first) == [True] * len(ROWS)
    group.x[0, 0] += 1  # a captured launch reads its operands when it is replayed
    graph.replay()
    assert not any(equal(ys[:1], first[:1]))


@pytest.mark.parametrize("tactic", CHOICES, ids=name)
def test_programmatic_behind_a_kernel_that_writes_x(tactic):
    """Groups and single launches in turn, each reading what the one ahead has just written."""
    m, width = tactics()[tactic.index]["tokens"], 1032
    rows = (width, 16, 2, 200)
    group = make_group(m, rows, width, biases=False, device="cuda")
    group.weights[0] /= 16
    back = make_group(1, (width,), width, biases=False, seed=5, device="cuda").weights[0] / 16
    hidden = torch.empty_like(group.x)
    rounds = 6

    def chain(pdl: bool) -> list[torch.Tensor]:
        outputs = [torch.zeros_like(y) for _ in range(rounds) for y in group.ys]
        hidden.copy_(group.x)
        for i in range(rounds):
            ys = outputs[4 * i : 4 * i + 4]
            run_group_into(ys, hidden, group.weights, group.biases, tactic, pdl=pdl)
            run_into(hidden, ys[0], back, None, tactic, pdl=pdl)
        return [*outputs, hidden.clone()]

    expected = chain(pdl=False)
    assert all(bool(y.isfinite().all()) and float(y.float().std()) > 0 for y in expected)
    assert not torch.equal(expected[0], expected[4])  # a stale x would show
    for _ in range(3):
        assert all(equal(chain(pdl=True), expected))
    graph, ys = captured(lambda: chain(pdl=True))
    for _ in range(20):
        for y in ys:
            y.zero_()
        graph.replay()
        assert all(equal(ys, expected))


def test_behind_kernels_that_do_not_start_their_dependents_early():
    """x and the biases come from ordinary kernels just before a programmatic launch."""
    group = make_group(8, ROWS, K, biases=True, device="cuda")
    biases = [bias for bias in group.biases if bias is not None]
    expected = bf16_linear_group(group.x * 2, group.weights, [bias * 2 for bias in biases])
    late_x, late_biases = torch.zeros_like(group.x), [torch.zeros_like(bias) for bias in biases]

    def work() -> list[torch.Tensor]:
        late_x.zero_()
        for late, bias in zip(late_biases, biases, strict=True):
            late.zero_()
            torch.mul(bias, 2, out=late)
        torch.mul(group.x, 2, out=late_x)
        with static_weights():
            return bf16_linear_group(late_x, group.weights, late_biases)

    assert all(equal(work(), expected))
    graph, ys = captured(work)
    for _ in range(20):
        graph.replay()
        assert all(equal(ys, expected))


def test_maps_are_made_for_the_tensors_of_the_call():
    """One after the other on the same shapes, and on the same memory with other shapes."""
    for seed in range(3):
        group, exact = case(5, (24, 40), 72, True, seed)
        assert_right(grouped(group), exact)
    memory = torch.empty(64 * 64, dtype=torch.bfloat16, device="cuda")
    for n, k in ((64, 64), (32, 128), (128, 32), (40, 64)):
        group, exact = case(5, (n, 8), k, False)
        weight = memory[: n * k].view(n, k).copy_(group.weights[0])
        ys = [torch.empty_like(y) for y in group.ys]
        run_group_into(ys, group.x, [weight, group.weights[1]], group.biases, None)
        assert_right(ys, exact)


# Plans.


def named(group) -> dict[str, torch.Tensor]:
    tensors = {"group_x": group.x}
    for i, (weight, bias, y) in enumerate(group.members()):
        tensors |= {f"weight_{i}": weight, f"y_{i}": y}
        if bias is not None:
            tensors[f"bias_{i}"] = bias
    return tensors


@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("tactic", [None, (0, 1), (0, 4), (2, 2), (5, 3), (17, 5), (9, 8)])
def test_recorded_saved_loaded_rebound(tactic, pdl, tmp_path):
    groups = [make_group(17, ROWS, K, biases="some", seed=s, device="cuda") for s in (0, 20)]
    choice = next((c for c in CHOICES if c.for_core() == tactic), None)
    assert (choice is None) == (tactic is None)
    expected = [grouped(group, choice) for group in groups]
    first, second = groups

    def record() -> Plan:
        return plan_bf16_linear_group(first.x, first.weights, first.biases, first.ys, pdl=pdl)

    if choice is None:
        plan = record()
    else:
        with forced(choice):
            plan = record()
    StepChain([plan], 1).run()
    assert all(equal(first.ys, expected[0]))

    plan.save(tmp_path / "group.plan")
    loaded = Plan.load(tmp_path / "group.plan")
    assert not loaded.bound
    chain = StepChain([loaded.bind(**named(second))], 1)
    for y in first.ys:
        y.fill_(torch.nan)
    for _ in range(2):
        for y in second.ys:
            y.fill_(torch.nan)
        chain.run()
        assert all(equal(second.ys, expected[1]))
    assert all(bool(y.isnan().all()) for y in first.ys)  # the plan forgot what it was recorded on
    assert not any(equal(expected[0], expected[1]))


@pytest.mark.parametrize("pdl", [False, True])
def test_a_chain_and_its_graph(pdl):
    """A projection writes x, the group reads it, an output projection reads a member's output."""
    m, k = 4, 512
    group = make_group(m, LAYER, k, biases="some", device="cuda")
    source = make_group(m, (k,), 256, biases=True, seed=30, device="cuda")
    last = make_group(m, (128,), LAYER[2], biases=False, seed=40, device="cuda")
    plans = [
        plan_bf16_linear(source.x, source.weights[0], group.x, source.biases[0], pdl=pdl),
        plan_bf16_linear_group(group.x, group.weights, group.biases, group.ys, pdl=pdl),
        plan_bf16_linear(group.ys[2], last.weights[0], last.ys[0], pdl=pdl),
    ]
    chain = StepChain(plans, 1)
    chain.run()
    written = [group.x, *group.ys, last.ys[0]]
    read = [
        (source.x, source.weights[0], source.biases[0]),
        *((group.x, weight, bias) for weight, bias, _ in group.members()),
        (group.ys[2], last.weights[0], None),
    ]
    assert_right(written, [exact_of(*terms) for terms in read])
    expected = [y.clone() for y in written]
    graph = chain.graph()
    for _ in range(20):
        for y in written:
            y.fill_(torch.nan)
        graph.replay()
        assert all(equal(written, expected))


def test_a_template_serves_other_tensors_in_turn():
    """The decoding loop's way: one recorded chain, bound anew for every layer."""
    groups = [make_group(3, LAYER, 256, biases=False, seed=50 * s, device="cuda") for s in range(3)]
    expected = [grouped(group) for group in groups]
    first = groups[0]
    plan = plan_bf16_linear_group(first.x, first.weights, None, first.ys, pdl=True)
    chains = [StepChain([plan.bind(**named(group))], 1) for group in groups]
    for group in groups:
        for y in group.ys:
            y.fill_(torch.nan)
    for chain in chains:
        chain.run()
    for group, want in zip(groups, expected, strict=True):
        assert all(equal(group.ys, want))
