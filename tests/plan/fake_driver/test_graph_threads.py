"""One explicit graph in several threads."""

import threading

import pytest
from forged import STEPS, cuda_plan, gemm_params, gemm_tensors, operands

from sdm_runtime import _core


@pytest.fixture
def slow(driver):
    """Calls on a graph take long enough for others to come in between."""
    driver.delay(100)
    driver.overlapping()
    yield driver
    driver.delay(0)


def make_chain(driver, tensors):
    return _core.Chain([cuda_plan(driver.folder).bind(operands(tensors))], STEPS)


def in_threads(*works):
    """Run them at once; what they raised."""
    errors = []

    def guarded(work):
        try:
            work()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_a_replay_beside_rebinds_is_of_one_binding(slow):
    tensors = [gemm_tensors() for _ in range(2)]
    chains = [make_chain(slow, given) for given in tensors]
    graph = _core.ChainGraph(chains[0])
    stream, rounds, replayers = slow.stream(), 30, 3
    slow.log()

    def rebind():
        for index in range(rounds):
            graph.rebind(chains[index % 2])

    def replay():
        for _ in range(rounds):
            graph.replay(stream)
            assert graph.nodes() == STEPS

    assert in_threads(rebind, *[replay] * replayers) == []
    assert slow.overlapping() == 0
    nodes = [bytes.fromhex(entry["params"]) for entry in slow.log("node")]
    replays = [nodes[at : at + STEPS] for at in range(0, len(nodes), STEPS)]
    assert len(replays) == rounds * replayers
    bindings = [[gemm_params(t, step) for step in reversed(range(STEPS))] for t in tensors]
    assert all(replay in bindings for replay in replays)


def test_two_graphs_do_not_wait_for_each_other(slow):
    """The control: calls that overlap are counted where nothing keeps them apart."""
    graphs = [_core.ChainGraph(make_chain(slow, gemm_tensors())) for _ in range(2)]
    slow.delay(200_000)
    barrier = threading.Barrier(2)
    order = []

    def replay(graph, name):
        barrier.wait()
        order.append(name)
        graph.replay(slow.stream())
        order.append(name)

    assert in_threads(*(lambda g=g: replay(g, id(g)) for g in graphs)) == []
    assert order[0] != order[1]  # the second began before the first had ended
    assert slow.overlapping() == 0  # of one graph
