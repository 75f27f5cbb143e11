"""The byte model: embedding, blocks of causal convolution and memory, readout."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from sdm_runtime.train.config import ModelConfig
from sdm_runtime.train.data.sampler import NUM_SYMBOLS
from sdm_runtime.train.trainer.repeatable import RepeatableEmbedding

MemoryFactory = Callable[[ModelConfig, int], nn.Module]
"""Makes the memory layer of a block: a module that maps [batch, length, dim] to
(the same, something to carry on); the second part is not used here."""


class CausalConvolution(nn.Module):
    """Gated convolution over the last ``kernel`` positions.

    A convolution, not attention: at this size a dense convolution is one matmul, and it learned
    faster per second on two cores than sliding windows of 32 or 64 did.
    """

    def __init__(self, dim: int, kernel: int) -> None:
        """Make a layer of width ``dim`` with ``kernel`` taps."""
        super().__init__()
        self.kernel = kernel
        self.taps = nn.Conv1d(dim, 2 * dim, kernel)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, length, dim] to the same; position t sees t - kernel + 1 .. t.

        The sequence is taken for an image of height 1 whose channels come last, as they lie in
        memory: a convolution over [batch, dim, length] would copy it to and fro.
        """
        padded = F.pad(x, (0, 0, self.kernel - 1, 0))
        image = padded.transpose(1, 2).unsqueeze(2)
        mixed = F.conv2d(image, self.taps.weight.unsqueeze(2), self.taps.bias)
        return cast(Tensor, self.out(F.glu(mixed.squeeze(2).transpose(1, 2), dim=2)))


class Block(nn.Module):
    """Convolution, memory (in some blocks) and feed-forward, each added to the stream."""

    def __init__(self, config: ModelConfig, memory: nn.Module | None) -> None:
        """Make a block around the given memory layer, or without one."""
        super().__init__()
        dim = config.dim
        self.local_norm = nn.LayerNorm(dim)
        self.local = CausalConvolution(dim, config.kernel)
        self.memory_norm = nn.LayerNorm(dim) if memory is not None else None
        self.memory = memory
        self.feed_norm = nn.LayerNorm(dim)
        self.feed = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, length, dim] to the same."""
        x = x + self.local(self.local_norm(x))
        if self.memory is not None and self.memory_norm is not None:
            recalled, _ = self.memory(self.memory_norm(x))
            x = x + recalled
        return cast(Tensor, x + self.feed(self.feed_norm(x)))


class ByteModel(nn.Module):
    """Predicts the next byte. Without memory its sight is ``ModelConfig.local_window`` bytes."""

    def __init__(self, config: ModelConfig, make_memory: MemoryFactory | None = None) -> None:
        """Make the model.

        Args:
            config: the shape.
            make_memory: makes each memory layer; by default ``SparseDeltaMemory``.
        """
        super().__init__()
        make = make_memory or sparse_delta_memory
        self.embedding = RepeatableEmbedding(NUM_SYMBOLS, config.dim)
        self.blocks = nn.ModuleList(
            Block(config, make(config, i) if i in config.memory_blocks else None)
            for i in range(config.blocks)
        )
        self.norm = nn.LayerNorm(config.dim)
        self.readout = nn.Linear(config.dim, 256)

    def forward(self, symbols: Tensor) -> Tensor:
        """Return the logits of the next byte, float32 [batch, length, 256].

        Args:
            symbols: int64 [batch, length], bytes or ``DOCUMENT_START``.
        """
        x = self.embedding(symbols)
        for block in self.blocks:
            x = block(x)
        return cast(Tensor, self.readout(self.norm(x)))


def sparse_delta_memory(config: ModelConfig, block: int) -> nn.Module:
    """Return the memory layer of a block.

    What makes it learn recall in hundreds of steps: weights of unit norm, so that what is written
    with a key comes back whole when read with it, and slow decay.
    """
    from sdm_runtime.layer import SparseDeltaMemory, SparseDeltaMemoryArgs

    args = SparseDeltaMemoryArgs(
        dim=config.dim,
        num_heads=config.memory_heads,
        slots_per_head=config.slots,
        num_writes=config.writes,
        num_reads=config.reads,
        chunk_size=config.chunk_size,
        read_act="l2_normalize",
        write_act="l2_normalize",
        normalize_readings=True,
        A_init_range=(0.0, 1.0),
    )
    return SparseDeltaMemory(args, layer_id=block)


def byte_costs(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cost of each target in nats, float32 like ``targets``; 0 where ignored."""
    logits = model(inputs).flatten(0, 1).float()
    costs = F.cross_entropy(logits, targets.flatten(), reduction="none")
    return costs.view_as(targets)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trained values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
