"""What qualification does with a device: asks whether it captures, and probes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Protocol

import torch

from sdm_runtime import _core
from sdm_runtime.qualify.key import Residues
from sdm_runtime.qualify.operand_shapes import Sizes
from sdm_runtime.qualify.probe import differing_patterns
from sdm_runtime.tensor.refs import capturing

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class DeviceSide(Protocol):
    """Tests put their own in its place."""

    def sm_count(self, device: torch.device) -> int:
        """The device's multiprocessors."""

    def capturing(self, device: torch.device) -> bool:
        """Whether torch's current stream of the device is being captured."""

    def apart_from_captures(self) -> AbstractContextManager[None]:
        """Inside, this thread's calls invalidate no capture, whichever stream is captured."""

    def prove(
        self, sizes: Sizes, classes: tuple[Residues, ...], device: torch.device
    ) -> tuple[str, ...]:
        """As probe.differing_patterns."""


class _RelaxedCaptures:
    """Sets this thread's mode of capture interaction, and resets it at the end."""

    def __enter__(self) -> None:
        self._mode = _core.exchange_capture_mode(_RELAXED)

    def __exit__(self, *_: object) -> None:
        _core.exchange_capture_mode(self._mode)


class CudaSide:
    """The CUDA devices of this process."""

    def sm_count(self, device: torch.device) -> int:
        """See DeviceSide."""
        return _sm_count(device.index)

    def capturing(self, device: torch.device) -> bool:
        """See DeviceSide."""
        return capturing(device)

    def apart_from_captures(self) -> AbstractContextManager[None]:
        """See DeviceSide. Another thread's capture forbids this one's allocations otherwise."""
        return _RelaxedCaptures()

    def prove(
        self, sizes: Sizes, classes: tuple[Residues, ...], device: torch.device
    ) -> tuple[str, ...]:
        """See DeviceSide."""
        with torch.cuda.device(device):
            return differing_patterns(sizes, classes, device)


@lru_cache(maxsize=64)
def _sm_count(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)
