"""Small ``sdm-train`` commands, and what comes of them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SIZES = [
    *shlex.split("--steps 4 --batch-size 2 --eval-every 2 --dim 16 --blocks 2 --kernel 3"),
    *shlex.split("--memory-blocks 1 --slots 16 --writes 2 --reads 2 --chunk-size 16"),
    *shlex.split("--device cpu"),
]
TEXT_SIZES = [*SIZES, *shlex.split("--length 40 --eval-length 50")]


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


def losses(folder: Path) -> list[float]:
    return json.loads((folder / "report.json").read_text())["history"]["losses"]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def start(words: list[object], folder: Path, **options: Any) -> subprocess.Popen[str]:
    """Start the command in a process of its own; stdout and stderr are pipes unless given."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    launcher = options.pop("launcher", [])
    also = options.pop("preexec_fn", None)

    def heed_signals() -> None:  # a parent in the background may have it ignore some
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(kind, signal.SIG_DFL)
        if also is not None:
            also()

    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "sdm_runtime.train", *map(str, words)],
        cwd=folder,
        env=environment | given.pop("env", {}),
        preexec_fn=heed_signals,
        **given,
    )
