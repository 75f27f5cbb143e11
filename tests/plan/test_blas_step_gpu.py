"""The BLAS step: the bits of torch.baddbmm, alone and inside the chain."""

from typing import Any

import pytest
import torch
from gpu_cases import SMALL, Case
from kernel_checks import as_bits, differing

from sdm_runtime import BlasGemmStep, StepChain, kernels

# P, C, hd: the table of the qualification page, and the edges of the mapping.
SIZES = [
    *[(2, 16, 64), (2, 64, 128), (2, 64, 1024), (4, 64, 1024), (8, 64, 1024), (16, 64, 128)],
    *[(2, 128, 1024), (8, 256, 1024), (1, 64, 128), (2, 16, 1), (1, 16, 1), (3, 17, 5)],
]
STEPS = 3


def tensor(*shape, offset=0):
    """Random numbers on a 256-byte boundary, or `offset` elements behind one."""
    count = torch.Size(shape).numel()
    flat = torch.randn(count + offset, device="cuda")
    return flat[offset:].view(shape)


def gemm_operands(p, c, hd, offset=0):
    n = STEPS * p
    return {
        "d_u": tensor(n, c, hd, offset=offset),
        "x": tensor(n, c, c, offset=offset),
        "d_dv": tensor(n, c, hd, offset=offset),
    }


def with_torch(operands, p):
    d_u = operands["d_u"].clone()
    offset = operands["d_u"].data_ptr() % 256 // 4
    d_u = tensor(*d_u.shape, offset=offset).copy_(d_u)
    for ti in reversed(range(STEPS)):
        part = slice(ti * p, ti * p + p)
        target = d_u[part]
        transposed = operands["x"][part].transpose(1, 2)
        torch.baddbmm(target, transposed, operands["d_dv"][part], out=target)
    return d_u


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_the_bits_of_baddbmm(size, offset):
    p, c, hd = size
    operands = gemm_operands(p, c, hd, offset)
    expected = with_torch(operands, p)
    StepChain([BlasGemmStep(**operands, steps=STEPS, num_parallel=p)], STEPS).run()
    assert torch.equal(as_bits(operands["d_u"]), as_bits(expected))


@pytest.mark.parametrize("way", ["captured", "graph", "side stream", "tf32"])
def test_the_bits_of_baddbmm_every_way(way):
    p, c, hd = 2, 64, 128
    operands = gemm_operands(p, c, hd)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = way == "tf32"
        expected = with_torch(operands, p)
        chain = StepChain([BlasGemmStep(**operands, steps=STEPS, num_parallel=p)], STEPS)
        if way == "captured":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                chain.run()
            graph.replay()
        elif way == "graph":
            chain.graph().replay()
        elif way == "side stream":
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            chain.run(stream)
        else:
            chain.run()
        torch.cuda.synchronize()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert torch.equal(as_bits(operands["d_u"]), as_bits(expected))


def blas_chain(case, operands, pdl=True):
    plans = list(case.chain(operands, pdl).plans)
    sizes = (case.shape.chunks, case.shape.chunk, case.shape.hd)
    plans[1] = BlasGemmStep(
        operands["d_u"].view(sizes),
        operands["x"],
        operands["d_dv"].view(sizes),
        steps=case.shape.steps,
        num_parallel=case.shape.sequences,
    )
    return StepChain(plans, case.shape.steps)


def loop_with_torch(case, operands):
    """The chain step by step, its product by torch."""
    shape, t = case.shape, operands
    chunk: dict[str, Any] = {"num_parallel": shape.sequences, "chunk_size": shape.chunk}
    d_u = t["d_u"].view(shape.chunks, shape.chunk, shape.hd)
    d_dv = t["d_dv"].view_as(d_u)
    for ti in reversed(range(shape.steps)):
        part = slice(ti * shape.sequences, (ti + 1) * shape.sequences)
        gwr = [t[name] for name in ("grad", "delta", "pd", "slots", "d_dv", "dpd")]
        kernels.gx_gwr(*gwr, ti=ti, num_tokens=shape.tokens, **chunk)
        torch.baddbmm(d_u[part], t["x"][part].transpose(1, 2), d_dv[part], out=d_u[part])
        names = ("grad", "bank", "snap", "d_u", "beta", "kpay", "rec", "out_eff", "out_g", "bpre")
        pa2: dict[str, Any] = {name: t[name] for name in names}
        kernels.gx_pa2(**pa2, ti=ti, num_writes=shape.writes, **chunk)
        gds = [t[name] for name in ("grad", "bank", "gy", "qrec", "dq")]
        kernels.gx_gds(*gds, ti=ti, num_reads=shape.reads, **chunk)


@pytest.mark.parametrize("way", ["run", "graph"])
def test_the_whole_chain_equals_a_loop_over_baddbmm(way):
    case = Case(SMALL)
    expected, operands = case.fresh(), case.fresh()
    loop_with_torch(case, expected)
    chain = blas_chain(case, operands)
    chain.run() if way == "run" else chain.graph().replay()
    torch.cuda.synchronize()
    assert differing(operands, expected) == []


def test_a_rebound_graph_with_blas_steps():
    case = Case(SMALL)
    expected, first, second = case.fresh(), case.fresh(), case.fresh()
    loop_with_torch(case, expected)
    graph = blas_chain(case, first).graph()
    del second["kpay"], expected["kpay"]
    graph.rebind(**second)
    graph.replay()
    torch.cuda.synchronize()
    assert differing(second, expected) == []
