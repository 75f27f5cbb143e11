"""Processes of a run: alone, or several under torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sdm_runtime.train.config import ConfigError
from sdm_runtime.train.trainer.launch import read_launch


class ElsewhereError(RuntimeError):
    """Another process has failed, and said why."""


@dataclass(frozen=True)
class World:
    """This process among those of the run.

    Attributes:
        rank: of this process.
        size: number of processes.
        device: where this process computes.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Return whether this process prints, evaluates and writes files."""
        return self.rank == 0

    def check_batch(self, batch_size: int) -> None:
        """Raise ConfigError unless the global batch divides evenly among the processes."""
        if batch_size % self.size:
            raise ConfigError(
                f"batch_size: expected a multiple of the {self.size} processes, got {batch_size}"
            )

    def rows(self, batch: Tensor) -> Tensor:
        """Return this process's rows of a global batch [batch, ...]."""
        return batch.chunk(self.size)[self.rank]

    def sum(self, part: Tensor, flag: bool) -> tuple[float, bool]:
        """Return the sum of a float32 scalar over the processes, and whether one has the flag.

        One reduction for both, and the only wait for the device: all processes get the same.
        """
        if self.size == 1:
            return float(part), flag
        both = torch.stack([part.float(), part.new_tensor(float(flag), dtype=torch.float32)])
        dist.all_reduce(both)
        total, flags = both.tolist()
        return total, flags > 0.0

    def any(self, flag: bool) -> bool:
        """Return whether a process has the flag, once all have come here."""
        return self.sum(torch.zeros((), device=self.device), flag)[1] if self.size > 1 else flag

    def wait_for_all(self) -> None:
        """Return when every process has come here."""
        self.any(False)

    def agree(self, error: Exception | None) -> None:
        """Raise this process's error, if it has one, and end the others with it.

        What one process alone does (write a file) can fail in it alone; the others would wait for
        it in their next reduction.

        Raises:
            ElsewhereError: another process has an error, and says it.
        """
        failed = self.any(error is not None)
        if error is not None:
            raise error
        if failed:
            raise ElsewhereError("another process of the run has ended with an error")

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model, averaging its gradients over the processes if there are several."""
        if self.size == 1:
            return model
        on_gpu = self.device.type == "cuda"
        return DistributedDataParallel(model, device_ids=[self.device] if on_gpu else None)


@contextmanager
def joined(device: str) -> Iterator[World]:
    """Join the processes that torchrun started (gloo on the CPU, nccl on GPUs), or stand alone.

    Args:
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        ConfigError: a GPU is asked for that torch does not see, the environment describes no
            launch, or the processes do not find each other.
    """
    launch = read_launch()
    chosen = choose_device(device, launch.local_rank)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if launch.size == 1:
        yield World(rank=0, size=1, device=chosen)
        return
    try:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    except dist.DistError as error:
        where = f"{os.environ['MASTER_ADDR']}, port {os.environ['MASTER_PORT']}"
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"MASTER_ADDR: expected to meet {launch.size} processes at {where}, got {reason}"
        ) from error
    try:
        yield World(rank=dist.get_rank(), size=launch.size, device=chosen)
    finally:
        dist.destroy_process_group()


def choose_device(name: str, local_rank: int) -> torch.device:
    """Return the device that ``name`` means for the process ``local_rank`` of this machine."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device: expected auto, cpu, cuda or cuda:N, got {name}")
    if device.type == "cpu":
        return torch.device("cpu")
    index = local_rank if device.index is None else device.index
    if index >= torch.cuda.device_count():
        raise ConfigError(f"device: torch sees {torch.cuda.device_count()} GPUs, not cuda:{index}")
    return torch.device("cuda", index)
