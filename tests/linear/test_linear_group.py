"""bf16_linear_group without a GPU: the pick, what is recorded, what is refused."""

from __future__ import annotations

import importlib.util
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from core_testing import core_testing
from cuda_refs import as_cuda
from group_cases import LAYER, make_group, recorded, refs_of
from linear_cases import operands
from plan_cases import edited, find_reloc, from_bytes
from plan_fields import field_value, inverse, with_fields

from sdm_runtime import PlanError, _core
from sdm_runtime.format.plan_format import PlanHeader, RelocRecord
from sdm_runtime.format.records import text
from sdm_runtime.linear.group import bf16_linear_group, plan_bf16_linear_group
from sdm_runtime.linear.launch import tactics
from sdm_runtime.plan.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
NO_TILE = (1 << 31) - 1
HALF_SM = 113 * 1024

# q, k, v, a, b (and the output gate) of layers with 2048 or 512 columns.
MEDIUM, MEDIUM_GATED = (4096, 4096, 2048, 16, 16), (4096, 4096, 2048, 16, 16, 2048)
LARGE, SMALL = (1024, 1024, 2048, 2, 2), (1024, 1024, 512, 8, 8, 512)


def grouped() -> list[int]:
    return _core.bf16_linear_group_tactics()


def row_tiles(rows, tactic: int) -> list[int]:
    return [-(-n // tactics()[tactic]["rows"]) for n in rows]


# The tactics.


def test_groups_have_the_default_of_every_token_tile_first():
    for tile in (8, 16, 32, 64, 128):
        of_tile = [i for i in grouped() if tactics()[i]["tokens"] == tile]
        assert of_tile[0] == [t["tokens"] for t in tactics()].index(tile)
    assert len(set(grouped())) == len(grouped()) <= 10


def test_the_generator_reads_the_list_that_was_compiled():
    path = ROOT / "tools/gen/bf16_linear.py"
    spec = importlib.util.spec_from_file_location("bf16_linear_generator", path)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    text_of_list = (generator.GROUP_FOLDER / "bf16_linear_group_tactics.h").read_text()
    assert generator.read_group_tactics(text_of_list) == grouped()
    entries = {tactics()[i]["entry"].replace("linear", "linear_group", 1) for i in grouped()}
    assert {p.stem for p in generator.GROUP_FOLDER.glob("inst/*.cu")} == entries
    written = {path for path in generator.outputs() if path.parent.parent.name.endswith("_group")}
    assert {path.stem for path in written} == entries


# The pick.


@pytest.mark.parametrize("rows", [MEDIUM, MEDIUM_GATED, LARGE, SMALL, (2,), (4096,) * 8])
@pytest.mark.parametrize("m", [1, 8, 9, 31, 64, 100, 128, 300])
@pytest.mark.parametrize("k", [8, 512, 2048])
def test_pick_has_all_blocks_at_once_where_it_can(m, rows, k):
    index, splits = _core.bf16_linear_group_pick(m, rows, k, 132)
    tile = next((t for t in (8, 16, 32, 64) if t >= m), 128)
    of_tile = [i for i in grouped() if tactics()[i]["tokens"] == tile]
    first, tactic = tactics()[of_tile[0]], tactics()[index]
    per_sm = 2 if first["shared_bytes"] <= HALF_SM else 1
    blocks = sum(row_tiles(rows, of_tile[0])) * -(-m // tile)
    if blocks <= per_sm * 132 or per_sm == 2:
        assert index == of_tile[0]
    else:
        assert tactic["tokens"] == tile
        assert tactic["rows"] == first["rows"]
        assert tactic["shared_bytes"] <= HALF_SM < first["shared_bytes"]
    blocks = sum(row_tiles(rows, index)) * -(-m // tile)
    depth_tiles = -(-k // tactic["depth"])
    pay = [s for s in tactic["splits"] if s <= depth_tiles and blocks * s * s <= 2 * 132]
    assert splits == max(pay, default=1)


def test_pick_counts_the_tiles_of_all_weights():
    assert _core.bf16_linear_group_pick(1, (64,) * 8, 2048, 132) == (0, 5)
    assert _core.bf16_linear_group_pick(1, (512,), 2048, 132) == (0, 5)
    assert _core.bf16_linear_group_pick(1, (1,) * 8, 2048, 132) == (0, 5)
    assert _core.bf16_linear_group_pick(1, (8,), 2048, 132) == (0, 8)
    with pytest.raises(ValueError, match=r"rows: expected 1\.\.8 weights' rows, got 9"):
        _core.bf16_linear_group_pick(1, (8,) * 9, 2048, 132)


@pytest.mark.parametrize("count", range(1, 9))
def test_a_block_finds_the_weight_of_its_row_tile(count):
    tiles = [3, 1, 7, 1, 1, 2, 5, 4][:count]
    first = [0, *accumulate(tiles)]
    padded = [*first[:count], *[NO_TILE] * (8 - count)]
    found = core_testing().bf16_linear_group_members(padded, first[-1] + 3)
    expected = [bisect_right(first[:count], tile) - 1 for tile in range(first[-1] + 3)]
    assert found == expected
    assert found[-1] == count - 1  # tiles past the end belong to the last one


# What is recorded.


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("tactic", [None, (0, 3), (2, 1), (6, 2), (9, 4)])
def test_a_recorded_launch(count, tactic):
    rows = (130, 2, 64, 16, 1, 200, 8, 65)[:count]
    m, k = 9, 264
    data = recorded(refs_of(make_group(m, rows, k, biases="some")), tactic, pdl=count % 2 == 0)
    header = PlanHeader.unpack(data)
    index, splits = tactic or _core.bf16_linear_group_pick(m, rows, k, 132)
    row = tactics()[index]
    assert text(header.kernel) == "bf16_linear_group"
    assert text(header.entry) == row["entry"].replace("linear", "linear_group", 1)
    assert header.flags == (count % 2 == 0)
    tiles = row_tiles(rows, index)
    assert header.grid == (sum(tiles) * splits, -(-m // row["tokens"]), 1)
    assert (header.block, header.cluster) == ((192, 1, 1), (splits, 1, 1))
    assert header.shared_bytes == row["shared_bytes"]
    first = [0, *accumulate(tiles)]
    for i in range(8):
        there = i < count
        assert field_value(data, f"num_rows_{i}") == (rows[i] if there else 0)
        assert field_value(data, f"weight_stride_{i}") == (k if there else 0)
        assert field_value(data, f"first_tile_{i}") == (first[i] if there else NO_TILE)
    pairs = sum((n % 2 == 0) << i for i, n in enumerate(rows))
    assert field_value(data, "paired_stores") == pairs
    numbers = {
        "num_members": count,
        "num_tokens": m,
        "depth": k,
        "depth_tiles": -(-k // row["depth"]),
        "splits": splits,
        "split_inverse": inverse(splits),
        "tactic": index,
        "x_stride": k,
    }
    assert {name: field_value(data, name) for name in numbers} == numbers


def test_operands_have_names_of_their_own_and_the_maps_no_address():
    data = recorded(refs_of(make_group(3, (8, 5, 6), 16, biases="some")))
    plan = from_bytes(data)
    assert plan.kernel == "bf16_linear_group"
    found = [(o.name, o.field, o.access, o.align, o.extent) for o in plan.operands]
    assert found == [
        ("group_x", "x", "read", 16, 3 * 16 * 2),
        ("weight_0", "weight_0", "read", 16, 8 * 16 * 2),
        ("bias_0", "bias_0", "read", 2, 8 * 2),
        ("y_0", "y_0", "write", 4, 3 * 8 * 2),
        ("weight_1", "weight_1", "read", 16, 5 * 16 * 2),
        ("y_1", "y_1", "write", 2, 3 * 5 * 2),
        ("weight_2", "weight_2", "read", 16, 6 * 16 * 2),
        ("bias_2", "bias_2", "read", 2, 6 * 2),
        ("y_2", "y_2", "write", 4, 3 * 6 * 2),
    ]
    assert field_value(data, "weight_maps") == field_value(data, "x_map") == 0


def test_weights_are_what_is_loaded_early():
    assert _core.early_fields("bf16_linear_group") == [f"weight_{i}" for i in range(8)]


# What the launcher refuses. The control: each of these, unchanged, is recorded above.


def shifted(tensor: torch.Tensor) -> _core.TensorRef:
    return as_cuda(tensor, data=tensor.data_ptr() + 2)


def replaced(refs, name, index, ref):
    refs[name][index] = ref


REFUSED = {
    "weights: expected 1..8 weights, got 0": lambda g, r: r.update(weights=[], biases=[], ys=[]),
    "weights: expected 1..8 weights, got 9": lambda g, r: r.update(
        weights=r["weights"][:1] * 9, biases=[None] * 9, ys=r["ys"][:1] * 9
    ),
    "biases: expected 3, one for each weight, got 2": lambda g, r: r["biases"].pop(),
    "ys: expected 3, one for each weight, got 2": lambda g, r: r["ys"].pop(),
    "x: expected an address that is a multiple of 16": lambda g, r: r.update(x=shifted(g.x)),
    "x: expected bfloat16": lambda g, r: r.update(x=as_cuda(g.x.float())),
    "x: expected K a multiple of 8": lambda g, r: r.update(
        x=as_cuda(g.x, shape=(5, 20), strides=(24, 1))
    ),
    "weight_1: expected bfloat16 [any, 24]": lambda g, r: replaced(
        r, "weights", 1, as_cuda(torch.zeros(16, 32).bfloat16())
    ),
    "weight_2: expected stride 1 along K": lambda g, r: replaced(
        r, "weights", 2, as_cuda(g.weights[2], strides=(24, 2))
    ),
    "weight_2: expected rows that do not overlap": lambda g, r: replaced(
        r, "weights", 2, as_cuda(g.weights[2], strides=(28, 1))
    ),
    "weight_0: expected an address that is a multiple of 16": lambda g, r: replaced(
        r, "weights", 0, shifted(g.weights[0])
    ),
    "weight_0: expected a tensor on cuda:0": lambda g, r: replaced(
        r, "weights", 0, as_cuda(g.weights[0], device=1)
    ),
    "bias_2: expected bfloat16 [2]": lambda g, r: replaced(r, "biases", 2, as_cuda(g.biases[0])),
    "y_1: expected bfloat16 [5, 16]": lambda g, r: replaced(r, "ys", 1, as_cuda(g.ys[0])),
    "y_1: expected memory apart from y_0": lambda g, r: replaced(
        r, "ys", 1, as_cuda(g.ys[1], data=g.ys[0].data_ptr() + 5 * 40 * 2 - 2)
    ),
    "y_2: expected memory apart from x": lambda g, r: replaced(
        r, "ys", 2, as_cuda(g.ys[2], data=g.x.data_ptr())
    ),
    "y_2: expected memory apart from weight_0": lambda g, r: replaced(
        r, "ys", 2, as_cuda(g.ys[2], data=g.weights[0].data_ptr() + 8)
    ),
    "y_2: expected memory apart from bias_1": lambda g, r: replaced(
        r, "ys", 2, as_cuda(g.ys[2], data=g.biases[1].data_ptr())
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_mistakes_are_named(message):
    group = make_group(5, (40, 16, 2), 24)
    refs = refs_of(group)
    recorded(refs)  # the control
    REFUSED[message](group, refs)
    error = TypeError if message == "x: expected bfloat16" else ValueError
    with pytest.raises(error) as caught:
        recorded(refs)
    assert str(caught.value).startswith(f"[bf16_linear_group] {message}")


def test_one_row_needs_no_stride():
    group = make_group(1, (1, 3), 24)
    refs = refs_of(group)
    refs["x"] = as_cuda(group.x, strides=(7, 1))
    refs["weights"][0] = as_cuda(group.weights[0], strides=(3, 1))
    data = recorded(refs)
    assert field_value(data, "x_stride") == field_value(data, "weight_stride_0") == 24


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ((1, 1), "tactic: expected one that groups are compiled for: 0, 2, .*, got 1"),
        ((len(tactics()), 1), "tactic: expected 0.."),
        ((-1, 1), "tactic: expected 0.."),
        ((0, 0), "splits: expected one of 1, .*, got 0"),
        ((0, 9), "splits: expected one of 1, .*, got 9"),
        ((9, 7), "splits: expected one of 1, .*, got 7"),
    ],
)
def test_a_tactic_that_groups_do_not_have_is_named(choice, message):
    refs = refs_of(make_group(5, (40, 16), 24))
    recorded(refs, (9, 8))  # the control
    with pytest.raises(ValueError, match=rf"^\[bf16_linear_group\] {message}"):
        recorded(refs, choice)


def test_only_hopper_has_it():
    x, weight, bias = operands(3, 8, 16)
    with pytest.raises(ValueError, match=r"x: expected a tensor on a CUDA device.*got .* the cpu"):
        bf16_linear_group(x, [weight], [bias])
    with pytest.raises(ValueError, match=r"x: expected a tensor on a CUDA device.*got .* the cpu"):
        plan_bf16_linear_group(x, [weight], None, [torch.empty(3, 8).bfloat16()])


def test_pythons_own_checks():
    x, weight, bias = operands(3, 8, 16)
    y = torch.empty(3, 8).bfloat16()
    for weights in ([], [weight] * 9):
        with pytest.raises(ValueError, match=r"weights: expected 1\.\.8 weights, got"):
            bf16_linear_group(x, weights)
    with pytest.raises(ValueError, match="biases: expected 2, one for each weight, got 1"):
        bf16_linear_group(x, [weight, weight], [bias])
    with pytest.raises(ValueError, match="ys: expected 1, one for each weight, got 2"):
        plan_bf16_linear_group(x, [weight], [None], [y, y])
    with pytest.raises(ValueError, match=r"weight_1: expected bfloat16 \[N, K\], got .*\[8\]"):
        bf16_linear_group(x, [weight, bias])
    with pytest.raises(ValueError, match=r"x: expected .* evenly spaced rows, got .* \[1, 3\]"):
        bf16_linear_group(operands(16, 8, 3)[0].t(), [weight])
    with pytest.raises(TypeError, match=r"weight_0: expected a torch\.Tensor, got int"):
        plan_bf16_linear_group(x, [3], None, [y])  # type: ignore[list-item]


# What a plan's check refuses.

M, K = 17, 1032
ROWS = (200, 16, 1, 66)


def control(**given) -> bytearray:
    """Four weights in two splits: 4, 1, 1 and 2 row tiles, two token tiles of 16."""
    group = make_group(M, ROWS, K, biases="some", **given)
    return recorded(refs_of(group), (3, 2))


CONTRADICTIONS = [
    ({"num_members": 0}, "num_members: expected 1..8"),
    ({"num_members": 9}, "num_members: expected 1..8"),
    ({"num_members": 3}, "paired_stores: expected 0..7"),
    ({"num_members": 3, "paired_stores": 3}, "weight_3: expected no operand past 3 members"),
    ({"num_members": 5}, "num_rows_4: expected 1.."),
    ({"num_members": 5, "num_rows_4": 8}, "weight_stride_4: expected 1032"),
    ({"num_members": 5, "num_rows_4": 8, "weight_stride_4": K}, "weight_4: expected an operand"),
    ({"num_tokens": 18}, "x: expected at least"),
    ({"num_tokens": 0}, "num_tokens"),
    ({"num_tokens": 16}, "tactic: expected the launch geometry"),
    ({"depth": 1040}, "x_stride: expected 1040"),
    ({"depth": 1028}, "depth: expected a multiple of 8"),
    ({"depth": 0}, "depth: expected 8"),
    ({"x_stride": K + 8}, "x: expected at least"),
    ({"x_stride": K - 8}, "x_stride"),
    ({"weight_stride_1": K + 8}, "weight_1: expected at least"),
    ({"weight_stride_3": 1 << 31}, "weight_stride_3"),
    ({"weight_stride_7": 8}, "weight_stride_7: expected 0..0"),
    ({"num_rows_0": 201, "paired_stores": 0}, "weight_0: expected at least"),
    ({"num_rows_0": 199}, "paired_stores: expected pairs only for an even number of rows"),
    ({"num_rows_0": 192}, "first_tile_1: expected 3..3"),
    ({"num_rows_3": 64}, "tactic: expected the launch geometry"),
    ({"num_rows_2": 0}, "num_rows_2: expected 1.."),
    ({"num_rows_2": -1}, "num_rows_2: expected 1.."),
    ({"num_rows_4": 1}, "num_rows_4: expected 0..0"),
    ({"first_tile_0": 1}, "first_tile_0: expected 0..0"),
    ({"first_tile_1": 3}, "first_tile_1: expected 4..4"),
    ({"first_tile_4": 8}, "first_tile_4"),
    ({"first_tile_7": 0}, "first_tile_7"),
    ({"paired_stores": 0b1111}, "paired_stores: expected pairs only for an even number of rows"),
    ({"paired_stores": 0b11011}, "paired_stores: expected 0..15"),
    ({"paired_stores": -1}, "paired_stores"),
    ({"depth_tiles": 8}, "depth_tiles: expected 9..9"),
    ({"depth_tiles": 10}, "depth_tiles: expected 9..9"),
    ({"splits": 0}, "splits"),
    ({"splits": 9}, "splits"),
    ({"splits": 3}, "split_inverse"),
    ({"split_inverse": inverse(2) - 1}, "split_inverse"),
    ({"splits": 1, "split_inverse": inverse(1)}, "tactic: expected the launch geometry"),
    ({"tactic": 1}, "tactic: expected one of 0, 2"),
    ({"tactic": -1}, "tactic: expected one of 0, 2"),
    ({"tactic": 5}, "tactic: expected the launch geometry"),
    ({"trigger_lead": -1}, "trigger_lead"),
    ({"prefetch_tiles": (1 << 20) + 1}, "prefetch_tiles"),
]


@pytest.mark.parametrize(("changes", "named"), CONTRADICTIONS)
def test_numbers_that_contradict_each_other_are_refused(changes, named):
    data = control()
    from_bytes(data)  # the control
    with pytest.raises(PlanError) as caught:
        from_bytes(with_fields(data, **changes))
    assert f"[bf16_linear_group] {named}" in str(caught.value)


def test_numbers_that_do_not_matter_to_safety_may_differ():
    from_bytes(with_fields(control(), trigger_lead=0, prefetch_tiles=7, paired_stores=0))


WRONG_OPERANDS = [
    ("group_x", {"align_log2": 3}, "x: expected addresses aligned to 16"),
    ("weight_1", {"align_log2": 3}, "weight_1: expected addresses aligned to 16"),
    ("y_0", {"align_log2": 1}, "y_0: expected addresses aligned to 4"),
    ("weight_3", {"extent": 66 * K * 2 - 2}, "weight_3: expected at least"),
    ("bias_2", {"extent": 1}, "bias_2: expected at least 2 bytes"),
    ("y_1", {"extent": M * 16 * 2 - 1}, "y_1: expected at least"),
    ("y_2", {"access": 1}, "y_2: expected an operand that may be used"),
    ("weight_0", {"access": 2}, "weight_0: expected an operand that may be used"),
    ("y_3", {"step_bytes": 64, "step_stride": 64}, "y_3: expected no share of one step"),
]


@pytest.mark.parametrize(("operand", "members", "named"), WRONG_OPERANDS)
def test_operands_that_do_not_hold_what_is_touched_are_refused(operand, members, named):
    data = control()
    with pytest.raises(PlanError) as caught:
        from_bytes(edited(data, RelocRecord, find_reloc(data, operand), **members))
    assert f"[bf16_linear_group] {named}" in str(caught.value)


def test_another_members_pointer_does_not_stand_in():
    """A relocation moved to the next member's field: one pointer is missing, one too many."""
    data = control()
    at = find_reloc(data, "y_3")
    field = RelocRecord.unpack(data, at).field
    with pytest.raises(PlanError, match="y_3: expected an operand of 2244 bytes, got none"):
        from_bytes(edited(data, RelocRecord, at, field=field + 1))


@pytest.mark.parametrize(
    "members",
    [
        {"grid": (14, 2, 1)},
        {"grid": (16, 1, 1)},
        {"cluster": (4, 1, 1)},
        {"block": (128, 1, 1)},
        {"shared_bytes": 1024},
    ],
)
def test_another_launch_is_refused(members):
    data = control()
    assert PlanHeader.unpack(data).grid == (16, 2, 1)
    with pytest.raises(PlanError, match=r"tactic: expected the launch geometry of .*, got another"):
        from_bytes(edited(data, PlanHeader, 0, **members))


def test_the_single_kernels_entry_is_refused():
    data = control()
    entry = text(PlanHeader.unpack(data).entry).replace("_group", "")
    with pytest.raises(PlanError, match="tactic: expected bf16_linear_group_r64_t16"):
        from_bytes(edited(data, PlanHeader, 0, entry=entry.encode()))


def test_a_group_of_a_layer_is_one_plan_that_loads_and_saves(tmp_path):
    plan = from_bytes(recorded(refs_of(make_group(4, LAYER, 512)), pdl=True))
    plan.save(tmp_path / "group.plan")
    loaded = Plan.load(tmp_path / "group.plan")
    assert not loaded.bound
    assert torch.equal(loaded.tensor, plan.tensor)
