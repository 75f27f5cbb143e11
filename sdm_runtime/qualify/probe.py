"""Compares every bit that gx_gemm and the library give, on inputs made to tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from sdm_runtime import kernels
from sdm_runtime.qualify.key import ALIGNMENT, Residues
from sdm_runtime.qualify.operand_shapes import Sizes
from sdm_runtime.qualify.patterns import RUNS, Draw, GemmInputs

# Adds x[n].T @ d_dv[n] to d_u[n], in place.
Gemm = Callable[[Tensor, Tensor, Tensor], None]


def library_gemm(d_u: Tensor, x: Tensor, d_dv: Tensor) -> None:
    """The library's step, through torch."""
    torch.baddbmm(d_u, x.transpose(1, 2), d_dv, out=d_u)


def fixed_gemm(d_u: Tensor, x: Tensor, d_dv: Tensor) -> None:
    """gx_gemm's step."""
    kernels.gx_gemm(d_u, x, d_dv, ti=0, num_parallel=d_u.shape[0])


def differing_patterns(
    sizes: Sizes,
    classes: Iterable[Residues],
    device: torch.device,
    library: Gemm = library_gemm,
    fixed: Gemm = fixed_gemm,
) -> tuple[str, ...]:
    """The names of the patterns on which the two give different bits; none: they are equal.

    Everything runs on torch's current stream of ``device``, which it waits for once, at the end.

    Args:
        sizes: P, C, hd of a step.
        classes: The alignment classes: where d_u, x and d_dv of a step lie, modulo ALIGNMENT.
        device: Where to run.
        library: What is to be replaced.
        fixed: What is to replace it.
    """
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        counts = torch.zeros(len(RUNS), dtype=torch.int64, device=device)
        for residues in classes:
            mine, theirs = (placed(sizes, residues, device) for _ in range(2))
            for run, (_, make, seed) in enumerate(RUNS):
                made = make(Draw(device, seed), sizes)
                for gemm, operands in ((fixed, mine), (library, theirs)):
                    for operand, values in zip(operands, made, strict=True):
                        operand.copy_(values)
                    gemm(*operands)
                bits = [operands.d_u.view(torch.int32) for operands in (mine, theirs)]
                counts[run] += (bits[0] != bits[1]).sum()
        wrong = counts.tolist()
    return tuple(dict.fromkeys(name for (name, _, _), n in zip(RUNS, wrong, strict=True) if n))


def placed(sizes: Sizes, residues: Residues, device: torch.device, steps: int = 1) -> GemmInputs:
    """Operands of ``steps`` steps, uninitialized, whose addresses have these residues."""
    shapes = (sizes.rows, sizes.square, sizes.rows)
    return GemmInputs(
        *(
            _placed((steps * shape[0], *shape[1:]), residue, device)
            for shape, residue in zip(shapes, residues, strict=True)
        )
    )


def _placed(shape: tuple[int, ...], residue: int, device: torch.device) -> Tensor:
    count = torch.Size(shape).numel()
    room = torch.empty(count + ALIGNMENT // 4, dtype=torch.float32, device=device)
    first = (residue - room.data_ptr()) % ALIGNMENT // 4
    return room[first : first + count].view(shape)
