"""A captured step called on several streams, and what it gives out."""

import collections

import torch

from sdm_runtime.graphs import capture_step

SLEEP = 200_000_000  # clocks: about 0.1 s


def test_calls_on_two_streams_keep_their_inputs_and_outputs():
    def step(x):
        torch.cuda._sleep(SLEEP)  # the next call's copies could overtake the rest
        doubled = x * 2
        torch.cuda._sleep(SLEEP)
        return doubled + 1

    given = [torch.full((1000,), float(i), device="cuda") for i in range(4)]
    captured = capture_step(step, given[0], warmup=1)
    streams = [torch.cuda.Stream() for _ in given]
    torch.cuda.synchronize()
    results = []
    for x, stream in zip(given, streams, strict=True):
        with torch.cuda.stream(stream):
            results.append(captured(x))
    torch.cuda.synchronize()
    assert [float(y.min()) for y in results] == [1.0, 3.0, 5.0, 7.0]
    assert [float(y.max()) for y in results] == [1.0, 3.0, 5.0, 7.0]


def test_outputs_in_a_deque_are_copies():
    captured = capture_step(lambda x: collections.deque([x + 1]), torch.zeros(8, device="cuda"))
    first = captured(torch.zeros(8, device="cuda"))
    captured(torch.ones(8, device="cuda"))
    assert torch.equal(first[0], torch.ones(8, device="cuda"))


def test_a_tensor_that_the_step_writes_is_written_back():
    bank, x = torch.zeros(8, device="cuda"), torch.ones(8, device="cuda")
    captured = capture_step(lambda bank, x: bank.add_(x).sum(), bank, x)
    assert float(bank.sum()) == 0  # warming up is not a call
    assert [float(captured(bank, x)) for _ in range(3)] == [8.0, 16.0, 24.0]
    assert torch.equal(bank, torch.full((8,), 3.0, device="cuda"))
