"""Work on other streams than torch's current one, and the memory that it needs."""

import gc

import torch
from gpu_cases import SMALL, Case

LONG_SLEEP = 2_000_000_000  # clocks: about a second


def addresses(tensors):
    return {x.data_ptr() for x in tensors if x.numel()}


def reused(graphed, other_stream):
    """Whether memory of a dropped chain's operands is handed out before its run has begun."""
    case = Case(SMALL)
    operands = case.fresh()
    runner = case.chain(operands)
    held = addresses(runner._all_operands())  # all but kpay, which no launch reads
    runner.run()  # on the current stream: device code loads
    if graphed:
        runner = runner.graph()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream() if other_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG_SLEEP)
    (runner.replay if graphed else runner.run)(stream)
    running = not stream.query()
    del runner, operands
    gc.collect()
    again = case.fresh()
    found = bool(addresses(again.values()) & held)
    assert running
    torch.cuda.synchronize()
    return found


def test_a_dropped_chain_keeps_its_memory_until_its_run_has_ended():
    assert not reused(graphed=False, other_stream=True)
    assert reused(graphed=False, other_stream=False)  # the control: the stream of the tensors


def test_a_dropped_graph_keeps_its_memory_until_its_replay_has_ended():
    assert not reused(graphed=True, other_stream=True)
