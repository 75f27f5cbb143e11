"""The library step: the call that reaches the BLAS, in a run and in a graph."""

import functools

import pytest
import torch
from core_testing import core_testing
from forged import HD, STEPS, C, P, cuda_plan, gemm_tensors, operands

from sdm_runtime import CudaError, CudaOutOfMemoryError, PlanError, _core

PLAIN, TRANSPOSED = 0, 1


def blas_plan(tensors, device=0, steps=STEPS):
    refs = dict(operands(tensors, device))
    return _core.plan_blas_gemm(refs["d_u"], refs["x"], refs["d_dv"], P, steps)


def calls(entries):
    return [entry["params"] for entry in entries if entry["entry"] == "cublasSgemmStridedBatched"]


def expected_call(tensors, step):
    """torch.baddbmm(d_u, x^T, d_dv) of a step in column-major terms."""
    c, hd = tensors["d_u"].shape[1:]
    d_u, x, d_dv = (hex(tensors[name][step * P].data_ptr()) for name in ("d_u", "x", "d_dv"))
    left, right = f"{d_dv} {hd} {c * hd}", f"{x} {c} {c * c}"
    m, n, ldc = hd, c, hd
    if hd == 1:
        left, right = f"{x} {c} {c * c}", f"{d_dv} 1 {c}"
        m, n, ldc = c, 1, c
    return f"{PLAIN} {TRANSPOSED} {m} {n} {c} 1 {left} {right} 1 {d_u} {ldc} {c * hd} {P}"


@pytest.mark.parametrize("hd", [HD, 1])
def test_every_step_is_torchs_call_on_its_own_pointers(driver, hd):
    n = STEPS * P
    tensors = {
        "d_u": torch.zeros(n, C, hd),
        "x": torch.zeros(n, C, C),
        "d_dv": torch.zeros(n, C, hd),
    }
    chain = _core.Chain([blas_plan(tensors)], STEPS)
    chain.run(driver.stream(), driver.blas_handle())
    ran = calls(driver.log("launch"))
    assert ran == [expected_call(tensors, step) for step in reversed(range(STEPS))]


@pytest.mark.parametrize("steps", [1, 2, 50])
def test_a_chain_of_another_length_makes_its_calls(driver, steps):
    first = gemm_tensors()
    chain = _core.Chain([blas_plan(first)], STEPS)
    tensors = gemm_tensors(steps)
    longer = core_testing().rebind(chain, operands(tensors), steps)
    assert longer.bound_plans()[0].plan().bytes() == blas_plan(tensors, steps=steps).plan().bytes()
    longer.run(driver.stream(), driver.blas_handle())
    ran = calls(driver.log("launch"))
    assert ran == [expected_call(tensors, step) for step in reversed(range(steps))]
    with pytest.raises(PlanError, match=r"\[blas_gemm\] bind d_u: expected"):
        core_testing().rebind(chain, operands(first), 4)


def test_the_kernel_behind_a_library_call_is_not_programmatic(driver):
    *kernels, library = [gemm_tensors() for _ in range(4)]
    first, behind, last = (
        cuda_plan(driver.folder, flags=1).bind(operands(of_kernel)) for of_kernel in kernels
    )
    chain = _core.Chain([first, blas_plan(library), behind, last], STEPS)
    assert chain.has_library_step()
    chain.run(driver.stream(), driver.blas_handle())
    early = ["6" in launch["attributes"] for launch in driver.log("launch")]
    assert early == [False, False, False, True] + [True, False, False, True] * (STEPS - 1)


def test_a_library_step_needs_a_handle(driver):
    chain = _core.Chain([blas_plan(gemm_tensors())], STEPS)
    with pytest.raises(
        ValueError, match="expected a cuBLAS handle, for its library step, got none"
    ):
        chain.run(driver.stream())
    for given in ((), driver.capture()[:2]):
        with pytest.raises(ValueError, match=r"expected a cuBLAS handle, a stream .* and an event"):
            _core.ChainGraph(chain, *given)


def test_a_failing_call_names_its_status_and_place(driver):
    chain = _core.Chain([blas_plan(gemm_tensors())], STEPS)
    driver.blas.fake_cublas_status(13)
    try:
        with pytest.raises(CudaError) as raised:
            chain.run(driver.stream(), driver.blas_handle())
    finally:
        driver.blas.fake_cublas_status(0)
    assert str(raised.value) == (
        "chain: step 2, plan 0 (blas_gemm, cublasSgemmStridedBatched): "
        "cublasSgemmStridedBatched: CUBLAS_STATUS_EXECUTION_FAILED (13)"
    )
    assert not isinstance(raised.value, torch.OutOfMemoryError)


@pytest.mark.parametrize("way", ["run", "graph"])
def test_a_call_without_memory_is_torchs_error_too(driver, way):
    tensors = gemm_tensors()
    kernel = cuda_plan(driver.folder).bind(operands(tensors))
    chain = _core.Chain([kernel, blas_plan(tensors)], STEPS)
    message = r"step 2, plan 1 .*cublasSgemmStridedBatched: CUBLAS_STATUS_ALLOC_FAILED \(3\)"
    use = chain.run if way == "run" else functools.partial(_core.ChainGraph, chain)
    given = driver.capture()[: 2 if way == "run" else 3]
    driver.blas.fake_cublas_status(3)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=message) as raised:
            use(*given)
    finally:
        driver.blas.fake_cublas_status(0)
    assert isinstance(raised.value, CudaOutOfMemoryError)
    if way == "run":
        assert raised.value.issued == 2  # the kernel, and what the call may have launched


def test_a_graph_captures_the_calls_between_the_kernels(driver):
    tensors, other = gemm_tensors(), gemm_tensors()
    kernel = cuda_plan(driver.folder, flags=1).bind(operands(tensors))
    chain = _core.Chain([kernel, blas_plan(tensors)], STEPS)
    chain.run(driver.stream(), driver.blas_handle())
    ran = [entry["params"] for entry in driver.log("launch")]
    graph = _core.ChainGraph(chain, *driver.capture())
    assert graph.nodes() == STEPS
    assert graph.programmatic_edges() == 0
    graph.replay(driver.stream())
    assert [entry["params"] for entry in driver.log("node")] == ran

    # Rebinding builds it anew: the library's nodes are its own business.
    kernel = cuda_plan(driver.folder, flags=1).bind(operands(other))
    graph.rebind(_core.Chain([kernel, blas_plan(other)], STEPS), *driver.capture())
    graph.replay(driver.stream())
    assert calls(driver.log("node")) == [expected_call(other, s) for s in reversed(range(STEPS))]


def test_replays_that_share_a_workspace_wait_for_each_other(driver):
    chain = _core.Chain([blas_plan(gemm_tensors())], STEPS)
    graph = _core.ChainGraph(chain, *driver.capture())
    alone = _core.ChainGraph(
        _core.Chain([cuda_plan(driver.folder).bind(operands(gemm_tensors()))], STEPS)
    )
    driver.log()
    nodes = ["node"] * STEPS
    for _ in range(2):
        graph.replay(driver.stream())
        assert [entry["call"] for entry in driver.log()] == ["wait", *nodes, "mark"]
    with driver.capturing():  # it cannot wait for what is not captured
        graph.replay(driver.stream())
    alone.replay(driver.stream())  # without a library step there is nothing to share
    assert [entry["call"] for entry in driver.log()] == nodes + nodes
    for function in ("cuStreamIsCapturing", "cuStreamWaitEvent", "cuEventRecord"):
        driver.fail(function, 1)
        with pytest.raises(CudaError, match=function):
            graph.replay(driver.stream())


def test_a_failed_call_ends_the_capture(driver):
    chain = _core.Chain([blas_plan(gemm_tensors())], STEPS)
    driver.blas.fake_cublas_status(7)
    try:
        with pytest.raises(CudaError, match="CUBLAS_STATUS_INVALID_VALUE"):
            _core.ChainGraph(chain, *driver.capture())
    finally:
        driver.blas.fake_cublas_status(0)
    _core.ChainGraph(chain, *driver.capture())  # the stream captures again
