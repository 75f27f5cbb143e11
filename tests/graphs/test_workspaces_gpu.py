"""Workspaces of the BLAS that graphs hold: torch may free its own while a graph lives."""

import pytest
import torch
from gpu_cases import SMALL, Case
from kernel_checks import differing
from test_blas_step_gpu import blas_chain

from sdm_runtime.graphs import capture_step
from sdm_runtime.tensor.refs import external_stream

CUDA = torch.device("cuda", 0)


def blocks_of(stream, state="active_allocated"):
    """Address and size of the allocator's blocks of a stream in that state; None: in any."""
    found = []
    for segment in torch.cuda.memory_snapshot():
        at = segment["address"]
        for block in segment["blocks"]:
            if segment["stream"] == stream and block["state"] == (state or block["state"]):
                found.append((at, block["size"]))
            at += block["size"]
    return found


def overlap(blocks, others):
    return [(a, b) for a in blocks for b in others if a[0] < b[0] + b[1] and b[0] < a[0] + a[1]]


def expect_held(stream):
    """What is allocated on the stream is nobody else's when torch has freed its workspaces."""
    held = blocks_of(stream)
    assert held
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.stream(external_stream(CUDA, stream)):
        new = [torch.empty(size, dtype=torch.uint8, device=CUDA) for _, size in 2 * held]
    assert overlap([(x.data_ptr(), x.nbytes) for x in new], held) == []
    del new
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    there = blocks_of(stream, None)
    assert all(overlap([block], there) for block in held)  # and is memory still


def test_a_chains_graph_keeps_the_workspace_of_its_calls():
    case = Case(SMALL)
    expected, operands = case.fresh(), case.fresh()
    blas_chain(case, expected).run()
    streams = set()
    for _ in range(2):  # the second graph has the stream of the first
        graph = blas_chain(case, operands).graph()
        streams.add(graph._library_capture()[0])
        for stream in streams:
            expect_held(stream)
        case.restore(operands)
        graph.replay()
        torch.cuda.synchronize()
        assert differing(operands, expected) == []
        del graph
    assert len(streams) == 1


def expect_step_held(dtype=torch.float32):
    """A captured forward and backward, whose products run in two threads, keeps its workspaces."""
    streams = set()
    layer = torch.nn.Linear(512, 64, device=CUDA, dtype=dtype)

    def step(x):
        streams.add(torch.cuda.current_stream().cuda_stream)
        return torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))

    x = torch.randn(2048, 512, device=CUDA, dtype=dtype)
    captured = capture_step(step, x)
    wanted = [gradient.clone() for gradient in captured(x)]
    assert len(streams) == 1
    expect_held(*streams)
    for got, want in zip(captured(x), wanted, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_captured_step_keeps_the_workspaces_of_its_threads(dtype):
    expect_step_held(dtype)


def test_a_captured_step_keeps_a_workspace_of_cublaslts_own(in_new_process):
    code = (
        "import torch\nfrom test_workspaces_gpu import expect_step_held\n"
        "expect_step_held(torch.bfloat16)\nprint('ok')\n"
    )
    in_new_process(code, TORCH_CUBLASLT_UNIFIED_WORKSPACE="0")


def test_a_step_is_captured_in_inference_mode():
    x = torch.eye(16, device=CUDA)
    with torch.inference_mode():
        captured = capture_step(lambda x: 2 * x @ x, x)
        assert torch.equal(captured(x), 2 * x)


def test_captured_steps_share_no_stream():
    streams = []

    def step(x):
        streams.append(torch.cuda.current_stream().cuda_stream)
        return x @ x

    steps = [capture_step(step, torch.ones(16, 16, device=CUDA)) for _ in range(40)]
    assert len(set(streams)) == len(steps)  # torch has 32, and gives them out in turns
    del steps
    before = set(streams)
    capture_step(step, torch.ones(16, 16, device=CUDA))
    assert set(streams) == before  # a stream comes back with its step
