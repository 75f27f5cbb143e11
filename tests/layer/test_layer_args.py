"""Every bad option is refused by name, with the expected and the given."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from sdm_runtime import SparseDeltaMemory, SparseDeltaMemoryArgs

BAD_VALUES = [
    ("dim", 0, "at least 1"),
    ("dim", 10, "multiple of num_heads = 4"),
    ("num_heads", 0, "at least 1"),
    ("slots_per_head", 0, "at least 1"),
    ("slots_per_head", 10, "a square number"),
    ("num_writes", 0, "1 to 16"),
    ("num_writes", 17, "1 to 16"),
    ("num_reads", 0, "1 to 16"),
    ("num_reads", 17, "1 to 16"),
    ("chunk_size", 15, "16 to 256"),
    ("chunk_size", 257, "16 to 256"),
    ("read_act", "softmax", "l2_normalize"),
    ("read_act", "GLU", "l2_normalize"),
    ("write_act", "Linear", "l2_normalize"),
    ("write_act", None, "l2_normalize"),
    ("read_act_scale", float("nan"), "finite"),
    ("write_act_scale", float("inf"), "finite"),
    ("norm_eps", 0.0, "positive"),
    ("norm_eps", -1, "positive"),
    ("A_init_range", (3, 1), "low <= high"),
    ("A_init_range", (-1, 1), "low <= high"),
    ("A_init_range", (1,), "two numbers"),
    ("A_init_range", (0, float("inf")), "finite"),
    ("snapshot_quant", "fp16", "none, bf16, fp8, int4"),
    ("product_key_factor_dims", (3, 5), "product is slots_per_head = 16"),
    ("product_key_factor_dims", (), "product is slots_per_head = 16"),
    ("product_key_factor_dims", (-4, -4), "at least 1"),
    ("cuda_graph", True, "False"),
]
BAD_TYPES = [
    ("dim", 8.0, "int"),
    ("num_heads", True, "int"),
    ("slots_per_head", "16", "int"),
    ("num_writes", None, "int"),
    ("num_reads", 2.0, "int"),
    ("chunk_size", 32.0, "int"),
    ("read_act_scale", "1", "a number"),
    ("write_act_scale", None, "a number"),
    ("norm_eps", "0.1", "a number"),
    ("A_init_range", 3, "a sequence"),
    ("A_init_range", ("0", "1"), "a number"),
    ("product_key_factor_dims", 16, "a sequence"),
    ("product_key_factor_dims", (4.0, 4.0), "int"),
    ("normalize_readings", 1, "bool"),
    ("backprop_on_memory", None, "bool"),
    ("output_gate", "yes", "bool"),
    ("query_batchnorm", 0, "bool"),
    ("key_weighted_decay", 1, "bool"),
    ("grad_bank_fp32", 1, "bool"),
    ("cuda_graph", 1, "bool"),
]
GOOD: dict[str, Any] = {
    "dim": 8,
    "num_heads": 4,
    "slots_per_head": 16,
    "num_writes": 4,
    "num_reads": 4,
}


@pytest.mark.parametrize(("name", "value", "expected"), BAD_VALUES)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^\[SparseDeltaMemoryArgs\] {name}: expected") as error:
        SparseDeltaMemoryArgs(**{**GOOD, name: value})
    assert expected in str(error.value)
    assert ", got " in str(error.value)


@pytest.mark.parametrize(("name", "value", "expected"), BAD_TYPES)
def test_a_value_of_another_type_is_refused_by_name(
    name: str, value: object, expected: str
) -> None:
    with pytest.raises(TypeError, match=rf"^\[SparseDeltaMemoryArgs\] {name}: expected") as error:
        SparseDeltaMemoryArgs(**{**GOOD, name: value})
    assert expected in str(error.value)


def test_every_field_is_checked() -> None:
    checked = {name for name, *_ in BAD_VALUES + BAD_TYPES}
    assert checked == {field.name for field in dataclasses.fields(SparseDeltaMemoryArgs)}


def test_odd_head_size_refuses_int4() -> None:
    with pytest.raises(ValueError, match="snapshot_quant: expected an even head size"):
        SparseDeltaMemoryArgs(9, num_heads=3, snapshot_quant="int4")
    SparseDeltaMemoryArgs(12, num_heads=3, snapshot_quant="int4")


def test_the_defaults_are_the_published_ones() -> None:
    given = dataclasses.asdict(SparseDeltaMemoryArgs(1024))
    assert given == {
        "dim": 1024,
        "num_writes": 64,
        "num_reads": 64,
        "slots_per_head": 10000,
        "chunk_size": None,
        "read_act": "Softmax",
        "write_act": "Softmax",
        "read_act_scale": 1.0,
        "write_act_scale": 1.0,
        "normalize_readings": False,
        "norm_eps": 1e-6,
        "A_init_range": (0, 16),
        "backprop_on_memory": True,
        "output_gate": False,
        "query_batchnorm": False,
        "num_heads": 1,
        "key_weighted_decay": False,
        "snapshot_quant": "none",
        "grad_bank_fp32": False,
        "product_key_factor_dims": None,
        "cuda_graph": False,
    }


def test_sizes_follow_from_the_arguments() -> None:
    args = SparseDeltaMemoryArgs(24, num_heads=3)
    assert (args.head_dim, args.factor_dims, args.tokens_per_chunk) == (8, (100, 100), 64)
    args = SparseDeltaMemoryArgs(
        24,
        slots_per_head=30,
        num_writes=3,
        num_reads=3,
        product_key_factor_dims=[2, 15],  # type: ignore[arg-type]
    )
    assert args.factor_dims == (2, 15)
    assert hash(args) == hash(dataclasses.replace(args))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_input_that_is_not_dense_is_refused() -> None:
    layer = SparseDeltaMemory(SparseDeltaMemoryArgs(8, slots_per_head=4, num_writes=1, num_reads=1))
    with pytest.raises(TypeError, match=r"^\[SparseDeltaMemory\] x: .* dense tensor, got sparse"):
        layer(torch.ones(1, 3, 8).to_sparse())
    with pytest.raises(TypeError, match=r"^\[SparseDeltaMemory\] x: .* dense tensor, got nested"):
        layer(torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)]))
