"""Explicit graphs beside what other threads do."""

import threading

import torch
from gpu_cases import SMALL, Case
from kernel_checks import differing
from test_blas_step_gpu import blas_chain


def in_thread(work):
    """Run it in a thread to its end; what it raised."""
    errors = []

    def guarded():
        try:
            work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    return errors


def test_a_graph_is_made_while_another_thread_captures():
    """In torch's default mode a capture forbids unsafe calls to every thread."""
    case = Case(SMALL)
    operands = case.fresh()
    chain = case.chain(operands)
    filler = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    made = []
    capture = torch.cuda.CUDAGraph()
    with torch.cuda.graph(capture, capture_error_mode="global"):
        filler.add_(1)
        errors = in_thread(lambda: made.append(chain.graph()))
        filler.add_(1)
    assert errors == []
    capture.replay()
    made[0].replay()
    torch.cuda.synchronize()
    assert filler.tolist() == [2.0] * 8
    assert case.wrong(operands) == []


def test_replays_beside_rebinds_run_on_the_operands_of_one_binding():
    case = Case(SMALL)
    made = [case.fresh() for _ in range(2)]
    graph = case.chain(made[0]).graph()
    for operands in made:
        del operands["kpay"]  # no launch reads it

    def rebind():
        for index in range(1, 41):
            graph.rebind(**made[index % 2])

    def replay():
        for _ in range(200):
            graph.replay()

    errors = []
    threads = [
        threading.Thread(target=lambda work=work: errors.extend(in_thread(work)))
        for work in (rebind, replay, replay)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert errors == []
    for operands in made:  # and it is whole: each binding gives its bits
        for name, start in case.start.items():
            if name in operands:
                operands[name].copy_(start)
        graph.rebind(**operands)
        graph.replay()
        torch.cuda.synchronize()
        held = {name: x.cpu() for name, x in operands.items()}
        assert differing(held, case.expected) == []


def test_library_calls_are_captured_on_a_stream_that_torch_gives_nobody():
    case = Case(SMALL)
    expected, operands = case.fresh(), case.fresh()
    blas_chain(case, expected).run()
    graphs = [blas_chain(case, operands).graph() for _ in range(2)]
    pool = {torch.cuda.Stream(priority=p).cuda_stream for p in (0, -1) for _ in range(64)}
    mine = {graph._library_capture()[0] for graph in graphs}
    assert len(mine) == 2
    assert not mine & pool
    for graph in graphs:
        case.restore(operands)
        graph.replay()
        torch.cuda.synchronize()
        assert differing(operands, expected) == []
