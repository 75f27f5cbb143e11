"""A launch that loads early what the launch ahead of it writes."""

import torch
from kernel_checks import copies, differing

from sdm_runtime import StepChain, kernels

STEPS, P, C = 200, 4, 64
N = STEPS * P


def tensors():
    generator = torch.Generator().manual_seed(5)
    shapes = dict.fromkeys(("x", "first", "made", "second", "out"), (N, C, C))
    return {n: torch.randn(shape, generator=generator) / 8 for n, shape in shapes.items()}


def two_products(t, pdl):
    common = {"steps": STEPS, "num_parallel": P, "pdl": pdl}
    plans = [
        kernels.plan_gx_gemm(t["made"], t["x"], t["first"], **common),
        kernels.plan_gx_gemm(t["out"], t["made"], t["second"], **common),
    ]
    return StepChain(plans, STEPS)


def test_the_second_product_waits_for_its_factor():
    start = tensors()
    expected = copies(start)
    two_products(expected, pdl=False).run()
    assert differing(start, expected) == ["made", "out"]
    on_device = {name: x.cuda() for name, x in start.items()}
    chain = two_products(on_device, pdl=True)
    graph = chain.graph()
    assert graph.programmatic_edges == STEPS - 1  # those behind the second product alone
    for run in (chain.run, graph.replay, lambda: chain.run(windowed=True)):
        for name in ("made", "out"):
            on_device[name].copy_(start[name])
        run()
        torch.cuda.synchronize()
        assert differing({name: x.cpu() for name, x in on_device.items()}, expected) == []
