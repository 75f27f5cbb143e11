"""chunk_readings on a GPU has its host twin's bits: at once, in a graph, and in every tile."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from chunk_cases import BF16, READINGS, ReadingCase, Tensors, reading_operands, reading_output
from gpu import on_gpu
from kernel_checks import as_bits

from sdm_runtime.ops.call.geometry import Segment
from sdm_runtime.ops.chunks import chunk_kernels

CASES = [
    *READINGS,
    ReadingCase(P=16, T=64 * 20 - 5, C=64, hd=128, heads=16, values=BF16),  # wide tiles
    ReadingCase(P=128, T=64 * 16, C=64, hd=128, values=BF16),
    ReadingCase(P=40, T=250, C=250, hd=96),
    ReadingCase(P=20, T=256, C=256, hd=1024, values=BF16),
    ReadingCase(P=300, T=31, C=16, hd=36),
    ReadingCase(P=300, T=100, C=50, hd=130),
]


def run(case: ReadingCase, given: Tensors, out: torch.Tensor) -> torch.Tensor:
    chunk_kernels.chunk_readings(Segment(case.first_step, case.steps), **given, readings=out)
    return out


def same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.equal(as_bits(found.cpu()), as_bits(wanted))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_are_the_twins(case: ReadingCase) -> None:
    given, out = reading_operands(case), reading_output(case)
    wanted, there = run(case, given, out.clone()), on_gpu(given)
    for _ in range(3):
        assert same(run(case, there, out.cuda()), wanted)
    assert not same(out, wanted)


@pytest.mark.parametrize("name", ["reading", "qk", "delta", "readings"])
@pytest.mark.parametrize("hd", [40, 128])
def test_rows_that_allow_no_wide_access(name: str, hd: int) -> None:
    case = ReadingCase(P=100, T=200, C=64, hd=hd)
    given, out = reading_operands(case), reading_output(case)
    wanted = run(case, given, out.clone())
    there = on_gpu(given | {"readings": out})
    room = torch.empty(there[name].numel() + 1, device="cuda")[1:]
    there[name] = room.view(there[name].shape).copy_(there[name])
    assert there[name].data_ptr() % 16 == 4
    assert same(run(case, there, there.pop("readings")), wanted)


def test_in_a_graph() -> None:
    case = ReadingCase(P=100, T=180, C=96, hd=128, values=BF16)
    first, second = (reading_operands(replace(case, seed=seed)) for seed in (1, 2))
    there, out = on_gpu(first), reading_output(case).cuda()
    run(case, there, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(case, there, out)
    for given in (second, first):
        for name, tensor in there.items():
            tensor.copy_(given[name])
        graph.replay()
        assert same(out, run(case, given, reading_output(case)))
    assert not same(out, run(case, second, reading_output(case)))
