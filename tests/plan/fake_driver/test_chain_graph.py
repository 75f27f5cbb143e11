"""The explicit graph: the same launches as a run, joined by the right edges."""

import pytest
from forged import STEPS, cuda_plan, gemm_params, gemm_tensors, operands

from sdm_runtime import CudaError, PlanError, _core

FULL, PROGRAMMATIC = 0, 1  # CUgraphDependencyType
PROGRAMMATIC_PORT = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
FLAG_PROGRAMMATIC = 1


def make_chain(driver, *all_tensors, flags=FLAG_PROGRAMMATIC):
    plans = [
        cuda_plan(driver.folder, flags=flags if i else 0).bind(operands(tensors))
        for i, tensors in enumerate(all_tensors)
    ]
    return _core.Chain(plans, STEPS)


def launched(entries):
    keys = ("entry", "grid", "block", "shared", "params")
    return [tuple(str(entry[key]) for key in keys) for entry in entries]


def test_a_replay_runs_what_run_runs(driver):
    chain = make_chain(driver, gemm_tensors(), gemm_tensors())
    chain.run(driver.stream())
    ran = launched(driver.log("launch"))
    graph = _core.ChainGraph(chain)
    assert graph.nodes() == 2 * STEPS
    graph.replay(driver.stream())
    replayed = driver.log("node")
    assert launched(replayed) == ran
    assert all(not entry["attributes"] for entry in replayed)


def test_edges_are_added_in_batches_of_one_kind(driver):
    chain = make_chain(driver, gemm_tensors(), gemm_tensors(), gemm_tensors())
    driver.log()
    graph = _core.ChainGraph(chain)
    # Of 9 launches in a row, plans 1 and 2 of each step are programmatic and plan 0 is not.
    assert driver.log("edges") == [
        {"call": "edges", "count": STEPS - 1, "type": FULL, "port": 0},
        {"call": "edges", "count": 2 * STEPS, "type": PROGRAMMATIC, "port": PROGRAMMATIC_PORT},
    ]
    assert graph.programmatic_edges() == 2 * STEPS


def test_a_graph_is_made_beside_other_threads_captures(driver):
    chain = make_chain(driver, gemm_tensors())
    driver.log()
    graph = _core.ChainGraph(chain)
    assert driver.log("instantiate") == [{"call": "instantiate", "relaxed": True}]
    assert _core.exchange_capture_mode(0) == 0  # this thread's own mode is as before
    del graph
    assert [entry["relaxed"] for entry in driver.log("exec_destroy")] == [True]


def test_a_graph_is_launched_and_changed_beside_other_threads_captures(driver):
    graph = _core.ChainGraph(make_chain(driver, gemm_tensors()))
    driver.unrelaxed()
    graph.replay(driver.stream())
    graph.rebind(make_chain(driver, gemm_tensors()))
    driver.fail("cuGraphLaunch", 1)
    with pytest.raises(CudaError, match="cuGraphLaunch"):
        graph.replay(driver.stream())
    driver.fail("cuGraphExecKernelNodeSetParams", 1)
    with pytest.raises(CudaError, match="cuGraphExecKernelNodeSetParams"):
        graph.rebind(make_chain(driver, gemm_tensors()))
    del graph
    assert driver.unrelaxed() == 0
    assert _core.exchange_capture_mode(0) == 0  # this thread's own mode is as before
    driver.launch_unrelaxed()
    assert driver.unrelaxed() == 1


def test_a_cluster_becomes_an_attribute_of_the_node(driver):
    plan = cuda_plan(driver.folder, grid=(4, 1, 1), cluster=(4, 1, 1))
    graph = _core.ChainGraph(_core.Chain([plan.bind(operands(gemm_tensors()))], STEPS))
    graph.replay(driver.stream())
    assert [entry["attributes"] for entry in driver.log("node")] == [{"4": [4, 1, 1]}] * STEPS


def test_rebind_updates_the_nodes_in_place(driver):
    old, new = gemm_tensors(), gemm_tensors()
    graph = _core.ChainGraph(make_chain(driver, old))
    driver.log()
    graph.rebind(make_chain(driver, new))
    graph.replay(driver.stream())
    log = driver.log()
    assert [entry["call"] for entry in log] == ["node"] * STEPS  # nothing was built anew
    expected = [gemm_params(new, step) for step in reversed(range(STEPS))]
    assert [bytes.fromhex(entry["params"]) for entry in log] == expected


def test_rebind_takes_only_the_graphs_own_plans(driver):
    tensors = gemm_tensors()
    graph = _core.ChainGraph(make_chain(driver, tensors))
    other = cuda_plan(driver.folder, grid=(7, 1, 1)).bind(operands(tensors))
    for chain in (
        _core.Chain([other], STEPS),
        make_chain(driver, tensors, tensors),
        _core.Chain([cuda_plan(driver.folder).bind(operands(tensors))], STEPS - 1),
    ):
        with pytest.raises(PlanError, match="expected the graph's own plans"):
            graph.rebind(chain)
    graph.replay(driver.stream())
    assert len(driver.log("node")) == STEPS


def test_a_half_done_rebind_makes_replay_refuse(driver):
    graph = _core.ChainGraph(make_chain(driver, gemm_tensors()))
    driver.fail("cuGraphExecKernelNodeSetParams", 1, working=1)
    with pytest.raises(CudaError, match=r"step 1, plan 0 .*cuGraphExecKernelNodeSetParams"):
        graph.rebind(make_chain(driver, gemm_tensors()))
    with pytest.raises(CudaError, match="a rebind failed"):
        graph.replay(driver.stream())
    graph.rebind(make_chain(driver, gemm_tensors()))  # a whole one mends it
    graph.replay(driver.stream())


@pytest.mark.parametrize(
    "function",
    ["cuGraphAddKernelNode", "cuGraphAddDependencies", "cuGraphInstantiateWithFlags"],
)
def test_a_failed_build_leaves_nothing_behind(driver, function):
    chain = make_chain(driver, gemm_tensors(), gemm_tensors())
    driver.log()
    driver.fail(function, 2)
    with pytest.raises(CudaError, match=function):
        _core.ChainGraph(chain)
    assert len(driver.log("graph_destroy")) == 1


def test_the_graph_destroys_what_it_made(driver):
    graph = _core.ChainGraph(make_chain(driver, gemm_tensors()))
    driver.log()
    del graph
    assert {entry["call"] for entry in driver.log()} == {"graph_destroy", "exec_destroy"}


def test_a_replay_on_another_device_is_refused(driver):
    graph = _core.ChainGraph(make_chain(driver, gemm_tensors()))
    with pytest.raises(ValueError, match="got one of device 1"):
        graph.replay(driver.stream(1))
