"""chunk_inverse on a GPU has its host twin's bits: at once, in a graph, and for many chunks."""

from __future__ import annotations

import pytest
import torch
from chunk_cases import TRIANGLES, Tensors, TriangleCase, poisoned, triangles
from gpu import on_cpu, on_gpu
from kernel_checks import differing

from sdm_runtime.ops.chunks import chunk_kernels

CASES = [
    *TRIANGLES,
    TriangleCase(N=128, C=256, scale=0.03),
    TriangleCase(N=2048, C=64),  # chunks one by one
    TriangleCase(N=1500, C=33),
]


def run(given: Tensors, x: torch.Tensor, qx: torch.Tensor) -> Tensors:
    pairs = chunk_kernels.PairMatrices(None, given["system"], given["qk"])
    scaled = chunk_kernels.chunk_inverse(pairs, given["beta"], x, qx)
    return {"x": x, "qx": qx, "scaled": scaled}


def fresh(given: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    x = poisoned(given["system"].shape, torch.float32).to(given["system"].device)
    return x, x.clone()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_are_the_twins(case: TriangleCase) -> None:
    given = triangles(case)
    wanted = run(given, *fresh(given))
    there = on_gpu(given)
    for _ in range(3):
        assert differing(on_cpu(run(there, *fresh(there))), wanted) == []
    pairs = chunk_kernels.PairMatrices(None, there["system"], there["qk"])
    alone = chunk_kernels.chunk_inverse(pairs, there["beta"], None, None)
    assert differing({"scaled": alone.cpu()}, wanted) == []


@pytest.mark.parametrize("chunk", [64, 100])
def test_matrices_that_allow_no_wide_access(chunk: int) -> None:
    given = triangles(TriangleCase(N=4, C=chunk))
    wanted = run(given, *fresh(given))
    there = on_gpu(given)
    for name in ("system", "qk"):
        room = torch.empty(there[name].numel() + 1, device="cuda")[1:]
        there[name] = room.view(there[name].shape).copy_(there[name])
        assert there[name].data_ptr() % 16 == 4
    assert differing(on_cpu(run(there, *fresh(there))), wanted) == []


def test_in_a_graph() -> None:
    first, second = (triangles(TriangleCase(N=200, C=96, seed=seed)) for seed in (1, 2))
    there = on_gpu(first)
    x, qx = fresh(there)
    run(there, x, qx)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run(there, x, qx)
    for given in (second, first):
        for name, tensor in there.items():
            tensor.copy_(given[name])
        graph.replay()
        assert differing(on_cpu(found), run(given, *fresh(given))) == []
    assert differing(on_cpu(found), run(second, *fresh(second))) != []
