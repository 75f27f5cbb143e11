"""Runs nvcc, and takes what makes device code slow for an error.

The assembler only remarks on it when it cannot keep wgmma products in flight and waits for each of
them (C7510 and its like), which costs a kernel half of its speed and more.

    python tools/compile_device_code.py NVCC ARGUMENTS...
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

FORBIDDEN = ("wgmma.mma_async instructions are serialized",)


def main(command: Sequence[str]) -> int:
    result = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    sys.stdout.write(result.stdout)
    remarks = [line for line in result.stdout.splitlines() if any(f in line for f in FORBIDDEN)]
    if result.returncode == 0 and remarks:
        print("error: a remark that this project takes for an error, see above")
        return 1
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
