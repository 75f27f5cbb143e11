"""The generated instances are current, and named as the geometries name them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import device_instances

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
