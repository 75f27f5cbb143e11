"""Measures where bf16_linear's kernel beats F.linear on this GPU, and writes the decision rule.

    python tools/tune/bf16_linear.py [--quick] [--inductor] [--output FILE] [--seconds S]

Every call goes through the launcher that the operation uses, in captured CUDA graphs over cold
weights. All tactics that may serve a shape are screened; then the best of them and F.linear are
replayed in turn, round after round, in each setting of sdm_runtime/linear/rule_format.py; with
--inductor, what Inductor's max-autotune makes of F.linear takes its turns at the specified shapes.
Prints what changes against the file, the table of the specified shapes, and their targets. The data
of other kinds of device stays; this kind's comes from this run alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import torch
from bf16_linear_tuning.choice import MINIMUM_GAIN, device_entry, rule_text
from bf16_linear_tuning.inductor import compile_ahead, compiled_linear
from bf16_linear_tuning.measure import Measured, measure
from bf16_linear_tuning.report import changes, table, targets
from bf16_linear_tuning.timing import Shape, make_pool

from sdm_runtime.linear import rule
from sdm_runtime.linear.launch import device_kind
from sdm_runtime.machine.backends import backends

RULE_FILE = Path(rule.__file__).with_name("rule_data.json")
ROWS, DEPTHS = (256, 512, 1024, 2048, 4096, 8192), (1024, 2048, 4096, 8192)
TOKENS = (1, 8, 16, 32, 64)
# The shapes that the targets are about.
SPECIFIED = (
    (1024, 2048),
    (2048, 2048),
    (2560, 2560),
    (2112, 7168),
    (8192, 2048),
    (4096, 4096),
    (6144, 4096),
    (4096, 7168),
    (11008, 4096),
)
SPECIFIED_TOKENS = (1, 8, 32, 64, 128)


def shapes(quick: bool) -> list[Shape]:
    """The specified shapes, then the others of the lattice, the small token counts first."""
    specified = [(m, n, k) for (n, k), m in itertools.product(SPECIFIED, SPECIFIED_TOKENS)]
    if quick:
        return specified
    weights = [*itertools.product(ROWS, DEPTHS), *SPECIFIED]
    lattice = [(m, n, k) for (n, k), m in itertools.product(weights, TOKENS)]
    return list(dict.fromkeys(specified + lattice))


def is_specified(shape: Shape) -> bool:
    """Whether a target is about it."""
    return shape[1:] in SPECIFIED and shape[0] in SPECIFIED_TOKENS


def measure_all(
    pool: torch.Tensor,
    wanted: list[Shape],
    sm_count: int,
    rounds: int,
    seconds: float,
    *,
    inductor: bool,
) -> tuple[list[Measured], list[Shape]]:
    """The shapes' measurements, and the shapes for which the time did not suffice.

    With ``inductor``, the specified ones have Inductor's time.
    """
    begun = time.monotonic()
    measured: list[Measured] = []
    for done, shape in enumerate(wanted):
        if time.monotonic() - begun > seconds:
            return measured, wanted[done:]
        other = compiled_linear() if inductor and is_specified(shape) else None
        measured.append(measure(pool, shape, sm_count, rounds, other))
    return measured, []


def measurement(arguments: argparse.Namespace, rounds: int, seconds: float) -> dict[str, object]:
    """Where the data comes from; not where it went to."""
    flags = [f"--{name}" for name in ("quick", "inductor") if getattr(arguments, name)]
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "command": " ".join(["tools/tune/bf16_linear.py", *flags]),
        "method": f"CUDA graphs over rotating cold weights, with bias; medians of {rounds} rounds "
        "in which F.linear and the kernel take turns",
        "seconds": round(seconds, 1),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the specified shapes and fewer rounds; writes only with --output",
    )
    parser.add_argument(
        "--inductor", action="store_true", help="time Inductor too (several minutes)"
    )
    parser.add_argument("--output", type=Path, help="default: the package's rule_data.json")
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="limit of the measurement, without what Inductor compiles ahead (default: 600)",
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if backends()["cuda"] is not True:
        sys.exit(f"no CUDA backend: {backends()['cuda']}")
    kind = device_kind(torch.cuda.current_device())
    if kind[0] != 9:
        sys.exit(f"the kernel needs compute capability 9.0, the device has {kind[0]}.{kind[1]}")

    # Measure.
    rounds = 5 if arguments.quick else 9
    wanted = shapes(arguments.quick)
    if arguments.inductor:
        compile_ahead(filter(is_specified, wanted))
    begun = time.monotonic()
    measured, left = measure_all(
        make_pool(), wanted, kind[2], rounds, arguments.seconds, inductor=arguments.inductor
    )
    seconds = time.monotonic() - begun
    if not measured:
        sys.exit(f"nothing was measured within {arguments.seconds} s")
    points = [point for one in measured for point in one.points]

    # Write.
    data = json.loads(RULE_FILE.read_text())
    before = rule.parse(data).get(kind)
    others = [d for d in data["devices"] if (*d["capability"], d["sm_count"]) != kind]
    entry = device_entry(kind, points, measurement(arguments, rounds, seconds))
    text = rule_text([*others, entry])
    after = rule.parse(json.loads(text))[kind]
    if arguments.output is not None or not arguments.quick:
        (arguments.output or RULE_FILE).write_text(text)

    # Report.
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {len(points)} points in",
        end="",
    )
    print(f" {seconds:.1f} s; {len(left)} shapes left out{': ' if left else ''}", *left)
    print(*changes(before, after) or ["the rule serves every measured point as before"], sep="\n")
    specified = [one for one in measured if is_specified(one.fastest_chain.shape)]
    print(table(specified, MINIMUM_GAIN))
    clocks = [one.clock_mhz for one in measured]
    print(f"SM clock meanwhile: {min(clocks):.0f} to {max(clocks):.0f} MHz")
    print("Targets in a chain, by the fastest tactics:")
    print(*targets(one.fastest_chain for one in specified), sep="\n")
    print("by the tactics that come closest to the rule's gain in every setting:")
    print(*targets(point for one in specified for point in one.points), sep="\n")


if __name__ == "__main__":
    main()
