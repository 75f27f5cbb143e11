"""Long chains in windows: the same launches in the same order, in fewer calls."""

import gc
import threading
from collections import Counter
from itertools import pairwise

import pytest
import torch
from core_testing import core_testing
from forged import P, cuda_plan, gemm_params, gemm_tensors, operands

from sdm_runtime import CudaError, _core

FLAG_PROGRAMMATIC = 1
PROGRAMMATIC = "6"  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
STEPS = 150  # of two plans: more launches than four windows of 64
WINDOW = 32  # steps
MAKES_A_WINDOW = [
    "cuEventCreate",
    "cuGraphCreate",
    "cuGraphAddKernelNode",
    "cuGraphAddDependencies",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
]


@pytest.fixture(autouse=True)
def idle(driver):
    """The device is done with everything at once."""
    driver.keep_busy(False)
    yield
    driver.keep_busy(False)


def make_chain(driver, *all_tensors, steps=STEPS, ascending=False, **header):
    plans = [
        cuda_plan(driver.folder, steps=steps, **header).bind(operands(tensors))
        for tensors in all_tensors
    ]
    return _core.Chain(plans, steps, ascending=ascending)


def expected(all_tensors, order):
    return [gemm_params(tensors, step) for step in order for tensors in all_tensors]


def issued(driver):
    """The parameters of all launches in order, and for each whether it was a window's."""
    entries = driver.log("launch", "node")
    params = [bytes.fromhex(entry["params"]) for entry in entries]
    return params, [entry["call"] == "node" for entry in entries]


@pytest.fixture
def pair():
    return gemm_tensors(STEPS), gemm_tensors(STEPS)


@pytest.mark.parametrize("ascending", [False, True])
def test_every_launch_once_in_order(driver, pair, ascending):
    order = range(STEPS) if ascending else range(STEPS)[::-1]
    chain = make_chain(driver, *pair, ascending=ascending)
    for windowed in (False, None, None, True):
        chain.run(driver.stream(), windowed=windowed)
        params, in_window = issued(driver)
        assert params == expected(pair, order)
        if windowed is not False:
            windowed_steps = sum(in_window) // 2
            assert windowed_steps % WINDOW == 0
    assert in_window == [True] * 2 * 128 + [False] * 2 * 22


def test_a_run_goes_over_to_windows_when_the_device_waits(driver, pair):
    chain = make_chain(driver, *pair)
    chain.run(driver.stream())
    assert not any(issued(driver)[1])  # a chain that runs once needs no window
    chain.run(driver.stream())
    # 24 launches, a mark behind them; 8 more, and the mark is passed.
    assert issued(driver)[1] == [False] * 32 + [True] * 256 + [False] * 12


def test_a_device_that_is_behind_gets_single_launches(driver, pair):
    chain = make_chain(driver, *pair)
    driver.keep_busy(True)
    for _ in range(3):
        driver.log()
        chain.run(driver.stream())
    log = driver.log("launch", "node", "mark")
    marks = [index for index, entry in enumerate(log) if entry["call"] == "mark"]
    assert marks == [24, 57, 122, 251]  # 8 before 32, 64, 128 and 256 launches
    assert not any(entry["call"] == "node" for entry in log)


@pytest.mark.parametrize(
    ("kernels", "steps", "ends"),
    [
        (1, 257, [32, 64, 128, 256]),
        (3, 90, [30, 60, 120, 240]),
        (17, 20, [17, 34, 68, 136, 272]),
        (40, 7, [40, 80, 160]),
        (65, 7, [65, 130, 260]),
    ],
)
def test_a_mark_is_8_launches_back_however_many_a_step_has(driver, kernels, steps, ends):
    chain = make_chain(driver, *[gemm_tensors(steps)] * kernels, steps=steps)
    driver.keep_busy(True)
    for _ in range(2):
        driver.log()
        chain.run(driver.stream())
    calls = [entry["call"] for entry in driver.log("launch", "node", "mark")]
    marks = [index for index, call in enumerate(calls) if call == "mark"]
    assert [calls[:mark].count("launch") for mark in marks] == [end - 8 for end in ends]
    assert calls.count("launch") == kernels * steps


@pytest.mark.parametrize(("windowed", "busy"), [(None, True), (None, False), (True, False)])
def test_what_follows_a_mark_or_a_window_is_never_early(driver, pair, windowed, busy):
    chain = make_chain(driver, *pair, flags=FLAG_PROGRAMMATIC)
    chain.run(driver.stream())
    driver.keep_busy(busy)
    driver.log()
    chain.run(driver.stream(), windowed=windowed)
    log = driver.log("launch", "node", "mark")
    before = None
    for entry in log:
        if entry["call"] == "launch":
            assert (PROGRAMMATIC in entry["attributes"]) == (before == "launch")
        before = entry["call"]
    assert {entry["call"] for entry in log} >= {"launch", "mark" if windowed is None else "node"}


def test_a_windows_edges_are_programmatic_where_the_launches_are(driver, pair):
    plans = [
        cuda_plan(driver.folder, steps=STEPS, flags=flags).bind(operands(tensors))
        for tensors, flags in zip(pair, (0, FLAG_PROGRAMMATIC), strict=True)
    ]
    driver.log()
    _core.Chain(plans, STEPS).run(driver.stream(), windowed=True)
    assert [(e["count"], e["type"]) for e in driver.log("edges")] == [(31, 0), (32, 1)]


@pytest.mark.parametrize(
    ("kernels", "steps"), [(65, 7), (64, 5), (100, 3), (33, 20), (7, 40), (1, 257), (1, 1)]
)
@pytest.mark.parametrize("ascending", [False, True])
def test_any_number_of_kernels_and_empty_grids_a_step(driver, kernels, steps, ascending):
    plans, tensors = [], [gemm_tensors(steps) for _ in range(kernels)]
    for index, given in enumerate(tensors):
        if index in (0, 3):
            empty = cuda_plan(driver.folder, steps=steps, flags=FLAG_PROGRAMMATIC, grid=(0, 1, 1))
            plans.append(empty.bind(operands(given)))
        plan = cuda_plan(driver.folder, steps=steps, flags=index % 2 and FLAG_PROGRAMMATIC)
        plans.append(plan.bind(operands(given)))
    chain = _core.Chain(plans, steps, ascending=ascending)
    wanted = expected(tensors, range(steps) if ascending else range(steps)[::-1])
    for windowed, busy in ((None, False), (None, False), (None, True), (True, True)):
        driver.keep_busy(busy)
        driver.log()
        chain.run(driver.stream(), windowed=windowed)
        log = driver.log("launch", "node", "mark")
        launches = [entry for entry in log if entry["call"] != "mark"]
        assert [bytes.fromhex(entry["params"]) for entry in launches] == wanted
        for before, entry in pairwise([{"call": None}, *log]):
            if entry["call"] == "launch":
                own = launches.index(entry) % kernels % 2 == 1
                assert (PROGRAMMATIC in entry["attributes"]) == (own and before["call"] == "launch")


@pytest.mark.parametrize("stream", [0, 1, 2], ids=["null", "legacy", "per thread"])
def test_the_drivers_own_streams(driver, pair, stream):
    chain = make_chain(driver, *pair)
    for windowed in (None, None, True):
        driver.log()
        chain.run(stream, windowed=windowed)
        assert issued(driver)[0] == expected(pair, range(STEPS)[::-1])


def test_chains_of_one_recording_share_a_window(driver):
    chain = make_chain(driver, gemm_tensors(400), steps=400)
    others = [gemm_tensors(400) for _ in range(2)]
    bound = [core_testing().rebind(chain, operands(tensors)) for tensors in others]
    chain.run(driver.stream())
    edges = []
    for rebound, tensors in zip(bound, others, strict=True):
        driver.log()
        rebound.run(driver.stream())
        log = driver.log("edges", "launch", "node")
        params = [bytes.fromhex(entry["params"]) for entry in log if entry["call"] != "edges"]
        assert params == expected((tensors,), range(400)[::-1])
        assert any(entry["call"] == "node" for entry in log)
        edges.append(sum(entry["call"] == "edges" for entry in log))
    assert edges == [1, 0]  # the first of them made it


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("kernels", [1, 2])
def test_chains_of_many_lengths_share_a_window(driver, kernels, ascending):
    chain = make_chain(driver, *[gemm_tensors(400)] * kernels, steps=400, ascending=ascending)
    chain.run(driver.stream())
    edges, nodes, latest = [], [], chain
    for steps in (300, 401, 257, 1000, 100, 300):
        tensors = gemm_tensors(steps)
        # From the first chain, or the one before it: a template keeps the latest.
        latest = core_testing().rebind((chain, latest)[steps % 2], operands(tensors), steps)
        driver.log()
        latest.run(driver.stream())
        log = driver.log("edges", "launch", "node", "exec_destroy")
        launches = [entry for entry in log if entry["call"] in ("launch", "node")]
        order = range(steps) if ascending else range(steps)[::-1]
        wanted = expected((tensors,) * kernels, order)
        assert [bytes.fromhex(entry["params"]) for entry in launches] == wanted
        edges.append(sum(entry["call"] == "edges" for entry in log))
        nodes.append(any(entry["call"] == "node" for entry in log))
    assert edges == [1, 0, 0, 0, 0, 0]  # the first of them made it
    short = 100 * kernels < 256
    assert nodes == [True] * 4 + [not short, True]


def test_a_window_that_is_asked_for_is_as_long_as_its_chain(driver):
    chain = make_chain(driver, gemm_tensors(400), steps=400)
    made = []
    for steps, width in ((400, 64), (10, 10), (64, 64), (63, 63), (500, 64), (129, 64)):
        tensors = gemm_tensors(steps)
        driver.log()
        core_testing().rebind(chain, operands(tensors), steps).run(driver.stream(), windowed=True)
        log = driver.log("edges", "launch", "node")
        windowed = sum(entry["call"] == "node" for entry in log)
        assert windowed == steps // width * width
        made.append(any(entry["call"] == "edges" for entry in log))
        params = [bytes.fromhex(e["params"]) for e in log if e["call"] != "edges"]
        assert params == expected((tensors,), range(steps)[::-1])
    assert made == [True, True, True, True, True, False]


def test_threads_with_chains_of_many_lengths_do_not_mix_their_windows(driver):
    chain = make_chain(driver, gemm_tensors(400), steps=400)
    all_tensors = [gemm_tensors(steps) for steps in (300, 20, 500, 700)]
    runs, threads = 15, []

    def work(tensors, windowed):
        for _ in range(runs):
            steps = len(tensors["x"]) // P
            bound = core_testing().rebind(chain, operands(tensors), steps)
            bound.run(driver.stream(), windowed=windowed)

    for tensors, windowed in zip(all_tensors, (None, True, True, None), strict=True):
        threads.append(threading.Thread(target=work, args=(tensors, windowed)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counter(issued(driver)[0])
    for tensors in all_tensors:
        for params in expected((tensors,), range(len(tensors["x"]) // P)):
            assert counts.pop(params) == runs
    assert not counts


def test_chains_of_one_recording_with_other_early_starts_have_a_window_of_their_own(driver, pair):
    chain = make_chain(driver, *pair, flags=FLAG_PROGRAMMATIC)
    chain.run(driver.stream(), windowed=True)
    # Both plans bind the same operands: what plan 0 adds to, plan 1 loads at once.
    shared = core_testing().rebind(chain, operands(pair[1]))
    assert chain.early_starts() == [True, True]
    assert shared.early_starts() == [True, False]
    driver.log()
    shared.run(driver.stream(), windowed=True)
    assert [(e["count"], e["type"]) for e in driver.log("edges")] == [(32, 0), (31, 1)]


def test_an_empty_grid_is_not_the_launch_ahead(driver):
    tensors, others, more = (gemm_tensors(STEPS) for _ in range(3))
    rows = torch.zeros(others["x"].numel())
    others["d_u"] = rows[: others["d_u"].numel()].view_as(others["d_u"])
    tensors["x"] = rows.view_as(tensors["x"])
    plans = [
        cuda_plan(driver.folder, steps=STEPS, flags=FLAG_PROGRAMMATIC, grid=grid).bind(operands(t))
        for grid, t in (((5, 1, 1), others), ((0, 1, 1), more), ((5, 1, 1), tensors))
    ]
    assert _core.Chain(plans, STEPS).early_starts() == [True, False, False]
    assert _core.Chain([*plans[:2], *plans[:1]], STEPS).early_starts() == [True, False, False]


def test_short_chains_make_no_window(driver):
    tensors = gemm_tensors(100)
    chain = make_chain(driver, tensors, steps=100)
    for _ in range(3):
        chain.run(driver.stream())
    assert issued(driver)[1] == [False] * 300
    chain.run(driver.stream(), windowed=True)  # but can be asked for one
    assert sum(issued(driver)[1]) == 64


def test_a_failing_update_names_step_plan_and_kernel_and_leaves_the_chain_whole(driver, pair):
    chain = make_chain(driver, *pair)
    driver.fail("cuGraphExecKernelNodeSetParams", 1, working=64 + 3)
    with pytest.raises(CudaError, match=r"step 116, plan 1 \(gx_gemm, gemm_waits\): cuGraphExec"):
        chain.run(driver.stream(), windowed=True)
    assert len(issued(driver)[0]) == 64
    chain.run(driver.stream(), windowed=True)
    assert issued(driver)[0] == expected(pair, range(STEPS)[::-1])


def test_a_failing_launch_names_its_steps(driver, pair):
    chain = make_chain(driver, *pair)
    driver.fail("cuGraphLaunch", 1, working=1)
    with pytest.raises(CudaError, match="steps 117 to 86: cuGraphLaunch: CUDA_ERROR_INVALID"):
        chain.run(driver.stream(), windowed=True)
    driver.log()
    chain.run(driver.stream())  # the window is free again, and whole
    params, in_window = issued(driver)
    assert params == expected(pair, range(STEPS)[::-1])
    assert any(in_window)


@pytest.mark.parametrize(
    "function",
    [
        "cuStreamIsCapturing",
        *MAKES_A_WINDOW,
    ],
)
def test_a_window_that_cannot_be_made_runs_nothing(driver, pair, function):
    chain = make_chain(driver, *pair)
    driver.log()
    driver.fail(function, 2)
    with pytest.raises(CudaError, match=rf"{function}: CUDA_ERROR_OUT_OF_MEMORY"):
        chain.run(driver.stream(), windowed=True)
    assert not driver.log("launch", "node")
    chain.run(driver.stream(), windowed=True)
    assert issued(driver)[0] == expected(pair, range(STEPS)[::-1])


def test_a_capture_gets_single_launches(driver, pair):
    chain = make_chain(driver, *pair)
    with driver.capturing():
        for _ in range(3):
            chain.run(driver.stream())
        driver.log("node")
        with pytest.raises(ValueError, match=r"windowed: expected None or False .*, got a capture"):
            chain.run(driver.stream(), windowed=True)
    assert not driver.log("mark", "node")


def test_a_window_goes_with_the_last_chain_of_its_recording(driver, pair):
    chain = make_chain(driver, *pair)
    chain.run(driver.stream(), windowed=True)
    gc.collect()  # those of other tests
    driver.log()
    del chain
    gc.collect()
    destroyed, graph = driver.log("exec_destroy", "graph_destroy")
    assert (destroyed["call"], graph["call"]) == ("exec_destroy", "graph_destroy")
    assert destroyed["relaxed"]  # somebody may be capturing


def test_threads_share_a_chain_without_mixing_its_windows(driver, pair):
    chain = make_chain(driver, *pair)
    runs, threads = 20, []
    for windowed in (None, True, False, None):
        work = lambda windowed=windowed: [  # noqa: E731
            chain.run(driver.stream(), windowed=windowed) for _ in range(runs)
        ]
        threads.append(threading.Thread(target=work))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    params = issued(driver)[0]
    assert len(params) == 4 * runs * 2 * STEPS
    for expected_once in expected(pair, range(STEPS)):
        assert params.count(expected_once) == 4 * runs


def test_other_chains_cannot_be_windowed(driver):
    tensors = gemm_tensors(STEPS)
    empty = make_chain(driver, tensors, grid=(0, 1, 1))
    empty.run(driver.stream())
    with pytest.raises(ValueError, match="got a chain that launches nothing"):
        empty.run(driver.stream(), windowed=True)
