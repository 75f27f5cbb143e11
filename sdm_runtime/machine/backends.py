"""What this build and its devices can run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sdm_runtime import _core
from sdm_runtime.machine.environment import expect_choice

if TYPE_CHECKING:
    import torch


_PROFILES = ("modern", "a100", "rtx")  # the names in csrc's device_profile.cpp


def backends() -> dict[str, bool | str]:
    """``{"host": True, "cuda": True or the reason why not}``. Asks the driver on first use."""
    reason = _core.cuda_unavailable()
    return {"host": True, "cuda": reason if reason else True}


@dataclass(frozen=True)
class DeviceProfile:
    """What decides the routes on a CUDA device; no result depends on it."""

    name: str  # "modern", "a100" or "rtx"
    capability: tuple[int, int]
    sm_count: int
    shared_bytes_optin: int  # the most shared memory that a block may ask for
    pdl: bool  # whether kernels may be launched programmatically
    forced: bool  # by SDM_DEVICE_PROFILE, for tests: another device's profile and portable code
    uuid: str


def device_profile(device: torch.device) -> DeviceProfile:
    """The profile of a CUDA device (of ``cuda:0`` without an index); asks the driver once.

    Raises:
        ValueError: ``device`` is not a CUDA device.
        CudaError: There is no driver, or it has no such device, or this build has no routes for it.
    """
    if device.type != "cuda":
        raise ValueError(f"device: expected a CUDA device, got {device}")
    return _profile(device.index or 0)


@lru_cache(maxsize=64)
def _profile(index: int) -> DeviceProfile:
    return DeviceProfile(**_core.device_profile(index))


def supports_pdl(device: torch.device) -> bool:
    """Whether kernels on ``device`` may ask for programmatic dependent launch.

    Raises:
        ValueError: SDM_DEVICE_PROFILE names no profile, also where the CPU has no use for one.
        CudaError: As :func:`device_profile`.
    """
    if device.type != "cuda":
        check_profile_name()
        return False
    return device_profile(device).pdl


def check_profile_name() -> None:
    """Raise ValueError where SDM_DEVICE_PROFILE is set to a word that no profile has."""
    expect_choice("SDM_DEVICE_PROFILE", _PROFILES)
