"""Initial values, each tensor by itself.

Everything is written through torch.nn.init: frameworks that load a model guard its functions, so
that they leave alone what a checkpoint has brought.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

_RATE_FLOOR = 1e-4
_STEP_RANGE = (1e-3, 1e-1)
_STEP_FLOOR = 1e-4


@torch.no_grad()
def init_decay_rates_(a_log: Tensor, rates: tuple[float, float]) -> None:
    """Fill A_log [H] with log(max(uniform(rates), 1e-4)), drawn in float32."""
    drawn = torch.empty_like(a_log, dtype=torch.float32).uniform_(*rates)
    _write(a_log, drawn.clamp(min=_RATE_FLOOR).log())


@torch.no_grad()
def init_step_bias_(dt_bias: Tensor) -> None:
    """Fill dt_bias [H] with the inverse softplus of dt, log-uniform in [0.001, 0.1].

    softplus(dt_bias) = dt is then the step at which a zero projection decays the memory.
    """
    low, high = (math.log(bound) for bound in _STEP_RANGE)
    step = torch.empty_like(dt_bias, dtype=torch.float32).uniform_(low, high).exp()
    step = step.clamp(min=_STEP_FLOOR)
    # softplus^-1(y) = log(exp(y) - 1) = y + log(1 - exp(-y)), without overflow or cancellation
    _write(dt_bias, step + torch.log(-torch.expm1(-step)))


def _write(parameter: Tensor, values: Tensor) -> None:
    """Copy values where torch.nn.init may write: it has no function that copies."""
    nn.init.constant_(parameter, math.nan)
    cleared = parameter.isnan().all()
    parameter.copy_(torch.where(cleared, values.to(parameter.dtype), parameter))


def tensors_by_holder(layer: nn.Module, names: Iterable[str] | None) -> dict[nn.Module, set[str]]:
    """The named parameters and buffers, all for None, by the modules that hold them.

    Raises:
        TypeError, ValueError: as SparseDeltaMemory.reset_parameters.
    """
    there = [name for name, _ in layer.named_parameters(remove_duplicate=False)]
    there += [name for name, _ in layer.named_buffers(remove_duplicate=False)]
    wanted = set(there) if names is None else _checked(names, there)
    found: dict[nn.Module, set[str]] = {}
    for name in there:
        if name not in wanted:
            continue
        prefix, _, own = name.rpartition(".")
        holder = layer.get_submodule(prefix)
        if not callable(getattr(holder, "reset_parameters", None)):
            expected = "tensors of modules with a reset_parameters"
            raise ValueError(_message(expected, f"{name} of a {type(holder).__name__}"))
        found.setdefault(holder, set()).add(own)
    return found


def _checked(names: Iterable[str], there: Sequence[str]) -> set[str]:
    if isinstance(names, str):
        raise TypeError(_message("names of parameters", f"the str {names!r}"))
    wanted = set(names)
    for name in wanted:
        if not isinstance(name, str):
            raise TypeError(_message("names of parameters", repr(name)))
        if name not in there:
            raise ValueError(_message("parameters or buffers of the layer", repr(name)))
    return wanted


def _message(expected: str, given: str) -> str:
    return f"[SparseDeltaMemory] names: expected {expected}, got {given}"


def reset_module(module: nn.Module, names: set[str]) -> None:
    """Draw the named tensors that `module` itself holds, as its construction does, and no others.

    Args:
        module: with a reset_parameters.
        names: of its own parameters and buffers.
    """
    with _only(module, names):
        if not isinstance(module, _NormBase):
            module.reset_parameters()  # type: ignore[operator]
            return
        # torch writes these directly, also where what was loaded is guarded.
        for name, value in (("running_mean", 0.0), ("running_var", 1.0)):
            if (tensor := getattr(module, name)) is not None:
                nn.init.constant_(tensor, value)
        if module.num_batches_tracked is not None:
            nn.init.zeros_(module.num_batches_tracked)
        if module.affine:
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


@contextmanager
def _only(module: nn.Module, names: set[str]) -> Iterator[None]:
    """Put stand-ins in the place of all other tensors that the module holds."""
    replaced = []
    try:
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None and name not in names:
                    replaced.append((table, name, tensor))
                    table[name] = torch.empty_like(tensor)  # type: ignore[assignment]
        yield
    finally:
        for table, name, tensor in replaced:
            table[name] = tensor  # type: ignore[assignment]
