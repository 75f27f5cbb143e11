"""What torch must know of work that it does not do: which tensors changed, and on which stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from sdm_runtime.machine.forked import check_threads
from sdm_runtime.tensor.refs import current_stream, external_stream, stream_address

_LEGACY_STREAM = 1  # cudaStreamLegacy: another handle of the default stream


def raise_versions(tensors: Sequence[torch.Tensor]) -> None:
    """Tell autograd that the tensors were written in place.

    A graph that saved one of them before then refuses its backward, as after torch's own in-place
    operations, instead of using the new contents.
    """
    if tensors:
        torch.autograd.graph.increment_version(tensors)


def launch_stream(kernel: str, device: torch.device) -> int:
    """Where a single launch goes: torch's current stream; 0 on the CPU.

    Raises:
        RuntimeError: The device is the CPU, and this is a forked child that has lost its threads.
    """
    if device.type == "cpu":
        check_threads(kernel)
    return current_stream(device)


def keep_until_run(
    tensors: Iterable[torch.Tensor],
    device: torch.device,
    stream: torch.cuda.Stream | int | None,
) -> None:
    """Keep the tensors' memory from other uses until what was issued to ``stream`` has run.

    torch's allocator hands memory that is given back to the next who asks on the stream it was
    allocated on. On another stream, work that was issued before may not have run by then.
    """
    if stream is None or device.type != "cuda":
        return
    address = stream_address(device, stream)
    if address == current_stream(device):
        return
    if address == _LEGACY_STREAM:
        address = 0
    user = external_stream(device, address)
    for tensor in tensors:
        tensor.record_stream(user)
