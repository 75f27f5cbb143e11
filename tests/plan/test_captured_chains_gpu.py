"""A chain inside torch.cuda.graph: what a replay gives, and what a capture must survive."""

import threading

import pytest
import torch
from gpu_cases import SHAPES, SMALL, Case


def capture(chain, stream=None):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        chain.run()
    return graph


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"hd{shape.hd}")
@pytest.mark.parametrize("pdl", [False, True])
def test_a_replay_gives_the_hosts_bits(shape, pdl):
    case = Case(shape)
    operands = case.fresh()
    graph = capture(case.chain(operands, pdl))
    assert case.wrong(operands) != [], "the capture ran something"
    for _ in range(3):
        case.restore(operands)
        graph.replay()
        torch.cuda.synchronize()
        assert case.wrong(operands) == []


def test_a_chain_is_made_and_captured_first_thing(in_new_process):
    in_new_process("""
import torch
from gpu_cases import SMALL, Case
case = Case(SMALL)
operands = case.fresh()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    case.chain(operands).run()  # loads the device code inside the capture
graph.replay()
torch.cuda.synchronize()
print("ok" if case.wrong(operands) == [] else case.wrong(operands))
""")


def test_a_worker_thread_captures_and_ends():
    case = Case(SMALL)
    operands = case.fresh()
    held = []

    def work():
        stream = torch.cuda.Stream()
        held.append(capture(case.chain(operands), stream))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    held[0].replay()
    torch.cuda.synchronize()
    assert case.wrong(operands) == []


def test_a_failing_capture_leaves_the_chain_usable():
    case = Case(SMALL)
    operands = case.fresh()
    chain = case.chain(operands)

    def capture_and_fail():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            chain.run()
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        capture_and_fail()
    torch.cuda.synchronize()
    case.restore(operands)
    chain.run()
    torch.cuda.synchronize()
    assert case.wrong(operands) == []
