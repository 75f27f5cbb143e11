"""Memory throughput of the host twins on a large bank, against a plain copy in the same run.

    python tools/bench/host_twins.py [--json OUT.json] [--bank-mib 512] [--rounds 7]
                                     [--huge-pages] [--only TEXT] [--cpu-time]

Slots are random and distinct, so that every row comes from memory. A kernel's bytes are what it
must move: every row of a step once each way, and the step's own operands. Two measures of the
machine run in turn with the kernels, on the same threads: `copy`, torch's of the whole bank, and
`gather`, torch.index_select of one step's rows; their bytes are those read plus those written.
gx_gemm moves little: its figure is GFLOP/s. `--cpu-time` runs on one thread and counts that
thread's processor time: for a machine that is busy with other work.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from figures import Figure, of_samples, save

from sdm_runtime import kernels
from sdm_runtime.machine.host_memory import advise_huge_pages

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
SHAPES = [  # hd, entries a token, chunk size, sequences
    (128, 16, 64, 2),
    (256, 32, 64, 2),
    (1024, 64, 64, 2),
]
ROW_TYPES = [("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32"), ("f32", "f32", "f32")]
ROW_TYPES += [("f32", "int4", "f32"), ("bf16", "e4m3", "bf16")]


@dataclass
class Case:
    """One kernel on one shape: `step(ti)` runs it, moving `nbytes` (or doing `flops`)."""

    name: str
    shape: str
    step: Callable[[int], object]
    nbytes: int
    flops: int = 0
    seconds: list[float] = field(default_factory=list)


def records(slots: torch.Tensor, sequences: int, rows: int) -> torch.Tensor:
    """Sorted entries int32 [N, n, 4] of distinct slots [N, C, per token]: every group has one."""
    chunks, _, per_token = slots.shape
    flat = slots.flatten(1)
    ordered, order = flat.sort(1)
    token, index = order // per_token, order % per_token
    words = (token << 9 | index) - (1 << 30)  # FIRST and LAST
    absolute = ordered + (torch.arange(chunks) % sequences)[:, None] * rows
    floats = torch.rand(chunks, flat.shape[1]).view(torch.int32)
    columns = [words, absolute, floats, floats]
    return torch.stack([c.to(torch.int32) for c in columns], -1).contiguous()


def random_rows(kind: str, rows: int, hd: int) -> torch.Tensor:
    if kind in DTYPES:
        return torch.randn(rows, hd).to(DTYPES[kind])
    return torch.randint(64, (rows, hd if kind == "e4m3" else hd // 2), dtype=torch.uint8)


def cases(
    shape: tuple[int, int, int, int], types: tuple[str, str, str], bank_mib: int, huge: bool = False
):
    """The step kernels on one bank of random rows: number of steps, the bank, the cases."""
    hd, width, chunk, sequences = shape
    bank_kind, snap_kind, grad_kind = types
    rows = (bank_mib << 20) // (hd * DTYPES[bank_kind].itemsize) // sequences
    entries = chunk * width
    steps = max(4, min(32, rows // entries))
    chunks = steps * sequences
    tokens = chunks * chunk
    slots = torch.stack([torch.randperm(rows)[:entries] for _ in range(chunks)])
    slots = slots.view(chunks, chunk, width)
    rec = records(slots, sequences, rows)
    kpay = rec[..., 0].contiguous()
    bank = random_rows(bank_kind, sequences * rows, hd)
    grad = random_rows(grad_kind, sequences * rows, hd)
    snap = random_rows(snap_kind, chunks * entries, hd)
    if huge:
        for tensor in (bank, grad, snap):
            advise_huge_pages(tensor, collapse=True)
    x, d_u, delta, d_dv = torch.randn(chunks, chunk, chunk), *torch.randn(3, chunks, chunk, hd)
    weights, beta = torch.rand(tokens, width), torch.rand(tokens)
    offset = (torch.arange(chunks) % sequences)[:, None, None] * rows
    absolute = (slots + offset).view(tokens, width).to(torch.int32)
    blocks = (entries + 31) // 32 + 1
    bpre = (torch.arange(blocks) * 32).clamp(max=entries).to(torch.int32).repeat(chunks, 1)
    out, out_g = torch.zeros(2, kernels.num_slices(hd), tokens * width)
    sizes: dict[str, Any] = {"num_parallel": sequences, "chunk_size": chunk}
    scales: dict[str, Any] = {} if snap_kind in DTYPES else {"scales": torch.rand(len(snap))}

    def gwr(ti: int) -> None:
        kernels.gx_gwr(
            grad, delta, weights, absolute, d_dv, out, ti=ti, num_tokens=steps * chunk, **sizes
        )

    def gemm(ti: int) -> None:
        kernels.gx_gemm(d_u, x, d_dv, ti=ti, num_parallel=sequences)

    def pa2(ti: int) -> None:
        kernels.gx_pa2(
            grad, bank, snap, d_u.view(tokens, hd), beta, kpay, rec, out, out_g,
            ti=ti, num_writes=width, bpre=bpre, **scales, **sizes,
        )  # fmt: skip

    def gds(ti: int) -> None:
        kernels.gx_gds(
            grad, bank, delta.view(tokens, hd), rec, out, ti=ti, num_reads=width, **sizes
        )

    v = torch.randn(chunks, chunk, hd).to(bank.dtype)
    entries_of = torch.cat((absolute, absolute.flip(0)), 1)  # other rows for the reads
    weights_of = torch.rand(entries_of.shape).view(torch.int32)
    row_weights = torch.stack((entries_of, weights_of), 2)
    keeps: dict[str, Any] = {"snap": snap, "bpre": bpre} if snap_kind == bank_kind else {}

    def read(ti: int) -> None:
        kernels.fx_read(
            bank, v, row_weights, delta, d_dv,
            ti=ti, num_writes=width, num_tokens=steps * chunk, **sizes,
        )  # fmt: skip

    def write(ti: int) -> None:
        kernels.fx_write(bank, delta, rec, ti=ti, num_writes=width, **keeps, **sizes)

    step_slots = absolute.long().view(steps, -1)
    gathered = torch.empty(sequences * entries, hd, dtype=bank.dtype)

    def gather(ti: int) -> None:
        torch.index_select(bank, 0, step_slots[ti], out=gathered)

    step_rows, step_tokens = sequences * entries, sequences * chunk
    row = {"grad": grad, "bank": bank, "snap": snap}
    row_bytes = {k: t.element_size() * t.shape[1] for k, t in row.items()}
    token_bytes = 4 * hd * step_tokens
    label = f"hd {hd} W {width} C {chunk} P {sequences} {'/'.join(types)}"
    moved = {
        gather: 2 * step_rows * row_bytes["bank"],
        gwr: step_rows * row_bytes["grad"] + 2 * token_bytes,
        pa2: step_rows * (2 * row_bytes["grad"] + row_bytes["snap"] + row_bytes["bank"])
        + token_bytes,
        gds: step_rows * (2 * row_bytes["grad"] + row_bytes["bank"]) + token_bytes,
        gemm: 3 * token_bytes + 4 * step_tokens * chunk,
        read: (2 * step_rows + step_tokens) * row_bytes["bank"] + 2 * token_bytes,
        write: (3 if keeps else 2) * step_rows * row_bytes["bank"] + token_bytes,
    }
    kernels_of = {"gather": gather, "gx_gwr": gwr, "gx_gemm": gemm, "gx_pa2": pa2, "gx_gds": gds}
    kernels_of |= {"fx_read": read, "fx_write": write}
    flops = {"gx_gemm": 2 * step_tokens * chunk * hd}
    made = [Case(n, label, f, moved[f], flops.get(n, 0)) for n, f in kernels_of.items()]
    return steps, bank, made


def measure(
    steps: int, bank: torch.Tensor, made: list[Case], rounds: int, clock: Callable[[], float]
) -> Case:
    """Time every case and the copy in turn, `rounds` times, all steps each time."""
    target = torch.empty_like(bank)
    copy = Case("copy", made[0].shape, lambda _: target.copy_(bank), 2 * bank.nbytes)
    for index in range(rounds + 1):  # the first round warms up
        for case, count in [(copy, 1), *((c, steps) for c in made)]:
            start = clock()
            for ti in range(count - 1, -1, -1):
                case.step(ti)
            if index:
                case.seconds.append((clock() - start) / count)
    return copy


def figure_of(case: Case, copy: Case) -> Figure:
    """The case's time; in its details the rates that it means, GB/s beside the copy's as well."""
    seconds = statistics.median(case.seconds)
    rate = case.nbytes / seconds / 1e9
    copied = copy.nbytes / statistics.median(copy.seconds) / 1e9
    return of_samples(
        f"{case.name}, {case.shape}",
        "us",
        [1e6 * each for each in case.seconds],
        least_us=min(case.seconds) * 1e6,
        gb_per_s=rate,
        of_copy=rate / copied,
        gflop_per_s=case.flops / seconds / 1e9,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    parser.add_argument("--bank-mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--huge-pages", action="store_true", help="bank rows on 2 MiB pages")
    parser.add_argument("--only", default="", help="only shapes or row types with this text")
    parser.add_argument("--cpu-time", action="store_true", help="processor time of one thread")
    options = parser.parse_args()
    clock = time.thread_time if options.cpu_time else time.perf_counter
    if options.cpu_time:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    figures: list[Figure] = []
    print("kernel    median us    least    GB/s  of copy  GFLOP/s  shape")
    for shape in SHAPES:
        for types in ROW_TYPES:
            label = f"hd {shape[0]} {'/'.join(types)}"
            if options.only not in label:
                continue
            steps, bank, made = cases(shape, types, options.bank_mib, options.huge_pages)
            copy = measure(steps, bank, made, options.rounds, clock)
            for case in [copy, *made]:
                figures.append(figure_of(case, copy))
                said = figures[-1].details
                print(
                    f"{case.name:8} {figures[-1].figure:10.1f} {said['least_us']:8.1f} "
                    f"{said['gb_per_s']:7.2f} "
                    f"{said['of_copy']:8.2f} {said['gflop_per_s']:8.1f}  {case.shape}",
                    flush=True,
                )
    if options.json:
        save(options.json, figures, cpu=True)


if __name__ == "__main__":
    main()
