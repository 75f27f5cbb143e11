"""Times F.linear beside the standalone measurement of bf16_linear, in the same manner.

    python tools/bench/bf16_linear/library.py RESULTS.jsonl [OUT.jsonl]

RESULTS.jsonl is what run.sh wrote. Captured graphs over rotating cold weights, a pool of 384 MiB,
the median of nine replays. Prints, for every shape, microseconds a call of F.linear (with bias),
of the fastest tactic without and with programmatic launches, and the ratios.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

POOL_ELEMENTS = 192 << 20
MIN_LAUNCHES, REPLAYS = 32, 9
LAUNCHED_OVERLAP = (2, 0)  # Bf16LinearOverlap's defaults: trigger_lead, prefetch_tiles


def time_library(pool: torch.Tensor, m: int, n: int, k: int) -> float:
    """Median microseconds of one F.linear in a graph over cold weights."""
    weights = [pool[i : i + n * k].view(n, k) for i in range(0, POOL_ELEMENTS - n * k + 1, n * k)]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    launches = max(len(weights), MIN_LAUNCHES)
    for weight in weights[:3]:
        torch.nn.functional.linear(x, weight, bias)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [
            torch.nn.functional.linear(x, weights[i % len(weights)], bias) for i in range(launches)
        ]
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for i in range(REPLAYS + 2):
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        if i >= 2:
            times.append(start.elapsed_time(stop) * 1000 / launches)
    del outputs
    return statistics.median(times)


def fastest(rows: list[dict[str, Any]], m: int, n: int, k: int, pdl: bool) -> dict[str, Any]:
    """The fastest measured tactic of a shape, launched as the operation does."""
    same = [r for r in rows if (r["m"], r["n"], r["k"], r["pdl"]) == (m, n, k, pdl)]
    same = [r for r in same if (r["lead"], r["prefetch"]) == LAUNCHED_OVERLAP]
    return min(same, key=lambda r: float(r["us"]))


def main() -> None:
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    shapes = list(dict.fromkeys((r["m"], r["n"], r["k"]) for r in rows))
    pool = torch.empty(POOL_ELEMENTS, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    out = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'N':>5} {'K':>5} {'M':>4} | F.linear | plain  ratio | pdl    ratio | pdl tactic")
    for m, n, k in shapes:
        library = time_library(pool, m, n, k)
        plain, pdl = fastest(rows, m, n, k, False), fastest(rows, m, n, k, True)
        print(
            f"{n:5} {k:5} {m:4} | {library:8.2f} | {plain['us']:6.2f} {library / plain['us']:5.2f}"
            f" | {pdl['us']:6.2f} {library / pdl['us']:5.2f} | {pdl['tactic']} x{pdl['splits']}"
        )
        out.append({"m": m, "n": n, "k": k, "library_us": library, "plain": plain, "pdl": pdl})
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text("".join(json.dumps(row) + "\n" for row in out))


if __name__ == "__main__":
    main()
