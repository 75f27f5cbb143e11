"""Captured graphs: walked, matched with a chain, and broken ones reported as what they are."""

import json
import sys
from dataclasses import replace

import inspect_cases as cases
import pytest
from graph_cases import StandInDriver, addresses, captured, with_node
from hypothesis import given, settings
from hypothesis import strategies as st

from sdm_runtime import CudaError
from sdm_runtime.inspect import decode
from sdm_runtime.inspect.captured.match import match
from sdm_runtime.inspect.captured.model import CapturedGraph, GraphEdge, GraphNode
from sdm_runtime.inspect.captured.report import GraphReport
from sdm_runtime.inspect.captured.walk import driver_bindings, walk

STEPS = cases.SHAPE.steps
CHAIN = decode(cases.cuda_file())


def test_a_whole_chain_is_found():
    graph = captured(CHAIN)
    found = match(graph, CHAIN)
    (run,) = found.runs
    assert found.differences == ()
    assert (len(run.matched), run.complete) == (4 * STEPS, True)
    assert (run.programmatic_edges, run.full_edges) == (4 * STEPS - 1, 0)
    report = GraphReport(graph, found)
    assert report.faithful
    assert "20 nodes are steps 4..0 of this chain, 19 programmatic edges, 0 full" in str(report)


def test_an_ascending_chain_is_found_first_step_first():
    upwards = decode(cases.chain_file(list(cases.cuda_plans()), order=1))
    graph = captured(upwards)
    found = match(graph, upwards)
    assert found.differences == ()
    assert "20 nodes are steps 0..4 of this chain" in str(GraphReport(graph, found))
    # The control: the same nodes are no run of the descending chain.
    assert match(graph, CHAIN).differences != ()


def test_a_chain_among_other_kernels_and_twice():
    once = captured(CHAIN, around=3)
    count = len(once.nodes)
    shifted = [GraphEdge(e.before + count, e.after + count, e.programmatic) for e in once.edges]
    twice = CapturedGraph(once.nodes * 2, (*once.edges, *shifted, GraphEdge(count - 1, count)))
    found = match(twice, CHAIN)
    assert [(len(run.matched), run.complete) for run in found.runs] == [(20, True)] * 2
    # A foreign kernel inside takes two of the edges.
    assert {run.programmatic_edges for run in found.runs} == {18}


def _with_gemms_around(graph, gemms):
    """The graph with some of its gx_gemm nodes once more before it and behind it, as a forward's.

    A training step's forward has a chain of its own, which shares the kernel.
    """
    ours = [node for node in graph.nodes if node.name == CHAIN.plans[1].entry][:gemms]
    before, between = len(ours), len(graph.nodes)
    shifted = [replace(e, before=e.before + before, after=e.after + before) for e in graph.edges]
    last = before + between
    edges = [GraphEdge(i - 1, i) for i in range(1, last + before) if i <= before or i >= last]
    return CapturedGraph((*ours, *graph.nodes, *ours), (*shifted, *edges))


@pytest.mark.parametrize("gemms", [1, STEPS])
def test_launches_of_another_chain_that_shares_a_kernel(gemms):
    found = match(_with_gemms_around(captured(CHAIN), gemms), CHAIN)
    assert found.differences == ()
    (run,) = found.runs
    assert [entry.node for entry in run.matched] == list(range(gemms, gemms + 4 * STEPS))


def test_a_broken_run_is_not_taken_for_another_chain():
    missing = (STEPS - 1, 0)  # the first launch: gx_gwr of the last step
    found = match(captured(CHAIN, without=missing), CHAIN)
    assert found.differences == (f"step {STEPS - 1} plan 0 (gx_gwr) has no node",)
    found = match(_with_gemms_around(captured(CHAIN, pdl_off="gx_pa2"), STEPS), CHAIN)
    assert [difference.split(":")[0] for difference in found.differences] == ["gx_pa2"]


def test_pdl_off_for_one_kernel_is_reported_as_exactly_that():
    found = match(captured(CHAIN, pdl_off="gx_pa2"), CHAIN)
    assert len(found.differences) == 1
    assert found.differences[0] == (
        "gx_pa2: 5 launches of it (first step 4 plan 2 (gx_pa2)) have full edges where the chain "
        "asks for programmatic ones: PDL is off for it"
    )
    (run,) = found.runs
    assert (run.complete, run.programmatic_edges, run.full_edges) == (True, 14, 5)


def test_a_launch_that_may_not_start_early_has_full_edges():
    plans = list(cases.cuda_plans())
    plans[cases.GEMM] = cases.edited_reloc(plans[cases.GEMM], "d_u", operand=b"snap")
    chain = decode(cases.chain_file(plans))  # gx_pa2 loads snap before its wait
    assert match(captured(chain, pdl_off="gx_pa2"), chain).differences == ()
    (found,) = match(captured(chain), chain).differences
    assert found.startswith("gx_pa2: 5 launches of it")
    assert "have programmatic edges where the chain asks for full ones" in found
    # A live chain knows by addresses: here that its two snaps are two tensors.
    assert match(captured(chain), chain, held_back=()).differences == ()


def test_edges_that_are_programmatic_without_being_asked_for():
    plain = decode(cases.chain_file([cases.edited_header(p, flags=0) for p in cases.cuda_plans()]))
    found = match(captured(CHAIN), plain)
    assert len(found.differences) == 4
    assert "have programmatic edges where the chain asks for full ones" in found.differences[0]


def test_a_launch_that_was_not_captured():
    found = match(captured(CHAIN, without=(2, 1)), CHAIN)
    assert found.differences == ("step 2 plan 1 (gx_gemm) has no node",)
    assert [(len(run.matched), run.complete) for run in found.runs] == [(19, False)]


def test_a_capture_that_stops_early():
    whole = captured(CHAIN)
    part = CapturedGraph(whole.nodes[:10], whole.edges[:9])
    found = match(part, CHAIN)
    assert [run.complete for run in found.runs] == [False]
    assert found.differences[:2] == (
        "step 2 plan 2 (gx_pa2) has no node",
        "step 2 plan 3 (gx_gds) has no node",
    )
    assert found.differences[-1] == "7 more launches have no node"
    assert "10 nodes are part of steps 4..2 of this chain" in str(GraphReport(part, found))


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"grid": (9, 2, 1)}, "grid 9 x 2, expected 8 x 2"),
        ({"block": (256, 1, 1)}, "block 256, expected 128"),
        ({"shared_bytes": 0}, "0 bytes of shared memory, expected 4096"),
        ({"params": b"\0" * 8}, "8 bytes of parameters, expected 40"),
    ],
)
def test_a_launch_with_other_contents(members, says):
    graph = with_node(captured(CHAIN), 1, **members)
    found = match(graph, CHAIN)
    assert found.differences == (f"node 1 is step 4 plan 1 (gx_gemm), but {says}",)


def test_a_parameter_of_another_shape():
    graph = captured(CHAIN)
    params = bytearray(graph.nodes[5].params)
    params[36:40] = (128).to_bytes(4, "little")  # hd
    found = match(with_node(graph, 5, params=bytes(params)), CHAIN)
    assert found.differences == ("node 5 is step 3 plan 1 (gx_gemm), but hd = 128, expected 64",)


def test_an_operand_at_two_addresses():
    graph = captured(CHAIN)
    moved = addresses(CHAIN, base=1 << 40)
    other = captured(CHAIN, at={**addresses(CHAIN), "d_u": moved["d_u"]})
    found = match(with_node(graph, 6, params=other.nodes[6].params), CHAIN)
    assert len(found.differences) == 1
    assert "operand 'd_u' is at" in found.differences[0]
    assert "two tensors under one name" in found.differences[0]


def test_long_names_are_cut_in_the_text_alone():
    name = "_ZN2at6native" + "x" * 300
    report = GraphReport(CapturedGraph((GraphNode("kernel", name),), ()), None)
    assert max(map(len, str(report).splitlines())) < 120
    assert name in report.as_data()["kernels"]


def test_a_graph_without_the_chain():
    graph = CapturedGraph((GraphNode("kernel", "elementwise"), GraphNode("memset")), ())
    report = GraphReport(graph, match(graph, CHAIN))
    assert not report.faithful
    assert "no node is a launch of this chain" in str(report)


def test_nodes_whose_parameters_are_not_known_match_by_name_and_geometry():
    graph = captured(CHAIN)
    blind = replace(graph, nodes=tuple(replace(node, params=None) for node in graph.nodes))
    found = match(blind, CHAIN)
    assert (found.nodes, found.differences) == (20, ())


def test_an_order_that_comes_from_the_edges_alone():
    """Nodes in any order of creation: dependencies say what runs first."""
    graph = captured(CHAIN)
    count = len(graph.nodes)
    turned = CapturedGraph(
        graph.nodes[::-1],
        tuple(GraphEdge(count - 1 - e.before, count - 1 - e.after, e.programmatic)
              for e in graph.edges),
    )  # fmt: skip
    assert match(turned, CHAIN).differences == ()
    assert turned.order == tuple(range(count - 1, -1, -1))


def test_a_cycle_is_refused():
    graph = CapturedGraph((GraphNode("memset"),) * 2, (GraphEdge(0, 1), GraphEdge(1, 0)))
    with pytest.raises(ValueError, match="cycle"):
        _ = graph.order
    with pytest.raises(ValueError, match="there are 2 nodes"):
        _ = replace(graph, edges=(GraphEdge(0, 5),)).order


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_one_changed_node_never_passes(data):
    """Whatever is changed in a node of the chain is a difference."""
    graph = captured(CHAIN)
    index = data.draw(st.integers(0, 4 * STEPS - 1))
    node = graph.nodes[index]
    change = data.draw(st.sampled_from(["name", "grid", "step", "drop"]))
    if change == "name":
        graph = with_node(graph, index, name="gx_gwr_bf16" if index % 4 else "gx_gds_bf16")
    elif change == "grid":
        graph = with_node(graph, index, grid=(node.grid[0] + 1, *node.grid[1:]))
    elif change == "step":
        plan = CHAIN.plans[index % 4]
        at = plan.field("step").offset
        params = bytearray(node.params)
        params[at] ^= 7
        graph = with_node(graph, index, params=bytes(params))
    else:
        ti, plan_index = STEPS - 1 - index // 4, index % 4
        graph = captured(CHAIN, without=(ti, plan_index))
    report = GraphReport(graph, match(graph, CHAIN))
    assert not report.faithful
    assert json.dumps(report.as_data())


def test_walking_reads_what_is_there():
    graph = captured(CHAIN, around=2)
    walked = walk(1, StandInDriver(graph, as_functions={"elementwise"}))
    assert walked == graph
    assert match(walked, CHAIN).differences == ()


def test_an_empty_graph_is_walked():
    walked = walk(1, StandInDriver(CapturedGraph((), ())))
    assert walked == CapturedGraph((), ())
    assert str(GraphReport(walked, None)).startswith("0 nodes (), 0 edges")


def test_memory_is_measured_per_node():
    driver = StandInDriver(captured(CHAIN))
    walked = walk(1, driver, measure_memory=True)
    assert walked.memory_per_node == 3072
    assert driver.destroyed == 1
    assert "3 KiB a node" in str(GraphReport(walked, None))


def test_a_failing_driver_is_named_and_leaves_nothing_behind():
    graph = captured(CHAIN)
    with pytest.raises(CudaError, match=r"cuGraphGetNodes: 719 \(719\)"):
        walk(1, StandInDriver(graph, failing="cuGraphGetNodes"))
    driver = StandInDriver(graph, failing="cuGraphUpload")
    with pytest.raises(CudaError, match="cuGraphUpload"):
        walk(1, driver, measure_memory=True)
    assert driver.destroyed == 1


def test_without_cuda_python_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(ImportError, match=r"pip install 'sdm-runtime\[graph\]'"):
        driver_bindings()


def test_a_graph_that_was_not_kept():
    from sdm_runtime.inspect import graph

    class Thrown:
        def raw_cuda_graph(self):
            raise RuntimeError("keep_graph was False")

    with pytest.raises(ValueError, match=r"CUDAGraph\(keep_graph=True\)"):
        graph(Thrown())  # type: ignore[arg-type]


def test_faithful_needs_a_chain():
    with pytest.raises(ValueError, match="no chain was given"):
        _ = GraphReport(captured(CHAIN), None).faithful
