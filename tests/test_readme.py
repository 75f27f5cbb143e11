"""Everything that README.md shows is run or looked up."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sdm_runtime.train.run.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SMALL_TEXT = shlex.split("--length 40 --eval-length 50")
SMALL = [
    *shlex.split("--steps 2 --batch-size 2 --device cpu"),
    *shlex.split("--dim 16 --blocks 2 --memory-blocks 1 --slots 16"),
]
SMALL += shlex.split("--writes 2 --reads 2 --chunk-size 16")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=300,
    )


def test_example_runs(tmp_path: Path) -> None:
    example, layer = blocks("python")
    assert len([line for line in example.splitlines() if line]) <= 20
    done = run(["-c", example], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch.Size([512, 64])")
    assert done.stdout.split()[-1] == "16"
    done = run(["-c", layer], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([1, 44, 128]) 300\n"


def test_plans_look_as_shown(tmp_path: Path) -> None:
    example, _ = blocks("python")
    keep = "from sdm_runtime.dispatch import keep_last_chain, last_chain\nkeep_last_chain()\n"
    done = run(["-c", f"{keep}{example}last_chain().save('example.chain')"], tmp_path)
    assert done.returncode == 0, done.stderr
    (console,) = blocks("console")
    shown = re.findall(r"^\$ sdm-plan (.*)\n((?:(?!\$ ).*\n)*)", console, re.M)
    assert len(shown) == console.count("$ ")
    for command, wanted in shown:
        done = run(["-m", "sdm_runtime.inspect", *shlex.split(command)], tmp_path)
        assert done.returncode == 0, done.stderr
        printed = "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"
        pattern = re.escape(wanted).replace(r"\.\.\." + "\\\n", r"(?:.*\n)*")
        assert re.fullmatch(pattern, printed), printed


def test_commands_are_known() -> None:
    found = {words[0] for words in commands()}
    assert (
        {"make", "sdm-train", "torchrun"} <= found <= {"make", "sdm-train", "sdm-plan", "torchrun"}
    )


@pytest.mark.parametrize("page", ["README.md", "docs/debugging.md"])
def test_names_resolve_after_one_import(tmp_path: Path, page: str) -> None:
    names = sorted(set(re.findall(r"sdm_runtime(?:\.[a-z]\w*)+(?=\()", (ROOT / page).read_text())))
    assert names
    for name in names:  # each in a process of its own: another may have loaded its module
        done = run(["-c", f"import sdm_runtime; {name}"], tmp_path)
        assert done.returncode == 0, done.stderr


def test_make_targets_exist() -> None:
    asked = {words[1] for words in commands() if words[0] == "make"}
    assert asked == {"train", "test", "build"}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert asked | {"lint", "check", "sanitize"} <= targets
    assert "no-such-target" not in targets


def test_training_commands_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("book.txt", "a book. " * 90), ("notes.txt", "some notes, " * 60)):
        (tmp_path / name).write_text(text)
    for words in commands():
        if words[0] not in ("sdm-train", "torchrun"):
            continue
        options = [word for word in words[1:] if word.startswith("--")]
        if words[0] == "torchrun":
            # Two processes are tested where training is; here its options must be known.
            assert words[-2:] == ["-m", "sdm_runtime.train"]
            continue
        given = words[1:] if "--resume" in options else [*words[1:], *SMALL]
        if not any(word.endswith(".txt") for word in given) and "recall" not in given:
            given += ["book.txt", "notes.txt"]
        if not {"recall", "--resume"} & set(given):
            given += SMALL_TEXT
        app(given, standalone_mode=False)
    chain = {"last_backward.chain", "last_backward.html"}
    wanted = {"checkpoint.pt", "report.json", "report.png", *chain}
    assert {path.name for path in (tmp_path / "runs/text").iterdir()} == wanted
    assert all(f"`{name}`" in README for name in wanted)


def test_environment_variables_are_all_there() -> None:
    listed = set(re.findall(r"^\| `(SDM_\w+)", README, re.M))
    read = re.compile(r"(?:getenv\(|environ\.get\(|environ\[|switch\()\s*\"(SDM_\w+)\"")
    used = set()
    for folder in ("csrc", "sdm_runtime"):
        for path in ROOT.joinpath(folder).rglob("*"):
            if path.suffix in {".py", ".cpp", ".h"}:
                used |= set(read.findall(path.read_text()))
    assert listed == used
    assert used


@pytest.mark.parametrize("folder", re.findall(r"^\| `([a-z_/]+)`", README, re.M))
def test_folders_exist(folder: str) -> None:
    assert (ROOT / folder).is_dir()
