"""Running a chain: what reaches the driver, in which order, and what a failure says."""

import threading

import pytest
from forged import STEPS, cuda_plan, gemm_params, gemm_tensors, operands

from sdm_runtime import CudaError, PlanError, _core, instruments

PROGRAMMATIC = "6"  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
CLUSTER = "4"  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
FLAG_PROGRAMMATIC = 1


def bound_gemm(driver, tensors, device=0, **header):
    plan = cuda_plan(driver.folder, device=device, **header)
    return plan.bind(operands(tensors, device))


def test_run_launches_every_step_last_to_first_with_patched_parameters(driver):
    tensors = gemm_tensors()
    chain = _core.Chain([bound_gemm(driver, tensors)], STEPS)
    driver.log()
    chain.run(driver.stream())
    launches = driver.log()
    assert [entry["call"] for entry in launches] == ["launch"] * STEPS  # and nothing else
    for launch, step in zip(launches, reversed(range(STEPS)), strict=True):
        assert launch["entry"] == "gemm_waits"
        assert launch["grid"] == [5, 1, 1]
        assert launch["block"] == [128, 1, 1]
        assert bytes.fromhex(launch["params"]) == gemm_params(tensors, step)
        assert launch["attributes"] == {}


def test_an_ascending_chain_runs_and_replays_first_to_last(driver):
    tensors = gemm_tensors()
    chain = _core.Chain([bound_gemm(driver, tensors)], STEPS, ascending=True)
    driver.log()
    chain.run(driver.stream())
    expected = [gemm_params(tensors, step) for step in range(STEPS)]
    assert [bytes.fromhex(launch["params"]) for launch in driver.log("launch")] == expected
    graph = _core.ChainGraph(chain)
    graph.replay(driver.stream())
    assert [bytes.fromhex(node["params"]) for node in driver.log("node")] == expected
    with pytest.raises(PlanError, match="expected the graph's own plans"):
        graph.rebind(_core.Chain([bound_gemm(driver, tensors)], STEPS))


def test_plans_run_in_order_within_a_step(driver):
    first, second = gemm_tensors(), gemm_tensors()
    plans = [bound_gemm(driver, first), bound_gemm(driver, second)]
    _core.Chain(plans, STEPS).run(driver.stream())
    ran = [bytes.fromhex(launch["params"]) for launch in driver.log("launch")]
    expected = [gemm_params(t, step) for step in reversed(range(STEPS)) for t in (first, second)]
    assert ran == expected


def test_only_launches_behind_a_kernel_of_the_run_are_programmatic(driver):
    bound = bound_gemm(driver, gemm_tensors(), flags=FLAG_PROGRAMMATIC)
    _core.Chain([bound], STEPS).run(driver.stream())
    early = [PROGRAMMATIC in launch["attributes"] for launch in driver.log("launch")]
    assert early == [False] + [True] * (STEPS - 1)


def test_cluster_and_shared_memory_reach_the_driver(driver):
    bound = bound_gemm(
        driver, gemm_tensors(), grid=(4, 1, 1), cluster=(2, 1, 1), shared_bytes=100_000
    )
    allowed = driver.log("attribute")
    assert {"which": 8, "value": 100_000}.items() <= allowed[-1].items()
    _core.Chain([bound], STEPS).run(driver.stream())
    for launch in driver.log("launch"):
        assert launch["attributes"] == {CLUSTER: [2, 1, 1]}
        assert launch["shared"] == 100_000


def test_an_empty_grid_is_not_launched(driver):
    tensors = gemm_tensors()
    empty = bound_gemm(driver, tensors, grid=(0, 1, 1))
    chain = _core.Chain([empty, bound_gemm(driver, tensors)], STEPS)
    assert chain.launches() == STEPS
    chain.run(driver.stream())
    assert len(driver.log("launch")) == STEPS


def test_a_failing_launch_names_step_plan_kernel_and_error(driver):
    tensors = gemm_tensors()
    chain = _core.Chain([bound_gemm(driver, tensors), bound_gemm(driver, tensors)], STEPS)
    driver.fail("cuLaunchKernelEx", 1, working=3)
    with pytest.raises(CudaError) as raised:
        chain.run(driver.stream())
    expected = (
        "chain: step 1, plan 1 (gx_gemm, gemm_waits): "
        "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (1), a fake failure"
    )
    assert str(raised.value) == expected
    assert len(driver.log("launch")) == 3  # what was issued stays issued
    chain.run(driver.stream())  # and the chain itself is whole
    assert len(driver.log("launch")) == 2 * STEPS


def test_a_stream_of_another_device_is_refused(driver):
    chain = _core.Chain([bound_gemm(driver, gemm_tensors())], STEPS)
    with pytest.raises(ValueError, match=r"stream of cuda:0 .*, got one of device 1"):
        chain.run(driver.stream(1))
    assert not driver.log("launch")


def test_the_default_stream_is_the_chains_device(driver):
    bound = bound_gemm(driver, gemm_tensors(), device=1)
    _core.Chain([bound], STEPS).run(0)
    assert {launch["device"] for launch in driver.log("launch")} == {1}


def test_concurrent_runs_of_one_chain_patch_their_own_parameters(driver):
    tensors = gemm_tensors()
    chain = _core.Chain([bound_gemm(driver, tensors)], STEPS)
    runs = 50

    def run_often():
        for _ in range(runs):
            chain.run(driver.stream())

    threads = [threading.Thread(target=run_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ran = [bytes.fromhex(launch["params"]) for launch in driver.log("launch")]
    for step in range(STEPS):
        assert ran.count(gemm_params(tensors, step)) == 4 * runs
    assert len(ran) == 4 * runs * STEPS


def test_launches_are_counted_only_while_asked(driver):
    chain = _core.Chain([bound_gemm(driver, gemm_tensors())], STEPS)
    before = instruments.launches()
    chain.run(driver.stream())
    assert instruments.launches() == before
    instruments.count_launches()
    chain.run(driver.stream())
    instruments.count_launches(False)
    assert instruments.launches() == before + STEPS


def test_host_tensors_are_refused(driver):
    plan = cuda_plan(driver.folder)
    refs = [
        (
            name,
            _core.TensorRef(
                t.data_ptr(), 1, _core.Device(cuda=False, index=0), t.shape, t.stride()
            ),
        )
        for name, t in gemm_tensors().items()
    ]
    with pytest.raises(ValueError, match="expected a tensor on a CUDA device, got cpu"):
        plan.bind(refs)
