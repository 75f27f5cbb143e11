"""The explicit graph: bits, rebinding, memory."""

import pytest
import torch
from gpu_cases import SHAPES, SMALL, Case

from sdm_runtime import PlanError, StepChain, instruments, kernels


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"hd{shape.hd}")
@pytest.mark.parametrize("pdl", [False, True])
def test_a_replay_gives_the_hosts_bits(shape, pdl):
    case = Case(shape)
    operands = case.fresh()
    graph = case.chain(operands, pdl).graph()
    assert graph.nodes == 4 * shape.steps
    assert graph.programmatic_edges == (graph.nodes - 1 if pdl else 0)
    for _ in range(2):
        case.restore(operands)
        graph.replay()
        torch.cuda.synchronize()
        assert case.wrong(operands) == []


def test_a_rebound_graph_runs_on_the_new_operands():
    case = Case(SMALL)
    first, second = case.fresh(), case.fresh()
    graph = case.chain(first).graph()
    del second["kpay"]  # no launch reads it
    graph.rebind(**second)
    graph.replay()
    torch.cuda.synchronize()
    assert case.wrong(second) == []
    untouched = {name: tensor.cpu() for name, tensor in first.items()}
    assert all(
        torch.equal(untouched[n].view(torch.uint8), case.start[n].view(torch.uint8))
        for n in ("grad", "bank", "d_u")
    )


def test_a_refused_rebind_leaves_the_graph_as_it_was():
    case = Case(SMALL)
    operands = case.fresh()
    graph = case.chain(operands).graph()
    with pytest.raises(PlanError, match="d_u"):
        graph.rebind(d_u=operands["d_u"].double())
    graph.replay()
    torch.cuda.synchronize()
    assert case.wrong(operands) == []


def taken_by(make):
    """Bytes of the device that an object takes: the middle one of several measurements.

    The driver counts what all processes take. Where others use the device, a measurement is wrong
    by what they take or give back meanwhile; the middle one is right unless that meets most.
    """
    held, taken = [], []
    for _ in range(9):
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        held.append(make())  # kept: the driver would give its memory to the next
        torch.cuda.synchronize()
        taken.append(before - torch.cuda.mem_get_info()[0])
    return sorted(taken)[len(taken) // 2]


def test_a_graph_takes_no_more_memory_than_it_says():
    steps, plans = 4096, 4
    d_u = torch.zeros(steps, 16, 16, device="cuda")
    x = torch.zeros(steps, 16, 16, device="cuda")
    plan = kernels.plan_gx_gemm(
        d_u, x, torch.zeros_like(d_u), steps=steps, num_parallel=1, pdl=True
    )
    chain = StepChain([plan] * plans, steps)
    chain.run()

    def graph():
        made = chain.graph()
        made.replay()
        return made

    most = steps * plans * 3 * 1024 + (8 << 20)  # the docs' 3 KiB, and the pool's rounding
    assert taken_by(graph) <= most
    assert taken_by(lambda: torch.empty(most + (4 << 20), dtype=torch.uint8, device="cuda")) > most


def test_the_operation_of_one_graph_is_one_launch():
    case = Case(SMALL)
    operands = case.fresh()
    chain = case.chain(operands)
    graph = chain.graph()
    instruments.count_launches()
    try:
        before = instruments.launches()
        graph.replay()
        assert instruments.launches() - before == 1
        chain.run()
        assert instruments.launches() - before == 1 + chain.launches
    finally:
        instruments.count_launches(False)
