"""The operation computes in the precisions that it documents, whatever autocast says."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def autocast_is_on(device_type: str) -> bool:
    """Whether autocast chooses dtypes; never on meta, which it does not know."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Autocast off for the device type; free where it is off already."""
    if autocast_is_on(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
