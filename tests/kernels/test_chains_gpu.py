"""Both chains of step kernels on a GPU: with and without early launches, eager and as a graph."""

from __future__ import annotations

import pytest
import torch
from chain_case import chain_tensors, forward_tensors, make_chain, make_forward_chain
from gpu import on_cpu, on_gpu
from kernel_cases import BF16, E4M3, F32, ROW_TYPES, Shape
from kernel_checks import as_bits, copies, differing

SHAPES = [
    Shape(hd=128, chunk=16, writes=16, reads=16, steps=6, slots=64),
    Shape(hd=256, chunk=16, writes=8, reads=8, steps=4, slots=64, hot=True),
    Shape(hd=77, chunk=16, writes=4, reads=4, steps=5, types=(BF16, BF16, F32)),
    Shape(hd=300, chunk=20, steps=3, types=(F32, E4M3, F32), per_entry=True),
    Shape(hd=192, chunk=32, writes=8, reads=8, steps=6, slots=32, few_rows=True, padding=20),
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
    Shape(hd=192, chunk=32, writes=8, reads=8, steps=6, slots=32, few_rows=True, padding=20),
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


@pytest.mark.parametrize("types", ROW_TYPES, ids="-".join)
def test_chains_of_every_row_type_give_the_hosts_bits(types: tuple[str, str, str]) -> None:
    shape = Shape(hd=64, chunk=16, steps=4, types=types)
    tensors, sizes = chain_tensors(shape)
    operands = on_gpu(tensors)
    make_chain(operands, sizes, shape, pdl=True).run()
    assert differing(on_cpu(operands), host_result(tensors, sizes, shape)) == []


def wrong_elements(shape: Shape, forward: bool, replays: int) -> int:
    """Replays one graph of early launches on the same operands; looks at every 50th result."""
    build, make = (forward_tensors, make_forward_chain) if forward else (chain_tensors, make_chain)
    tensors, sizes = build(shape)
    expected = copies(tensors)
    make(expected, sizes, shape, pdl=False).run()
    outputs = differing(tensors, expected)
    assert {"bank", "d_dv", "dq"} <= set(outputs) or {"bank", "residual", "snap"} <= set(outputs)
    start = on_gpu(tensors)
    operands = {name: tensor.clone() for name, tensor in start.items()}
    wanted = {name: as_bits(expected[name].cuda()) for name in outputs}
    graph = make(operands, sizes, shape, pdl=True).graph()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(replays):
        for name in outputs:
            operands[name].copy_(start[name])
        graph.replay()
        if number % 50 == 0:  # a compare costs more than a replay
            for name in outputs:
                wrong += (as_bits(operands[name]) != wanted[name]).sum()
    return int(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("hot", [False, True], ids=["even", "slow tails"])
@pytest.mark.parametrize("forward", [False, True], ids=["backward", "forward"])
def test_early_launches_never_change_a_bit(forward: bool, hot: bool) -> None:
    """Hot slots give every gx_pa2, gx_gds and fx_write a few warps that end late."""
    shape = Shape(hd=128, chunk=32, writes=8, reads=8, steps=3, slots=64, hot=hot, repeat=hot)
    assert wrong_elements(shape, forward, replays=20_000 if forward else 100_000) == 0


@pytest.mark.slow
@pytest.mark.parametrize("picks", ["one-hot", "skewed"])
@pytest.mark.parametrize("forward", [False, True], ids=["backward", "forward"])
def test_sectors_that_slices_share_are_read_as_they_were_written(picks: str, forward: bool) -> None:
    """320 columns are slices of 108: bf16 rows move in 8-byte pieces, which exist only through L1,
    and two slices share sectors. A sector that an SM cached before its other half was written on
    another would show: a step reads rows that the one before wrote.
    """
    shape = Shape(hd=320, chunk=32, writes=8, reads=8, steps=6, slots=64, picks=picks)
    assert wrong_elements(shape, forward, replays=20_000) == 0


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
