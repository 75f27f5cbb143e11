"""A second stream: for work that memory bounds, while the current stream computes."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from sdm_runtime.tensor.refs import capturing

_streams = threading.local()


class SideStream:
    """Inside, ``stream()`` runs work on a side stream; the current stream waits for it at the end.

    The work starts after what the current stream was given before. It must not allocate: memory
    belongs to the stream that it is allocated on. During a capture there is no side stream: what a
    branch gains in a graph has not been measured.

    Args:
        device: Where to run. Only a CUDA device has a side stream.
        worthwhile: Use the side stream; if False, all work stays on the current one.
    """

    def __init__(self, device: torch.device, *, worthwhile: bool):
        """Choose the stream."""
        there = worthwhile and device.type == "cuda" and not capturing(device)
        self._side = _stream_of_thread(device) if there else None
        self._device = device

    def __enter__(self) -> SideStream:
        """Let the side stream wait for the current one."""
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._device))
        return self

    def stream(self) -> AbstractContextManager[Any]:
        """The context to run the work in."""
        return nullcontext() if self._side is None else torch.cuda.stream(self._side)

    def __exit__(self, *_: object) -> None:
        """Let the current stream wait for the side stream."""
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)


def _stream_of_thread(device: torch.device) -> torch.cuda.Stream:
    """This thread's side stream of the device: threads may capture at the same time."""
    mine: dict[torch.device, torch.cuda.Stream] | None = getattr(_streams, "by_device", None)
    if mine is None:
        mine = _streams.by_device = {}
    if device not in mine:
        # Of high priority, so that it is not one that users draw from torch's pool.
        mine[device] = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    return mine[device]
