"""The decoding step's device code, run on the CPU, against its host twin bit for bit."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace

import pytest
import torch
from decode_cases import BF16, CASES, F32, DecodeCase, Tensors, copied, decode_inputs
from emulated import Launch, emulation
from kernel_checks import differing

pytestmark = [
    pytest.mark.skipif(
        platform.system() != "Linux" or not shutil.which("g++"), reason="needs g++ on Linux"
    ),
    pytest.mark.slow,
]

ROW_CODES = {F32: 1, BF16: 2}


def block_values(case: DecodeCase, inputs: Tensors) -> dict:
    """The parameter block by name."""
    values: dict = dict(inputs)
    for name in ("v", "readings"):
        strides = inputs[name].stride()
        values |= {f"{name}_{d}": strides[i] for i, d in enumerate(("batch", "token", "head"))}
    values |= {"num_parallel": case.P, "num_heads": case.H, "num_slots": case.S}
    values |= {"num_tokens": case.T, "num_writes": case.W, "num_reads": case.R, "hd": case.hd}
    values |= {"num_gates": case.gates, "key_weighted": int(case.key_weighted)}
    return values | {
        "bank_type": ROW_CODES[case.bank],
        "v_type": ROW_CODES[case.v or case.bank],
    }


def outputs(inputs: Tensors) -> Tensors:
    return {name: inputs[name] for name in ("bank", "readings")}


def launches(case: DecodeCase, inputs: Tensors) -> list[Launch]:
    """The chosen launch, and those of the other slices and of any rows."""
    chosen = emulation().chosen("decode_step", block_values(case, inputs))
    kinds = [("any", 32)]
    if "_any_" not in chosen.entry:
        kinds += [("f32" if case.bank == F32 else "bf16", columns) for columns in (128, 64, 32)]
    found = [chosen]
    for rows, columns in kinds:
        grid = (-(-case.hd // columns), *chosen.grid[1:])
        # Room for the widest: a block uses what its own entry needs.
        entry = f"decode_step_{rows}_s{columns}"
        found.append(Launch(entry, grid, chosen.block, 1 << 19))
    return found


def assert_same_bits(case: DecodeCase) -> None:
    inputs = decode_inputs(case)
    library = emulation()
    expected = copied(inputs)
    library.twin("decode_step", block_values(case, expected))
    assert differing(outputs(inputs), outputs(expected)) == ["bank", "readings"]
    for number, launch in enumerate(launches(case, inputs)):
        after = copied(inputs)
        values = block_values(case, after)
        library.launch("decode_step", launch, values, backwards=number % 2 == 1)
        assert differing(outputs(after), outputs(expected)) == [], launch


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bank", [F32, BF16])
@pytest.mark.parametrize("hd", [4, 96, 100, 320])
def test_every_geometry_gives_the_twins_bits(name: str, bank: torch.dtype, hd: int) -> None:
    assert_same_bits(replace(CASES[name], bank=bank, hd=hd, T=1 if hd > 100 else 3))


@pytest.mark.parametrize("bank", [F32, BF16])
@pytest.mark.parametrize("hd", [1, 64, 128, 1024])
def test_other_widths(bank: torch.dtype, hd: int) -> None:
    case = DecodeCase(B=2, T=2, W=12, R=17, S=30, hd=hd, bank=bank, repeats=True, strided=True)
    assert_same_bits(case)


@pytest.mark.parametrize(("bank", "v"), [(F32, BF16), (BF16, F32)])
def test_values_of_another_dtype(bank: torch.dtype, v: torch.dtype) -> None:
    assert_same_bits(DecodeCase(bank=bank, v=v, hd=40, T=2))


@pytest.mark.parametrize("bank", [F32, BF16])
def test_hot_slots_token_after_token(bank: torch.dtype) -> None:
    """Every token reads and writes what the one before it wrote."""
    assert_same_bits(DecodeCase(T=12, W=24, R=20, S=25, hd=72, bank=bank))


def test_rows_of_other_sequences() -> None:
    case = DecodeCase(H=3, W=6, R=6, S=9, hd=24, T=2)
    inputs = decode_inputs(case)
    for idx, val in (("k_idx", "k_val"), ("q_idx", "q_val")):
        inputs[idx][1, :, 0], inputs[idx][1, :, 5] = -(1 << 31), (1 << 31) - 1
        inputs[idx][0, :, 0], inputs[idx][0, :, 5] = -1, case.S
        inputs[val][:2, :, 0] = torch.nan
    library = emulation()
    expected = copied(inputs)
    library.twin("decode_step", block_values(case, expected))
    assert not expected["readings"].isnan().any()
    for launch in launches(case, inputs):
        after = copied(inputs)
        library.launch("decode_step", launch, block_values(case, after))
        assert differing(outputs(after), outputs(expected)) == [], launch


def test_rows_that_are_not_aligned_go_element_by_element() -> None:
    case = DecodeCase(hd=64)
    inputs = decode_inputs(case)
    bank = inputs["bank"]
    inputs["bank"] = torch.cat((bank.new_zeros(1), bank.flatten()))[1:].view(bank.shape)
    chosen = emulation().chosen("decode_step", block_values(case, inputs))
    assert chosen.entry == "decode_step_any_s32"
    expected = copied(inputs)
    emulation().twin("decode_step", block_values(case, expected))
    emulation().launch("decode_step", chosen, block_values(case, inputs))
    assert differing(outputs(inputs), outputs(expected)) == []


@pytest.mark.parametrize(
    ("case", "entry", "grid"),
    [
        (DecodeCase(H=2, hd=1024, bank=BF16, W=64, R=64), "bf16_s32", (32, 2, 1)),
        (DecodeCase(B=4, H=2, hd=1024, bank=BF16, W=64, R=64), "bf16_s32", (32, 8, 1)),
        (DecodeCase(B=32, H=2, hd=1024, bank=BF16, W=64, R=64), "bf16_s128", (8, 64, 1)),
        (DecodeCase(B=12, H=2, hd=1024, bank=BF16, W=64, R=64), "bf16_s64", (16, 24, 1)),
        (DecodeCase(B=32, H=16, hd=128, W=32, R=32), "f32_s128", (1, 512, 1)),
        (DecodeCase(B=64, H=8, hd=64, bank=BF16, W=16, R=16), "bf16_s64", (1, 512, 1)),
        (DecodeCase(B=64, H=8, hd=32, bank=BF16, W=16, R=16), "bf16_s32", (1, 512, 1)),
        # Rows of all entries would take more than half of an SM.
        (DecodeCase(B=32, H=16, hd=128, W=128, R=128), "f32_s64", (2, 512, 1)),
        (DecodeCase(B=32, H=16, hd=128, W=256, R=256), "f32_s32", (4, 512, 1)),
        (DecodeCase(H=2, hd=100, bank=BF16), "any_s32", (4, 2, 1)),
        (DecodeCase(B=1 << 16, H=2, hd=8), "f32_s32", (1, 65535, 3)),
    ],
)
def test_the_chosen_slices(case: DecodeCase, entry: str, grid: tuple[int, ...]) -> None:
    sizes = {"bank": 4096, "num_parallel": case.P, "num_writes": case.W, "num_reads": case.R}
    sizes |= {"hd": case.hd, "bank_type": ROW_CODES[case.bank]}
    chosen = emulation().chosen("decode_step", sizes)
    assert (chosen.entry, chosen.grid) == (f"decode_step_{entry}", grid)
    assert chosen.shared_bytes <= 99 * 1024  # of every device that the kernels run on


def test_the_comparison_can_fail() -> None:
    """A launch without its last slice leaves columns as they were."""
    case = DecodeCase(hd=96)
    inputs = decode_inputs(case)
    expected, after = copied(inputs), copied(inputs)
    emulation().twin("decode_step", block_values(case, expected))
    chosen = emulation().chosen("decode_step", block_values(case, after))
    part = replace(chosen, grid=(chosen.grid[0] - 1, *chosen.grid[1:]))
    emulation().launch("decode_step", part, block_values(case, after))
    assert differing(outputs(after), outputs(expected)) == ["bank", "readings"]
