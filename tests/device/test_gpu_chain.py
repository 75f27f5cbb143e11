"""Both chains of step kernels on a GPU: with and without early launches, eager and as a graph."""

from __future__ import annotations

import pytest
import torch
from chain_case import chain_tensors, forward_tensors, make_chain, make_forward_chain
from gpu import NEEDS_GPU, on_cpu, on_gpu
from kernel_cases import BF16, E4M3, F32, ROW_TYPES, Shape
from kernel_checks import as_bits, copies, differing

pytestmark = NEEDS_GPU

SHAPES = [
    Shape(hd=128, chunk=16, writes=16, reads=16, steps=6, slots=64),
    Shape(hd=256, chunk=16, writes=8, reads=8, steps=4, slots=64, hot=True),
    Shape(hd=77, chunk=16, writes=4, reads=4, steps=5, types=(BF16, BF16, F32)),
    Shape(hd=300, chunk=20, steps=3, types=(F32, E4M3, F32), per_entry=True),
]


def host_result(tensors: dict, sizes: dict, shape: Shape) -> dict:
    expected = copies(tensors)
    make_chain(expected, sizes, shape, pdl=False).run()
    return expected


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"hd{s.hd}")
@pytest.mark.parametrize("pdl", [False, True], ids=["in order", "early"])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_same_bits_as_the_host_chain(shape: Shape, pdl: bool, graph: bool) -> None:
    tensors, sizes = chain_tensors(shape)
    expected = host_result(tensors, sizes, shape)
    assert differing(tensors, expected) != []
    operands = on_gpu(tensors)
    chain = make_chain(operands, sizes, shape, pdl)
    if graph:
        chain.graph().replay()
    else:
        chain.run()
    assert differing(on_cpu(operands), expected) == []


FORWARD_SHAPES = [
    Shape(hd=128, chunk=16, writes=16, reads=16, steps=6, slots=64),
    Shape(hd=256, chunk=16, writes=8, reads=9, steps=4, slots=64, hot=True, no_snapshot=True),
    Shape(hd=77, chunk=16, writes=4, reads=4, steps=5, types=(BF16, BF16, BF16)),
    Shape(hd=300, chunk=20, steps=3, types=(F32, F32, F32)),
]


@pytest.mark.parametrize("shape", FORWARD_SHAPES, ids=lambda s: f"hd{s.hd}")
@pytest.mark.parametrize("pdl", [False, True], ids=["in order", "early"])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_forward_same_bits_as_the_host_chain(shape: Shape, pdl: bool, graph: bool) -> None:
    tensors, sizes = forward_tensors(shape)
    expected = copies(tensors)
    make_forward_chain(expected, sizes, shape, pdl=False).run()
    assert {"bank", "delta", "residual", "reading"} <= set(differing(tensors, expected))
    operands = on_gpu(tensors)
    chain = make_forward_chain(operands, sizes, shape, pdl)
    if graph:
        chain.graph().replay()
    else:
        chain.run()
    assert differing(on_cpu(operands), expected) == []


@pytest.mark.slow
@pytest.mark.parametrize("hot", [False, True], ids=["even", "slow tails"])
def test_early_forward_launches_never_change_a_bit(hot: bool) -> None:
    """20 000 replays, as below."""
    shape = Shape(hd=128, chunk=32, writes=8, reads=8, steps=3, slots=64, hot=hot, repeat=hot)
    tensors, sizes = forward_tensors(shape)
    expected = copies(tensors)
    make_forward_chain(expected, sizes, shape, pdl=False).run()
    start = on_gpu(tensors)
    operands = {name: tensor.clone() for name, tensor in start.items()}
    outputs = ("bank", "delta", "residual", "reading", "snap")
    wanted = {name: as_bits(expected[name].cuda()) for name in outputs}
    graph = make_forward_chain(operands, sizes, shape, pdl=True).graph()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(20_000):
        for name in outputs:
            operands[name].copy_(start[name])
        graph.replay()
        if number % 50 == 0:
            for name in outputs:
                wrong += (as_bits(operands[name]) != wanted[name]).sum()
    assert wrong.item() == 0


@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
def test_row_types(types: tuple[str, str, str]) -> None:
    shape = Shape(hd=64, chunk=16, steps=4, types=types)
    tensors, sizes = chain_tensors(shape)
    operands = on_gpu(tensors)
    make_chain(operands, sizes, shape, pdl=True).run()
    assert differing(on_cpu(operands), host_result(tensors, sizes, shape)) == []


@pytest.mark.slow
@pytest.mark.parametrize("hot", [False, True], ids=["even", "slow tails"])
def test_early_launches_never_change_a_bit(hot: bool) -> None:
    """100 000 replays. Hot slots give every gx_pa2 and gx_gds a few warps that end late."""
    shape = Shape(hd=128, chunk=32, writes=8, reads=8, steps=3, slots=64, hot=hot, repeat=hot)
    tensors, sizes = chain_tensors(shape)
    start, expected = on_gpu(tensors), on_gpu(host_result(tensors, sizes, shape))
    operands = {name: tensor.clone() for name, tensor in start.items()}
    outputs = ("grad", "bank", "d_u", "d_dv", "dpd", "out_eff", "out_g", "dq")
    wanted = {name: as_bits(expected[name]) for name in outputs}
    graph = make_chain(operands, sizes, shape, pdl=True).graph()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")

    def replay() -> None:
        for name in outputs:
            operands[name].copy_(start[name])
        graph.replay()

    for number in range(100_000):
        replay()
        if number % 50 == 0:  # a compare costs more than a replay
            for name in outputs:
                wrong += (as_bits(operands[name]) != wanted[name]).sum()
    assert wrong.item() == 0


@pytest.mark.slow
@pytest.mark.parametrize("picks", ["one-hot", "skewed"])
@pytest.mark.parametrize("forward", [False, True], ids=["backward", "forward"])
def test_sectors_that_slices_share_are_read_as_they_were_written(picks: str, forward: bool) -> None:
    """20 000 early replays at 320 columns. Slices have 108: bf16 rows move in 8-byte pieces, which
    exist only through L1, and two slices share sectors. A sector that an SM cached before its other
    half was written on another would show: a step reads rows that the one before wrote.
    """
    shape = Shape(hd=320, chunk=32, writes=8, reads=8, steps=6, slots=64, picks=picks)
    tensors, sizes = forward_tensors(shape) if forward else chain_tensors(shape)
    make = make_forward_chain if forward else make_chain
    expected = copies(tensors)
    make(expected, sizes, shape, pdl=False).run()
    start = on_gpu(tensors)
    operands = {name: tensor.clone() for name, tensor in start.items()}
    outputs = differing(tensors, expected)
    assert "bank" in outputs
    wanted = {name: as_bits(expected[name].cuda()) for name in outputs}
    graph = make(operands, sizes, shape, pdl=True).graph()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(20_000):
        for name in outputs:
            operands[name].copy_(start[name])
        graph.replay()
        if number % 50 == 0:
            for name in outputs:
                wrong += (as_bits(operands[name]) != wanted[name]).sum()
    assert wrong.item() == 0


@pytest.mark.parametrize("picks", ["skewed", "one-hot"])
@pytest.mark.parametrize("hd", [64, 256, 320])
def test_long_groups_in_both_chains(picks: str, hd: int) -> None:
    shape = Shape(hd=hd, chunk=64, writes=16, reads=16, steps=4, slots=512, picks=picks)
    for build, make in ((chain_tensors, make_chain), (forward_tensors, make_forward_chain)):
        tensors, sizes = build(shape)
        expected = copies(tensors)
        make(expected, sizes, shape, pdl=False).run()
        for pdl in (False, True):
            operands = on_gpu(tensors)
            make(operands, sizes, shape, pdl).run()
            assert differing(on_cpu(operands), expected) == []
