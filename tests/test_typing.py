"""What a type checker says to users of the package, strictly and from the top level."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAZY = ("sdm_runtime", "sdm_runtime.inspect", "sdm_runtime.qualify")

# Errors of the kinds that a comment names are expected there, and nowhere else.
USES = """\
import torch
import sdm_runtime
from sdm_runtime import nothing_here  # E: attr-defined
from sdm_runtime.inspect import nothing_there  # E: attr-defined
from sdm_runtime.qualify import neither_there  # E: attr-defined
from sdm_runtime import (
    BlasGemmStep, CudaError, GraphedChain, MemoryCache, Plan, PlanError, SparseDeltaMemory,
    SparseDeltaMemoryArgs, StepChain, backends, bf16_linear, last_dispatch, sdm_write_read,
    split_weight_decay,
)

SparseDeltaMemoryArgs(dim="x", bogus=1)  # E: call-arg arg-type
SparseDeltaMemoryArgs(dim="x")  # E: arg-type
sdm_write_read(1, 2)  # E: call-arg arg-type
sdm_runtime.no_such_name  # E: attr-defined
sdm_runtime.kernels.gx_gemm(1, 2, 3)  # E: call-arg arg-type
sdm_runtime.qualify.matches_blas("x")  # E: call-arg arg-type
sdm_runtime.graphs.capture_step(3)  # E: arg-type
sdm_runtime.inspect.trace(3)  # E: arg-type

layer = SparseDeltaMemory(SparseDeltaMemoryArgs(dim=32, num_heads=2, A_init_range=(0, 4.0)))
x = torch.zeros(1, 2, 32)
layer(1)  # E: arg-type
y, cache = layer(x)
y, cache = layer(x, cache)
y.sum()
cache.clone().bank.sum()
cache.no_such_name  # E: attr-defined
decayed, exempt = split_weight_decay(layer)
torch.optim.AdamW(decayed + exempt)
host: bool | str = backends()["host"]
ran = last_dispatch()
ran["op"]  # E: index
z: torch.Tensor = bf16_linear(x, x)
failures: tuple[type[Exception], ...] = (PlanError, CudaError)
version: str = sdm_runtime.__version__


def replay(plan: Plan, step: BlasGemmStep, given: torch.Tensor) -> GraphedChain:
    chain = StepChain([plan, step], steps=3)
    chain.run()
    chain.bind(memory=given).save("a.chain")
    graphed = StepChain.load("a.chain").graph()
    graphed.rebind(memory=given)
    return graphed


def held(cache: MemoryCache) -> int:
    return cache.tokens
"""
# Of what objects of the package give: each has a type of its own.
MEMBERS = """\
from sdm_runtime.tensor.refs import READER, operand_refs, tensor_ref

def members(
    plan: sdm_runtime.Plan, chain: sdm_runtime.StepChain, layer: sdm_runtime.SparseDeltaMemory,
    cache: sdm_runtime.MemoryCache, args: sdm_runtime.SparseDeltaMemoryArgs, x: torch.Tensor
) -> None:
    reveal_type(sdm_runtime.Plan.from_tensor)
    reveal_type(sdm_runtime.Plan.load)
    reveal_type(plan.tensor)
    reveal_type(plan.kernel)
    reveal_type(plan.backend)
    reveal_type(plan.steps)
    reveal_type(plan.fields)
    reveal_type(plan.operands)
    reveal_type(plan.patches)
    reveal_type(plan.bind())
    reveal_type(chain.graph())
    reveal_type(chain.graph().chain)
    reveal_type(chain.graph().replay)
    reveal_type(chain.bind())
    reveal_type(layer(x))
    reveal_type(layer.forward(x))
    reveal_type(layer.args)
    reveal_type(layer.memory)
    reveal_type(layer.A_log)
    reveal_type(cache.bank)
    reveal_type(cache.tokens)
    reveal_type(cache.clone())
    reveal_type(args.head_dim)
    reveal_type(sdm_runtime.graphs.capture_step(print, x))
    reveal_type(sdm_runtime.__version__)
    reveal_type(plan._core)
    reveal_type(plan._core.header())
    reveal_type(plan.require_bound())
    reveal_type(chain._require_bound())
    reveal_type(tensor_ref("x", x))
    reveal_type(operand_refs({"x": x}))
    reveal_type(operand_refs({"x": x}).moved)
    reveal_type(READER.read(x))
"""
KERNELS = ("gx_gemm", "gx_pa2", "gx_gwr", "gx_gds")


def check(folder: Path, program: str) -> list[str]:
    """mypy's lines about the program, as `line: severity: text`."""
    path = folder / "program.py"
    path.write_text(program)
    words = ["--config-file=", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        timeout=500,
    )
    assert not done.stderr, done.stderr
    # An error elsewhere would be one in the package.
    lines = done.stdout.splitlines()
    assert all(line.startswith("program.py:") for line in lines), done.stdout
    return [line.removeprefix("program.py:") for line in lines]


def errors(lines: list[str]) -> set[tuple[int, str]]:
    found = (re.fullmatch(r"(\d+): error: .*\[([\w-]+)\]", line) for line in lines)
    return {(int(match[1]), match[2]) for match in found if match}


@pytest.mark.slow
def test_wrong_uses_are_found_and_right_ones_pass(tmp_path: Path) -> None:
    expected = {
        (number, code)
        for number, line in enumerate(USES.splitlines(), 1)
        for code in line.partition("# E: ")[2].split()
    }
    assert len(expected) > 15
    assert errors(check(tmp_path, USES)) == expected


@pytest.mark.slow
def test_every_public_name_has_a_type(tmp_path: Path) -> None:
    names = [f"{p}.{name}" for p in LAZY for name in importlib.import_module(p).__all__]
    names += [f"sdm_runtime.kernels.{kind}{name}" for name in KERNELS for kind in ("", "plan_")]
    program = "import torch\nimport sdm_runtime\nimport typing\n"
    program += "".join(f"reveal_type({name})\n" for name in names) + MEMBERS
    program += "def control(anything: typing.Any) -> None:\n    reveal_type(anything)\n"
    lines = check(tmp_path, program)
    revealed = [line.partition("Revealed type is ")[2] for line in lines]
    assert len(revealed) == program.count("reveal_type(")
    assert all(revealed), lines
    assert [n for n, kind in enumerate(revealed) if kind == '"Any"'] == [len(revealed) - 1]


@pytest.mark.parametrize("package", LAZY)
def test_the_types_are_those_of_the_names(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text())
    (block,) = (
        node.body
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for node in block if isinstance(node, ast.ImportFrom)]
    typed = {alias.name: f"{node.module}" for node in imports for alias in node.names}
    assert typed.keys() == set(module.__all__)
    for name, home in typed.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name), name


PLANTED = {  # each with one fault, which its place makes one
    "sdm_runtime/planted.py": "def untyped(x):\n    return x\n",
    "tests/ops/test_planted.py": "import planted_case\n\ndef test_a():\n    planted_case.add(1)\n",
    "tests/ops/planted_case.py": "def add(x: str) -> str:\n    return x\n",
    "tools/bench/planted.py": "def untyped(x):\n    return 1 + ''\n",
}


@pytest.mark.slow
def test_the_package_the_tests_and_the_tools_are_checked(tmp_path: Path) -> None:
    for name, text in PLANTED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    words = [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    found = re.findall(r"^(\S+):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M)
    assert sorted(found) == [
        ("sdm_runtime/planted.py", "1", "no-untyped-def"),
        ("tests/ops/test_planted.py", "4", "arg-type"),
        ("tools/bench/planted.py", "2", "operator"),
    ], done.stdout + done.stderr


@pytest.mark.parametrize("name", PLANTED)
def test_a_commit_of_any_of_them_runs_mypy(name: str) -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    (pattern,) = re.findall(r"id: mypy\n(?:.*\n)*?\s+files: (.*)\n", hooks)
    assert re.match(pattern, name)
    assert not re.match(pattern, "csrc/planted.py")
