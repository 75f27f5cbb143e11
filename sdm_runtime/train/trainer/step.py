"""The training step of one process."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sdm_runtime.train.trainer.model import byte_costs
from sdm_runtime.train.trainer.optim import set_rate
from sdm_runtime.train.trainer.repeatable import repeatable_convolutions

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(inputs, targets, weight, rate) -> this process's part of the loss. Works on the tensors that
it is given and on nothing else, so that it can be captured and replayed with new inputs."""


def lay_out_reductions(model: nn.Module, operands: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Run one backward of a model that several processes share, and drop its gradients.

    After its first backward DistributedDataParallel lays its reductions out anew, in the order in
    which the gradients came. From three processes on a sum depends on where it lies, so without
    this the first step of a session would add in another way than the same step of a whole run.
    """
    inputs, targets, weight, _ = operands
    with repeatable_convolutions():
        torch.autograd.backward(byte_costs(model, inputs, targets).sum() * weight)
    model.zero_grad(set_to_none=True)


def make_step(model: nn.Module, optimizer: torch.optim.Optimizer, clip_norm: float) -> Step:
    """Return the training step of a model.

    The step's loss is ``weight`` times the summed cost of this process's rows. With ``weight`` =
    1 / symbols of the global batch the processes' losses add up to the global mean, and so do
    their gradients (DistributedDataParallel averages them, hence the factor of its world size).
    Equal tensors give equal bits, on a GPU too: see ``sdm_runtime.train.trainer.repeatable``.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1

    @repeatable_convolutions()
    def step(inputs: Tensor, targets: Tensor, weight: Tensor, rate: Tensor) -> Tensor:
        set_rate(optimizer, rate)
        optimizer.zero_grad(set_to_none=True)
        loss = byte_costs(model, inputs, targets).sum() * weight
        torch.autograd.backward(loss * processes)
        nn.utils.clip_grad_norm_(parameters, clip_norm)
        optimizer.step()
        return loss.detach()

    return step
