"""Every wrong argument is refused by name, before any work."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from kernel_cases import E4M3, F32, INT4, Shape
from kernel_checks import case, copies, differing, run

from sdm_runtime import BlasGemmStep, kernels

SHAPE = Shape(hd=130, steps=2)


def narrow(tensor):
    """One column less."""
    return tensor[..., :-1].contiguous()


def strided(tensor):
    return torch.stack([tensor, tensor], -1)[..., 0]


def changed(change):
    """`change` = a function of the operand, or the size's new value."""
    return change if callable(change) else lambda _: change


double = torch.Tensor.double
half = torch.Tensor.half
BAD = {
    "gx_gwr": [
        ("grad", double, TypeError, "float32 or bfloat16 [rows, hd], got float64"),
        ("grad", lambda t: t[0], ValueError, "bfloat16 [rows, hd], got bfloat16 [130]"),
        ("grad", strided, ValueError, "contiguous"),
        ("grad", lambda t: t[:0], ValueError, "at least 1 and fewer than 2^31 rows"),
        ("grad", lambda _: 3, TypeError, "expected a torch.Tensor, got int"),
        ("delta", narrow, ValueError, "float32 [16, 130], got float32 [16, 129]"),
        ("delta", half, TypeError, "float32 [16, 130], got float16"),
        ("delta", lambda t: t.view(4, 2, 2, 130), ValueError, "float32 [16, 130]"),
        ("pd", narrow, ValueError, "float32 [16, 3], got float32 [16, 2]"),
        ("slots", torch.Tensor.long, TypeError, "int32 [N*C, W], got int64"),
        ("slots", lambda t: t[:-1], ValueError, "N * 4 rows"),
        ("slots", lambda t: t.repeat(1, 100), ValueError, "num_writes: expected 1..256, got 300"),
        ("d_dv", narrow, ValueError, "float32 [16, 130]"),
        ("d_dv", strided, ValueError, "contiguous"),
        ("dpd", narrow, ValueError, "float32 [2, 48], got float32 [2, 47]"),
        ("dpd", torch.Tensor.flatten, ValueError, "float32 [2, 48], got float32 [96]"),
        ("ti", 2, ValueError, "a step in 0..1, got 2"),
        ("ti", -1, ValueError, "a step in 0..1, got -1"),
        ("num_parallel", 0, ValueError, "got 0"),
        ("num_parallel", 3, ValueError, "divisor of the 4 chunks, got 3"),
        ("chunk_size", 0, ValueError, "1..256, got 0"),
        ("chunk_size", 257, ValueError, "1..256, got 257"),
        ("num_tokens", 4, ValueError, "5..8 for 2 steps of 4, got 4"),
        ("num_tokens", 9, ValueError, "5..8 for 2 steps of 4, got 9"),
    ],
    "gx_gemm": [
        ("d_u", half, TypeError, "float32 [N, C, hd], got float16"),
        ("d_u", lambda t: t.flatten(0, 1), ValueError, "float32 [N, C, hd], got float32 [16, 130]"),
        ("x", narrow, ValueError, "float32 [4, 4, 4], got float32 [4, 4, 3]"),
        ("x", lambda t: t.transpose(1, 2), ValueError, "contiguous"),
        ("d_dv", narrow, ValueError, "float32 [4, 4, 130]"),
        ("ti", 2, ValueError, "a step in 0..1, got 2"),
        ("num_parallel", 3, ValueError, "divisor of the 4 chunks, got 3"),
    ],
    "gx_pa2": [
        ("grad", torch.Tensor.float, None, ""),
        ("grad", half, TypeError, "bfloat16 or float32 (the bank is bfloat16), got float16"),
        ("grad", lambda t: t[:-1], ValueError, "bfloat16 [32, 130], got bfloat16 [31, 130]"),
        ("bank", torch.Tensor.float, TypeError, "float32 (the bank is float32), got bfloat16"),
        ("bank", double, TypeError, "float32 or bfloat16 [rows, hd], got float64"),
        ("bank", strided, ValueError, "contiguous"),
        ("snap", torch.Tensor.float, TypeError, "(the bank is bfloat16), got float32"),
        ("snap", narrow, ValueError, "bfloat16 [..., 130], got bfloat16 [48, 129]"),
        ("snap", lambda t: t[:-1], ValueError, "48 rows (the dense layout)"),
        ("snap", torch.Tensor.flatten, ValueError, "rows of one snapshot in the last dimension"),
        ("snap", strided, ValueError, "contiguous"),
        ("snap", lambda t: torch.zeros(48, 64, dtype=torch.uint8), ValueError, "int4 pairs"),
        ("snap", lambda t: t.to(torch.float8_e4m3fn), ValueError, "scales: expected float32 with"),
        ("d_u", narrow, ValueError, "float32 [16, 130]"),
        ("beta", lambda t: t[:-1], ValueError, "float32 [16], got float32 [15]"),
        ("kpay", narrow, ValueError, "int32 [4, 12], got int32 [4, 11]"),
        ("kpay", torch.Tensor.long, TypeError, "int32 [4, 12], got int64"),
        ("kpay", None, None, ""),
        ("rec", narrow, ValueError, "int32 [N, 12, 4], got int32 [4, 12, 3]"),
        ("rec", torch.Tensor.float, TypeError, "int32 [N, 12, 4], got float32"),
        (
            "rec",
            lambda t: torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape),
            ValueError,
            "an address that is a multiple of 16, got one with remainder 4",
        ),
        ("out_eff", narrow, ValueError, "float32 [2, 48], got float32 [2, 47]"),
        ("out_g", torch.Tensor.flatten, ValueError, "float32 [2, 48], got float32 [96]"),
        ("bpre", narrow, ValueError, "int32 [4, 2], got int32 [4, 1]"),
        ("bpre", None, ValueError, "exactly one of the two, got neither"),
        ("snap_step_rows", 24, ValueError, "exactly one of the two, got both"),
        ("snap_chunk_rows", 12, None, ""),
        ("snap_chunk_rows", 0, ValueError, "1..12 (chunk_size * num_writes), got 0"),
        ("snap_chunk_rows", 13, ValueError, "1..12 (chunk_size * num_writes), got 13"),
        ("snap_chunk_rows", 11, ValueError, "snap: expected 44 rows (the dense layout), got"),
        ("snap_chunk_rows", 2.0, TypeError, "snap_chunk_rows: expected an int"),
        ("scales", lambda _: torch.ones(48), ValueError, "none (snapshots are not quantized)"),
        ("snap_format", "bf16", None, ""),
        ("snap_format", "fp4", ValueError, "one of f32, bf16, fp8, int4, got 'fp4'"),
        ("snap_format", 4, TypeError, "expected a str, got 4"),
        ("snap_format", "\udc80", ValueError, "snap_format: expected a text, got '\\udc80'"),
        ("snap_format", "f32", ValueError, "no wider than the bank's, which is bf16, got f32"),
        ("snap_format", "fp8", TypeError, "snap: expected float8_e4m3fn [..., 130] (the format is"),
        ("snap_format", "int4", TypeError, "int4 pairs uint8 [..., 130/2] (the format is int4)"),
        ("ti", 2, ValueError, "a step in 0..1, got 2"),
        ("num_parallel", 3, ValueError, "divisor of the 4 chunks, got 3"),
        ("chunk_size", 5, ValueError, "rec: expected int32 [N, 15, 4]"),
        ("num_writes", 0, ValueError, "1..256, got 0"),
    ],
    "gx_gds": [
        ("grad", half, TypeError, "bfloat16 or float32 (the bank is bfloat16), got float16"),
        ("grad", narrow, ValueError, "bfloat16 [32, 130], got bfloat16 [32, 129]"),
        ("bank", torch.Tensor.float, TypeError, "float32 (the bank is float32), got bfloat16"),
        ("gy", narrow, ValueError, "float32 [16, 130]"),
        ("gy", double, TypeError, "float32 [16, 130], got float64"),
        ("qrec", narrow, ValueError, "int32 [N, 8, 4], got int32 [4, 8, 3]"),
        ("dq", narrow, ValueError, "float32 [2, 32], got float32 [2, 31]"),
        ("ti", -1, ValueError, "a step in 0..1, got -1"),
        ("num_parallel", 0, ValueError, "got 0"),
        ("chunk_size", 300, ValueError, "1..256, got 300"),
        ("num_reads", 257, ValueError, "1..256, got 257"),
    ],
    "fx_read": [
        ("bank", half, TypeError, "float32 or bfloat16 [rows, hd], got float16"),
        ("bank", torch.Tensor.float, TypeError, "v: expected float32 [4, 4, 130], got bfloat16"),
        ("bank", strided, ValueError, "contiguous"),
        ("v", torch.Tensor.float, TypeError, "bfloat16 [4, 4, 130], got float32"),
        ("v", lambda t: t.flatten(0, 1), None, ""),
        ("v", narrow, ValueError, "bfloat16 [4, 4, 130], got bfloat16 [4, 4, 129]"),
        ("row_weights", torch.Tensor.float, TypeError, "int32 [N*C, W+R, 2], got float32"),
        ("row_weights", narrow, ValueError, "int32 [N*C, W+R, 2], got int32 [16, 5, 1]"),
        ("row_weights", lambda t: t[:-1], ValueError, "N * 4 rows, got int32 [15, 5, 2]"),
        ("row_weights", lambda t: t[:, :3].contiguous(), ValueError, "1..256 = 4..259 entries"),
        ("row_weights", lambda t: t.repeat(1, 60, 1), ValueError, "got int32 [16, 300, 2]"),
        (
            "row_weights",
            lambda t: torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape),
            ValueError,
            "an address that is a multiple of 8, got one with remainder 4",
        ),
        ("residual", narrow, ValueError, "float32 [4, 4, 130]"),
        ("reading", half, TypeError, "float32 [4, 4, 130], got float16"),
        ("ti", 2, ValueError, "a step in 0..1, got 2"),
        ("num_parallel", 3, ValueError, "divisor of the 4 chunks, got 3"),
        ("chunk_size", 257, ValueError, "1..256, got 257"),
        ("num_writes", 0, ValueError, "1..256, got 0"),
        ("num_writes", 257, ValueError, "1..256, got 257"),
        ("num_tokens", 9, ValueError, "5..8 for 2 steps of 4, got 9"),
    ],
    "fx_write": [
        ("bank", half, TypeError, "float32 or bfloat16 [rows, hd], got float16"),
        ("bank", torch.Tensor.float, TypeError, "snap: expected float32 [48, 130], got bfloat16"),
        ("delta", narrow, ValueError, "float32 [16, 130], got float32 [16, 129]"),
        ("delta", double, TypeError, "float32 [16, 130], got float64"),
        ("updates", narrow, ValueError, "int32 [N, 12, 4], got int32 [4, 12, 3]"),
        ("snap", narrow, ValueError, "bfloat16 [48, 130], got bfloat16 [48, 129]"),
        ("snap", lambda t: t[:-1], ValueError, "bfloat16 [48, 130], got bfloat16 [47, 130]"),
        ("snap", None, ValueError, "snap, bpre: expected both or neither, got bpre alone"),
        ("bpre", None, ValueError, "snap, bpre: expected both or neither, got snap alone"),
        ("bpre", narrow, ValueError, "int32 [4, 2], got int32 [4, 1]"),
        ("snap_chunk_rows", 12, None, ""),
        ("snap_chunk_rows", 0, ValueError, "1..12 (chunk_size * num_writes), got 0"),
        ("snap_chunk_rows", 13, ValueError, "1..12 (chunk_size * num_writes), got 13"),
        ("snap_chunk_rows", 11, ValueError, "bfloat16 [44, 130], got bfloat16 [48, 130]"),
        ("ti", -1, ValueError, "a step in 0..1, got -1"),
        ("num_parallel", 0, ValueError, "got 0"),
        ("chunk_size", 5, ValueError, "updates: expected int32 [N, 15, 4]"),
        ("num_writes", 300, ValueError, "1..256, got 300"),
    ],
}
CASES = [(name, *bad) for name, bads in BAD.items() for bad in bads]


@pytest.mark.parametrize(("name", "argument", "change", "error", "message"), CASES)
def test_a_wrong_argument_is_named_and_nothing_changed(name, argument, change, error, message):
    tensors, sizes = case(name, SHAPE)
    arguments = tensors | sizes | {"ti": 0}
    arguments[argument] = changed(change)(arguments.get(argument))
    before = copies({k: v for k, v in arguments.items() if isinstance(v, torch.Tensor)})
    plan_arguments = {k: v for k, v in arguments.items() if k != "ti"} | {"steps": 2}
    if error is None:  # legal: the table's own control
        getattr(kernels, name)(**arguments)
        return
    with pytest.raises(error, match=re.escape(message)):
        getattr(kernels, name)(**arguments)
    assert differing(before, {k: arguments[k] for k in before}) == []
    if argument != "ti":
        with pytest.raises(error, match=re.escape(message)):
            getattr(kernels, f"plan_{name}")(**plan_arguments)


@pytest.mark.parametrize("name", BAD)
def test_errors_name_kernel_and_argument(name):
    tensors, sizes = case(name, SHAPE)
    for argument in tensors:
        wrong = tensors | {argument: tensors[argument].to(torch.complex64)}
        with pytest.raises(TypeError, match=f"{argument}: expected one of"):
            getattr(kernels, name)(**wrong, ti=0, **sizes)
        wrong = tensors | {argument: tensors[argument].to(torch.float64)}
        with pytest.raises(TypeError, match=rf"^\[{name}\] {argument}: expected .*, got float64"):
            getattr(kernels, name)(**wrong, ti=0, **sizes)


@pytest.mark.parametrize("steps", [0, -1, 3])
@pytest.mark.parametrize("name", BAD)
def test_steps_of_a_plan(name, steps):
    tensors, sizes = case(name, SHAPE)
    with pytest.raises(ValueError, match=r"steps: expected 1\.\.2"):
        getattr(kernels, f"plan_{name}")(**tensors, steps=steps, **sizes)


def test_records_are_read_before_the_words_beside_them():
    tensors, sizes = case("gx_pa2", SHAPE)
    tensors["rec"] = tensors["rec"].to_sparse()
    with pytest.raises(TypeError, match=r"\[gx_pa2\] rec: expected a dense tensor"):
        kernels.gx_pa2(**tensors, ti=0, **sizes)


def test_per_entry_layout_needs_its_rows():
    tensors, sizes = case("gx_pa2", replace(SHAPE, per_entry=True))
    with pytest.raises(ValueError, match="snap_step_rows: expected at least 24"):
        kernels.gx_pa2(**tensors, ti=0, **sizes | {"snap_step_rows": 23})
    with pytest.raises(ValueError, match=r"snap: expected 1 \* snap_step_rows \+ 24 rows"):
        kernels.gx_pa2(**tensors, ti=0, **sizes | {"snap_step_rows": 30})
    with pytest.raises(ValueError, match=r"snap_chunk_rows: expected none \(snapshots are not"):
        kernels.gx_pa2(**tensors, ti=0, **sizes, snap_chunk_rows=12)


def test_a_call_without_a_snapshot_has_no_rows_of_one():
    tensors, sizes = case("fx_write", replace(SHAPE, no_snapshot=True))
    with pytest.raises(ValueError, match=r"snap_chunk_rows: expected none \(no snapshot is kept\)"):
        kernels.fx_write(**tensors, ti=0, **sizes, snap_chunk_rows=12)


@pytest.mark.parametrize(
    ("snap", "other", "message"),
    [
        (E4M3, "int4", r"snap: expected int4 pairs uint8 \[..., 130/2\] .*got uint8 \[48, 130\]"),
        (INT4, "fp8", r"snap: expected float8_e4m3fn \[..., 130\] .*got uint8 \[48, 65\]"),
    ],
)
def test_codes_are_of_the_format_given(snap, other, message):
    """Bytes alone could be of several formats: what is given decides, and must fit."""
    tensors, sizes = case("gx_pa2", replace(SHAPE, types=(F32, snap, F32), seed=1))
    assert tensors["snap"].dtype == torch.uint8
    own = {E4M3: "fp8", INT4: "int4"}[snap]
    inferred, given = (
        run("gx_pa2", tensors, sizes),
        run("gx_pa2", tensors, {**sizes, "snap_format": own}),
    )
    assert differing(inferred, given) == []
    with pytest.raises(ValueError, match=message):
        kernels.gx_pa2(**tensors, ti=0, **sizes, snap_format=other)
    with pytest.raises(
        TypeError, match=r"snap: expected bfloat16 \[..., 130\] \(the format is bf16"
    ):
        kernels.plan_gx_pa2(**tensors, steps=1, **sizes, snap_format="bf16")


def test_quantized_rows_need_their_scales():
    tensors, sizes = case("gx_pa2", replace(SHAPE, types=(F32, E4M3, F32)))
    with pytest.raises(ValueError, match="scales: expected float32 with 48 elements"):
        kernels.gx_pa2(**tensors | {"scales": tensors["scales"][:-1]}, ti=0, **sizes)
    with pytest.raises(TypeError, match="scales: expected float32 with 48 elements"):
        kernels.gx_pa2(**tensors | {"scales": tensors["scales"].double()}, ti=0, **sizes)


REDUCE_BAD = [
    ("planes", lambda t: t[0], ValueError, "float32 [slices, N*C*width], got float32 [48]"),
    ("planes", double, TypeError, "got float64"),
    ("planes", lambda t: t[:, :-1].contiguous(), ValueError, "1..256 entries for each of the 16"),
    ("out", lambda t: t[:-1], ValueError, "float32 with 48 elements, got float32 [47]"),
    ("factor", lambda t: t[:-1], ValueError, "float32 with 16 elements"),
    ("factor", None, ValueError, "negate: expected false without a factor"),
    ("group", 5, ValueError, "divisor of the 48 entries, got 5"),
    ("group", 0, ValueError, "got 0"),
    ("num_tokens", 0, ValueError, "got 0"),
    ("num_tokens", 2**40, ValueError, "1..48"),
    ("num_parallel", 0, ValueError, "got 0"),
    ("num_parallel", 2**40, ValueError, "got 1099511627776"),
    ("chunk_size", 0, ValueError, "1..256, got 0"),
]


@pytest.mark.parametrize(("argument", "change", "error", "message"), REDUCE_BAD)
def test_a_wrong_argument_of_plane_reduce_is_named(argument, change, error, message):
    arguments: dict[str, Any] = {
        "planes": torch.ones(2, 48), "out": torch.ones(48), "factor": torch.ones(16), "group": 3,
        "negate": True, "num_tokens": 7, "num_parallel": 2, "chunk_size": 4,
    }  # fmt: skip
    kernels.plane_reduce(**arguments)
    arguments[argument] = changed(change)(arguments[argument])
    with pytest.raises(error, match=re.escape(message)):
        kernels.plane_reduce(**arguments)


def test_plane_reduce_out_may_not_alias():
    planes = torch.ones(2, 48)
    with pytest.raises(ValueError, match="out: expected memory apart from planes"):
        kernels.plane_reduce(planes, planes[1], num_tokens=8, num_parallel=2, chunk_size=4)


@pytest.mark.parametrize(
    ("argument", "value", "error", "message"),
    [
        ("steps", True, TypeError, "[blas_gemm] steps: expected an int, got True"),
        ("steps", 2.0, TypeError, "[blas_gemm] steps: expected an int, got 2.0"),
        ("steps", 2**63, ValueError, "[blas_gemm] steps: expected an int of 64 bits"),
        ("num_parallel", "2", TypeError, "[blas_gemm] num_parallel: expected an int, got '2'"),
        # The sizes are well: what is left is that there is no library step on the host.
        ("num_parallel", 2, ValueError, "[blas_gemm] d_u"),
    ],
)
def test_the_sizes_of_a_library_step(argument, value, error, message):
    given: dict[str, Any] = {"d_u": torch.zeros(4, 4, 6), "x": torch.zeros(4, 4, 4)}
    given |= {"d_dv": torch.zeros(16, 6), "steps": 2, "num_parallel": 2, argument: value}
    with pytest.raises(error, match=re.escape(message)):
        BlasGemmStep(**given)
