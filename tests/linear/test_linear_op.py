"""The custom op: values, gradients, compilation, and what a CPU call says that it ran."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from linear_cases import error, operands, reference
from torch.autograd import forward_ad

import sdm_runtime
from sdm_runtime import bf16_linear
from sdm_runtime.linear import forced_tactic, launch, plan_bf16_linear, static_weights
from sdm_runtime.linear.op import _bf16_linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 24, 8), (5, 33, 136), (129, 7, 72)])
def test_values_against_float64(shape, bias):
    x, weight, b = operands(*shape, bias=bias)
    expected = reference(x, weight, b)
    assert error(bf16_linear(x, weight, b), expected) < 4e-3
    assert error(bf16_linear(x, weight, b), expected + 0.1 * expected.abs().mean()) > 4e-3


def test_leading_dimensions_are_rows():
    x, weight, bias = operands(24, 16, 32)
    y = bf16_linear(x, weight, bias)
    assert torch.equal(bf16_linear(x.view(2, 3, 4, 32), weight, bias), y.view(2, 3, 4, 16))
    assert torch.equal(bf16_linear(x[0], weight, bias), bf16_linear(x[:1], weight, bias)[0])
    assert bf16_linear(x[:0], weight, bias).shape == (0, 16)


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_are_those_of_matmuls(bias):
    given = [t for t in operands(12, 16, 24, bias=bias) if t is not None]
    ours = [t.clone().requires_grad_() for t in given]
    double = [t.double().requires_grad_() for t in given]
    out = bf16_linear(ours[0].view(3, 4, 24), *ours[1:])
    upstream = torch.randn_like(out)
    out.backward(upstream)
    x64 = double[0].view(3, 4, 24)
    torch.nn.functional.linear(x64, *double[1:]).backward(upstream.double())
    for mine, exact in zip(ours, double, strict=True):
        assert mine.grad.dtype == torch.bfloat16
        assert error(mine.grad, exact.grad) < 1e-2


def test_only_wanted_gradients():
    x, weight, bias = operands(4, 8, 16)
    weight.requires_grad_()
    bf16_linear(x, weight, bias).sum().backward()
    assert weight.grad is not None
    assert x.grad is None
    assert bias.grad is None


class Block(torch.nn.Module):
    def __init__(self, k: int, n: int) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(k, n).bfloat16()

    def forward(self, x):
        return torch.relu(bf16_linear(x, self.proj.weight, self.proj.bias)) * 2


def test_compiles_as_one_graph():
    block = Block(32, 16)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    x = operands(6, 1, 32)[0].requires_grad_()
    assert torch.equal(compiled(x), block(x))
    compiled(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("bias", [False, True])
def test_the_operator_passes_torchs_opcheck(bias):
    x, weight, b = operands(3, 16, 24, bias=bias)
    x.requires_grad_()
    torch.library.opcheck(_bf16_linear, (x, weight, b))


def test_meta_tensors_give_shape_and_dtype():
    x, weight, bias = (t.to("meta") for t in operands(6, 16, 24))
    y = bf16_linear(x.view(2, 3, 24), weight, bias)
    assert y.shape == (2, 3, 16)
    assert y.dtype == torch.bfloat16
    assert y.is_meta


def test_autocast_casts_the_operands():
    x, weight, bias = (t.float() for t in operands(3, 16, 24))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bf16_linear(x, weight, bias).dtype == torch.bfloat16
    with pytest.raises(TypeError, match="expected a bfloat16 tensor"):
        bf16_linear(x, weight, bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_to_another_dtype_is_refused(dtype):
    """F.linear gives float16 there, which nothing here computes."""
    given = [t.to(dtype) for t in operands(3, 16, 24)]
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.nn.functional.linear(*given).dtype == torch.float16
        with pytest.raises(
            TypeError, match=r"\[bf16_linear\] autocast: expected bfloat16, got float16"
        ):
            bf16_linear(*given)
        with torch.autocast("cpu", enabled=False):
            assert bf16_linear(*(t.bfloat16() for t in given)).dtype == torch.bfloat16


def tangents(name, around):
    """The result's tangent, where one operand has one; inside of a transform."""
    given = dict(zip(("x", "weight", "bias"), operands(3, 16, 24), strict=True))

    def call(primal):
        return around(lambda row: bf16_linear(**given | {name: row}))(primal)

    return torch.func.jvp(call, (given[name],), (torch.ones_like(given[name]),))


@pytest.mark.parametrize("name", ["x", "weight", "bias"])
@pytest.mark.parametrize("grad", [False, True])
def test_a_tangent_is_refused_not_dropped(name, grad):
    given = dict(zip(("x", "weight", "bias"), operands(3, 16, 24), strict=True))
    refusal = rf"\[bf16_linear\] {name}: expected no tangent"
    with forward_ad.dual_level(), torch.set_grad_enabled(grad):
        for tensor in given.values():
            tensor.requires_grad_()
        bf16_linear(**given)  # the control: none has one
        given[name] = forward_ad.make_dual(given[name], torch.ones_like(given[name]))
        with pytest.raises(ValueError, match=refusal):
            bf16_linear(**given)
    for around in (lambda f: f, torch.func.vmap) if name == "x" else (lambda f: f,):
        with pytest.raises(ValueError, match=refusal):
            tangents(name, around)


def test_a_mapped_call_inside_a_level_is_made():
    x, weight, bias = operands(3, 16, 24)
    with forward_ad.dual_level():
        y = torch.func.vmap(lambda row: bf16_linear(row, weight, bias))(x)
    assert torch.equal(y, torch.stack([bf16_linear(row, weight, bias) for row in x]))


def test_a_cpu_call_says_that_the_library_ran():
    x, weight, bias = operands(3, 16, 24)
    with static_weights():
        bf16_linear(x, weight, bias)
    ran = sdm_runtime.last_dispatch()
    assert ran["op"] == "bf16_linear"
    assert (ran["route"], ran["gemm"]) == ("library", "F.linear")
    assert ran["gemm_reason"] == "the tensors are on cpu"
    assert ran["backend"] == "host"
    assert not ran["pdl"]


class FakeGpu:
    major, minor, multi_processor_count = 9, 0, 132


def test_a_hopper_that_runs_as_another_device_is_of_that_kind(monkeypatch):
    profile = SimpleNamespace(capability=(8, 0), sm_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: FakeGpu)
    monkeypatch.setattr(launch, "device_profile", lambda device: profile)
    assert launch.device_kind.__wrapped__(0) == (8, 0, 132)
    monkeypatch.setattr(FakeGpu, "major", 7)
    monkeypatch.setattr(launch, "device_profile", None)  # not asked: it knows no such device
    assert launch.device_kind.__wrapped__(0) == (7, 0, 132)


def test_a_forced_tactic_never_falls_back():
    x, weight, bias = operands(3, 16, 24)
    with forced_tactic(0, 1), pytest.raises(ValueError, match="the tensors are on cpu"):
        bf16_linear(x, weight, bias)
    assert bf16_linear(x, weight, bias).shape == (3, 16)


MISTAKES = {
    "x dtype": ((0, lambda t: t.float()), TypeError, "x: expected a bfloat16 tensor, got float32"),
    "weight dtype": ((1, lambda t: t.half()), TypeError, "weight: expected a bfloat16 tensor"),
    "bias dtype": ((2, lambda t: t.float()), TypeError, "bias: expected a bfloat16 tensor"),
    "weight ndim": ((1, lambda t: t[0]), ValueError, "weight: expected bfloat16 [N, K], got"),
    "K": ((0, lambda t: t[:, :8]), ValueError, "x: expected bfloat16 [..., 24], got bfloat16"),
    "x ndim": ((0, lambda t: t[0, 0]), ValueError, "x: expected bfloat16 [..., 24], got bfloat16"),
    "bias length": ((2, lambda t: t[:-1]), ValueError, "bias: expected bfloat16 [16], got"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_the_argument(name):
    (position, change), kind, message = MISTAKES[name]
    arguments = list(operands(3, 16, 24))
    bf16_linear(*arguments)  # the control
    arguments[position] = change(arguments[position])
    with pytest.raises(kind, match=re.escape(message)):
        bf16_linear(*arguments)


def test_plans_need_a_hopper_gpu():
    x, weight, _ = operands(3, 16, 24)
    y = torch.empty(3, 16, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"compute capability 9.0, got a tensor on the cpu"):
        plan_bf16_linear(x, weight, y)
