"""From the scores of the selected slots to their weights."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules import activation as torch_activations

L2_NORMALIZE = "l2_normalize"

# Activations of torch.nn that do not map one vector to a vector of the same length.
_UNSUITABLE = ("GLU", "MultiheadAttention", "Softmax2d", "Threshold")
_OVER_SLOTS = ("LogSoftmax", "Softmax", "Softmin")
_NAMES = (
    "Identity",
    *(name for name in torch_activations.__all__ if name not in _UNSUITABLE),
)


def check_activation_name(name: object) -> str | None:
    """What was expected in place of `name`, or None when it names a usable activation."""
    if isinstance(name, str) and (name == L2_NORMALIZE or name in _NAMES):
        return None
    return f'"{L2_NORMALIZE}" or one of torch.nn\'s {", ".join(sorted(_NAMES))}'


class SlotWeights(nn.Module):
    """Weights act(scale * scores) over the selected slots.

    Args:
        name: "l2_normalize" (scores / max(norm, 1e-12)) or the name of a torch.nn activation;
            Softmax, Softmin and LogSoftmax run over the selected slots.
        scale: factor on the scores.
    """

    def __init__(self, name: str, scale: float) -> None:
        """Build the activation."""
        super().__init__()
        self.name = name
        self.scale = float(scale)
        self.act = _build(name)

    def forward(self, scores: Tensor) -> Tensor:
        """Float32 scores [..., k] to float32 weights [..., k]."""
        scores = self.scale * scores if self.scale != 1.0 else scores
        weights: Tensor = self.act(scores)
        return weights

    def extra_repr(self) -> str:
        """The scale, beside the activation that nn.Module prints."""
        return f"scale={self.scale}"


class L2Normalize(nn.Module):
    """Scores divided by their Euclidean norm."""

    def forward(self, scores: Tensor) -> Tensor:
        """[..., k] to [..., k] of norm one; zeros stay zeros."""
        return nn.functional.normalize(scores, dim=-1)


class PReLU(nn.PReLU):
    """torch's, with a slope that may follow the module's dtype: the scores are float32."""

    def forward(self, scores: Tensor) -> Tensor:
        """[..., k] to [..., k], float32."""
        return nn.functional.prelu(scores, self.weight.float())


def _build(name: str) -> nn.Module:
    if name == L2_NORMALIZE:
        return L2Normalize()
    if name == "PReLU":
        return PReLU()
    kind: type[nn.Module] = getattr(nn, name)
    return kind(dim=-1) if name in _OVER_SLOTS else kind()
