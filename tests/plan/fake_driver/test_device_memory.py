"""A driver without memory, or with other troubles: what a run makes of it."""

import pytest
import torch
from forged import STEPS, cuda_plan, gemm_tensors, operands
from test_windows import MAKES_A_WINDOW, expected, idle, issued, make_chain

from sdm_runtime import CudaError, CudaOutOfMemoryError, _core

__all__ = ["idle"]  # a fixture that every test here uses
OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700
LONG = 150  # steps of two plans: a run that takes windows
USES_A_WINDOW = [
    ("cuStreamIsCapturing", 0),
    *((function, 0) for function in MAKES_A_WINDOW),
    ("cuGraphAddKernelNode", 63),
    ("cuEventRecord", 0),
    ("cuEventQuery", 0),
    ("cuGraphExecKernelNodeSetParams", 0),
    ("cuGraphExecKernelNodeSetParams", 64 + 7),
    ("cuGraphLaunch", 0),
    ("cuGraphLaunch", 2),
]


@pytest.fixture
def pair():
    return gemm_tensors(LONG), gemm_tensors(LONG)


@pytest.mark.parametrize("result", [OUT_OF_MEMORY, 1])
@pytest.mark.parametrize(("function", "working"), USES_A_WINDOW)
def test_a_window_that_nobody_asked_for_fails_no_run(driver, pair, function, working, result):
    chain = make_chain(driver, *pair)
    chain.run(driver.stream())
    wanted = expected(pair, range(LONG)[::-1])
    driver.log()
    driver.fail(function, result, working=working)
    for _ in range(2):  # without the failure too: such a window is not made again
        chain.run(driver.stream())
        log = driver.log("launch", "node", "upload", "mark")
        launches = [e for e in log if e["call"] in ("launch", "node")]
        assert [bytes.fromhex(entry["params"]) for entry in launches] == wanted
    if function != "cuStreamIsCapturing":
        assert {entry["call"] for entry in log} == {"launch"}
    chain.run(driver.stream(), windowed=True)  # whoever asks gets one
    params, in_window = issued(driver)
    assert params == wanted
    assert any(in_window)


def test_a_broken_window_is_given_back(driver, pair):
    chain = make_chain(driver, *pair)
    chain.run(driver.stream())
    driver.fail("cuGraphLaunch", OUT_OF_MEMORY, working=1)
    driver.log()
    chain.run(driver.stream())
    log = driver.log("exec_destroy", "node")
    assert [entry["call"] for entry in log] == ["node"] * 64 + ["exec_destroy"]


def test_what_follows_a_broken_window_is_never_early(driver, pair):
    chain = make_chain(driver, *pair, flags=1)
    chain.run(driver.stream())
    driver.fail("cuGraphLaunch", OUT_OF_MEMORY, working=1)
    driver.log()
    chain.run(driver.stream())
    log = driver.log("launch", "node", "mark")
    first = max(index for index, entry in enumerate(log) if entry["call"] == "node") + 1
    assert "6" not in log[first]["attributes"]  # the programmatic one
    assert "6" in log[first + 1]["attributes"]


def test_a_window_is_uploaded_when_it_is_made(driver, pair):
    chain = make_chain(driver, *pair)
    driver.log()
    for _ in range(3):
        chain.run(driver.stream())
    calls = [entry["call"] for entry in driver.log("upload", "launch")]
    assert calls.count("upload") == 1
    assert calls.index("upload") == 2 * LONG  # before the second run's first launch


@pytest.mark.parametrize("working", [0, 1, 2, 5])
def test_a_failed_run_says_what_it_issued(driver, working):
    tensors = gemm_tensors()
    empty = cuda_plan(driver.folder, grid=(0, 1, 1)).bind(operands(tensors))
    plans = [empty, *(cuda_plan(driver.folder).bind(operands(tensors)) for _ in range(2))]
    for ascending in (False, True):
        chain = _core.Chain(plans, STEPS, ascending=ascending)
        driver.log()
        driver.fail("cuLaunchKernelEx", OUT_OF_MEMORY, working=working)
        with pytest.raises(torch.OutOfMemoryError, match="cuLaunchKernelEx") as caught:
            chain.run(driver.stream())
        assert isinstance(caught.value, CudaOutOfMemoryError)
        assert caught.value.issued == working == len(driver.log("launch"))


def test_a_failed_run_in_windows_says_what_it_issued(driver, pair):
    for function, working, count in (
        ("cuStreamGetCtx", 0, 0),
        ("cuGraphInstantiateWithFlags", 0, 0),
        ("cuGraphExecKernelNodeSetParams", 3, 0),
        ("cuGraphLaunch", 2, 128),
        ("cuLaunchKernelEx", 5, 256 + 5),
    ):
        chain = make_chain(driver, *pair)
        driver.log()
        driver.fail(function, OUT_OF_MEMORY, working=working)
        with pytest.raises(CudaOutOfMemoryError, match=function) as caught:
            chain.run(driver.stream(), windowed=True)
        assert caught.value.issued == count == len(driver.log("launch", "node")), function


def test_an_error_that_takes_the_context_along_says_so(driver):
    chain = _core.Chain([cuda_plan(driver.folder).bind(operands(gemm_tensors()))], STEPS)
    driver.fail("cuLaunchKernelEx", ILLEGAL_ADDRESS)
    with pytest.raises(CudaError, match=r"context is lost.*start a new process"):
        chain.run(driver.stream())
    driver.fail("cuLaunchKernelEx", 1)
    with pytest.raises(CudaError) as caught:
        chain.run(driver.stream())
    assert "lost" not in str(caught.value)
    assert not isinstance(caught.value, torch.OutOfMemoryError)


@pytest.mark.parametrize("function", ["cuGraphCreate", "cuGraphInstantiateWithFlags"])
def test_a_graph_without_memory_is_torchs_error_too(driver, function):
    chain = _core.Chain([cuda_plan(driver.folder).bind(operands(gemm_tensors()))], STEPS)
    driver.fail(function, OUT_OF_MEMORY)
    with pytest.raises(torch.OutOfMemoryError, match=function):
        _core.ChainGraph(chain)
