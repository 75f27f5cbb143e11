"""Launches start early where the launch ahead of them leaves alone what they load at once."""

import pytest
import torch
from test_device_launchers import (
    PROGRAMMATIC,
    STEPS,
    C,
    N,
    P,
    aligned,
    built,
    forward_operands,
    make_forward_plans,
    make_plans,
    on_device,
    step_operands,
)

from sdm_runtime import StepChain, kernels

__all__ = ["built", "on_device"]  # fixtures


def early(chain, driver):
    """By launch of a run, and by edge of the graph: whether it may start early."""
    driver.log()
    chain.run(driver.stream())
    launches = [PROGRAMMATIC in entry["attributes"] for entry in driver.log("launch")]
    assert chain.graph().programmatic_edges == sum(launches)
    assert [sum(e["count"] for e in driver.log("edges") if e["type"] == 1)] == [sum(launches)]
    return launches


def written_and_read(snap, loaded_snap):
    """fx_write, which keeps rows in ``snap``, and gx_pa2, which loads ``loaded_snap``."""
    forward = forward_operands(128, torch.float32) | {"snap": snap}
    backward = step_operands(128, torch.float32) | {"snap": loaded_snap}
    return [make_forward_plans(forward, pdl=True)[2], make_plans(backward, pdl=True)[2]]


def gemm(d_u, x):
    return kernels.plan_gx_gemm(d_u, x, aligned(N, C, C), steps=STEPS, num_parallel=P, pdl=True)


def test_rows_that_the_launch_ahead_keeps(on_device):
    driver = on_device(0)
    rows, others = (aligned(N * C * 8, 128) for _ in range(2))
    apart = StepChain(written_and_read(rows, others), STEPS)
    assert early(apart, driver) == [False] + [True] * (2 * STEPS - 1)
    shared = StepChain(written_and_read(rows, rows), STEPS)
    assert early(shared, driver) == [False, False] + [True, False] * (STEPS - 1)


def test_a_factor_that_the_launch_ahead_makes(on_device):
    driver = on_device(0)
    made, x = aligned(N, C, C), aligned(N, C, C)
    plans = [gemm(made, x), gemm(aligned(N, C, C), made)]
    assert early(StepChain(plans, STEPS), driver) == [False, False] + [True, False] * (STEPS - 1)
    # With a launch in between everything starts early again.
    plans.insert(1, gemm(aligned(N, C, C), x))
    assert early(StepChain(plans, STEPS), driver) == [False] + [True] * (3 * STEPS - 1)


@pytest.mark.parametrize(
    ("order", "shift", "meets"),
    [
        ("ascending", 0, False),
        ("descending", 0, False),
        ("ascending", 1, True),
        ("descending", 1, False),
        ("ascending", -1, False),
        ("descending", -1, True),
    ],
)
def test_the_step_that_ran_before_counts(on_device, order, shift, meets):
    driver = on_device(0)
    rows = aligned((STEPS + 2) * P, C, C)
    loaded = rows[P : P + N]
    made = rows[P + shift * P :][:N]
    middle = gemm(aligned(N, C, C), aligned(N, C, C))
    plans = [gemm(aligned(N, C, C), loaded), middle, gemm(made, aligned(N, C, C))]
    first = [False, True, True] if meets else [True] * 3
    expected = [False, True, True] + first * (STEPS - 1)
    assert early(StepChain(plans, STEPS, order=order), driver) == expected


def test_one_launch_a_step_writes_shares_of_its_own(on_device):
    driver = on_device(0)
    chain = StepChain([gemm(aligned(N, C, C), aligned(N, C, C))], STEPS)
    assert early(chain, driver) == [False] + [True] * (STEPS - 1)


def test_a_rebound_graph_has_the_edges_of_its_operands(on_device):
    driver = on_device(0)
    made, x = aligned(N, C, C), aligned(N, C, C)
    chain = StepChain([gemm(made, x), gemm(aligned(N, C, C), made)], STEPS)
    graph = chain.graph()
    assert graph.programmatic_edges == STEPS - 1
    core = graph._graph
    apart = StepChain([gemm(made, x), gemm(aligned(N, C, C), x)], STEPS)
    for other in (apart, chain, apart):
        core.rebind(other._core)
        assert core.programmatic_edges() == sum(other._core.early_starts()) * STEPS - 1
        driver.log()
        other.run(driver.stream())
        core.replay(driver.stream())
        log = driver.log("launch", "node")
        params = [entry["params"] for entry in log]
        assert params[: 2 * STEPS] == params[2 * STEPS :]
