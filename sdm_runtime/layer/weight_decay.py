"""Parameters that an optimizer should not decay."""

from __future__ import annotations

from torch import nn


def exempt_from_weight_decay(*parameters: nn.Parameter) -> None:
    """Mark parameters (attribute `_no_weight_decay`), as `split_weight_decay` expects it."""
    for parameter in parameters:
        parameter._no_weight_decay = True  # type: ignore[attr-defined]


def split_weight_decay(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split a model's parameters for the parameter groups of an optimizer.

    Returns:
        (decay, no_decay): all parameters, each once; those marked `_no_weight_decay = True`
        (of the layer: A_log and dt_bias) are in the second list.
    """
    decay: list[nn.Parameter] = []
    no_decay: list[nn.Parameter] = []
    for parameter in model.parameters():
        exempt = getattr(parameter, "_no_weight_decay", False)
        (no_decay if exempt else decay).append(parameter)
    return decay, no_decay
