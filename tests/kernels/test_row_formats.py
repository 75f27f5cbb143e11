"""The traits of the row formats: complete, read by all code, and the same arithmetic everywhere."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import pytest
import torch
from kernel_cases import Draw
from kernel_checks import as_bits
from small_library import CSRC, compile_text, needs_compiler, small_library

from sdm_runtime import _core
from sdm_runtime.ops.call.quant import SNAPSHOT_QUANTS, decode, snapshot_format

ROWS = CSRC / "kernels/common/rows"
SCALED = ["fp8", "int4"]
SOURCE = """\
#include "kernels/common/host/host_rows.h"

namespace {
template <class Format>
void load(const char* from, float scale, float* to) {
  sdm::LaneColumns<128> lanes;
  sdm::load_snapshot_slice<128, true>(Format::kType, from, 128, &scale, sdm::RowType::kFloat32,
                                      lanes);
  for (int c = 0; c < 128; ++c) to[c] = lanes.part[c % 4][c / 4];
}
}  // namespace

extern "C" {
int type_of(const char* name) {
  for (const sdm::RowType type : sdm::kRowTypes) {
    const char* known = sdm::with_row_format(type, [](auto format) { return format.kName; });
    if (std::strcmp(known, name) == 0) return static_cast<int>(type);
  }
  return 0;
}
long long bytes_of(int type, long long columns) {
  return sdm::row_bytes(static_cast<sdm::RowType>(type), columns);
}
// A row's 128 columns.
void load_row(int type, const char* from, float scale, float* to) {
  sdm::with_row_format(static_cast<sdm::RowType>(type),
                       [&](auto format) { load<decltype(format)>(from, scale, to); });
}
// Each code's value and, encoded again, the code.
void round_trip(int type, int code, float* value, int* again) {
  sdm::with_row_format(static_cast<sdm::RowType>(type), [&](auto format) {
    *value = format.decode(static_cast<uint32_t>(code));
    *again = static_cast<int>(format.encode(*value));
  });
}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = small_library(tmp_path_factory.mktemp("row_formats"), SOURCE)
    library.bytes_of.restype = ctypes.c_int64
    library.bytes_of.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.load_row.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_float, ctypes.c_void_p]
    return library


def test_every_row_type_has_its_trait_and_is_in_the_list() -> None:
    types = re.findall(r"^  (k\w+) = (\d+),", (ROWS / "row_types.h").read_text(), re.M)
    text = (ROWS / "row_formats.h").read_text()
    names = [name for name, _ in types]
    assert [int(number) for _, number in types] == list(range(1, len(types) + 1))
    assert re.findall(r"struct RowFormat<RowType::(k\w+)> \{", text) == names
    listed = text.split("kRowTypes[] = {", 1)[1].split("}", 1)[0]
    assert re.findall(r"RowType::(k\w+)", listed) == names
    assert len(_core.row_formats()) == len(names)


def test_the_operation_knows_every_format_of_codes() -> None:
    scaled = [name for name, (_, largest) in _core.row_formats().items() if largest is not None]
    assert scaled == SCALED == list(SNAPSHOT_QUANTS[2:])
    assert _core.row_formats()["fp8"] == (1, 448.0)
    assert _core.row_formats()["int4"] == (2, 7.0)


def test_an_unknown_snapshot_quant_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"one of none, bf16, fp8, int4, given 'fp4'"):
        snapshot_format("fp4", torch.float32, 8)


@needs_compiler
@pytest.mark.parametrize(
    ("expression", "known", "unknown"),
    [
        ("sdm::element_bits(sdm::RowType{%d}) > 0", 4, 9),
        ("sdm::RowFormat<sdm::RowType{%d}>::kBits > 0", 4, 9),
        ("sdm::codes_per_byte(sdm::RowType{%d}) > 0", 4, 0),
        ("sdm::is_quantized(sdm::RowType{%d}) || true", 1, 5),
    ],
)
def test_an_unknown_type_does_not_compile(
    tmp_path: Path, expression: str, known: int, unknown: int
) -> None:
    text = '#include "kernels/common/rows/row_bits.h"\nstatic_assert(%s);\n'
    assert compile_text(tmp_path, text % (expression % known)).returncode == 0
    assert compile_text(tmp_path, text % (expression % unknown)).returncode != 0


@needs_compiler
def test_a_type_that_the_choice_leaves_out_does_not_compile(tmp_path: Path) -> None:
    folder = tmp_path / "kernels/common"
    shutil.copytree(CSRC / "kernels/common", folder)
    types = folder / "rows/row_types.h"
    text = f'#include "{folder}/rows/row_formats.h"\n'
    local = text + "int bits() { return sdm::with_row_format(sdm::RowType::kInt4, [](auto f) "
    local += "{ return f.kBits; }); }\n"
    flags = [f"-I{tmp_path}"]
    assert compile_text(tmp_path, local, flags).returncode == 0
    types.write_text(types.read_text().replace("kInt4 = 4,", "kInt4 = 4,\n  kFloat4 = 5,"))
    done = compile_text(tmp_path, local, flags)
    assert done.returncode != 0
    assert "kFloat4" in done.stderr


@needs_compiler
@pytest.mark.parametrize(("name", "columns", "size"), [("f32", 6, 24), ("bf16", 6, 12)])
def test_row_bytes_of_plain_rows(library: ctypes.CDLL, name: str, columns: int, size: int) -> None:
    assert library.bytes_of(library.type_of(name.encode()), columns) == size


@needs_compiler
@pytest.mark.parametrize("name", SCALED)
def test_codes_and_their_columns(library: ctypes.CDLL, name: str) -> None:
    """The host twin's rows are those of the torch operations: every code, in its column's place."""
    kind, form = library.type_of(name.encode()), snapshot_format(name, torch.float32, 128)
    assert library.bytes_of(kind, 128) == form.columns
    assert library.bytes_of(kind, 1 << 40) == (1 << 40) * form.columns // 128
    stored = torch.randint(256, (64, form.columns), dtype=torch.uint8)
    scales = Draw(1, special=False).floats(64).abs()
    wanted = decode(stored, scales, form, torch.float32)
    for row, scale, values in zip(stored, scales.tolist(), wanted, strict=True):
        got = torch.empty(128)
        library.load_row(kind, row.data_ptr(), scale, got.data_ptr())
        nan = values.isnan()
        assert torch.equal(got.isnan(), nan)
        assert torch.equal(as_bits(got[~nan]), as_bits(values[~nan]))


@needs_compiler
@pytest.mark.parametrize(("name", "codes"), [("fp8", 256), ("int4", 16)])
def test_every_code_is_its_values_code(library: ctypes.CDLL, name: str, codes: int) -> None:
    kind, largest = library.type_of(name.encode()), 0.0
    for code in range(codes):
        value, again = ctypes.c_float(), ctypes.c_int()
        library.round_trip(kind, code, ctypes.byref(value), ctypes.byref(again))
        assert again.value == code
        if value.value == value.value:
            largest = max(largest, value.value)
    assert largest == _core.row_formats()[name][1]


# Where a format of codes may be named: the enumerator and its trait.
OWN = {"kernels/common/rows/row_types.h", "kernels/common/rows/row_formats.h"}
NAMED = re.compile(r"\bRowType::k(Int4|Float8E4M3)\b")


def naming(files: dict[str, str]) -> list[str]:
    return [n for n, text in files.items() if n not in OWN and NAMED.search(text)]


def test_no_code_but_the_traits_names_a_format_of_codes() -> None:
    paths = [p for p in CSRC.rglob("*.*") if p.suffix in {".h", ".cuh", ".cpp"}]
    assert naming({p.relative_to(CSRC).as_posix(): p.read_text() for p in paths}) == []
    assert naming({"kernels/x.h": "if (type == RowType::kInt4) return 4;"}) == ["kernels/x.h"]
