"""What a run leaves behind: its JSON and the chain of its last backward."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path
from typing import Any

import torch

from sdm_runtime.dispatch import last_chain
from sdm_runtime.files.writing import write_file
from sdm_runtime.inspect.report import write_report
from sdm_runtime.train.config import RunConfig
from sdm_runtime.train.data.corpus import Corpus, Documents
from sdm_runtime.train.trainer.distributed import World
from sdm_runtime.train.trainer.history import History

# What save_last_chain leaves in a run's folder.
CHAIN_FILES = ("last_backward.chain", "last_backward.html")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a report as JSON; numbers that JSON has no word for raise ValueError."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())


def describe_run(config: RunConfig, world: World, *, captured: bool) -> dict[str, Any]:
    """Return what every report begins with: the settings and where they ran."""
    return {
        "format": 1,
        "config": config.to_dict(),
        "environment": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "device": device_name(world.device),
            "threads": torch.get_num_threads(),
            "processes": world.size,
            "captured": captured,
        },
    }


def describe_corpus(corpus: Corpus, evaluated: Documents) -> dict[str, Any]:
    """Return the sizes of a corpus and its digest."""
    return {
        "train_files": len(corpus.train),
        "train_bytes": corpus.train.num_bytes,
        "validation_files": len(corpus.validation),
        "validation_bytes": corpus.validation.num_bytes,
        "evaluated_bytes": evaluated.num_bytes,
        "digest": corpus_digest(corpus),
    }


def describe_history(history: History) -> dict[str, Any]:
    """Return the loss curve and the totals."""
    return dataclasses.asdict(history)


def corpus_digest(corpus: Corpus) -> str:
    """Return a hash of both sides of a corpus."""
    return f"{corpus.train.digest()}-{corpus.validation.digest()}"


def device_name(device: torch.device) -> str:
    """Return the GPU's name, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def save_last_chain(path: Path) -> bool:
    """Save the chain of the process's last backward; return whether there was one.

    A page about it (``sdm-plan report``) goes beside it, under the same name with ``.html``.
    """
    chain = last_chain()
    if chain is None:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, chain.to_bytes())
    write_report(path, path.with_suffix(".html"))
    return True
