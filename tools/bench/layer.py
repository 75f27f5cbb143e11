"""Times the whole layer: training steps, prefill, selection, decoding; eager and in a CUDA graph.

    python tools/bench/layer.py [--parts PART...] [--shapes NAME...] [--slots PICKS...]
                                [--batches 1 8 32] [--profile N] [--device cuda|cpu]
                                [--json OUT.json]

bfloat16 weights and inputs; medians over rounds of many calls. The parts:

- train: forward and backward of one call without a cache, gradients of x and of all parameters;
- prefill: one call in eval mode without gradients, without a cache;
- selection: by keys and queries alone with their activations, forward and backward;
- decode: a step of one token with a cache; 20 steps of one layer and one x are timed together;
- rows: the same of 8 tokens, as drafts are verified;
- layers: decoding by 20 layers with weights and banks of their own (fewer where banks would not
  fit) and a new x each time, so that weights come from the device's memory; a step of one layer;
- kernels: how many a training step and a decoding step launch, and the time by part of the layer,
  profiled; --profile N also prints the N names that take longest.

Targets stand beside the figures that have one. A part that fails is said, the others go on, and
the status is 1. On the CPU there are no graphs, and torch's operators stand in for kernels: for
tests, with the shape tiny. To compare two builds of the package run this file with both in turn.
"""

from __future__ import annotations

import argparse
import gc
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from figures import Figure, of_samples, save
from layer_calls import Decoding, Work, prefill_call, selection_step, training_step
from layer_operands import SHAPES, TINY, Shape, make_layer, normal
from layer_profile import by_part, print_profile, profiled
from layer_timing import Budget, captured, time_calls
from slot_picks import add_option
from torch import Tensor

import sdm_runtime
from sdm_runtime import last_dispatch

STEPS = 20  # of one layer's decoding, timed together
LAYERS, LAYER_STEPS = 20, 2
DRAFT = 8
NAMES = [shape.name for shape in SHAPES]
# At most so much, for the shapes in order, in the figure's unit.
TARGETS: dict[str, tuple[float | None, ...]] = {
    "train eager": (13, 28, 6.5),
    "train graph": (12, 25, 4.5),
    "prefill eager": (4.5, 14, 2.0),
    "prefill graph": (4.5, 14, 2.0),
    "selection eager": (0.8, None, None),
    "selection graph": (0.8, None, None),
    "decode batch 1 eager": (150, 150, 150),
    "decode batch 1 graph": (30, 25, 12),
    "decode batch 32 graph": (90, 90, 25),
    "decode kernels": (6, 6, 6),
}


class Bench:
    """One shape and one way of picking slots; collects figures and prints each."""

    def __init__(self, shape: Shape, picks: str, options: argparse.Namespace) -> None:
        self.shape, self.picks, self.options = shape, picks, options
        self.device = torch.device(options.device)
        self.budget = Budget(options.rounds, options.round_ms)
        self.figures: list[Figure] = []
        torch.manual_seed(0)
        self.layer = make_layer(shape, picks, self.device)

    def normal(self, *sizes: int) -> Tensor:
        return normal(*sizes, device=self.device)

    def input(self) -> Tensor:
        """Of a training step."""
        return self.normal(self.shape.batch, self.shape.tokens, self.shape.dim)

    def time(self, name: str, unit: str, work: Work, per: int = 1, **details: Any) -> None:
        """Time a call that does something ``per`` times: eager, and on a GPU in a graph."""
        scale = per * {"us": 1, "ms": 1e3}[unit]

        def add(way: str, timed: Work) -> None:
            times = time_calls(timed, self.device, self.budget)
            self.add(f"{name} {way}", unit, [us / scale for us in times], **details)

        add("eager", work)
        if self.device.type == "cuda":
            add("graph", captured(work))

    def count(self, name: str, unit: str, value: float, **details: Any) -> None:
        """A figure without a spread."""
        self._keep(Figure(self._title(name), unit, value, None, details), name)

    def add(self, name: str, unit: str, samples: list[float], **details: Any) -> None:
        self._keep(of_samples(self._title(name), unit, samples, **details), name)

    def _title(self, name: str) -> str:
        return f"{self.shape.name} {self.picks} {name}"

    def _keep(self, figure: Figure, name: str) -> None:
        target = target_of(name, self.shape)
        said = ""
        if target is not None:
            figure.details["target"] = target
            said = f"  target {target:g}, {figure.figure / target:.2f} of it"
        spread = "" if figure.spread is None else f"+- {figure.spread:.2f}"
        print(f"  {name:<32} {figure.figure:10.2f} {spread:<10} {figure.unit:<5}{said}", flush=True)
        self.figures.append(figure)


def target_of(name: str, shape: Shape) -> float | None:
    """What a figure should be at most; None where nothing is said."""
    if name not in TARGETS or shape.name not in NAMES:
        return None
    return TARGETS[name][NAMES.index(shape.name)]


def time_train(bench: Bench) -> None:
    bench.time("train", "ms", training_step(bench.layer, bench.input()))


def time_prefill(bench: Bench) -> None:
    call = prefill_call(bench.layer, bench.input())
    call()
    bench.time("prefill", "ms", call, dispatch=said_by_dispatch("prefill"))


def time_selection(bench: Bench) -> None:
    step = selection_step(bench.layer.train(), bench.input())
    if step is None:
        print("  selection: it is not known here how this build does it")
    else:
        bench.time("selection", "ms", step)


def one_layer(bench: Bench, batch: int, tokens: int = 1, steps: int = STEPS) -> Decoding:
    """Steps of one layer with one x."""
    x = bench.normal(batch, tokens, bench.shape.dim)
    return Decoding([bench.layer], [[x]] * steps)


def time_decode(bench: Bench) -> None:
    for batch in bench.options.batches:
        steps = one_layer(bench, batch)
        steps()
        said = said_by_dispatch(f"decode batch {batch}")
        bench.time(f"decode batch {batch}", "us", steps, STEPS, dispatch=said)
        del steps
        clear(bench.device)


def time_rows(bench: Bench) -> None:
    bench.time(f"rows of {DRAFT} batch 1", "us", one_layer(bench, 1, DRAFT), STEPS)


def time_layers(bench: Bench) -> None:
    shape, device = bench.shape, bench.device
    layers = [make_layer(shape, bench.picks, device, learned_bank=False) for _ in range(LAYERS)]
    for batch in bench.options.batches:
        some = layers[: layers_that_fit(shape, batch, device)]
        inputs = [[bench.normal(batch, 1, shape.dim) for _ in some] for _ in range(LAYER_STEPS)]
        steps, count = Decoding(some, inputs), LAYER_STEPS * len(some)
        bench.time(f"layers batch {batch}", "us", steps, count, layers=len(some))
        del steps
        clear(device)


def layers_that_fit(shape: Shape, batch: int, device: torch.device) -> int:
    """So many that they take at most 70% of the memory that is free; at least one."""
    if device.type == "cpu":
        return LAYERS
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(LAYERS, int(0.7 * free) // shape.layer_bytes(batch)))


def profile_kernels(bench: Bench) -> None:
    profile_call(bench, "train", training_step(bench.layer, bench.input()))
    profile_call(bench, "decode", one_layer(bench, 1, steps=1))


def profile_call(bench: Bench, name: str, work: Work) -> None:
    for _ in range(2):
        work()
    found = profiled(work, bench.device)
    kernels = sum(not kernel.is_copy for kernel in found)
    bench.count(f"{name} kernels", "count", kernels, copies=len(found) - kernels)
    for part, us in by_part(found).items():
        bench.count(f"{name} part {part}", "us", us)
    print_profile(found, bench.options.profile)


PARTS: dict[str, Callable[[Bench], None]] = {
    "train": time_train,
    "prefill": time_prefill,
    "selection": time_selection,
    "decode": time_decode,
    "rows": time_rows,
    "layers": time_layers,
    "kernels": profile_kernels,
}


def said_by_dispatch(title: str) -> dict[str, Any]:
    """What the latest call ran, printed in short."""
    said = last_dispatch() or {}
    words = ", ".join(f"{name} {said.get(name)}" for name in ("op", "route", "gemm", "launches"))
    print(f"  {title}: {words}")
    return said


def clear(device: torch.device) -> None:
    """Give back what earlier figures held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def run_parts(bench: Bench, parts: list[str]) -> list[str]:
    """Run parts of one shape; those that failed."""
    failed = []
    print(f"{bench.shape} {bench.picks}", flush=True)
    for part in parts:
        try:
            PARTS[part](bench)
        except Exception:  # what one part cannot do must not cost the figures of the others
            traceback.print_exc()
            failed.append(f"{bench.shape.name} {bench.picks} {part}")
        bench.layer.zero_grad()  # a graph's memory lives as long as the gradients in it
        clear(bench.device)
    return failed


def parts_of(words: list[str]) -> list[str]:
    """Parts in their order, given apart or with commas between them. Raises ValueError."""
    given = {part for word in words for part in word.split(",") if part}
    if unknown := given - set(PARTS):
        raise ValueError(f"parts: expected {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    return [part for part in PARTS if part in given]


def passes_of(parts: list[str]) -> list[list[str]]:
    """Parts by passes over the shapes: a profiler may slow down what comes after it."""
    passes = [[p for p in parts if p != "kernels"], [p for p in parts if p == "kernels"]]
    return [each for each in passes if each]


def print_tables(figures: list[Figure], parts: list[str]) -> None:
    """A table a part: a row a figure, a column a shape and its target."""
    by_name = {figure.name: figure for figure in figures}
    columns = list(dict.fromkeys(tuple(name.split(" ", 2)[:2]) for name in by_name))
    rows = dict.fromkeys((name.split(" ", 2)[2], each.unit) for name, each in by_name.items())
    for part in parts:
        own = [row for row in rows if part_of(row[0]) == part]
        print(f"\n{part:<40}" + "".join(f"{' '.join(column):>24}" for column in columns))
        for name, unit in own:
            cells = [by_name.get(f"{' '.join(column)} {name}") for column in columns]
            print(f"{name + ', ' + unit:<40}" + "".join(f"{cell_of(each):>24}" for each in cells))


def part_of(name: str) -> str:
    """The part that a figure of one shape is of."""
    return "kernels" if "kernels" in name or " part " in name else name.split()[0]


def cell_of(figure: Figure | None) -> str:
    """A figure and its target."""
    if figure is None:
        return "-"
    target = figure.details.get("target")
    return f"{figure.figure:.2f}" + ("" if target is None else f" (<= {target:g})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = {shape.name: shape for shape in (*SHAPES, TINY)}
    parser.add_argument("--parts", nargs="+", metavar="PART", default=list(PARTS))
    parser.add_argument("--shapes", nargs="+", choices=every, default=NAMES)
    add_option(parser)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32], help="of decoding")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-ms", type=float, default=30.0, help="of the calls in a round")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="names to print")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        parts = parts_of(options.parts)
    except ValueError as error:
        parser.error(str(error))
    print(f"sdm_runtime of {Path(sdm_runtime.__file__).parent}")
    figures: list[Figure] = []
    failed: list[str] = []
    for some in passes_of(parts):
        for shape in options.shapes:
            for picks in options.slots:
                bench = Bench(every[shape], picks, options)
                failed += run_parts(bench, some)
                figures += bench.figures
                del bench
                clear(torch.device(options.device))
                if options.json:  # each time: a run that is ended early leaves what it has
                    save(options.json, figures, cpu=options.device == "cpu")
    print_tables(figures, parts)
    if failed:
        raise SystemExit(f"layer: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
