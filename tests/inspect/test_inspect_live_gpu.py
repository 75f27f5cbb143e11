"""Chains on a device, captured and traced."""

import pytest
import torch
from kernel_cases import Shape
from plan_cases import chain_operands, chain_plans

from sdm_runtime import StepChain
from sdm_runtime.inspect import graph, trace


def test_a_captured_chain_on_a_device():
    """A real capture, walked with cuda-python; with PDL where the device has it."""
    pytest.importorskip("cuda.bindings.driver", reason="needs cuda-python")
    shape = Shape(hd=128, sequences=2, chunk=16, writes=4, reads=4, steps=8)
    operands = {name: tensor.cuda() for name, tensor in chain_operands(shape).items()}
    chain = StepChain(chain_plans(operands, shape), shape.steps)
    chain.run()
    kept = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(kept):
        chain.run()
    report = graph(kept, chain, measure_memory=True)
    assert report.faithful, str(report)
    assert report.match.nodes == chain.launches
    assert report.graph.memory_bytes is not None
    built = graph(chain.graph())
    assert built.faithful, str(built)


def test_a_device_chain_is_traced():
    shape = Shape(hd=128, sequences=2, chunk=16, writes=4, reads=4, steps=4)
    operands = {name: tensor.cuda() for name, tensor in chain_operands(shape).items()}
    chain = StepChain(chain_plans(operands, shape), shape.steps)
    chain.run()
    recorded = trace(chain)
    entries = [plan.geometry["entry"] for plan in chain.plans]
    assert [kernel.name for kernel in recorded.kernels] == entries * shape.steps
