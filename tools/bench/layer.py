"""Times the whole layer: training steps, prefill, selection, decoding; eager and in a CUDA graph.

    python tools/bench/layer.py [--parts PART...] [--shapes NAME...] [--slots PICKS...]
                                [--batches 1 8 32] [--profile N] [--device cuda|cpu]
                                [--json OUT.json]

bfloat16 weights and inputs; medians over rounds of many calls. The parts:

- train: forward and backward of one call without a cache, gradients of x and of all parameters;
- prefill: one call in eval mode without gradients, without a cache;
- selection: of keys and queries alone with their activations, forward and backward;
- decode: steps of one token with a cache, one layer and one x, 20 of them in a graph;
- rows: the same with rows of 8 tokens, as drafts are verified;
- layers: decoding as above by 20 layers with weights and banks of their own (fewer where they do
  not fit) and a new x each step, so that weights come from the device's memory; a step of a layer;
- kernels: how many a training step and a decoding step launch, and the time by part of the layer,
  profiled; --profile N also prints the N names that take longest.

Targets stand beside the figures that have one. A part that fails is said, and the status is 1. On
the CPU there are no graphs, and torch's operators stand in for kernels: for tests, with the shape
tiny. To compare two builds of the package, run this file with each of them in turn.
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
from layer_operands import SHAPES, TINY, Shape, make_layer, normal
from layer_profile import by_part, print_parts, profiled
from layer_timing import Budget, Work, captured, time_calls
from slot_picks import add_option
from torch import Tensor

from sdm_runtime import MemoryCache, SparseDeltaMemory, last_dispatch

STEPS = 20  # of decoding in a graph
LAYERS = 20
LAYER_STEPS = 2  # of all layers in a graph
DRAFT = 8
NAMES = [shape.name for shape in SHAPES]
# By figure, for the shapes in order; milliseconds or microseconds as the figure.
TARGETS: dict[str, tuple[float | None, ...]] = {
    "train graph": (12, 25, 4.5),
    "train eager": (13, 28, 6.5),
    "prefill eager": (4.5, 14, 2.0),
    "prefill graph": (4.5, 14, 2.0),
    "selection eager": (0.8, None, None),
    "selection graph": (0.8, None, None),
    "decode batch 1 graph": (30, 25, 12),
    "decode batch 32 graph": (90, 90, 25),
    "decode batch 1 eager": (150, 150, 150),
    "decode kernels": (6, 6, 6),
}


class Bench:
    """One shape and one way of picking slots."""

    def __init__(self, shape: Shape, picks: str, options: argparse.Namespace) -> None:
        self.shape, self.picks, self.options = shape, picks, options
        self.device = torch.device(options.device)
        self.budget = Budget(options.rounds, options.round_ms)
        self.figures: list[Figure] = []
        torch.manual_seed(0)
        self.layer = make_layer(shape, picks, self.device)

    def normal(self, *sizes: int) -> Tensor:
        return normal(*sizes, device=self.device)

    def add(self, name: str, unit: str, samples: list[float], **details: Any) -> None:
        """Keep a figure and print it."""
        target = target_of(name, self.shape)
        details |= {} if target is None else {"target": target}
        figure = of_samples(f"{self.shape.name} {self.picks} {name}", unit, samples, **details)
        self.figures.append(figure)
        said = "" if target is None else f"  target {target:g}, x{figure.figure / target:.2f}"
        print(
            f"  {name:<28} {figure.figure:10.2f} +- {figure.spread:8.2f} {unit:<5}{said}",
            flush=True,
        )

    def time(self, name: str, unit: str, work: Work, per: int = 1, **details: Any) -> None:
        """Time a call that does something ``per`` times: eager, and on a GPU in a graph."""
        scale = per * {"us": 1, "ms": 1e3}[unit]

        def time(way: str, work: Work) -> None:
            times = time_calls(work, self.device, self.budget)
            self.add(f"{name} {way}", unit, [us / scale for us in times], **details)

        time("eager", work)
        if self.device.type == "cuda":
            time("graph", captured(work))


def target_of(name: str, shape: Shape) -> float | None:
    """What a figure should be at most; None where nothing is said."""
    if name not in TARGETS or shape.name not in NAMES:
        return None
    return TARGETS[name][NAMES.index(shape.name)]


def training_step(bench: Bench) -> Work:
    """Forward and backward, every gradient new."""
    shape, layer = bench.shape, bench.layer.train()
    x = bench.normal(shape.batch, shape.tokens, shape.dim).requires_grad_()
    dy = bench.normal(*x.shape)
    leaves = [x, *layer.parameters()]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        y, _ = layer(x)
        y.backward(dy)

    return step


def prefill_call(bench: Bench) -> Work:
    """One call in eval mode, from the learned bank."""
    shape, layer = bench.shape, bench.layer.eval()
    x = bench.normal(shape.batch, shape.tokens, shape.dim)

    def call() -> None:
        with torch.no_grad():
            layer(x)

    return call


class Decoding:
    """Steps of one or several layers with caches of their own, each called with each of its inputs.

    A cache is used up by the call that it is given to, which returns the next one.
    """

    def __init__(self, layers: list[SparseDeltaMemory], inputs: list[list[Tensor]]) -> None:
        """``inputs``: for every step one [B, T, dim] a layer."""
        self.layers, self.inputs = [layer.eval() for layer in layers], inputs
        self.caches: list[MemoryCache] = []
        with torch.inference_mode():
            for layer, x in zip(layers, inputs[0], strict=True):
                self.caches.append(layer(x)[1])

    def __call__(self) -> None:
        with torch.inference_mode():
            for step in self.inputs:
                for number, (layer, x) in enumerate(zip(self.layers, step, strict=True)):
                    _, self.caches[number] = layer(x, self.caches[number])


def one_layer(bench: Bench, batch: int, tokens: int = 1, steps: int = STEPS) -> Decoding:
    """Steps of one layer with one x."""
    x = bench.normal(batch, tokens, bench.shape.dim)
    return Decoding([bench.layer], [[x]] * steps)


def selection_step(layer: SparseDeltaMemory, x: Tensor) -> Work | None:
    """Forward and backward of the selection by keys and by queries; None where it is not known how.

    It is internal to the layer: a build that selects in another way has to be added here.
    """
    select = getattr(layer, "_select", None)
    if select is None:
        return None
    with torch.no_grad():
        scores = [layer.Wk_write(x), layer.Wq_read(x)]
    keys, queries = (each.detach().requires_grad_() for each in scores)

    def weights() -> list[Tensor]:
        _, written = select(keys, layer.key_bn, layer._write_tables)
        _, read = select(queries, layer.query_bn, layer._read_tables)
        return [layer.write_act(written), layer.read_act(read)]

    grads = [torch.randn_like(each) for each in weights()]

    def step() -> None:
        torch.autograd.grad(weights(), [keys, queries], grads)

    return step


def time_train(bench: Bench) -> None:
    bench.time("train", "ms", training_step(bench))


def time_prefill(bench: Bench) -> None:
    call = prefill_call(bench)
    call()
    bench.time("prefill", "ms", call, dispatch=said_by_dispatch("prefill"))


def time_selection(bench: Bench) -> None:
    shape = bench.shape
    x = bench.normal(shape.batch, shape.tokens, shape.dim)
    step = selection_step(bench.layer.train(), x)
    if step is None:
        print("  selection: this build does it in a way that is not known here")
    else:
        bench.time("selection", "ms", step)


def time_decode(bench: Bench) -> None:
    for batch in bench.options.batches:
        steps = one_layer(bench, batch)
        steps()
        said = said_by_dispatch(f"decode batch {batch}")
        bench.time(f"decode batch {batch}", "us", steps, STEPS, dispatch=said)
        del steps
        clear(bench.device)


def time_rows(bench: Bench) -> None:
    steps = one_layer(bench, 1, DRAFT)
    bench.time(f"rows of {DRAFT} batch 1", "us", steps, STEPS)


def time_layers(bench: Bench) -> None:
    layers = [
        make_layer(bench.shape, bench.picks, bench.device, learned_bank=False)
        for _ in range(LAYERS)
    ]
    for batch in bench.options.batches:
        some = layers[: layers_that_fit(bench.shape, batch, bench.device)]
        inputs = [
            [bench.normal(batch, 1, bench.shape.dim) for _ in some] for _ in range(LAYER_STEPS)
        ]
        steps = Decoding(some, inputs)
        per = LAYER_STEPS * len(some)
        bench.time(f"layers batch {batch}", "us", steps, per, layers=len(some))
        del steps
        clear(bench.device)


def layers_that_fit(shape: Shape, batch: int, device: torch.device) -> int:
    """So many that their banks take at most 70% of the memory that is free; at least one."""
    if device.type == "cpu":
        return LAYERS
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(LAYERS, int(0.7 * free) // shape.layer_bytes(batch)))


def profile_kernels(bench: Bench) -> None:
    works: dict[str, Work] = {"train": training_step(bench), "decode": one_layer(bench, 1, steps=1)}
    for name, work in works.items():
        bench.layer.train(name == "train")
        for _ in range(2):
            work()
        found = profiled(work, bench.device)
        count = sum(not kernel.is_copy for kernel in found)
        bench.add(f"{name} kernels", "count", [count], copies=len(found) - count)
        for part, us in by_part(found).items():
            bench.add(f"{name} part {part}", "us", [us])
        print_parts(name, found, bench.options.profile)


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
    """Run parts of one shape; the names of those that failed."""
    failed = []
    print(f"{bench.shape.name} {bench.picks}: {bench.shape}", flush=True)
    for part in parts:
        try:
            PARTS[part](bench)
        except Exception:  # one part that fails must not cost the figures of all others
            traceback.print_exc()
            failed.append(f"{bench.shape.name} {bench.picks} {part}")
        bench.layer.zero_grad()  # a graph's memory lives as long as gradients that are in it
        clear(bench.device)
    return failed


def passes_of(parts: list[str]) -> list[list[str]]:
    """Parts by passes over the shapes: what a profiler has been at may be slower afterwards."""
    passes = [[p for p in parts if p != "kernels"], [p for p in parts if p == "kernels"]]
    return [each for each in passes if each]


def parts_of(words: list[str]) -> list[str]:
    """Parts in their order, given apart or with commas between them. Raises ValueError."""
    given = {part for word in words for part in word.split(",") if part}
    if unknown := given - set(PARTS):
        raise ValueError(f"parts: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    return [part for part in PARTS if part in given]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", metavar="PART", default=list(PARTS))
    every = {shape.name: shape for shape in (*SHAPES, TINY)}
    parser.add_argument("--shapes", nargs="+", choices=every, default=NAMES)
    add_option(parser)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32], help="of decoding")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=30.0, help="of calls in a round")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="names to print")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: list[Figure] = []
    failed: list[str] = []
    for parts in passes_of(parts_of(options.parts)):
        for name in options.shapes:
            for picks in options.slots:
                bench = Bench(every[name], picks, options)
                failed += run_parts(bench, parts)
                figures += bench.figures
                device = bench.device
                del bench
                clear(device)
                if options.json and figures:  # also of a run that is ended early
                    save(options.json, figures, cpu=options.device == "cpu")
    if failed:
        raise SystemExit(f"layer: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
