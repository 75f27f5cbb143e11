"""Long chains in windows of a few steps: the bits of single launches, whatever runs beside."""

import threading
from dataclasses import replace

import pytest
import torch
from gpu_cases import Case
from kernel_cases import Shape
from test_runs_gpu import BusyStreams

from sdm_runtime import BlasGemmStep, StepChain
from sdm_runtime.plan.template import ChainLength, ChainTemplate

LONG = Shape(
    hd=128, chunk=16, writes=4, reads=4, steps=150, slots=64
)  # 9 windows of 16 steps, and 6
WIDE = Shape(hd=200, chunk=16, writes=3, reads=5, steps=97, slots=32)  # 6 windows, and 1 step


@pytest.mark.parametrize("shape", [LONG, WIDE], ids=["long", "wide"])
@pytest.mark.parametrize("pdl", [False, True])
def test_windows_change_no_bit(shape, pdl):
    case = Case(shape)
    operands = case.fresh()
    chain = case.chain(operands, pdl)
    for windowed in (True, None, None, False, True):
        case.restore(operands)
        chain.run(windowed=windowed)
        assert case.wrong(operands) == [], windowed


def test_a_capture_takes_single_launches():
    case = Case(LONG)
    operands = case.fresh()
    chain = case.chain(operands)
    chain.run(windowed=True)
    case.restore(operands)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain.run()
        with pytest.raises(ValueError, match=r"windowed: expected None or False .*, got a capture"):
            chain.run(windowed=True)
    graph.replay()
    assert case.wrong(operands) == []


def test_chains_of_a_template_take_turns_in_one_window():
    case = Case(LONG)
    template = ChainTemplate(case.chain(case.fresh()))
    all_operands = [case.fresh() for _ in range(3)]
    chains = [
        template.bind({name: x for name, x in operands.items() if name != "kpay"})
        for operands in all_operands
    ]
    for chain in chains:  # none waits for the one before
        chain.run(windowed=True)
    for operands in all_operands:
        assert case.wrong(operands) == []


@pytest.mark.parametrize("windowed", [True, None])
def test_chains_of_many_lengths_take_turns_in_one_window(windowed):
    case = Case(LONG)
    template = ChainTemplate(case.chain(case.fresh()), ChainLength(LONG.steps, LONG.tokens))
    for steps, padding in ((97, 3), (5, 0), (150, 1), (211, 2), (97, 3)):
        other = Case(replace(LONG, steps=steps, padding=padding))
        operands = other.fresh()
        length = ChainLength(steps, other.shape.tokens)
        bound = template.bind({k: x for k, x in operands.items() if k != "kpay"}, length)
        for _ in range(3):
            other.restore(operands)
            bound.run(windowed=windowed)
            assert other.wrong(operands) == [], steps


def test_a_hundred_windowed_repeats_beside_busy_streams():
    case = Case(LONG)
    operands = case.fresh()
    chain = case.chain(operands)
    busy = BusyStreams()
    for repeat in range(100):
        busy.push()
        case.restore(operands)
        chain.run(windowed=repeat % 3 > 0 or None)
        torch.cuda.current_stream().synchronize()
        assert case.wrong(operands) == [], f"repeat {repeat}"


def test_threads_share_a_templates_window():
    case = Case(LONG)
    template = ChainTemplate(case.chain(case.fresh()))
    wrong = []

    def work(windowed):
        with torch.cuda.stream(torch.cuda.Stream()):
            operands = case.fresh()
            chain = template.bind({k: x for k, x in operands.items() if k != "kpay"})
            for _ in range(20):
                case.restore(operands)
                chain.run(windowed=windowed)
            torch.cuda.current_stream().synchronize()
            wrong.append(case.wrong(operands))

    threads = [threading.Thread(target=work, args=(w,)) for w in (None, True, True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [[], [], [], []]


def test_a_window_is_made_beside_another_threads_capture():
    case = Case(LONG)
    operands = case.fresh()
    chain = case.chain(operands)
    side, began, over = torch.cuda.Stream(), threading.Event(), threading.Event()
    captured = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()

    def capture():
        with torch.cuda.stream(side), torch.cuda.graph(graph):
            captured.add_(1)
            began.set()
            over.wait(60)

    thread = threading.Thread(target=capture)
    thread.start()
    began.wait(60)
    chain.run(torch.cuda.current_stream(), windowed=True)
    over.set()
    thread.join()
    graph.replay()
    torch.cuda.synchronize()
    assert case.wrong(operands) == []
    assert captured.tolist() == [1.0] * 4


def test_a_window_outlives_its_chain_until_the_device_is_done():
    case = Case(LONG)
    operands = case.fresh()
    torch.cuda._sleep(20_000_000)
    chain = case.chain(operands)
    chain.run(windowed=True)
    del chain
    assert case.wrong(operands) == []


def test_a_library_step_takes_no_window(library_chain):
    with pytest.raises(ValueError, match=r"windowed: .*, got a chain with a library step"):
        library_chain.run(windowed=True)
    library_chain.run()


@pytest.fixture
def library_chain():
    steps, sequences = 200, 2
    square = torch.zeros(steps * sequences, 16, 16, device="cuda")
    rows = [torch.zeros(steps * sequences, 16, 8, device="cuda") for _ in range(2)]
    step = BlasGemmStep(rows[0], square, rows[1], steps=steps, num_parallel=sequences)
    return StepChain([step] * 2, steps)
