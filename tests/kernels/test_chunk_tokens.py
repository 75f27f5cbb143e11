"""Which tokens of a chunk are real, and their rows in the caller's tensors: one inline for all."""

from __future__ import annotations

import ctypes
import itertools
import re
from pathlib import Path

import pytest
from small_library import CSRC, needs_compiler, small_library

SOURCE = """\
#include "kernels/common/records/chunk_tokens.h"

struct Sizes {
  int64_t num_tokens;
  int32_t num_parallel, chunk_size;
};

// A token's row, or -1 for padding.
template <typename Int>
int64_t row_of(Sizes sizes, int32_t first_step, Int chunk, int32_t token) {
  const sdm::ChunkTokens tokens = sdm::staged_chunk_tokens(sizes, first_step, chunk);
  const int64_t place = tokens.place(token);
  return tokens.real(place) ? tokens.row(place) : -1;
}

extern "C" {
int64_t row32(int64_t t, int32_t p, int32_t c, int32_t first_step, int32_t chunk, int32_t token) {
  return row_of({t, p, c}, first_step, chunk, token);
}
int64_t row64(int64_t t, int32_t p, int32_t c, int32_t first_step, int64_t chunk, int32_t token) {
  return row_of({t, p, c}, first_step, chunk, token);
}
int64_t first_row(int64_t t, int32_t p, int32_t c, int32_t first_step, int32_t chunk) {
  return sdm::staged_chunk_tokens(Sizes{t, p, c}, first_step, chunk).first_row();
}
int64_t head_row(int64_t t, int32_t p, int32_t c, int32_t first_step, int32_t heads, int64_t chunk,
                 int32_t token) {
  const auto tokens = sdm::staged_head_tokens(Sizes{t, p, c}, heads, first_step, chunk);
  const int64_t place = tokens.place(token);
  return tokens.real(place) ? tokens.row(place) : -1;
}
int32_t count(int64_t t, int32_t p, int32_t c, int32_t first_step, int32_t chunk) {
  return sdm::staged_chunk_tokens(Sizes{t, p, c}, first_step, chunk).count(c);
}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = small_library(tmp_path_factory.mktemp("chunk_tokens"), SOURCE)
    sizes = [ctypes.c_int64, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
    for name, result, rest in (
        ("row32", ctypes.c_int64, [ctypes.c_int32, ctypes.c_int32]),
        ("row64", ctypes.c_int64, [ctypes.c_int64, ctypes.c_int32]),
        ("head_row", ctypes.c_int64, [ctypes.c_int32, ctypes.c_int64, ctypes.c_int32]),
        ("first_row", ctypes.c_int64, [ctypes.c_int32]),
        ("count", ctypes.c_int32, [ctypes.c_int32]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, sizes + rest
    return library


def staged_rows(t: int, p: int, c: int, first_step: int) -> list[list[int]]:
    """Rows of [P, T] by staged chunk and token, -1 for padding: by walking the sequences."""
    steps = -(-t // c)
    chunks = [[-1] * c for _ in range(steps * p)]
    for sequence in range(p):
        for place in range(t):
            chunks[place // c * p + sequence][place % c] = sequence * t + place
    return chunks[first_step * p :]


@needs_compiler
@pytest.mark.parametrize("t", [1, 4, 5, 8, 11])
def test_rows_and_padding_of_every_chunk(library: ctypes.CDLL, t: int) -> None:
    for p, c, first_step in itertools.product([1, 3], [1, 4, 5], [0, 1]):
        if first_step * c >= t:
            continue
        sizes = (t, p, c, first_step)
        for chunk, rows in enumerate(staged_rows(*sizes)):
            assert [library.row32(*sizes, chunk, token) for token in range(c)] == rows
            assert [library.row64(*sizes, chunk, token) for token in range(c)] == rows
            assert library.first_row(*sizes, chunk) == rows[0]
            assert library.count(*sizes, chunk) == sum(row >= 0 for row in rows)


@needs_compiler
@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_rows_of_heads_beside_each_other(library: ctypes.CDLL, heads: int) -> None:
    t, p, c, first_step = 11, 6, 4, 1
    # Rows of [B, T, H] by sequence b*H + h and place.
    rows = [
        [(b * t + place) * heads + h for place in range(t)]
        for b in range(p // heads)
        for h in range(heads)
    ]
    assert sorted(itertools.chain(*rows)) == list(range(p * t))
    for chunk, wanted in enumerate(staged_rows(t, p, c, first_step)):
        for token, row in enumerate(wanted):
            given = library.head_row(t, p, c, first_step, heads, chunk, token)
            assert given == (-1 if row < 0 else rows[row // t][row % t])


@needs_compiler
def test_places_past_32_bits(library: ctypes.CDLL) -> None:
    t, p, c = (1 << 38) + 3, 2, 256
    last = (t - 1) // c
    chunk = last * p + 1  # of the second sequence
    assert library.count(t, p, c, last, 1) == 3
    assert library.row64(t, p, c, 0, chunk, 2) == 2 * t - 1
    assert library.row64(t, p, c, 0, chunk, 3) == -1
    assert library.row32(t, p, c, last, 1, 2) == 2 * t - 1
    assert library.head_row(t, p, c, 0, 2, chunk, 2) == 2 * t - 1
    assert library.head_row(t, p, c, 0, 1, chunk, 2) == 2 * t - 1
    assert library.head_row(t, p, c, 0, 2, chunk - 1, 2) == 2 * t - 2


# What the launchers may do with T: check it, fill it in and name it as a field. The layer's kernels
# know no chunks.
ALLOWED = re.compile(
    r"_(launch|plan_check|params|check)\.(cpp|h)$|/common/launch/|/linear/|/layer/|/head_rows\.h$"
)
OWN_RULE = re.compile(r"\b(params_?|shape_?)\.num_tokens\b")


def own_rules(files: dict[str, str]) -> list[str]:
    """Files that work on T by themselves."""
    return [n for n, text in files.items() if OWN_RULE.search(text) and not ALLOWED.search(n)]


def test_nothing_else_works_on_the_number_of_tokens() -> None:
    paths = [p for p in (CSRC / "kernels").rglob("*.*") if p.suffix in {".h", ".cuh", ".cpp"}]
    files = {p.relative_to(CSRC).as_posix(): p.read_text() for p in paths}
    shape = "kernels/common/records/chunk_shape.h"  # takes it out of a parameter block
    assert own_rules(files) == [shape]
    planted = {str(Path("kernels/step/x/x.cuh")): "if (at < params.num_tokens) return;"}
    assert len(own_rules(planted)) == 1
