"""What a checkpoint's content must be before anything is made of it.

A file can be intact, byte for byte, and still not hold what its run would have written.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor

from sdm_runtime.tensor.words import describe
from sdm_runtime.train.config import RunConfig
from sdm_runtime.train.shown import short
from sdm_runtime.train.trainer.history import History
from sdm_runtime.train.trainer.loop import Trainer

_ABOUT = ("format", "config", "files", "data_digest", "threads", "step")
PARTS = (*_ABOUT, "model", "optimizer", "task", "random", "history")
_MOMENTS = ("exp_avg", "exp_avg_sq")
_MOST_THREADS = 2**16
_MOST_COUNTED = 2**24  # adding one to a larger float32 changes nothing


class ContentError(ValueError):
    """A part is not what a run writes; the message names the part."""


def check_parts(values: Mapping[str, Any], config: RunConfig) -> None:
    """Check all that can be told from the file alone, its ``config`` apart.

    Args:
        values: what the file holds, by the names in ``PARTS``.
        config: of the run.

    Raises:
        ContentError: a part is missing, or of another type, or out of range.
    """
    step, files = values["step"], values["files"]
    most = config.steps
    _expect(_is_count(step, most=most), "step", f"a number within 0..{most}", step)
    expect_count("threads", values["threads"], 1, _MOST_THREADS)
    _expect(isinstance(values["data_digest"], str), "data_digest", "text", values["data_digest"])
    _expect(isinstance(files, list) and all(map(_is_path, files)), "files", "file names", files)
    _expect(isinstance(values["task"], dict), "task", "a state", values["task"])
    expect_names("model", values["model"])
    for name, tensor in values["model"].items():
        _expect(_is_dense(tensor), f"model.{name}", "a tensor", tensor)
    _check_random(values["random"])
    _check_history(values["history"], step, config)


def check_fit(content: Mapping[str, Any], trainer: Trainer, step: int) -> None:
    """Check the model's and the optimizer's tensors against those of the trainer.

    Raises:
        ContentError: a tensor is missing, or one too many, or of another shape, type or layout.
    """
    own = trainer.model.state_dict()
    expect_names("model", content["model"], own.keys())
    for name, tensor in own.items():
        _expect_like(f"model.{name}", content["model"][name], tensor)
    expect_names("optimizer", content["optimizer"], ("state", "param_groups"))
    _check_groups(content["optimizer"]["param_groups"], trainer.optimizer)
    parameters = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    state = content["optimizer"]["state"]
    expect_names("optimizer.state", state, range(len(parameters)) if step > 0 else ())
    for number, moments in state.items():
        where = f"optimizer.state.{number}"
        expect_names(where, moments, ("step", *_MOMENTS))
        check_count_of_steps(f"{where}.step", moments["step"], step)
        for name in _MOMENTS:
            _expect_like(f"{where}.{name}", moments[name], parameters[number].detach())
    _check_memory(content["model"], state)


def check_count_of_steps(where: str, given: Any, step: int) -> None:
    """Raise ContentError unless ``given`` is how AdamW counts ``step`` steps: a float32 scalar."""
    fine = _is_plain(given) and (given.dtype, given.ndim) == (torch.float32, 0)
    counted = min(step, _MOST_COUNTED)
    if not fine or given.item() != counted:
        of = f" of {given.item():g}" if fine else ""
        raise ContentError(
            f"{where}: expected float32 [] of the file's {counted} steps, got {_shown(given)}{of}"
        )


def check_generator(where: str, state: Tensor, device: torch.device) -> None:
    """Raise ContentError unless a generator of the device takes ``state``."""
    try:
        torch.Generator(device).set_state(state)
    except (RuntimeError, TypeError) as error:
        raise ContentError(f"{where}: expected a generator's state, got {_shown(state)}") from error


def expect_names(where: str, given: Any, names: Collection[Any] | None = None) -> None:
    """Raise ContentError unless ``given`` is a dict of these names, or any text without them."""
    _expect(isinstance(given, dict), where or "content", "named parts", given)
    prefix = f"{where}." if where else ""
    for name in given:
        known = isinstance(name, str) if names is None else _is_in(name, names)
        _expect(known, f"{prefix}{short(name)}", "no such part", given[name])
    for name in names or ():
        _expect(name in given, f"{prefix}{name}", "a part of this name", None)


def expect_count(where: str, given: Any, least: int = 0, most: int | None = None) -> None:
    """Raise ContentError unless ``given`` is an integer within ``least .. most``."""
    wanted = f"at least {least}" if most is None else f"within {least}..{most}"
    _expect(_is_count(given, least, most), where, wanted, given)


def _check_random(states: Any) -> None:
    expect_names("random", states, ("cpu", "cuda"))
    for device, state in states.items():
        if device == "cuda" and state is None:
            continue
        flat = _is_plain(state) and state.dtype == torch.uint8 and state.ndim == 1
        _expect(flat, f"random.{device}", "a generator's state", state)
    check_generator("random.cpu", states["cpu"], torch.device("cpu"))


def _check_history(history: Any, step: int, config: RunConfig) -> None:
    expect_names("history", history, [field.name for field in dataclasses.fields(History)])
    losses, seconds = history["losses"], history["seconds"]
    fine = isinstance(losses, list) and all(map(_is_amount, losses)) and len(losses) == step
    _expect(fine, "history.losses", f"{step} numbers of at least 0", losses)
    _check_evaluations(history["evaluations"], step, config)
    # Where no text is as long as the config says, sequences are as long as the longest.
    length = config.recall.length if config.task == "recall" else config.length
    sequences = step * config.batch_size
    expect_count("history.tokens", history["tokens"], sequences, sequences * length)
    _expect(_is_amount(seconds), "history.seconds", "at least 0", seconds)


def _check_evaluations(given: Any, step: int, config: RunConfig) -> None:
    every = config.eval_every
    due = {*range(every, step + 1, every), *([step] if step == config.steps else [])}
    fine = isinstance(given, list) and all(
        isinstance(pair, (list, tuple))
        and len(pair) == 2
        and _is_count(pair[0], 1, step)
        and _is_amount(pair[1])
        for pair in given
    )
    if fine:
        steps = [pair[0] for pair in given]
        # One that is not due is from the end of a run that was given more steps then.
        fine = steps == sorted(set(steps)) and due <= set(steps)
    wanted = (
        "pairs of a step and a number of at least 0, in order, one for every "
        f"{every} steps and the last"
    )
    _expect(fine, "history.evaluations", wanted, given)


def _check_groups(given: Any, optimizer: torch.optim.Optimizer) -> None:
    """Check which numbers each group has; its settings are not read."""
    where, own = "optimizer.param_groups", optimizer.state_dict()["param_groups"]
    fine = isinstance(given, list) and len(given) == len(own)
    _expect(fine, where, f"{len(own)} groups", given)
    for index, (group, wanted) in enumerate(zip(given, own, strict=True)):
        numbers = group.get("params") if isinstance(group, dict) else group
        fine = isinstance(numbers, list) and all(map(_is_count, numbers))
        fine = fine and numbers == wanted["params"]
        _expect(
            fine, f"{where}.{index}", f"the numbers of {len(wanted['params'])} tensors", numbers
        )


def _check_memory(model: Mapping[str, Tensor], state: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Check that no two tensors share memory: a step writes to each of them."""
    tensors = {f"model.{name}": tensor for name, tensor in model.items()}
    for number, parts in state.items():
        tensors |= {f"optimizer.state.{number}.{name}": part for name, part in parts.items()}
    owners: dict[int, str] = {}
    for where, tensor in tensors.items():
        owner = owners.setdefault(tensor.untyped_storage().data_ptr(), where)
        if owner != where and tensor.numel() > 0:
            raise ContentError(f"{where}: expected memory of its own, got that of {owner}")


def _expect_like(where: str, given: Any, own: Tensor) -> None:
    fine = _is_dense(given) and (given.dtype, given.shape) == (own.dtype, own.shape)
    _expect(fine, where, describe(own), given)
    # The fused optimizer reads and writes the memory of its tensors as if it were laid out so.
    layout = _layout(given)
    if layout is not None:
        raise ContentError(f"{where}: expected {describe(own)} contiguous on the CPU, got {layout}")


def _expect(holds: bool, where: str, expected: str, given: object) -> None:
    if not holds:
        raise ContentError(f"{where}: expected {expected}, got {_shown(given)}")


def _shown(value: object) -> str:
    return describe(value) if isinstance(value, Tensor) else short(value)


def _is_count(value: object, least: int = 0, most: int | None = None) -> bool:
    return type(value) is int and value >= least and (most is None or value <= most)


def _is_amount(value: object) -> bool:
    return isinstance(value, float) and 0.0 <= value < math.inf


def _is_path(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_plain(value: object) -> TypeGuard[Tensor]:
    return _is_dense(value) and _layout(value) is None


def _is_dense(value: object) -> TypeGuard[Tensor]:
    return type(value) is Tensor and value.layout == torch.strided and not value.is_quantized


def _layout(tensor: Tensor) -> str | None:
    """Return what about a tensor's memory is not as a run writes it; None where all is."""
    if tensor.device.type != "cpu":
        return str(tensor.device)
    if tensor.requires_grad:
        return "requires_grad"
    if tensor.is_neg() or tensor.is_conj():
        return "a negative view" if tensor.is_neg() else "a conjugate view"
    return None if tensor.is_contiguous() else f"strides {list(tensor.stride())}"


def _is_in(name: object, names: Collection[Any]) -> bool:
    return type(name) in (str, int) and name in names
