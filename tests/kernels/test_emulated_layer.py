"""The device code of the layer's kernels, run on the CPU, against the host twins bit for bit."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch
from emulated import emulation
from kernel_checks import copies, differing

pytestmark = [
    pytest.mark.skipif(
        platform.system() != "Linux" or not shutil.which("g++"), reason="needs g++ on Linux"
    ),
    pytest.mark.slow,
]

F32, BF16 = torch.float32, torch.bfloat16
CODES = {F32: 1, BF16: 2}
# B, T and H: decoding, parts of tiles, more heads than threads, all lanes of the sums.
SIZES = [(1, 1, 1), (3, 1, 5), (2, 37, 4), (1, 2, 300), (2, 700, 3), (3, 2800, 2)]


def same_bits(kernel: str, values: dict[str, Any], outputs: dict[str, torch.Tensor]) -> None:
    """The chosen launch and the same backwards against the twin; the twin writes everything."""
    library = emulation()
    expected = copies(outputs)
    library.twin(kernel, values | expected)
    assert not any(x.isnan().any() for x in expected.values())
    chosen = library.chosen(kernel, values | outputs)
    for backwards in (False, True):
        after = copies(outputs)
        library.launch(kernel, chosen, values | after, backwards=backwards)
        assert differing(after, expected) == []


def poisoned(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.full(shape, torch.nan, dtype=dtype)


def gate_values(sizes: tuple[int, int, int], projected: torch.dtype, own: torch.dtype) -> Any:
    """The members of both kernels' parameters that they read alike; tokens lie apart."""
    batches, tokens, heads = sizes
    gen = torch.Generator().manual_seed(sum(sizes))
    a = (4 * torch.randn(batches, tokens, heads + 3, generator=gen)).to(projected)
    b = (4 * torch.randn(batches, tokens + 1, heads, generator=gen)).to(projected)
    values = {"a": a, "b": b, "a_type": CODES[projected], "b_type": CODES[projected]}
    values |= {"a_batch_stride": a.stride(0), "a_token_stride": a.stride(1)}
    values |= {"b_batch_stride": b.stride(0), "b_token_stride": b.stride(1)}
    for name in ("a_log", "dt_bias"):
        values |= {name: torch.randn(heads, generator=gen).to(own), f"{name}_type": CODES[own]}
    return values | {"num_batches": batches, "num_tokens": tokens, "num_heads": heads}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("projected", "own"), [(F32, F32), (BF16, F32), (BF16, BF16)])
def test_token_gates(sizes: tuple[int, int, int], projected: torch.dtype, own: torch.dtype) -> None:
    batches, tokens, heads = sizes
    outputs = {name: poisoned(batches * heads, tokens) for name in ("beta", "g")}
    same_bits("token_gates", gate_values(sizes, projected, own), outputs)


@pytest.mark.parametrize("sizes", [s for s in SIZES if s[2] < 100])
@pytest.mark.parametrize(("projected", "own"), [(F32, F32), (BF16, F32), (BF16, BF16)])
def test_token_gates_grad(
    sizes: tuple[int, int, int], projected: torch.dtype, own: torch.dtype
) -> None:
    batches, tokens, heads = sizes
    gen = torch.Generator().manual_seed(1)
    values = gate_values(sizes, projected, own)
    for name in ("d_beta", "d_g"):
        values[name] = torch.randn(batches * heads, tokens, generator=gen)
    outputs = {name: poisoned(*sizes, dtype=projected) for name in ("d_a", "d_b")}
    outputs |= {name: poisoned(heads, dtype=own) for name in ("d_a_log", "d_dt_bias")}
    same_bits("token_gates_grad", values, outputs)


# B, T, H and hd: one slice, part of one, two, more than a block's warps have.
ROWS = [
    (1, 1, 1, 1),
    (2, 3, 2, 64),
    (1, 1, 16, 128),
    (3, 1, 2, 130),
    (1, 2, 2, 300),
    (1, 1, 2, 1156),
]
# Of the readings, the norm, the gate and the result; None: not there.
TYPES = [
    (BF16, BF16, BF16, BF16),
    (F32, F32, F32, F32),
    (BF16, F32, BF16, BF16),
    (F32, None, BF16, BF16),
    (BF16, BF16, None, F32),
    (F32, None, None, F32),
]


@pytest.mark.parametrize("sizes", ROWS)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("aligned", [True, False])
def test_merge_readings(sizes: tuple[int, ...], types: tuple[Any, ...], aligned: bool) -> None:
    batches, tokens, heads, hd = sizes
    of_readings, of_norm, of_gate, of_merged = types
    gen = torch.Generator().manual_seed(hd)
    gap = 4 if aligned else 3

    def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return (2 * torch.randn(*shape, generator=gen) + 1).to(dtype)

    readings = draw(batches, heads, tokens, hd + gap, dtype=of_readings).transpose(1, 2)
    values: dict[str, Any] = {"readings": readings, "eps": 1e-5, "hd": hd}
    for name, stride in zip(("batch", "token", "head"), readings.stride(), strict=False):
        values[f"readings_{name}_stride"] = stride
    if of_norm:
        values |= {name: draw(hd, dtype=of_norm) for name in ("norm_weight", "norm_bias")}
    if of_gate:
        gate = draw(batches, tokens, heads * hd + gap, dtype=of_gate)
        values |= {"gate": gate, "gate_batch_stride": gate.stride(0)}
        values |= {"gate_token_stride": gate.stride(1)}
    for name, dtype in zip(("readings", "norm", "gate", "merged"), types, strict=True):
        values[f"{name}_type"] = CODES[dtype or of_merged]
    values |= {"num_batches": batches, "num_tokens": tokens, "num_heads": heads}
    outputs = {"merged": poisoned(batches, tokens, heads * hd, dtype=of_merged)}
    wide = aligned and hd % 4 == 0
    chosen = emulation().chosen("merge_readings", values | outputs)
    assert chosen.entry == f"merge_readings_{'x4' if wide else 'x1'}"
    same_bits("merge_readings", values, outputs)
    # Several rows a block, where a device is full.
    few = emulation().chosen("merge_readings", values | outputs, sm_count=1)
    after, expected = copies(outputs), copies(outputs)
    emulation().launch("merge_readings", few, values | after)
    emulation().twin("merge_readings", values | expected)
    assert differing(after, expected) == []


def test_the_comparison_can_fail() -> None:
    """A launch without its last tokens differs from the twin."""
    library = emulation()
    values = gate_values((2, 37, 4), F32, F32)
    outputs = {name: poisoned(8, 37) for name in ("beta", "g")}
    expected, after = copies(outputs), copies(outputs)
    library.twin("token_gates", values | expected)
    whole = library.chosen("token_gates", values | outputs)
    assert whole.grid == (3, 1, 1)
    library.launch("token_gates", replace(whole, grid=(2, 1, 1)), values | after)
    assert differing(after, expected) == ["beta", "g"]
