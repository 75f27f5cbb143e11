"""Parameters that an optimizer should not decay."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import torch
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

    A module that `torch.jit` scripted, traced or loaded counts by the name of its class, which is
    all that is left of it: a norm that only its base's name shows decays there. Of a graph, as
    `torch.export` and `torch.fx` make them, the modules that are left in it count; parameters whose
    modules are gone are refused. So split before an export.

    Args:
        module: any module, also compiled, wrapped or sharded by `fully_shard`.

    Returns:
        (decayed, exempt): all parameters, each once and in the module's order.

    Raises:
        TypeError: `module` is not a module.
        ValueError: a parameter of several ones made flat, which only some groups would fit; or one
            that a graph holds in no module of its kind.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(_message("a torch.nn.Module", type(module).__name__))
    _expect_kinds(module)
    kept = {id(p) for holder, name, p in _held(module) if _is_exempt(holder, name, p)}
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for parameter in module.parameters():
        if getattr(parameter, "_is_flat_param", False):
            expected = "parameters as the modules hold them (FSDP with use_orig_params=True)"
            raise ValueError(_message(expected, "a FlatParameter"))
        (exempt if id(parameter) in kept else decayed).append(parameter)
    return decayed, exempt


def _expect_kinds(module: nn.Module) -> None:
    """Refuse graphs that hold parameters: the modules that these were of are gone."""
    graphs = _graph_kinds()
    for graph in (m for m in module.modules() if isinstance(m, graphs)):
        for path, holder in graph.named_modules():
            # A module that the graph goes through is left as a bare one with its tensors.
            if not isinstance(holder, graphs) and type(holder) is not nn.Module:
                continue
            for name, _ in holder.named_parameters(path, recurse=False):
                given = (
                    f"a graph ({type(graph).__name__}) that holds {name}, of a kind that is lost"
                )
                raise ValueError(_message("modules that hold the parameters", given))


def _graph_kinds() -> tuple[type[nn.Module], ...]:
    # Where the second is not loaded nobody has made one.
    unflatten = sys.modules.get("torch.export.unflatten")
    names = ("UnflattenedModule", "InterpreterModule") if unflatten else ()
    return torch.fx.GraphModule, *(getattr(unflatten, name) for name in names)


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
    kind = _kind(holder)
    if issubclass(kind, _KINDS) or "bias" in name.split("_"):
        return True
    names = (name, *(base.__name__ for base in kind.__mro__))
    return any(map(_NORM.search, names)) and parameter.ndim <= 1


def _kind(holder: nn.Module) -> type:
    """The module's class, or, where torch.jit has left its name alone, torch's or one so named."""
    if not isinstance(holder, torch.jit.ScriptModule):
        return type(holder)
    name = str(holder.original_name)
    known = getattr(nn, name, None)
    return known if isinstance(known, type) else type(name, (nn.Module,), {})


def _message(expected: str, given: str) -> str:
    return f"[split_weight_decay] module: expected {expected}, got {given}"
