"""Graphs whose names, or whose sisters, are gone: run beside freed memory that has been filled.

Every test has a control that takes the protection away, and must then find the run broken.
"""

import gc

import pytest
import torch
from gpu_cases import SMALL, Case
from kernel_checks import differing
from poison import BYTE, Poison, bytes_at, covered, live_blocks
from test_blas_step_gpu import blas_chain, loop_with_torch

from sdm_runtime.graphs import capture_step


class Expected:
    """What a chain with a BLAS step leaves, and the names of the operands that it changes."""

    def __init__(self):
        self.case = Case(SMALL)
        self.after = self.case.fresh()
        loop_with_torch(self.case, self.after)
        torch.cuda.synchronize()
        changed = differing({n: t.cpu() for n, t in self.after.items()}, self.case.start)
        self.outputs = [name for name in self.after if name in changed]
        assert "d_u" in self.outputs
        assert "x" not in self.outputs

    def wrong(self, operands):
        """Names of the outputs in `operands` that are not as they should be."""
        return differing({name: operands[name] for name in self.outputs}, self.after)


def test_the_poison_covers_what_it_says():
    assert covered(100, 10, [(96, 8), (104, 8)])
    assert not covered(100, 10, [(96, 8), (106, 8)])
    assert not covered(100, 10, [])
    torch.cuda.empty_cache()
    kept, freed = (torch.full((1 << 12,), 7.0, device="cuda") for _ in range(2))
    spans = [(x.data_ptr(), x.nbytes) for x in (kept, freed)]
    del freed
    poison = Poison()
    assert [poison.covers(*span) for span in spans] == [False, True]
    assert bool((kept == 7).all())
    assert poison.intact()
    bytes_at(*spans[1])[17] = 3
    assert not poison.intact()


@pytest.fixture
def forgotten():
    """A chain's graph, its outputs, and where its input x is; nobody holds the other operands."""
    expected = Expected()
    torch.cuda.empty_cache()
    operands = expected.case.fresh()
    x = operands["x"].data_ptr(), operands["x"].nbytes
    before = live_blocks()
    graph = blas_chain(expected.case, operands).graph()
    workspace = [block for block in live_blocks().items() if block[0] not in before]
    return expected, graph, operands, x, workspace


def test_a_graph_outlives_the_names_of_its_chain(forgotten):
    expected, graph, operands, x, workspace = forgotten
    for block in workspace:  # scratch memory: its contents mean nothing
        bytes_at(*block).fill_(BYTE)
    gone = expected.case.fresh()
    other = blas_chain(expected.case, gone).graph()
    other.replay()
    torch.cuda.synchronize()
    outputs = {name: operands[name] for name in expected.outputs}
    of_other = gone["x"].data_ptr(), gone["x"].nbytes
    operands.clear()  # the fixture's own dictionary
    del other, gone
    poison = Poison()
    assert poison.covers(*of_other)
    assert not poison.covers(*x)
    graph.replay()
    torch.cuda.synchronize()
    assert expected.wrong(outputs) == []
    assert poison.intact()


def test_the_control_of_a_graph_that_lost_its_chain(forgotten):
    expected, graph, operands, x, _ = forgotten
    core, device = graph._graph, graph._device
    graph._chain = None  # what keeps the operands
    del operands["x"]  # the others stay: indices that are filled would be addresses
    poison = Poison()
    assert poison.covers(*x)
    core.replay(torch.cuda.current_stream(device).cuda_stream)
    torch.cuda.synchronize()
    assert expected.wrong(operands) != []


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_a_captured_step_outlives_the_names_of_its_input(protected):
    torch.cuda.empty_cache()
    x = torch.ones(1 << 18, device="cuda")
    captured = capture_step(lambda x: x.cumsum(0).sum(), x)
    expected = float(captured(x))
    graph, outputs, mine = captured.graph, captured._outputs, captured._inputs.leaves[0]
    span = mine.data_ptr(), mine.nbytes
    del mine
    if not protected:
        del captured
    poison = Poison()
    assert poison.covers(*span) is not protected
    graph.replay()
    assert (float(outputs) == expected) is protected


def reset_one_of_two(*, keep_workspace: bool) -> bool:
    """Whether the second of two captured graphs runs right after the first has been reset.

    Both are captured on one stream. Torch then gives both the BLAS workspace that it allocated in
    the first one's memory. Without ``keep_workspace`` it is given up like the rest of that memory.
    """
    expected = Expected()  # and torch's handle
    stream = torch.cuda.Stream()
    wide, tall = torch.randn(64, 1 << 16, device="cuda"), torch.randn(1 << 16, 64, device="cuda")
    torch.mm(wide, tall)
    torch.cuda.synchronize()
    graphs, operands, chains, products, workspaces = [], [], [], [], []
    for _ in range(2):
        operands.append(expected.case.fresh())
        chains.append(blas_chain(expected.case, operands[-1]))
        products.append(torch.empty(64, 64, device="cuda"))
        graphs.append(torch.cuda.CUDAGraph())
        before = live_blocks()
        with torch.cuda.graph(graphs[-1], stream=stream):
            chains[-1].run()
            torch.mm(wide, tall, out=products[-1])  # so long a sum is split, and meets in it
        workspaces.append([block for block in live_blocks().items() if block[0] not in before])
    assert workspaces[0], "no workspace was allocated in the first capture"
    assert not workspaces[1], "the second capture has a workspace of its own"
    for block in workspaces[0]:
        bytes_at(*block).fill_(BYTE)
    graphs[1].replay()
    torch.cuda.synchronize()
    used = any(bool((bytes_at(*block) != BYTE).any()) for block in workspaces[0])
    assert used, "nothing that was captured writes to the workspace"
    product = products[1].clone()
    assert expected.wrong(operands[1]) == []

    expected.case.restore(operands[1])
    products[1].zero_()
    first = operands[0]["x"].data_ptr(), operands[0]["x"].nbytes
    graphs[0].reset()
    operands[0], chains[0], products[0] = {}, None, None
    gc.collect()
    if not keep_workspace:
        torch._C._cuda_clearCublasWorkspaces()
    freed = Poison()
    assert freed.covers(*first)
    torch.cuda.empty_cache()  # what the reset freed goes back to the device, and comes again
    sizes = [size for _, size in workspaces[0]]
    again = [torch.full((size,), BYTE, dtype=torch.uint8, device="cuda") for size in sizes * 4]
    graphs[1].replay()
    torch.cuda.synchronize()
    right = expected.wrong(operands[1]) == [] and torch.equal(products[1], product)
    return right and freed.intact() and all(bool((x == BYTE).all()) for x in again)


def broken_without_its_workspace() -> bool:
    """The control of reset_one_of_two; the device may have no memory there any more."""
    try:
        return not reset_one_of_two(keep_workspace=False)
    except RuntimeError as error:
        return "CUDA error" in str(error)


CHECKS = {
    "protected": "reset_one_of_two(keep_workspace=True)",
    "control": "broken_without_its_workspace()",
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_one_of_two_graphs_is_reset(in_new_process, check):
    # A process of its own has no workspace yet, and may lose its device.
    in_new_process(f"""
import os
from test_op_poisoned_gpu import broken_without_its_workspace, reset_one_of_two
print("ok" if {check} else "wrong", flush=True)
os._exit(0)  # with a lost device, the end of torch is another error
""")
