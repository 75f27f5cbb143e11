"""The sdm-plan command: what it prints, its exit status, and what it can do without."""

import json
import os
import subprocess
import sys
from pathlib import Path

import inspect_cases as cases
import pytest
from typer.testing import CliRunner

from sdm_runtime.inspect.commands.cli import app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path):
    """A chain, the same of more steps, a plan, a CUDA chain, and a damaged chain."""
    contents = {
        "chain": cases.host_file(),
        "longer": cases.chain_file(list(cases.host_plans(steps=6)), steps=6),
        "plan": cases.host_plans()[cases.GEMM],
        "cuda": cases.cuda_file(),
        "fault": cases.with_plan(
            cases.host_plans(), 1, cases.edited_patch(cases.host_plans()[1], base=1, highest=5)
        ),
        "damaged": cases.host_file()[:-1],
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def run_json(*arguments):
    status, output = run(*arguments, "--json")
    return status, json.loads(output)


def test_show_names_everything(files):
    status, output = run("show", files / "chain")
    assert status == 0
    assert "chain  4 plans x 5 steps = 20 launches, host" in output
    assert "for ti = 4 .. 0:  gx_gwr -> gx_gemm -> gx_pa2 -> gx_gds" in output
    for said in ("plan 2  gx_pa2", "rec, 1920 bytes, read, int32, aligned 16", "ti: 0 .. 4"):
        assert said in output
    for name in ("num_parallel", "plane_stride", "snap_step_rows", "scales", "null"):
        assert name in output


def test_the_order_of_the_steps_is_said(files, tmp_path):
    upwards = tmp_path / "upwards"
    upwards.write_bytes(cases.chain_file(list(cases.host_plans()), order=1))
    assert "for ti = 0 .. 4:  gx_gwr -> " in run("show", upwards)[1]
    assert run_json("show", upwards)[1]["order"] == "ascending"
    assert run_json("show", files / "chain")[1]["order"] == "descending"
    assert "step 0" in run("steps", upwards)[1].splitlines()[0]
    status, differences = run_json("diff", files / "chain", upwards)
    assert status == 1
    (difference,) = differences
    assert (difference["what"], difference["a"], difference["b"]) == (
        "order", "descending", "ascending",
    )  # fmt: skip


def test_show_of_a_cuda_plan(files):
    status, output = run("show", files / "cuda", "--plan", "2")
    assert status == 0
    assert "grid 8 x 2, block 128, cluster 1, 4096 bytes of shared memory, programmatic" in output
    assert "cuda 9.0 GPU-01020304-0506-0708-090a-0b0c0d0e0f10" in output
    assert "gx_pa2_bf16 in image 0001020304050607.." in output
    assert "gx_gemm" not in output


def test_show_gives_json(files):
    status, data = run_json("show", files / "chain")
    assert (status, data["steps"], data["launches"], len(data["plans"])) == (0, 5, 20, 4)
    gemm = data["plans"][1]
    assert gemm["patches"][0]["formula"] == "ti"
    assert [o["name"] for o in gemm["operands"]] == ["d_u", "x", "d_dv"]
    assert data["step_traffic"]["anywhere"] == ["grad", "bank"]


def test_steps_prints_the_launches(files):
    status, output = run("steps", files / "chain", "--step", "3", "--step", "2")
    assert status == 0
    assert output.index("step 3") < output.index("step 2")
    assert "6144 .. 8192" in output  # gx_gemm's d_u in step 3
    assert "4096 .. 6144" in output


def test_steps_json_holds_the_patched_parameters(files):
    status, launches = run_json("steps", files / "chain", "--step", "3")
    assert status == 0
    assert [launch["plan"] for launch in launches] == [0, 1, 2, 3]
    gemm = launches[1]
    assert gemm["patched"] == {"step": 3}
    block = bytes.fromhex(gemm["parameters"])
    assert int.from_bytes(block[24:28], "little") == 3
    assert gemm["operands"][0] == {
        "name": "d_u", "field": "d_u", "access": "read/write",
        "start": 6144, "end": 8192, "exact": True,
    }  # fmt: skip
    assert run_json("steps", files / "chain")[1][0]["step"] == 4  # without --step: last, first


def test_steps_of_a_plan_whose_patch_leaves_its_field(tmp_path):
    # For `verify` to judge: the launches can still be looked at.
    wild = tmp_path / "wild"
    gemm = cases.host_plans()[cases.GEMM]
    wild.write_bytes(cases.edited_patch(gemm, base=(1 << 40) + 7, highest=1 << 41))
    status, launches = run_json("steps", wild, "--step", "0")
    assert (status, launches[0]["patched"]) == (0, {"step": (1 << 40) + 7})
    assert int.from_bytes(bytes.fromhex(launches[0]["parameters"])[24:28], "little") == 7
    assert run("verify", wild)[0] == 1


@pytest.mark.parametrize("step", ["5", "-1", "4294967296"])
def test_a_step_that_is_not_there(files, step):
    status, output = run("steps", files / "chain", "--step", step)
    assert (status, "expected 0..4" in output) == (2, True)


def test_diff_says_every_difference(files):
    assert run("diff", files / "chain", files / "chain") == (0, "no difference\n")
    status, output = run("diff", files / "chain", files / "longer")
    assert status == 1
    assert "  steps: 5 -> 6" in output
    assert "  pointer d_u: extent: 10240 -> 12288" in output
    assert "  patch of step: highest: 4 -> 5" in output
    status, data = run_json("diff", files / "chain", files / "longer")
    assert status == 1
    assert {"where": "chain", "what": "steps", "a": 5, "b": 6} in data


def test_diff_pairs_plans_by_kernel(files):
    status, data = run_json("diff", files / "chain", files / "plan")
    assert status == 1
    assert not any("gx_gemm" in d["where"] for d in data)  # the plan is the chain's own
    assert {d["a"] for d in data if d["what"] == "plan"} == {"gx_gwr", "gx_pa2", "gx_gds"}


def test_verify_says_every_fault(files):
    status, output = run("verify", files / "chain")
    assert (status, output) == (0, "4 plans, 5 steps: 0 errors, 0 warnings, 0 not known here\n")
    status, output = run("verify", files / "fault")
    assert status == 1
    assert "error   extent: plan 1 (gx_gemm): step 4 alone of 5 leaves 'd_u'" in output
    status, data = run_json("verify", files / "fault")
    assert status == 1
    assert {finding["check"] for finding in data} == {"extent", "executor"}


def write_images(path):
    """What a build of these plans would have written down."""
    entries = [{"name": name, "waits": True} for name in cases.FACTS.waits]
    path.write_text(json.dumps({"images": [{"sha256": cases.IMAGE.hex(), "entries": entries}]}))
    return path


def test_verify_takes_images_and_bindings(files, tmp_path):
    images = write_images(tmp_path / "device_images.json")
    bindings = tmp_path / "bindings.json"
    bound = {n: {"address": b.address, "bytes": b.bytes} for n, b in cases.good_bindings().items()}
    bindings.write_text(json.dumps(bound))
    options = ("--device-images", images, "--bindings", bindings)
    assert run("verify", files / "cuda", *options)[0] == 0
    status, output = run("verify", files / "cuda", *options, "--device-uuid", "GPU-00")
    assert (status, "not on GPU-00" in output) == (1, True)
    status, output = run("verify", files / "chain", "--bindings", tmp_path / "nowhere.json")
    assert status == 2
    assert "nowhere.json: no such file or directory" in output.replace("\n", "")
    assert "Errno" not in output
    bindings.write_text("{}")
    status, output = run("verify", files / "cuda", *options)
    assert (status, "operand 'x' is not bound" in output) == (1, True)
    bindings.write_text("nonsense")
    assert run("verify", files / "cuda", *options)[0] == 2


def test_strict_counts_warnings(files):
    narrow = cases.edited_reloc(cases.cuda_plans()[cases.GEMM], "d_u", align_log2=2)
    (files / "narrow").write_bytes(cases.with_plan(cases.cuda_plans(), cases.GEMM, narrow))
    images = write_images(files / "device_images.json")
    status, output = run("verify", files / "narrow", "--device-images", images)
    assert (status, "0 errors, 1 warning," in output) == (0, True)
    assert run("verify", files / "narrow", "--device-images", images, "--strict")[0] == 1
    assert run("verify", files / "cuda", "--device-images", images, "--strict")[0] == 0


def test_bytes_shows_every_byte_once(files):
    status, output = run("bytes", files / "plan")
    assert status == 0
    assert "       0  53 44 4d 50 4c 41 4e 0a" in output
    assert "gx_gemm" in output
    status, data = run_json("bytes", files / "chain", "--plan", "1")
    assert status == 0
    joined = "".join(span["bytes"] for span in data)
    assert bytes.fromhex(joined) == cases.host_plans()[cases.GEMM]


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "damaged"),
        ("steps", "damaged"),
        ("diff", "chain", "damaged"),
        ("diff", "damaged", "chain"),
        ("verify", "damaged"),
        ("bytes", "damaged"),
        ("report", "damaged", "-o", "report.html"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_damaged_file_is_status_two_everywhere(files, arguments, as_json, monkeypatch):
    monkeypatch.chdir(files)
    status, output = run(*arguments, *(["--json"] if as_json else []))
    assert status == 2
    assert "truncated or padded: the header says" in output
    assert "(byte 32)" in output
    assert not (files / "report.html").exists()


def test_what_is_no_file(files):
    for wrong in (files / "none", files, "/dev/zero"):
        status, output = run("show", wrong)
        assert status == 2
        assert "sdm-plan: " in output
        assert "Errno" not in output
    assert "none: no such file or directory" in run("show", files / "none")[1].replace("\n", "")


@pytest.mark.parametrize("plan", ["4", "-1"])
def test_a_plan_that_is_not_there(files, plan):
    for command in ("show", "bytes"):
        status, output = run(command, files / "chain", "--plan", plan)
        assert (status, "--plan: expected 0..3" in output) == (2, True)


def test_wrong_usage_is_status_two(files):
    assert run("show")[0] == 2
    assert run("polish", files / "chain")[0] == 2
    assert run("steps", files / "chain", "--step", "last")[0] == 2


BLOCKER = """
import sys
BLOCKED = {"torch", "numpy", "cuda", "matplotlib", "pybind11", "sdm_runtime._core"}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in BLOCKED or name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not on this machine")
sys.meta_path.insert(0, Blocker())
"""
RUN = "from sdm_runtime.inspect.commands.cli import main\nsys.argv[0] = 'sdm-plan'\nmain()\n"


def subprocess_run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "chain"),
        ("steps", "chain", "--step", "1"),
        ("diff", "chain", "chain"),
        ("verify", "chain"),
        ("bytes", "chain"),
        ("report", "chain", "-o", "report.html"),
    ],
)
def test_every_command_works_without_torch_cuda_and_extension(files, arguments):
    done = subprocess_run(BLOCKER + f"import os; os.chdir({str(files)!r})\n" + RUN, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout  # plain where there is no terminal
    if arguments[0] == "verify":
        assert "unknown executor: the extension is not here" in done.stdout


def test_the_blocker_blocks():
    done = subprocess_run(BLOCKER + "import sdm_runtime.plan.plan")
    assert "is not on this machine" in done.stderr


def test_python_m_and_a_closed_pipe(files):
    command = f"{sys.executable} -m sdm_runtime.inspect bytes {files / 'chain'} | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "chain header\n"
    assert "Traceback" not in done.stderr
