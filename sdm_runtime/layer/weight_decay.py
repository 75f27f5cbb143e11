"""Parameters that an optimizer should not decay."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils import parametrize

from sdm_runtime.layer.memory_layer import SparseDeltaMemory

_OWN = ("A_log", "dt_bias", "memory")
# All their parameters: norms by what they are, and slopes, whose decay torch advises against.
_KINDS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase, nn.PReLU)
# The word "norm" in a name, not a part of "normalized" or "enormous".
_NORM = re.compile(r"[Nn]orm(?![a-z])|NORM(?![A-Z])|[Nn]ormalization")


def split_weight_decay(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split a module's parameters for the parameter groups of an optimizer.

    What a module is decides, so the split is the same after a parameter was replaced: by a load, a
    move, a wrapper. Exempt from weight decay are

    - `A_log`, `dt_bias` and the learned `memory` of every `SparseDeltaMemory`;
    - biases: parameters whose name has "bias" as one of its words (`in_proj_bias`);
    - the parameters of torch's norms and of PReLU;
    - of other libraries' norms, those with at most one dimension: a norm is a class whose name, or
      that of a base, has the word "norm" in it (`LlamaRMSNorm`), and so is a parameter whose own
      name has it (`layer_norm_weight`).

    Everything else decays, embeddings too. A parametrized tensor counts as what it stands for, a
    parameter with several holders is exempt if one of them says so.

    Args:
        module: any module, also compiled, wrapped or sharded by `fully_shard`.

    Returns:
        (decayed, exempt): all parameters, each once and in the module's order.

    Raises:
        TypeError: `module` is no module.
        ValueError: a parameter of several ones made flat, which only some groups would fit.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(_message("a torch.nn.Module", type(module).__name__))
    kept = {id(p) for holder, name, p in _held(module) if _is_exempt(holder, name, p)}
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for parameter in module.parameters():
        if getattr(parameter, "_is_flat_param", False):
            expected = "parameters as the modules hold them (FSDP with use_orig_params=True)"
            raise ValueError(_message(expected, "a FlatParameter"))
        (exempt if id(parameter) in kept else decayed).append(parameter)
    return decayed, exempt


def _held(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Every parameter with each module that holds it and its name there."""
    for holder in module.modules():
        for name, parameter in holder.named_parameters(recurse=False, remove_duplicate=False):
            yield holder, name, parameter
        if parametrize.is_parametrized(holder):
            assert isinstance(holder.parametrizations, nn.ModuleDict)
            for name, originals in holder.parametrizations.items():
                for parameter in originals.parameters(recurse=False):
                    yield holder, name, parameter


def _is_exempt(holder: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    if isinstance(holder, SparseDeltaMemory) and name in _OWN:
        return True
    if isinstance(holder, _KINDS) or "bias" in name.split("_"):
        return True
    names = (name, *(kind.__name__ for kind in type(holder).__mro__))
    return any(map(_NORM.search, names)) and parameter.ndim <= 1


def _message(expected: str, given: str) -> str:
    return f"[split_weight_decay] module: expected {expected}, got {given}"
