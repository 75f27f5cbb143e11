"""The operation called in eager and in a compiled graph, on equal tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from op_cases import DIFFERENTIABLE, Case, make_inputs
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import fresh_cache

import sdm_runtime

NAMES = ("memory", "k_idx", "k_val", "v", "beta", "g", "q_idx", "q_val")


@contextmanager
def fresh_compilations() -> Iterator[None]:
    """No graphs of other tests, and none of other versions of this package from the disk."""
    torch._dynamo.reset()
    with fresh_cache():
        yield
    torch._dynamo.reset()


def write_read(inputs: dict[str, Tensor], case: Case, **options: Any) -> Tensor:
    """The operation; P is a number that may change from call to call."""
    return sdm_runtime.sdm_write_read(
        *(inputs[name] for name in NAMES),
        chunk_size=case.C,
        num_memory_slots=case.S,
        num_parallel=case.P,
        **(case.options | options),
    )


@dataclass
class Step:
    """What a training step shows."""

    readings: Tensor
    advanced: Tensor  # the bank after the forward
    restored: Tensor  # the bank after the backward
    grads: dict[str, Tensor]

    def differs(self, other: Step) -> list[str]:
        """The names of what has other bits."""
        mine, yours = ({**vars(x), **x.grads} for x in (self, other))
        assert mine.keys() == yours.keys()
        return [k for k in mine if k != "grads" and not torch.equal(mine[k], yours[k])]


def train(
    run: Callable[..., Tensor], case: Case, inputs: dict[str, Tensor], *, bank_grad: bool = True
) -> Step:
    """A forward and a backward of `run(inputs, case)` on copies; every floating one is a leaf."""
    leaves = {
        name: x.detach().clone().requires_grad_(name in DIFFERENTIABLE)
        for name, x in inputs.items()
    }
    leaves["memory"].requires_grad_(bank_grad)
    readings = run(leaves, case)
    advanced = leaves["memory"].detach().clone()
    torch.manual_seed(5)
    readings.backward(torch.randn(readings.shape).to(readings))
    grads = {name: leaves[name].grad for name in DIFFERENTIABLE if leaves[name].grad is not None}
    return Step(readings.detach(), advanced, leaves["memory"].detach(), grads)


def counted(
    function: Callable[..., Any], backend: str, **options: Any
) -> tuple[Callable[..., Any], CompileCounterWithBackend]:
    """`function` compiled as one graph, and the counter of its graphs."""
    counter = CompileCounterWithBackend(backend)
    return torch.compile(function, backend=counter, fullgraph=True, **options), counter


def inputs_of(case: Case, device: str = "cpu") -> dict[str, Tensor]:
    """Arguments on a device."""
    return {name: x.to(device) for name, x in make_inputs(case).items()}
