"""bf16_linear on a GPU as a plan, under torch.compile, and what it says that it ran."""

from __future__ import annotations

import importlib.util
import shutil

import pytest
import torch
from linear_cases import error, operands, reference
from linear_gpu import ON_HOPPER, choices, forced
from plan_cases import from_bytes, plan_bytes
from plan_fields import inverse, with_fields

from sdm_runtime import Plan, PlanError, StepChain, bf16_linear, last_dispatch
from sdm_runtime.linear import forced_tactic, plan_bf16_linear, rule, static_weights
from sdm_runtime.linear.launch import device_kind, tactics
from sdm_runtime.linear.op import _bf16_linear

pytestmark = ON_HOPPER


def empty_like_output(x, weight):
    return torch.full((x.shape[0], weight.shape[0]), torch.nan, dtype=x.dtype, device=x.device)


@pytest.mark.parametrize("tactic", [(0, 1), (0, 4), (1, 2), (6, 3), (7, 2), (13, 5)])
@pytest.mark.parametrize("bias", [False, True])
def test_recorded_saved_loaded_rebound(tactic, bias, tmp_path):
    tactic = next(c for c in choices() if c.for_core() == tactic)
    first = operands(17, 200, 1032, bias=bias, device="cuda")
    second = operands(17, 200, 1032, bias=bias, seed=9, device="cuda")
    outputs = [empty_like_output(*first[:2]) for _ in range(2)]
    with forced(tactic):
        x, weight, b = first
        plan = plan_bf16_linear(x, weight, outputs[0], b)
        expected = [bf16_linear(*first), bf16_linear(*second)]
    StepChain([plan], 1).run()
    assert torch.equal(outputs[0], expected[0])

    plan.save(tmp_path / "linear.plan")
    loaded = Plan.load(tmp_path / "linear.plan")
    assert not loaded.bound
    named = {"x": second[0], "weight": second[1], "y": outputs[1]}
    chain = StepChain([loaded.bind(**named, **({"bias": second[2]} if bias else {}))], 1)
    outputs[0].fill_(torch.nan)
    for _ in range(2):
        outputs[1].fill_(torch.nan)
        chain.run()
        assert torch.equal(outputs[1], expected[1])
    assert bool(outputs[0].isnan().all())  # the plan forgot what it was recorded on
    assert not torch.equal(expected[0], expected[1])


@pytest.mark.parametrize("pdl", [False, True])
def test_plans_in_a_chain_and_its_graph(pdl):
    x, first, _ = operands(4, 512, 256, bias=False, device="cuda")
    _, second, bias = operands(1, 128, 512, seed=3, device="cuda")
    hidden, y = empty_like_output(x, first), empty_like_output(x, second)
    plans = [
        plan_bf16_linear(x, first, hidden, pdl=pdl),
        plan_bf16_linear(hidden, second, y, bias, pdl=pdl),
    ]
    chain = StepChain(plans, 1)
    chain.run()
    assert error(y, reference(hidden, second, bias)) < 4e-3
    expected = y.clone()
    graph = chain.graph()
    for _ in range(5):
        y.fill_(torch.nan)
        hidden.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, expected)


class Block(torch.nn.Module):
    def __init__(self, k: int, n: int) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(k, n)

    def forward(self, x):
        return torch.relu(bf16_linear(x, self.proj.weight, self.proj.bias)) * 2


CAN_INDUCE = importlib.util.find_spec("triton") is not None and shutil.which("gcc") is not None


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param("inductor", marks=pytest.mark.skipif(not CAN_INDUCE, reason="no Triton or C")),
    ],
)
def test_compiles_as_one_graph(backend):
    torch.manual_seed(0)
    block = Block(2048, 1024).cuda().bfloat16()
    x = torch.randn(4, 2, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    with forced(next(choices())):
        assert torch.equal(compiled(x), block(x))
        assert last_dispatch()["gemm"] == "bf16_linear"
        compiled(x).float().sum().backward()
    weight, bias = (t.detach().double() for t in (block.proj.weight, block.proj.bias))
    active = torch.nn.functional.linear(x.detach().double(), weight, bias) > 0
    assert error(x.grad, (active.double() * 2 @ weight).cpu()) < 2e-2


def test_the_operator_passes_torchs_opcheck():
    x, weight, bias = operands(3, 16, 24, device="cuda")
    x.requires_grad_()
    with forced(next(choices())):
        torch.library.opcheck(_bf16_linear, (x, weight, bias))


def test_gradients_are_near_those_of_float64():
    given = operands(12, 64, 136, device="cuda")
    ours = [t.clone().requires_grad_() for t in given]
    exact = [t.double().requires_grad_() for t in given]
    upstream = torch.rand(12, 64, device="cuda", dtype=torch.bfloat16)
    with forced(next(choices())):
        bf16_linear(*ours).backward(upstream)
    torch.nn.functional.linear(*exact).backward(upstream.double())
    for mine, want in zip(ours, exact, strict=True):
        assert error(mine.grad, want.grad.cpu()) < 1e-2


def points(taken: bool, route: str):
    device = rule.load().get(device_kind(torch.cuda.current_device()))
    if device is None:
        pytest.skip("no measurement of this kind of device")
    found = [
        p for p in device.points() if p.route == route and (p.gain >= device.minimum_gain) == taken
    ]
    if not found:
        pytest.skip(f"no point of route {route} with taken = {taken}")
    return found[:: max(1, len(found) // 4)]


@pytest.mark.parametrize("route", ["plain", "static_weights"])
def test_the_rule_runs_the_measured_tactic(route):
    for point in points(True, route):
        x, weight, bias = operands(*point.shape, device="cuda")
        if route == "static_weights":
            with static_weights():
                y = bf16_linear(x, weight, bias)
        else:
            y = bf16_linear(x, weight, bias)
        ran = last_dispatch()
        assert (ran["route"], ran["gemm"], ran["backend"]) == ("kernel", "bf16_linear", "cuda")
        assert ran["geometry"] == {"tactic": point.tactic, "splits": point.splits}
        assert ran["gemm_reason"] == "measured to be faster"
        assert ran["pdl"] == (route == "static_weights")
        assert ran["launches"] == 1
        exact = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
        assert error(y, exact.double().cpu()) < 4e-3


def test_the_rule_leaves_the_rest_to_the_library():
    for point in points(False, "plain"):
        x, weight, bias = operands(*point.shape, device="cuda")
        assert torch.equal(
            bf16_linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias)
        )
        ran = last_dispatch()
        assert (ran["route"], ran["gemm"], ran["launches"]) == ("library", "F.linear", 0)
        assert "is below" in ran["gemm_reason"]
    x, weight, bias = operands(3, 24, 40, device="cuda")
    bf16_linear(x, weight, bias)
    assert last_dispatch()["gemm_reason"] == "the shape is outside the measured region"


def test_a_tactic_that_does_not_fit_is_named():
    x, weight, bias = operands(3, 24, 40, device="cuda")
    with forced_tactic(len(tactics()), 1), pytest.raises(ValueError, match="tactic: expected 0"):
        bf16_linear(x, weight, bias)
    for splits in (-1, 0, 9):
        refused = pytest.raises(ValueError, match=rf"splits: expected one of 1, .*, got {splits}$")
        with forced_tactic(0, splits), refused:
            bf16_linear(x, weight, bias)
    index = next(i for i, row in enumerate(tactics()) if row["sharers"] == 4)
    refused = pytest.raises(ValueError, match=r"splits: expected one of 1, 2 for .*_m4, got 3$")
    with forced_tactic(index, 3), refused:
        bf16_linear(x, weight, bias)


CONTRADICTIONS = [
    ({"splits": 0}, "splits"),
    ({"splits": 9}, "splits"),
    ({"splits": 2}, "split_inverse"),
    ({"split_inverse": inverse(3) - 1}, "split_inverse"),
    ({"splits": 2, "split_inverse": inverse(2)}, "tactic"),
    ({"depth_tiles": 8}, "depth_tiles"),
]


@pytest.mark.parametrize(("changes", "named"), CONTRADICTIONS)
def test_a_plan_whose_splits_contradict_its_launch_is_refused(changes, named):
    x, weight, _ = operands(17, 200, 1032, bias=False, device="cuda")
    with forced_tactic(0, 3):
        data = plan_bytes(plan_bf16_linear(x, weight, empty_like_output(x, weight)))
    from_bytes(with_fields(data, splits=3, split_inverse=inverse(3), depth_tiles=9))  # the control
    with pytest.raises(PlanError, match=named):
        from_bytes(with_fields(data, **changes))
