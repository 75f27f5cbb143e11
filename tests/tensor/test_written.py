"""What torch is told of work that it does not do."""

import gc
from typing import cast

import pytest
import torch
from torch.autograd.graph import increment_version

from sdm_runtime import StepChain, kernels
from sdm_runtime.tensor import written

P, C, HD, STEPS = 2, 4, 8, 3
N = P * STEPS


def gemm_tensors():
    generator = torch.Generator().manual_seed(1)
    shapes = {"d_u": (N, C, HD), "x": (N, C, C), "d_dv": (N, C, HD)}
    return {n: torch.randn(shape, generator=generator) for n, shape in shapes.items()}


def gemm_chain(t):
    plan = kernels.plan_gx_gemm(**t, steps=STEPS, num_parallel=P)
    return StepChain([plan], STEPS)


RUNS = {
    "run": lambda t: gemm_chain(t).run(),
    "run_step": lambda t: gemm_chain(t).run_step(1),
    "run_timed": lambda t: gemm_chain(t).run_timed(),
    "kernel": lambda t: kernels.gx_gemm(**t, ti=0, num_parallel=P),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_autograd_refuses_what_a_run_has_written(run):
    t = gemm_tensors()
    w = torch.ones_like(t["d_u"], requires_grad=True)
    (w * t["d_u"]).sum().backward()  # the control: nothing has written it
    product = (w * t["d_u"]).sum()
    run(t)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_what_a_run_reads_keeps_its_version(run):
    t = gemm_tensors()
    before = {name: x._version for name, x in t.items()}
    run(t)
    raised = {name for name, x in t.items() if x._version != before[name]}
    assert raised == {"d_u"}


def test_a_refused_run_raises_no_version():
    t = gemm_tensors()
    chain = gemm_chain(t)
    version = t["d_u"]._version
    with pytest.raises(TypeError, match="windowed"):
        chain.run(windowed=1)
    with pytest.raises(ValueError, match="ti"):
        chain.run_step(STEPS)
    assert t["d_u"]._version == version


def test_inference_tensors_have_no_version_and_run():
    with torch.inference_mode():
        t = gemm_tensors()
        gemm_chain(t).run()
    gemm_chain(t).run()
    increment_version([])  # nothing to raise is nothing wrong


class _Recorded:
    """Stands for a tensor of a CUDA device."""

    def __init__(self):
        self.streams = []

    def record_stream(self, stream):
        self.streams.append(stream)


@pytest.mark.parametrize(
    ("stream", "kept_for"), [(None, []), (64, []), (80, [80]), (0, [0]), (1, [0])]
)
def test_operands_are_kept_for_another_stream(monkeypatch, stream, kept_for):
    monkeypatch.setattr(written, "current_stream", lambda device: 64)
    monkeypatch.setattr(written, "external_stream", lambda device, address: address)
    tensors = [_Recorded(), _Recorded()]
    written.keep_until_run(cast(list[torch.Tensor], tensors), torch.device("cuda", 0), stream)
    assert [x.streams for x in tensors] == [kept_for] * 2


def test_a_run_on_another_stream_keeps_every_operand(monkeypatch):
    t = gemm_tensors()
    chain = gemm_chain(t)
    kept: list[int] = []
    monkeypatch.setattr(
        "sdm_runtime.plan.chain.keep_until_run", lambda tensors, *_: kept.extend(map(id, tensors))
    )
    chain._note_run(80)
    assert set(kept) == set(map(id, t.values()))
    del chain
    gc.collect()
    gemm_chain(t)._note_run(None)
    assert len(kept) == len(t)
