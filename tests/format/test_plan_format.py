"""The Python mirror of the wire format: current, and what the compiler makes of the header."""

import importlib.util
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sdm_runtime import _core
from sdm_runtime.format import plan_format
from sdm_runtime.format.records import Record, text, word

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "tools/gen/plan_format.py"
HEADER = ROOT / "csrc/plancap/format/plan_format.h"
RECORDS = {
    name: kind
    for name, kind in vars(plan_format).items()
    if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
}


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("plan_format_generator", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_mirror_is_current():
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_header_changes_the_mirror(generator):
    """The control of the test above: a swapped pair of members is noticed."""
    header = HEADER.read_text()
    swapped = header.replace(
        "uint32_t steps;\n  uint32_t flags;", "uint32_t flags;\n  uint32_t steps;"
    )
    assert swapped != header
    current = generator.render(generator.parse(header))
    assert generator.render(generator.parse(swapped)) != current


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("uint8_t reserved[6];", "uint8_t reserved[5];", "hidden padding at its end"),
        ("uint32_t checksum;", "uint16_t checksum;", "asserted|hidden padding"),
        ("uint64_t layout_hash;", "size_t layout_hash;", "fixed-size type"),
        ("sizeof(ChainEntry) == 16", "true", "no sizeof assert for ChainEntry"),
        ("kCuda = 2,", "kCuda,", "expected `kName = value,`"),
        ("uint32_t steps;", "uint32_t steps; uint32_t more;", "one member"),
    ],
)
def test_a_header_that_is_not_understood_is_refused(generator, old, new, reason):
    with pytest.raises(generator.FormatError, match=reason):
        generator.parse(HEADER.read_text().replace(old, new))


def test_the_compiler_agrees_on_every_size_and_offset():
    compiled = _core.format_layout()
    assert set(compiled) == set(RECORDS)
    for name, kind in RECORDS.items():
        assert compiled[name] == (kind.SIZE, kind.SPANS), name
        assert struct.calcsize(kind.FORMAT) == kind.SIZE


@pytest.mark.parametrize("kind", RECORDS.values(), ids=RECORDS)
def test_records_survive_a_round_trip(kind):
    data = bytes(i % 251 for i in range(kind.SIZE + 8))
    record = kind.unpack(data, 3)
    assert record.pack() == data[3 : 3 + kind.SIZE]
    with pytest.raises(struct.error):
        kind.unpack(data, 9)


def test_names_and_words():
    assert text(b"gx_gemm\0\0") == "gx_gemm"
    assert text(b"\xff\0") == "\\xff"
    assert word(plan_format.Access.READ_WRITE) == "read/write"
    assert word(plan_format.Dtype.BFLOAT16) == "bfloat16"
