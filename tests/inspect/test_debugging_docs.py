"""docs/debugging.md: its commands run, and print what it says they print."""

import re
import shlex
from pathlib import Path
from typing import Any

import inspect_cases as cases
import pytest
import torch
from test_inspect_cli import run, write_images

import sdm_runtime
from sdm_runtime import StepChain, kernels

DOCUMENT = (Path(__file__).parents[2] / "docs/debugging.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*)\n((?:.|\n)*?)(?=^## |\Z)", DOCUMENT, re.M))


def consoles(section):
    """(command, output) of every console block."""
    blocks = re.findall(r"```console\n\$ (.*)\n((?:.|\n)*?)```", SECTIONS[section])
    assert blocks
    return blocks


def run_python(section, names):
    """As a reader does, who has run the blocks above."""
    blocks = re.findall(r"```python\n((?:.|\n)*?)```", SECTIONS[section])
    assert blocks
    for block in blocks:
        exec(block, names)


@pytest.fixture
def session():
    """What a reader has after the page's first blocks."""
    names: dict[str, Any] = {}
    try:
        run_python("Where the files come from", names)
    finally:
        sdm_runtime.dispatch.keep_last_chain(False)
    return names


def gemm_chain(sequences):
    """Eight chunks as sequences: the same tensors, whatever the sequences."""
    d_u, x, d_dv = torch.zeros(8, 4, 64), torch.zeros(8, 4, 4), torch.zeros(8, 4, 64)
    plan = kernels.plan_gx_gemm(d_u, x, d_dv, steps=8 // sequences, num_parallel=sequences)
    return StepChain([plan], 8 // sequences)


def check(section, status):
    for command, expected in consoles(section):
        words = shlex.split(command)
        assert words[0] == "sdm-plan"
        assert run(*words[1:]) == (status, expected)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_shape_change():
    kept, fresh = gemm_chain(sequences=2), gemm_chain(sequences=4)
    kept.bind(**fresh.plans[0].tensors)  # the symptom: nothing is refused
    kept.save("kept.sdmchain")
    fresh.save("fresh.sdmchain")
    check("The gradient is wrong after a shape change", status=1)


def test_where_files_come_from(session):
    assert run("verify", "layer.chain")[0] == 0
    unbound = StepChain.load("layer.chain")
    for use in (unbound.run, lambda: sdm_runtime.inspect.bindings(unbound)):
        with pytest.raises(sdm_runtime.PlanError, match="bind"):
            use()
    session["chain"].save("own.chain")
    unbound = StepChain.load("own.chain")
    bound = unbound.bind(**session["chain"].plans[0].tensors)
    assert set(sdm_runtime.inspect.bindings(bound)) == {"d_u", "x", "d_dv"}


def test_no_overlap(session):
    plan = cases.edited_header(cases.cuda_plans()[cases.PA2], flags=0)
    Path("backward.sdmchain").write_bytes(cases.with_plan(cases.cuda_plans(), cases.PA2, plan))
    write_images(Path("device_images.json"))
    check("Nothing overlaps", status=0)
    run_python("Nothing overlaps", session)
    assert "Timeline" in Path("report.html").read_text()


def test_a_dangling_tensor(session):
    chain = session["chain"]
    chain.plans[0].tensors["x"].untyped_storage().resize_(0)
    with pytest.raises(sdm_runtime.PlanError, match="whose memory was replaced"):
        chain.run()
    run_python("A tensor that is gone", session)
    check("A tensor that is gone", status=1)


def test_every_command_is_listed():
    listed = set(re.findall(r"^    sdm-plan (\w+)", DOCUMENT, re.M))
    assert listed == {"show", "steps", "diff", "verify", "bytes", "report"}
