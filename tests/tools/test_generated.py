"""The generated instances are current, and named as the geometries name them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gen import device_instances
from kernel_cases import BF16, E4M3, F32, INT4, ROW_TYPES

ROOT = Path(__file__).resolve().parents[2]


def test_the_instances_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools/gen/device_instances.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_stale_instance_is_seen(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(device_instances, "KERNELS", tmp_path / "csrc/kernels")
    monkeypatch.setattr(sys, "argv", ["device_instances.py", "--check"])
    assert device_instances.main() == 1
    assert "gx_pa2_any.cu" in capsys.readouterr().out


def test_entries_are_named_once() -> None:
    names = [instance.entry for instance in device_instances.instances()]
    assert len(names) == len(set(names))
    assert all(len(name) < 96 for name in names)  # the field of a plan's header


def test_the_row_formats_are_read_from_their_traits() -> None:
    names = {BF16: "bf16", F32: "f32", E4M3: "fp8", INT4: "int4"}
    assert set(device_instances.FORMATS) == set(names.values())
    wanted = [tuple(names[t] for t in types) for types in ROW_TYPES]
    assert sorted(device_instances.PA2_ROWS) == sorted(wanted)
    assert sorted(device_instances.GDS_ROWS) == [("bf16", "bf16"), ("bf16", "f32"), ("f32", "f32")]
    more = device_instances.read_formats(
        'struct RowFormat<RowType::kNew> {\n  kName = "new";\n  kBits = 2;\n  kScaled = true;\n};'
    )
    assert more == {"new": device_instances.RowFormat("new", "kNew", 2, scaled=True)}
