"""The device code of the chunk kernels, run on the CPU, against the host twins bit for bit."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch
from chunk_cases import (
    BF16,
    CASES,
    ORDER_CASES,
    OUTSIDE,
    POISON,
    READINGS,
    TRIANGLES,
    ChunkCase,
    ReadingCase,
    TriangleCase,
    chain_outputs,
    chunk_inputs,
    chunk_order,
    gradient_inputs,
    gradient_outputs,
    order_outputs,
    poisoned,
    prepare_outputs,
    reading_operands,
    reading_output,
    step_outputs,
    triangles,
)
from emulated import Launch, emulation
from kernel_checks import copies, differing

pytestmark = [
    pytest.mark.skipif(
        platform.system() != "Linux" or not shutil.which("g++"), reason="needs g++ on Linux"
    ),
    pytest.mark.slow,
]

ROW_CODES = {torch.float32: 1, BF16: 2}
RENAMED = {"beta": "beta_rows", "rec": "records", "qrec": "read_records"}


def _sizes(case: ChunkCase) -> dict:
    return {
        "num_chunks": case.chunks,
        "chunk_size": case.C,
        "num_writes": case.W,
        "num_reads": case.R,
    }


def _call_sizes(case: ChunkCase) -> dict:
    sizes = {"num_tokens": case.T, "num_parallel": case.P, "num_gates": case.gates}
    return _sizes(case) | sizes | {"first_step": case.first_step}


def _assert_same_bits(kernel: str, values: dict, outputs: dict, pass_: str = "") -> dict:
    """Runs the chosen launch and others against the twin; returns the twin's outputs."""
    library = emulation()
    expected = copies(outputs)
    library.twin(kernel, values | expected, pass_)
    chosen = library.chosen(kernel, values | outputs, pass_=pass_)
    others = [chosen]
    # Others' blocks have one size.
    if kernel == "chunk_prepare":
        others += [replace(chosen, block=(64, 1, 1), grid=(chosen.grid[0], 2, 1))]
        others += [replace(chosen, block=(32, 1, 1), grid=(chosen.grid[0], 5, 1))]
    if kernel in ("chunk_gradients", "chunk_readings"):
        others += [library.chosen(kernel, values | outputs, sm_count=1, pass_=pass_)]
    for number, launch in enumerate(others):
        after = copies(outputs)
        library.launch(kernel, launch, values | after, backwards=number % 2 == 1)
        assert differing(after, expected) == [], launch
    return expected


def _assert_all_written(outputs: dict) -> None:
    for key, tensor in outputs.items():
        poison = tensor.isnan() if tensor.dtype.is_floating_point else tensor == POISON
        assert not poison.any(), key


def _prepare_values(case: ChunkCase, inputs: dict) -> dict:
    types = {f"{name}_type": ROW_CODES[case.values] for name in ("k_val", "q_val", "beta", "g")}
    types |= {"bf16_weights": int(case.bf16_weights)}
    weights = {k: x for k, x in inputs.items() if not k.endswith("_idx")}
    return weights | chunk_order(case, inputs) | types | _call_sizes(case)


def _order_values(case: ChunkCase, inputs: dict) -> dict:
    rows = case.P * case.S if case.shared else case.S
    values = {k: x for k, x in inputs.items() if k.endswith("_idx")}
    values |= {k: x for k, x in _call_sizes(case).items() if k != "num_gates"}
    wide = int(case.indices == torch.int64)
    values |= {"wide_k_idx": wide, "wide_q_idx": wide, "num_slots": 0 if case.shared else rows}
    bits = {"key_bits": (rows - 1).bit_length(), "place_bits": (case.events - 1).bit_length()}
    return values | bits | {"key_rows": rows}


ORDER_ENTRIES = {"event_order_b6": 6, "event_order_b7": 7, "event_order_b8": 8}
ORDER_ENTRIES |= {"event_order_wide": 8, "event_order_global": 8}


def _order_launch(entry: str, case: ChunkCase, threads: int) -> Launch:
    """Any instance, with a block of any size."""
    digits = 4 << ORDER_ENTRIES[entry]
    word_bytes = {"event_order_wide": 8, "event_order_global": 0}.get(entry, 4)
    room = (threads // 32 + 1) * digits + 2 * (-(-case.events * word_bytes // 16) * 16)
    return Launch(entry, (case.chunks, 1, 1), (threads, 1, 1), room)


@pytest.mark.parametrize("name", CASES | ORDER_CASES | OUTSIDE)
def test_event_order_gives_the_twins_bits(name: str) -> None:
    case = (CASES | ORDER_CASES | OUTSIDE)[name]
    inputs = chunk_inputs(case)
    values = _order_values(case, inputs)
    found = _assert_same_bits("event_order", values, order_outputs(case))
    assert differing(found, chunk_order(case, inputs)) == []
    library = emulation()
    for number, entry in enumerate(ORDER_ENTRIES):
        launch = _order_launch(entry, case, (64, 1024, 32, 128, 96)[number])
        after = order_outputs(case)
        library.launch("event_order", launch, values | after, backwards=number % 2 == 1)
        assert differing(after, found) == [], launch


@pytest.mark.parametrize(
    ("sizes", "entry", "threads", "shared"),
    [
        ({"S": 4096, "W": 16, "R": 16}, "event_order_b6", 256, 9 * 256 + 2 * 8192),
        ({"S": 16384, "W": 32, "R": 32}, "event_order_b7", 512, 17 * 512 + 2 * 16384),
        ({"S": 65536, "W": 64, "R": 64}, "event_order_b8", 1024, 33 * 1024 + 2 * 32768),
        ({"S": 1, "W": 1, "R": 1}, "event_order_b6", 64, 3 * 256 + 2 * 512),
        ({"S": 65537, "W": 16, "R": 16}, "event_order_b6", 256, 9 * 256 + 2 * 8192),
        ({"S": 2**19, "W": 64, "R": 64}, "event_order_b7", 1024, 33 * 512 + 2 * 32768),
        ({"S": 2**19 + 1, "W": 64, "R": 64}, "event_order_wide", 1024, 33 * 1024 + 2 * 65536),
        ({"S": 9, "W": 194, "R": 194}, "event_order_b6", 1024, 33 * 256 + 2 * 99328),
        ({"S": 9, "W": 220, "R": 220}, "event_order_global", 1024, 33 * 1024),
        ({"S": 2**20, "W": 100, "R": 100}, "event_order_global", 1024, 33 * 1024),
    ],
)
def test_blocks_of_event_order(sizes: dict, entry: str, threads: int, shared: int) -> None:
    """The fewest passes of the fewest bits, in shared memory where the words fit."""
    case = ChunkCase(P=1, T=64, C=64, **sizes)
    chosen = emulation().chosen("event_order", _order_values(case, {}))
    assert chosen == Launch(entry, (1, 1, 1), (threads, 1, 1), shared)
    assert chosen == _order_launch(entry, case, threads)


@pytest.mark.parametrize("slots", [2, 40, 2**22])
def test_event_order_of_the_largest_chunk(slots: int) -> None:
    """131072 events, which lie in global memory. With many slots the passes are three."""
    case = ChunkCase(P=1, T=250, C=256, W=256, R=256, repeats=True)
    inputs = chunk_inputs(case)
    for name, x in inputs.items():
        if name.endswith("_idx"):
            gen = torch.Generator().manual_seed(len(x))
            x.copy_(torch.randint(0, slots, x.shape, generator=gen))
    case = replace(case, S=slots)
    values = _order_values(case, inputs)
    assert emulation().chosen("event_order", values).entry == "event_order_global"
    found = _assert_same_bits("event_order", values, order_outputs(case))
    assert differing(found, chunk_order(case, inputs)) == []


def _assert_whole_chunks_agree(values: dict, outputs: dict, expected: dict) -> None:
    """A block for every chunk leaves the gradients that the passes leave, however many threads."""
    library = emulation()
    chosen = library.chosen("chunk_gradients", values | outputs, pass_="_whole")
    for number, threads in enumerate((chosen.block[0], 32, 512)):
        # Other blocks may need room for a row of lanes more of every warp.
        room = chosen.shared_bytes + (2 * threads if number else 0)
        launch = replace(chosen, block=(threads, 1, 1), shared_bytes=room)
        after = copies(outputs)
        library.launch("chunk_gradients", launch, values | after, backwards=number == 1)
        found = {key: after[key] for key in ("dk", "dq", "dg")}
        assert differing(found, {key: expected[key] for key in found}) == [], launch


def _flag_words(case: ChunkCase, inputs: dict, entry: str = "") -> list[int]:
    """What event_order leaves in a flag that is clear; entry: on a device."""
    values, flag = _order_values(case, inputs), torch.zeros(2, dtype=torch.int64)
    values |= order_outputs(case) | {"outside": flag}
    if entry:
        emulation().launch("event_order", _order_launch(entry, case, 64), values)
    else:
        emulation().twin("event_order", values)
    return flag.tolist()


@pytest.mark.parametrize("indices", [torch.int32, torch.int64])
def test_event_order_tells_of_slots_outside(indices: torch.dtype) -> None:
    """Of the first write and the first read of a chunk; the value as near as an int32 comes."""
    case = ChunkCase(P=3, T=1, C=16, S=5, indices=indices)
    kernels = ("", *ORDER_ENTRIES)
    inputs = chunk_inputs(case)
    assert all(_flag_words(case, inputs, entry) == [0, 0] for entry in kernels)
    values = [-1, 0, 4, 10, 15, 2**31 - 1, -(2**31)]
    values += (
        [2**31, 2**32 + 6, 2**63 - 1, -(2**31) - 1, -(2**63)] if case.indices.itemsize == 8 else []
    )
    for value in values:
        near = max(-(2**31), min(2**31 - 1, value)) & 0xFFFFFFFF
        for name, word in (("k_idx", 0), ("q_idx", 1)):
            wrong = {k: x.clone() for k, x in inputs.items()}
            wrong[name][1, 0, 1], wrong[name][1, 0, 2] = value, 999
            wanted = [0, 0]
            wanted[word] = 2 << 32 | near
            assert all(_flag_words(case, wrong, entry) == wanted for entry in kernels), value


@pytest.mark.parametrize("name", CASES | OUTSIDE)
def test_chunk_kernels_give_the_twins_bits(name: str) -> None:
    case = (CASES | OUTSIDE)[name]
    values = _prepare_values(case, chunk_inputs(case))
    outputs = prepare_outputs(case) | {"beta_rows": chain_outputs(case)["beta"]}
    _assert_same_bits("chunk_prepare", values, outputs)
    chain = {RENAMED.get(k, k): x for k, x in chain_outputs(case).items()}
    prepared = _assert_same_bits("chunk_prepare", values, outputs | chain)
    _assert_all_written({k: x for k, x in prepared.items() if k != "events"})
    del chain["cpe"]
    _assert_same_bits("chunk_prepare", values, outputs | chain)

    steps = step_outputs(case)
    alone = _assert_same_bits("chunk_prepare", values, outputs | steps)
    both = _assert_same_bits("chunk_prepare", values, outputs | chain | steps)
    _assert_all_written({k: alone[k] for k in steps})
    assert differing({k: alone[k] for k in steps}, both) == []
    assert differing({k: x for k, x in both.items() if k not in steps}, prepared) == []

    shape = (case.chunks, case.C, case.C)
    matrices = {name: poisoned(shape, torch.float32) for name in ("system", "qk", "a")}
    events = {k: prepared[k] for k in ("events", "places", "beta_rows")}
    found = _assert_same_bits("pair_matrices", events | _sizes(case), matrices)
    _assert_all_written(found)
    del matrices["a"]
    without = _assert_same_bits("pair_matrices", events | _sizes(case), matrices)
    assert differing(without, {k: found[k] for k in matrices}) == []

    values = gradient_inputs(case) | _call_sizes(case)
    values |= {"events": prepared["events"], "beta_rows": prepared["beta_rows"]}
    values |= {f"{name}_type": ROW_CODES[case.values] for name in ("dk", "dq", "dg")}
    gradients = gradient_outputs(case)
    passes = ("_runs", "_gates", "_tokens") if "gates" in gradients else ("_runs", "_gates")
    for pass_ in passes:
        gradients = _assert_same_bits("chunk_gradients", values, gradients, pass_)
    _assert_whole_chunks_agree(values, gradient_outputs(case), gradients)
    first = case.first_step * case.C
    for key in ("dk", "dq", "dg"):
        assert gradients[key][:, :first].isnan().all()
        assert not gradients[key][:, first:].isnan().any()


def _late_writes(case: ChunkCase, written: list[int]) -> dict:
    """Inputs whose tokens all read slot 0, which the tokens of `written` alone write."""
    inputs = chunk_inputs(case)
    inputs["q_idx"][:] = 0
    inputs["k_idx"][:] = 1 + torch.arange(case.T).view(1, -1, 1) % (case.S - 1)
    inputs["k_idx"][:, written] = 0
    return inputs


@pytest.mark.parametrize("written", [[], [0], [9], [10], [63], [20, 21, 50], list(range(64))])
def test_reads_before_a_slots_first_write(written: list[int]) -> None:
    """A group's first write may be far behind its start, in another part of the chunk."""
    case = ChunkCase(P=1, T=64, C=64, W=1, R=3, S=40)
    values = _prepare_values(case, _late_writes(case, written))
    outputs = prepare_outputs(case)
    outputs |= {RENAMED.get(k, k): x for k, x in chain_outputs(case).items()}
    prepared = _assert_same_bits("chunk_prepare", values, outputs)
    _assert_all_written({k: x for k, x in prepared.items() if k != "events"})
    first = prepared["records"][0, :, 0] < 0
    counts = torch.nn.functional.pad(first.cumsum(0), (1, 0))[::32]
    assert torch.equal(prepared["bpre"][0].long(), counts)


@pytest.mark.parametrize(
    ("case", "grid", "threads"),
    [
        (ChunkCase(P=2, T=16, C=16, W=1, R=1, S=99), (2, 1, 1), 64),
        (ChunkCase(P=8, T=64, C=64, W=32, R=32, S=99), (8, 1, 1), 512),
        (ChunkCase(P=8, T=64, C=64, W=65, R=64, S=99), (8, 2, 1), 512),
        (ChunkCase(P=1, T=256, C=256, W=128, R=128, S=999), (1, 8, 1), 512),
        (ChunkCase(P=1, T=256, C=256, W=256, R=256, S=999), (1, 16, 1), 512),
    ],
)
def test_blocks_of_chunk_prepare(case: ChunkCase, grid: tuple[int, ...], threads: int) -> None:
    """A block takes at most 8192 events, so that few large chunks fill a device as well."""
    chosen = emulation().chosen("chunk_prepare", _call_sizes(case))
    assert (chosen.grid, chosen.block) == (grid, (threads, 1, 1))


def test_a_chunk_of_several_blocks() -> None:
    case = ChunkCase(P=1, T=250, C=256, W=20, R=21, S=4000)
    values = _prepare_values(case, chunk_inputs(case))
    outputs = prepare_outputs(case) | step_outputs(case)
    outputs |= {RENAMED.get(k, k): x for k, x in chain_outputs(case).items()}
    found = _assert_same_bits("chunk_prepare", values, outputs)
    _assert_all_written({k: x for k, x in found.items() if k != "events"})


def _first_pass(chunks: int, chunk: int, width: int, sm_count: int = 132) -> str:
    """Of chunk_gradients, where a token writes and reads that many slots."""
    sizes = {"num_chunks": chunks, "num_parallel": 1, "chunk_size": chunk}
    sizes |= {"num_writes": width, "num_reads": width, "num_gates": 1}
    return emulation().chosen("chunk_gradients", sizes, sm_count).entry


def test_a_block_takes_a_whole_chunk_where_chunks_are_many_and_fit() -> None:
    assert _first_pass(2048, 64, 32) == "chunk_gradients_whole"
    assert _first_pass(264, 64, 64) == "chunk_gradients_whole"
    assert _first_pass(263, 64, 64) == "chunk_gradients_runs"
    assert _first_pass(263, 64, 64, sm_count=131) == "chunk_gradients_whole"
    assert _first_pass(2048, 256, 128) == "chunk_gradients_runs"
    # A device may lend a block 227 KiB, and two of an SM share 228 with 1 KiB for each.
    assert _first_pass(2048, 64, 89) == "chunk_gradients_whole"
    assert _first_pass(2048, 64, 90) == "chunk_gradients_runs"


@pytest.mark.parametrize("case", TRIANGLES, ids=str)
def test_chunk_inverse_gives_the_twins_bits(case: TriangleCase) -> None:
    given = triangles(case)
    values: dict[str, Any] = {k: given[k] for k in ("system", "qk")}
    values |= {"beta_rows": given["beta"], "num_chunks": case.N, "chunk_size": case.C}
    shape = (case.N, case.C, case.C)
    outputs = {name: poisoned(shape, torch.float32) for name in ("x", "qx", "scaled")}
    found = [
        _assert_same_bits("chunk_inverse", values | {"wide": wide}, outputs)
        for wide in ((0, 1) if case.C % 4 == 0 else (0,))
    ]
    if case.special == 0:
        _assert_all_written(found[0])
    # Without a backward it makes the last of them alone.
    alone = {"scaled": poisoned(shape, torch.float32)}
    made = _assert_same_bits("chunk_inverse", values | {"wide": 0}, alone)
    assert differing(made, found[0]) == []


def test_many_chunks_come_one_by_one() -> None:
    """Of few, the tiles with the most work come first: another order of blocks."""
    given = triangles(TriangleCase(N=1024, C=33))
    values: dict[str, Any] = {k: given[k] for k in ("system", "qk")}
    values |= {"beta_rows": given["beta"], "num_chunks": 1024, "chunk_size": 33, "wide": 0}
    outputs = {name: poisoned((1024, 33, 33), torch.float32) for name in ("x", "qx", "scaled")}
    _assert_all_written(_assert_same_bits("chunk_inverse", values, outputs))


def _reading_values(case: ReadingCase) -> dict[str, Any]:
    sizes = {"num_tokens": case.T, "first_step": case.first_step, "num_chunks": case.chunks}
    sizes |= {"num_parallel": case.P, "chunk_size": case.C, "hd": case.hd}
    sizes |= {"heads": max(case.heads, 1), "readings_type": ROW_CODES[case.values]}
    return sizes


@pytest.mark.parametrize("case", READINGS, ids=str)
def test_chunk_readings_give_the_twins_bits(case: ReadingCase) -> None:
    """In narrow tiles and in wide ones, and element by element."""
    given, values = reading_operands(case), _reading_values(case)
    outputs = {"readings": reading_output(case)}
    found = _assert_same_bits("chunk_readings", values | given, outputs)
    if case.special == 0 and case.first_step == 0:
        _assert_all_written(found)
    for name, tensor in given.items():
        shifted = torch.empty(tensor.numel() + 1)[1:].view(tensor.shape).copy_(tensor)
        other = _assert_same_bits("chunk_readings", values | given | {name: shifted}, outputs)
        assert differing(other, found) == []


@pytest.mark.parametrize(
    ("sizes", "entry", "grid"),
    [
        ({"num_chunks": 2048, "chunk_size": 64, "hd": 128}, "bf16_w64", (2, 2048, 1)),
        ({"num_chunks": 131, "chunk_size": 64, "hd": 128}, "bf16_w32", (4, 131, 1)),
        ({"num_chunks": 132, "chunk_size": 64, "hd": 128}, "bf16_w64", (2, 132, 1)),
        ({"num_chunks": 132, "chunk_size": 65, "hd": 33}, "any", (4, 132, 1)),
        (
            {"num_chunks": 132, "chunk_size": 65, "hd": 36, "readings_type": 1},
            "f32_w64",
            (2, 132, 1),
        ),
        ({"num_chunks": 99999, "chunk_size": 256, "hd": 32}, "bf16_w32", (4, 65535, 2)),
        (
            {"num_chunks": 16, "chunk_size": 16, "hd": 128, "readings_type": 1},
            "f32_w32",
            (4, 16, 1),
        ),
    ],
)
def test_blocks_of_chunk_readings(sizes: dict, entry: str, grid: tuple[int, ...]) -> None:
    """Wide tiles where there are two for every SM."""
    chosen = emulation().chosen("chunk_readings", {"readings_type": 2} | sizes)
    width = 64 if entry.endswith("w64") else 32
    shared = 4 * (64 * 68 + 64 * width)
    wanted = Launch(f"chunk_readings_{entry}", grid, (2 * width, 1, 1), shared)
    assert chosen == wanted


@pytest.mark.parametrize("hd", [1, 30, 36, 128, 130, 256])
@pytest.mark.parametrize("values", [torch.float32, BF16])
@pytest.mark.parametrize("heads", [1, 3])
def test_token_gradients_give_the_twins_bits(hd: int, values: torch.dtype, heads: int) -> None:
    case = ChunkCase(P=6, T=37, first_step=1, values=values)
    gen = torch.Generator().manual_seed(hd)
    rows = case.chunks * case.C
    given: dict[str, Any] = {
        name: torch.randn(rows, hd, generator=gen) for name in ("d_u", "innovation")
    }
    given |= {"beta_rows": torch.randn(rows, generator=gen), "hd": hd, "wide": int(hd % 4 == 0)}
    given |= {"heads": heads}
    given |= {f"{name}_type": ROW_CODES[values] for name in ("dv", "dbeta")}
    sizes = _call_sizes(case)
    given |= {k: x for k, x in sizes.items() if k not in ("num_gates", "num_writes", "num_reads")}
    shape = (6 // heads, 37, heads, hd)
    outputs = {"dv": poisoned(shape, values), "dbeta": poisoned((6, 37, 1), values)}
    found = _assert_same_bits("token_gradients", given, outputs)
    for tensor in found.values():
        assert tensor[:, : case.C].isnan().all()
        assert not tensor[:, case.C :].isnan().any()


def test_the_comparison_can_fail() -> None:
    """A launch without its last chunk differs from the twin."""
    case = CASES["plain"]
    values = _prepare_values(case, chunk_inputs(case))
    outputs = prepare_outputs(case) | {"beta_rows": chain_outputs(case)["beta"]}
    library = emulation()
    expected, after = copies(outputs), copies(outputs)
    library.twin("chunk_prepare", values | expected)
    whole = library.chosen("chunk_prepare", values | after)
    part = Launch(whole.entry, (case.chunks - 1, 1, 1), whole.block, whole.shared_bytes)
    library.launch("chunk_prepare", part, values | after)
    assert differing(after, expected) == ["events", "places", "beta_rows"]
