"""Times whole calls of the operation at the target shapes: eager, and both passes in a graph.

    python tools/bench/backward.py [--shapes NAME...] [--slots PICKS...] [--rounds 5] [--graph]
                                   [--json OUT.json]

Milliseconds, medians over rounds; "issue" is the host's part of the backward, "plans" what building
its chain takes of that, in microseconds. bf16 bank, the first call of each shape left out. Slots:
slot_picks.py.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from figures import Figure, of_samples, save
from slot_picks import add_option, pick_slots
from step_operands import SHAPES, Sizes

from sdm_runtime import last_dispatch, sdm_write_read
from sdm_runtime.graphs import capture_step

UNITS = {"forward": "ms", "issue": "ms", "backward": "ms", "plan": "us", "graph": "ms"}


class Row(NamedTuple):
    """One shape: samples by what they are of, in the units of UNITS; "graph" where asked for."""

    shape: str
    slots: str
    samples: dict[str, list[float]]
    gemm: str
    pdl: str

    def median(self, name: str) -> float:
        """Of one kind of sample; 0 where there is none."""
        return statistics.median(self.samples.get(name, [0.0]))


def draw_slots(sizes: Sizes, picks: str, generator: torch.Generator) -> torch.Tensor:
    """Bank rows that tokens pick: int32 [P, T, W], distinct in a token."""
    tokens = (sizes.sequences, sizes.steps * sizes.chunk)
    slots = pick_slots(picks, tokens, sizes.entries, sizes.slots, generator)
    sequence = torch.arange(sizes.sequences, device=generator.device)[:, None, None]
    return (slots + sequence * sizes.slots).to(torch.int32)


def make_inputs(sizes: Sizes, picks: str = "uniform") -> dict[str, torch.Tensor]:
    """The operation's tensors; the bank is a leaf to be cloned for every call."""
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=generator)

    p, t = sizes.sequences, sizes.steps * sizes.chunk
    inputs = {
        "memory": normal(p * sizes.slots, sizes.hd).bfloat16(),
        "k_val": torch.softmax(normal(p, t, sizes.entries), -1),
        "v": normal(p, t, sizes.hd).bfloat16(),
        "beta": torch.sigmoid(normal(p, t, 1)),
        "g": -0.1 * torch.sigmoid(normal(p, t, 1)),
        "q_val": torch.softmax(normal(p, t, sizes.entries), -1),
    }
    for tensor in inputs.values():
        tensor.requires_grad_()
    inputs["k_idx"] = draw_slots(sizes, picks, generator)
    inputs["q_idx"] = draw_slots(sizes, picks, generator)
    inputs["grad"] = normal(p * t, sizes.hd).bfloat16()
    return inputs


def forward(sizes: Sizes, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The readings of one call, on a copy of the bank."""
    call: dict[str, Any] = {
        name: tensor for name, tensor in inputs.items() if name not in ("memory", "grad")
    }
    return sdm_write_read(
        inputs["memory"].clone(),
        **call,
        chunk_size=sizes.chunk,
        num_memory_slots=sizes.slots,
        num_parallel=sizes.sequences,
    )


def elapsed_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds until ``work`` returned, and until the device was done."""
    torch.cuda.synchronize()
    begin = perf_counter()
    work()
    issued = perf_counter()
    torch.cuda.synchronize()
    return 1e3 * (issued - begin), 1e3 * (perf_counter() - begin)


def graph_times(
    sizes: Sizes, inputs: dict[str, torch.Tensor], leaves: list[torch.Tensor], rounds: int
) -> list[float]:
    """Milliseconds of replays of one captured forward and backward."""

    def step(grad: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(forward(sizes, inputs), leaves, grad)[0].sum()

    captured = capture_step(step, inputs["grad"])
    captured(inputs["grad"])
    return [elapsed_ms(lambda: captured(inputs["grad"]))[1] for _ in range(rounds)]


def measure(sizes: Sizes, picks: str, rounds: int, in_graph: bool) -> Row:
    """The samples of one shape."""
    inputs = make_inputs(sizes, picks)
    leaves = [tensor for tensor in inputs.values() if tensor.requires_grad]
    samples: dict[str, list[float]] = {
        name: [] for name in ("forward", "issue", "backward", "plan")
    }

    def keep_forward(held: list[torch.Tensor]) -> None:
        held.append(forward(sizes, inputs))

    def backward(held: list[torch.Tensor]) -> None:
        torch.autograd.grad(held[0], leaves, inputs["grad"])

    for index in range(rounds + 1):
        held: list[torch.Tensor] = []
        forward_ms = elapsed_ms(partial(keep_forward, held))[1]
        issue, total = elapsed_ms(partial(backward, held))
        if index:
            samples["forward"].append(forward_ms)
            samples["issue"].append(issue)
            samples["backward"].append(total)
            samples["plan"].append(float(last_dispatch()["plan_us"]))
    dispatch = last_dispatch()
    del held  # the nodes of leaves that it keeps would tie a capture to this stream

    if in_graph:
        samples["graph"] = graph_times(sizes, inputs, leaves, rounds)
    return Row(sizes.name, picks, samples, str(dispatch["gemm"]), str(dispatch["pdl"]))


def figures_of(row: Row) -> list[Figure]:
    """One of each kind of sample."""
    details = {"gemm": row.gemm, "pdl": row.pdl}
    return [
        of_samples(f"{row.shape} {row.slots} {name}", UNITS[name], samples, **details)
        for name, samples in row.samples.items()
    ]


def main() -> None:
    """Print a row a shape and write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=[s.name for s in SHAPES])
    add_option(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--graph", action="store_true", help="also capture both passes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: list[Figure] = []
    for sizes in SHAPES:
        for picks in options.slots if sizes.name in options.shapes else ():
            row = measure(sizes, picks, options.rounds, options.graph)
            figures += figures_of(row)
            print(
                f"{row.shape:9s} {row.slots:8s} forward {row.median('forward'):7.2f}"
                f"  backward {row.median('backward'):7.2f}"
                f" (issue {row.median('issue'):6.2f}, plans {row.median('plan'):4.0f} us)"
                f"  both in a graph {row.median('graph'):7.2f} ms  gemm {row.gemm}, pdl {row.pdl}",
                flush=True,
            )
            torch.cuda.empty_cache()
    if options.json:
        save(options.json, figures)


if __name__ == "__main__":
    main()
