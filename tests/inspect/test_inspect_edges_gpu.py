"""The edges of a mixed chain, read back from the driver's own graph, one by one."""

from itertools import pairwise, product

import pytest
import torch
from gpu_cases import SMALL, Case
from test_blas_step_gpu import blas_chain

from sdm_runtime import StepChain, inspect
from sdm_runtime.machine.backends import supports_pdl

KERNELS = 4
ORDER = [(step, plan) for step in reversed(range(SMALL.steps)) for plan in range(KERNELS)]
MIXES = list(product((False, True), repeat=KERNELS))  # whether each kernel is launched early


@pytest.fixture(autouse=True)
def with_what_it_needs():
    pytest.importorskip("cuda.bindings.driver", reason="needs cuda-python")
    if not supports_pdl(torch.device("cuda", torch.cuda.current_device())):
        pytest.skip("no programmatic launch here")


def as_graph(chain, way):
    """The chain captured by torch, or built from its plans."""
    if way == "built":
        return chain.graph()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        chain.run()
    graph.instantiate()
    return graph


def launches(report):
    """The chain's nodes in its order; there is one run of it in the graph, and it is whole."""
    assert report.faithful, str(report)
    (run,) = report.match.runs
    assert [(entry.launch.step, entry.launch.index) for entry in run.matched] == ORDER
    return run.matched


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: "".join("FP"[early] for early in mix))
@pytest.mark.parametrize("way", ["captured", "built"])
def test_each_edge_is_of_the_kind_that_its_kernel_asks_for(mix, way):
    case = Case(SMALL)
    operands = case.fresh()
    alike = [case.chain(operands, pdl) for pdl in (False, True)]
    plans = [alike[early].plans[index] for index, early in enumerate(mix)]
    assert tuple(plan.geometry["programmatic"] for plan in plans) == mix
    chain = StepChain(plans, SMALL.steps)
    graph = as_graph(chain, way)
    report = inspect.graph(graph, chain)
    matched = launches(report)
    assert not report.graph.incoming.get(matched[0].node)
    for before, entry in pairwise(matched):
        edges = [(edge.before, edge.programmatic) for edge in report.graph.incoming[entry.node]]
        assert edges == [(before.node, mix[entry.launch.index])], str(entry.launch)

    # The control: against the chains of one kind, exactly the other kernels are found.
    for pdl, other in enumerate(alike):
        found = inspect.graph(graph, other).match.differences
        kernels = {difference.split(":")[0] for difference in found}
        assert kernels == {p.kernel for p, early in zip(plans, mix, strict=True) if early != pdl}

    graph.replay()
    torch.cuda.synchronize()
    assert case.wrong(operands) == []


@pytest.mark.parametrize("way", ["captured", "built"])
def test_the_kernel_behind_a_library_step_waits_for_all_of_it(way):
    case = Case(SMALL)
    operands = case.fresh()
    chain = blas_chain(case, operands)
    assert [plan.library for plan in chain.plans] == [False, True, False, False]
    assert [plan.geometry["programmatic"] for plan in chain.plans] == [True, False, True, True]
    chain.run()  # the library makes its handle and loads its kernels
    torch.cuda.synchronize()
    report = inspect.graph(as_graph(chain, way), chain)
    assert report.faithful, str(report)
    (run,) = report.match.runs
    ours = {entry.node for entry in run.matched}
    assert len(run.matched) == 3 * SMALL.steps
    for before, entry in pairwise(run.matched):
        edges = report.graph.incoming[entry.node]
        if entry.launch.index == 2:  # the library's kernels are ahead
            assert edges
            assert not any(edge.programmatic or edge.before in ours for edge in edges)
        else:
            assert [(edge.before, edge.programmatic) for edge in edges] == [(before.node, True)]
