"""Gradients that add in a fixed order, and which operations a training step is made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sdm_runtime.train.config import ModelConfig
from sdm_runtime.train.trainer import repeatable
from sdm_runtime.train.trainer.model import ByteModel
from sdm_runtime.train.trainer.optim import make_optimizer
from sdm_runtime.train.trainer.repeatable import (
    RepeatableEmbedding,
    repeatable_convolutions,
    sums_by_symbol,
)
from sdm_runtime.train.trainer.step import make_step

from .conftest import SMALL

CPU = torch.device("cpu")
MEMORY = ModelConfig(
    dim=16,
    blocks=2,
    memory_blocks=(0, 1),
    memory_heads=2,
    slots=16,
    writes=4,
    reads=4,
    chunk_size=16,
)

# Of aten, on a GPU: what adds in any order, as torch.use_deterministic_algorithms lists them, and
# what a gradient of an operation in common use is computed by. Matched as a prefix.
ANY_ORDER = (
    "embedding_dense_backward",
    "embedding_bag",
    "_embedding_bag",
    "index_add",
    "index_put",  # with accumulate, which the gradient of indexing sets
    "_index_put_impl",
    "index_reduce",
    "put",
    "scatter_add",  # also the gradient of gather
    "scatter_reduce",
    "cumsum",
    "cumprod",
    "bincount",
    "histc",
    "kthvalue",
    "median",
    "nll_loss2d",
    "reflection_pad",
    "replication_pad",
    "upsample",
    "grid_sampler",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool3d_backward",
    "fractional_max_pool",
    "max_pool3d_with_indices_backward",
    "max_unpool",
    "_ctc_loss_backward",
    "_scaled_dot_product",
    "_flash_attention_backward",
    "_efficient_attention_backward",
    "_segment_reduce_backward",
    "sum_to_size",
)
# Integers add to the same sum in any order, and so does what is sorted.
OF_INTEGERS = ("cumsum", "bincount")


class Operations(TorchDispatchMode):
    """Collects the operations that add in any order on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.every: set[str] = set()
        self.any_order: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.every.add(name)
        if name.startswith(ANY_ORDER):
            whole = isinstance(args[0], Tensor) and not args[0].is_floating_point()
            if not (whole and name.startswith(OF_INTEGERS)):
                self.any_order.add(name)
        return func(*args, **(kwargs or {}))


def gradient(embedding: nn.Embedding, symbols: Tensor, grad: Tensor) -> Tensor:
    embedding.weight.grad = None
    embedding(symbols).backward(grad)
    assert embedding.weight.grad is not None
    return embedding.weight.grad


def embeddings(dtype: torch.dtype, dim: int = 24) -> tuple[nn.Embedding, nn.Embedding]:
    torch.manual_seed(0)
    plain = nn.Embedding(257, dim).to(dtype)
    ours = RepeatableEmbedding(257, dim).to(dtype)
    ours.load_state_dict(plain.state_dict())
    return plain, ours


@pytest.mark.parametrize("shape", [(3, 50), (1,), (2, 3, 4), (0, 5), (40000,)], ids=str)
def test_gradient_is_the_plain_embeddings(shape: tuple[int, ...]) -> None:
    plain, ours = embeddings(torch.float64)
    symbols = torch.randint(257, shape)
    grad = torch.randn(*shape, 24, dtype=torch.float64)
    assert torch.equal(ours(symbols), plain(symbols))
    got, want = gradient(ours, symbols, grad), gradient(plain, symbols, grad)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    # The control: the rows of other symbols.
    if symbols.numel() > 1:
        other = gradient(plain, (symbols + 1) % 257, grad)
        assert not torch.allclose(got, other)


def test_gradient_in_float32_is_as_near_to_the_truth() -> None:
    plain, ours = embeddings(torch.float32)
    symbols = torch.randint(7, (20000,))
    grad = torch.randn(20000, 24)
    exact = gradient(plain.double(), symbols, grad.double())
    plain.float()
    error = (gradient(ours, symbols, grad) - exact).abs().max()
    assert error < 2 * (gradient(plain, symbols, grad) - exact).abs().max()


def test_sums_of_whole_numbers_are_exact_whatever_the_blocks(monkeypatch) -> None:
    symbols = torch.randint(5, (1000,))
    rows = torch.randint(-50, 50, (1000, 3)).float()
    want = torch.zeros(6, 3).index_add_(0, symbols, rows)
    assert torch.equal(sums_by_symbol(rows, symbols, 6), want)
    assert not want[5].any()
    for block in (1, 333, 999, 1000):
        monkeypatch.setattr(repeatable, "_ROWS_PER_PRODUCT", block)
        assert torch.equal(sums_by_symbol(rows, symbols, 6), want)
    # Rounded once, at the end: bfloat16 could not hold the sums on the way.
    many = torch.ones(4096, 3, dtype=torch.bfloat16)
    assert sums_by_symbol(many, torch.zeros(4096, dtype=torch.int64), 2)[0, 0] == 4096


def test_the_model_takes_it() -> None:
    model = ByteModel(SMALL.model)
    assert isinstance(model.embedding, RepeatableEmbedding)
    torch.manual_seed(0)
    ours = RepeatableEmbedding(257, 16).weight
    torch.manual_seed(0)
    assert torch.equal(ours, nn.Embedding(257, 16).weight)  # the same start from a seed


def training_step(model: nn.Module) -> list[float]:
    optimizer = make_optimizer(model, SMALL.optim, CPU)
    step = make_step(model, optimizer, 1.0)
    symbols = torch.randint(256, (3, 61), generator=torch.Generator().manual_seed(0))
    operands = (symbols[:, :-1], symbols[:, 1:], torch.tensor(1 / 180), torch.tensor(1e-2))
    return [float(step(*operands)) for _ in range(2)]


def new_model() -> ByteModel:
    torch.manual_seed(0)
    return ByteModel(MEMORY)


def test_no_operation_of_a_step_adds_in_any_order() -> None:
    with Operations() as operations:
        training_step(new_model())
    assert operations.any_order == set()
    assert len(operations.every) > 60
    assert {"convolution_backward", "native_layer_norm_backward"} <= operations.every


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: nn.Embedding(9, 4)(x[0].long()), "embedding_dense_backward"),
        (lambda x: x.cumsum(0), "cumsum"),
        (lambda x: x[[0, 0]], "index_put"),
        (lambda x: x.gather(1, torch.zeros(3, 9, dtype=torch.int64)), "scatter_add"),
        (lambda x: nn.functional.pad(x, (1, 1), mode="reflect"), "reflection_pad"),
        (lambda x: x.index_select(0, torch.tensor([0, 0])), "index_add"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_such_an_operation_would_be_found(function, name: str) -> None:
    x = torch.ones(3, 9, requires_grad=True)
    with Operations() as operations:
        function(x).sum().backward()
    assert any(found.startswith((name, f"_{name}")) for found in operations.any_order)


def test_a_step_under_deterministic_algorithms(monkeypatch) -> None:
    want = training_step(new_model())
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        # Uninitialized memory is NaN here: none of it reaches the losses.
        assert torch.isnan(torch.empty(3)).all()
        assert training_step(new_model()) == want
        with pytest.raises(RuntimeError, match="deterministic"):  # the control
            torch.ones(4).put_(torch.tensor([0]), torch.ones(1))
    finally:
        torch.use_deterministic_algorithms(False)


class Settings(nn.Module):
    """Notes cuDNN's settings in its forward and in its backward."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(257, 256)
        self.seen: list[tuple[bool, bool]] = []

    def note(self, *_: object) -> None:
        self.seen.append((torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark))

    def forward(self, symbols: Tensor) -> Tensor:
        self.note()
        logits = self.table(symbols)
        logits.register_hook(self.note)
        return logits


def test_a_step_rules_out_convolutions_that_do_not_repeat(monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert not torch.backends.cudnn.deterministic
    model = Settings()
    training_step(model)
    assert model.seen == [(True, False)] * 4
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (False, True)


def test_settings_come_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), repeatable_convolutions():
        print(1 / 0)
    assert not torch.backends.cudnn.deterministic
