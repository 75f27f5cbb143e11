"""Which tensors are read: those whose memory holds their elements."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sdm_runtime.tensor.refs import check_memory, operand_refs, tensor_ref


def read(x: Tensor) -> None:
    """In all the ways that there are."""
    check_memory("x", x)
    tensor_ref("x", x)
    operand_refs({"x": x})


EMPTY = {
    "behind the end": torch.zeros(4).as_strided((0,), (1,), 4),
    "beyond it": torch.zeros(4).as_strided((0, 3), (3, 1), 9),
    "of nothing": torch.empty(0).as_strided((0,), (1,), 3),
    "freed": torch.zeros(4)[2:2],
}
EMPTY["freed"].untyped_storage().resize_(0)


@pytest.mark.parametrize("name", EMPTY)
def test_of_an_empty_view_nothing_is_read_wherever_it_begins(name: str) -> None:
    x = EMPTY[name]
    assert x.storage_offset() * 4 >= x.untyped_storage().nbytes()
    read(x)


@pytest.mark.parametrize("first", [0, 2])
def test_a_storage_that_is_too_small_is_refused(first: int) -> None:
    x = torch.zeros(6)[first:]
    read(x)
    x.untyped_storage().resize_(20)
    for way in (check_memory, tensor_ref):
        with pytest.raises(ValueError, match="x: expected a storage of 24 bytes, got 20 bytes"):
            way("x", x)
    with pytest.raises(ValueError, match="x: expected a storage of 24 bytes, got 20 bytes"):
        operand_refs({"x": x})
