"""Whether code may depend on values, or only on shapes.

Reading a value of a CUDA tensor waits for the device and breaks a capture, so there every size is a
bound that shapes give. On the CPU a value is at hand, and the work can follow the data.
"""

from __future__ import annotations

from torch import Tensor


def reads_are_free(x: Tensor) -> bool:
    """Whether x's values can be read without waiting for a device."""
    return x.device.type == "cpu"
