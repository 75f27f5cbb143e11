"""sdm-plan looks into a plan of bf16_linear_group as into any other."""

from __future__ import annotations

import torch
from core_testing import core_testing
from cuda_refs import as_cuda
from group_cases import make_group, recorded, refs_of
from linear_cases import operands
from plan_cases import edited, find_reloc, from_bytes
from typer.testing import CliRunner

from sdm_runtime import _core
from sdm_runtime.format.plan_format import RelocRecord
from sdm_runtime.inspect import verify as checks
from sdm_runtime.inspect.commands.cli import app
from sdm_runtime.inspect.reading.files import decode


def group_plan(**renamed: str) -> bytes:
    """Three weights; operands under other names."""
    data = recorded(refs_of(make_group(3, (40, 16, 2), 64, biases="some")), pdl=True)
    for before, after in renamed.items():
        at = find_reloc(data, before)
        data = edited(data, RelocRecord, at, operand=after.encode())
    return bytes(data)


def single_plan() -> bytes:
    x, weight, _ = operands(3, 64, 64)
    y = torch.zeros(3, 64).bfloat16()
    refs = (as_cuda(x, data=1 << 20), as_cuda(weight, data=1 << 21), None, as_cuda(y, data=1 << 22))
    return bytes(core_testing().hopper_plan_bf16_linear(*refs, None, True, 132))


def chain_of(*plans: bytes) -> bytes:
    return _core.encode_chain([from_bytes(plan)._core for plan in plans], 1)


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_show_has_a_line_for_every_members_operand(tmp_path):
    path = tmp_path / "group.plan"
    path.write_bytes(group_plan())
    status, output = run("show", path)
    assert status == 0
    lines = {line.split()[1]: line for line in output.splitlines() if len(line.split()) > 2}
    assert "group_x, 384 bytes, read, bfloat16, aligned 16" in lines["x"]
    assert "weight_2, 256 bytes, read, bfloat16, aligned 16" in lines["weight_2"]
    assert "y_1, 96 bytes, write, bfloat16, aligned 4" in lines["y_1"]
    assert "null" in lines["bias_1"]
    assert "null" in lines["weight_3"]
    assert "zeros" in lines["weight_maps"]
    assert lines["num_rows_2"].split()[-1] == "2"


def test_every_view_of_it_works(tmp_path):
    path = tmp_path / "group.chain"
    path.write_bytes(chain_of(single_plan(), group_plan()))
    for view in ("verify", "steps", "bytes"):
        status, output = run(view, path)
        assert status == 0, output
        assert "bf16_linear_group" in output
    page = tmp_path / "page.html"
    assert run("report", path, "-o", page)[0] == 0
    assert "bf16_linear_group" in page.read_text()


def early_warnings(*plans: bytes) -> list[tuple[int | None, str]]:
    found = checks.verify(decode(chain_of(*plans)))
    return [(f.plan, f.subject) for f in found if "before the wait" in f.message]


def test_only_weights_hinder_an_early_start():
    single = single_plan()  # writes "y"
    assert early_warnings(single, group_plan()) == []
    assert early_warnings(single, group_plan(group_x="y")) == []
    assert early_warnings(single, group_plan(bias_0="y")) == []
    assert early_warnings(single, group_plan(weight_0="y")) == [(1, "y")]
    assert early_warnings(single, group_plan(weight_2="y")) == [(1, "y")]
