"""Device tests draw their operands as the host twins' tests do, and test the build's tools."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/kernels"), str(ROOT / "tools")]
