"""The byte model's local layer."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime.train.trainer.model import CausalConvolution


class Copies(TorchDispatchMode):
    """Counts copies of whole activations."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.elements, self.count = elements, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("clone", "_to_copy", "contiguous"):
            self.count += out.numel() >= self.elements
        return out


@pytest.mark.parametrize("kernel", [1, 2, 4])
def test_convolution_is_causal_and_torchs(kernel: int) -> None:
    torch.manual_seed(0)
    layer = CausalConvolution(8, kernel).double()
    x = torch.randn(3, 20, 8, dtype=torch.float64)
    padded = torch.nn.functional.pad(x.transpose(1, 2), (kernel - 1, 0))
    gated = torch.nn.functional.glu(layer.taps(padded), dim=1)
    torch.testing.assert_close(layer(x), layer.out(gated.transpose(1, 2)), rtol=1e-12, atol=1e-12)
    changed = x.clone()
    changed[:, 10] += 1
    moved = (layer(changed) != layer(x)).any(-1).any(0).nonzero().flatten().tolist()
    assert moved == list(range(10, 10 + kernel))


def test_convolution_copies_no_activation() -> None:
    layer, x = CausalConvolution(32, 4), torch.randn(2, 64, 32)
    with Copies(x.numel()) as copies:
        layer(x)
    assert copies.count == 0
    # The control: channels first, it does.
    padded = torch.nn.functional.pad(x.transpose(1, 2), (3, 0))
    with Copies(x.numel()) as copies:
        layer.out(torch.nn.functional.glu(layer.taps(padded), dim=1).transpose(1, 2))
    assert copies.count > 0
