"""Work on a second stream: what memory bounds, beside what computes on the current one."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from sdm_runtime.tensor.refs import capturing

_streams = threading.local()


class Beside:
    """Within it, ``stream()`` runs work beside the current stream, which waits for it at the end.

    The work begins behind what the current stream has been given before. It must not allocate:
    memory belongs to the stream that it is allocated on. A capture keeps everything in line: the
    gain of a branch in a graph has not been measured.

    Args:
        device: Where; beside nothing but a CUDA device's stream is there another.
        worthwhile: False: everything stays on the current stream.
    """

    def __init__(self, device: torch.device, *, worthwhile: bool):
        """Choose the stream."""
        there = worthwhile and device.type == "cuda" and not capturing(device)
        self._side = _side_stream(device) if there else None
        self._device = device

    def __enter__(self) -> Beside:
        """The work may begin."""
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._device))
        return self

    def stream(self) -> AbstractContextManager[Any]:
        """The context of the work."""
        return nullcontext() if self._side is None else torch.cuda.stream(self._side)

    def __exit__(self, *_: object) -> None:
        """The current stream waits for the work."""
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for each thread and device: threads may capture at the same time."""
    mine: dict[torch.device, torch.cuda.Stream] | None = getattr(_streams, "by_device", None)
    if mine is None:
        mine = _streams.by_device = {}
    if device not in mine:
        # Of high priority, so that it is none of those that users draw from torch's pool.
        mine[device] = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    return mine[device]
