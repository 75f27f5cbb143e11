"""Runs nvcc, takes what makes device code slow for an error, and notes what each function takes.

The assembler only remarks on it when it cannot keep wgmma products in flight and waits for each of
them (C7510 and its like), which costs a kernel half of its speed and more. Registers that do not
fit and go through memory are named, a line for each function and target that has any.

    python tools/dev/compile_device_code.py RESOURCES.json NVCC ARGUMENTS...
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FORBIDDEN = ("wgmma.mma_async instructions are serialized",)
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
# What `-Xptxas -v` prints besides.
DETAIL = re.compile(
    r"ptxas info\s*: (?:\d+ bytes gmem|Compiling|Function properties|Used|Compile time)"
    r"|^\s+\d+ bytes stack frame"
)


def resources(output: str) -> list[dict[str, object]]:
    """Of each function and target: name, target, registers, bytes of spills stored and loaded."""
    found: list[dict[str, object]] = []
    for line in output.splitlines():
        if match := ENTRY.search(line):
            found.append({"name": match.group(1), "target": match.group(2)})
        elif found and (match := SPILLS.search(line)):
            # A function that is not inlined has a line of its own: both are the entry's.
            for key, bytes_ in zip(("stored", "loaded"), match.groups(), strict=True):
                found[-1][key] = int(str(found[-1].get(key, 0))) + int(bytes_)
        elif found and (match := REGISTERS.search(line)):
            found[-1]["registers"] = int(match.group(1))
    return found


def spill_lines(found: list[dict[str, object]]) -> list[str]:
    """A line for each function and target that keeps registers in memory."""
    return [
        f"spills: {f['name']}, {f['target']}: {f['stored']} bytes stored, {f['loaded']} loaded"
        f" ({f['registers']} registers)"
        for f in found
        if f.get("stored") or f.get("loaded")
    ]


def main(arguments: Sequence[str]) -> int:
    notes, *command = arguments
    result = subprocess.run(
        [*command, "-Xptxas", "-v"],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = result.stdout.splitlines()
    for line in lines:
        if not DETAIL.search(line):
            print(line)
    if result.returncode:
        return result.returncode
    if any(forbidden in line for line in lines for forbidden in FORBIDDEN):
        print("error: a remark that this project takes for an error, see above")
        return 1
    found = resources(result.stdout)
    print(*spill_lines(found), sep="\n", end="\n" if spill_lines(found) else "")
    Path(notes).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
