"""The operation on CUDA tensors: against the CPU, captured, repeated, beside other work."""

from __future__ import annotations

import pytest
import torch
from op_cases import (
    DIFFERENTIABLE,
    Case,
    apart,
    beside,
    call,
    errors,
    make_grad,
    make_inputs,
    relative_error,
    run,
)

import sdm_runtime
from sdm_runtime.ops.backward import operands as chain_operands

_LIMIT = {torch.float32: 6e-7, torch.bfloat16: 4e-3}
_CASES = {
    "plain": Case(),
    "repeats": Case(S=5, W=8, R=8, repeats=True, gate_per_write=True),
    "ragged, several slices": Case(T=70, hd=300, P=3),
    "odd head dim": Case(hd=77, W=1, R=1, S=1),
    "long chunk": Case(T=300, C=256, S=64, decay=0.1),
    "skewed slots": Case(S=512, W=16, R=16, T=150, C=64, hd=128, picks="skewed"),
    "one slot in every token": Case(S=512, W=8, R=8, T=150, C=64, hd=256, picks="one-hot"),
}
_OPTIONS = [
    {},
    {"gemm": "fixed"},
    {"gemm": "blas"},
    {"grad_bank_fp32": True},
    {"snapshot_quant": "fp8"},
    {"snapshot_quant": "int4"},
]


def _on_gpu(case):
    return {k: x.cuda() for k, x in make_inputs(case).items()}


def _run_on_gpu(case, inputs=None, **options):
    """Readings and gradients, of leaves on the device."""
    leaves = {k: x.clone() for k, x in (inputs or _on_gpu(case)).items()}
    for name in DIFFERENTIABLE:
        leaves[name].requires_grad_()
    readings = call(case, leaves, **options)
    readings.backward(make_grad(case).cuda())
    return {
        "readings": readings.detach(),
        "bank": leaves["memory"].detach(),
        **{name: leaves[name].grad for name in DIFFERENTIABLE},
    }


@pytest.mark.parametrize("hd", [64, 256])
def test_a_second_stream_changes_no_bit(hd, monkeypatch):
    case = Case(hd=hd, dtype=torch.bfloat16)
    monkeypatch.setattr(chain_operands, "_LARGE_BYTES", 1 << 62)
    wanted = _run_on_gpu(case)
    monkeypatch.setattr(chain_operands, "_LARGE_BYTES", 0)
    for _ in range(20):
        given = _run_on_gpu(case)
        assert all(torch.equal(given[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("dtype", _LIMIT, ids=["f32", "bf16"])
@pytest.mark.parametrize("name", _CASES)
def test_matches_the_cpu(name, dtype):
    case = _CASES[name].but(dtype=dtype)
    given, wanted = _run_on_gpu(case), run(case)
    assert relative_error(given["readings"].cpu(), wanted.readings) < _LIMIT[dtype]
    for leaf in DIFFERENTIABLE:
        assert relative_error(given[leaf].cpu(), wanted.grads[leaf]) < 2 * _LIMIT[dtype], leaf
    assert torch.equal(given["bank"].cpu(), make_inputs(case)["memory"])
    assert max(errors(case).values()) < _LIMIT[dtype]


@pytest.mark.parametrize("options", _OPTIONS, ids=str)
def test_every_option_runs_and_repeats(options):
    case = Case(dtype=torch.bfloat16, hd=36, S=8, W=4, repeats=True)
    first = _run_on_gpu(case, **options)
    dispatch = sdm_runtime.last_dispatch()
    assert (dispatch["backend"], dispatch["route"]) == ("cuda", "chain")
    assert dispatch["launches"] > 0
    for _ in range(5):
        for name, x in _run_on_gpu(case, **options).items():
            assert torch.equal(x, first[name]), name


@pytest.mark.parametrize("dtype", _LIMIT, ids=["f32", "bf16"])
@pytest.mark.parametrize("heads", [1, 3])
def test_heads_beside_each_other_give_the_same_bits(heads, dtype):
    case = Case(P=6, T=70, hd=36, dtype=dtype)
    wanted = _run_on_gpu(case)
    leaves = _on_gpu(case)
    leaves["v"] = beside(leaves["v"], heads)
    for name in DIFFERENTIABLE:
        leaves[name].requires_grad_()
    readings = call(case, leaves)
    readings.backward(beside(make_grad(case).view(6, 70, 36), heads).cuda())
    assert torch.equal(apart(readings).flatten(0, 1), wanted["readings"])
    for name in DIFFERENTIABLE:
        grad = apart(leaves[name].grad) if name == "v" else leaves[name].grad
        assert torch.equal(grad, wanted[name]), name


def test_fixed_and_auto_differ_at_most_in_the_product():
    case = Case(dtype=torch.float32, hd=64)
    fixed, auto = _run_on_gpu(case, gemm="fixed"), _run_on_gpu(case, gemm="auto")
    for name in fixed:
        assert relative_error(auto[name], fixed[name]) < 1e-6, name


def test_no_grad_gives_the_same_bits():
    case = Case(T=200, dtype=torch.bfloat16)
    wanted = _run_on_gpu(case)["readings"]
    with torch.no_grad():
        assert torch.equal(call(case, _on_gpu(case)), wanted)


def _captured(fn):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            fn()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    return graph


def test_a_forward_is_captured():
    case = Case(T=100, dtype=torch.bfloat16)
    inputs = _on_gpu(case)
    bank, out = inputs["memory"].clone(), torch.empty(case.P * case.T, case.hd).cuda()

    def step():
        inputs["memory"].copy_(bank)
        with torch.no_grad():
            out.copy_(call(case, inputs))

    step()
    wanted = out.clone()
    graph = _captured(step)
    out.zero_()
    graph.replay()
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("gemm", ["fixed", "blas"])
def test_a_forward_and_backward_are_captured(gemm):
    case = Case(T=100, dtype=torch.bfloat16)
    leaves = _on_gpu(case)
    for name in DIFFERENTIABLE:
        leaves[name].requires_grad_()
    grad = make_grad(case).cuda()
    out = {name: torch.empty_like(leaves[name]) for name in DIFFERENTIABLE}

    def step():
        readings = call(case, leaves, gemm=gemm)
        grads = torch.autograd.grad(readings, [leaves[n] for n in DIFFERENTIABLE], grad)
        for name, x in zip(DIFFERENTIABLE, grads, strict=True):
            out[name].copy_(x)

    step()
    wanted = {name: x.clone() for name, x in out.items()}
    graph = _captured(step)
    for x in out.values():
        x.zero_()
    for _ in range(3):
        graph.replay()
    for name, x in out.items():
        assert torch.equal(x, wanted[name]), name


def test_another_current_device_and_stream_do_not_matter():
    case = Case(dtype=torch.bfloat16)
    wanted = _run_on_gpu(case)
    inputs = _on_gpu(case)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        given = _run_on_gpu(case, inputs)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    for name, x in given.items():
        assert torch.equal(x, wanted[name]), name


def test_inputs_on_two_devices_are_refused():
    inputs = _on_gpu(Case())
    inputs["v"] = inputs["v"].cpu()
    with pytest.raises(ValueError, match="v: expected memory's device cuda:0, got cpu"):
        call(Case(), inputs)
