"""The networks: a squashed Gaussian actor, and an ensemble of critics that is evaluated in one go."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Standardise(nn.Module):
    """Observations to mean 0 and deviation 1, clipped; fixed when training starts.

    Args:
        mean, deviation: (D,).
        clip: deviations.
    """

    def __init__(self, mean: Tensor, deviation: Tensor, clip: float) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("deviation", deviation.float())
        self.clip = clip

    def forward(self, obs: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return ((obs - self.mean) / self.deviation).clamp_(-self.clip, self.clip)


class Actor(nn.Module):
    """Observation -> a Gaussian, squashed by tanh into (-1, 1).

    Args:
        observation: its words, D.
        actions: A.
        hidden: widths of the layers.
        log_std: least and largest logarithm of the deviation before squashing.
        layer_norm: normalise each hidden layer.
    """

    def __init__(
        self,
        observation: int,
        actions: int,
        hidden: Sequence[int],
        log_std: tuple[float, float],
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = observation
        for size in hidden:
            layers += [nn.Linear(width, size), *([nn.LayerNorm(size)] if layer_norm else []), nn.ReLU()]
            width = size
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 2 * actions)
        self.log_std = log_std

    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log deviation before squashing, (B, A) each, of standardised observations (B, D)."""
        mean, log_std = self.head(self.body(obs)).chunk(2, dim=-1)
        return mean, log_std.clamp(*self.log_std)

    def forward(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        """(B, D) -> actions (B, A)."""
        mean, log_std = self.distribution(obs)
        return torch.tanh(mean if deterministic else mean + log_std.exp() * torch.randn_like(mean))

    def action_log_prob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A sampled action (B, A) and the logarithm of its density (B,)."""
        action, log_prob, _ = self.sample(obs)
        return action, log_prob

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `action_log_prob`, and the greedy action (B, A)."""
        mean, log_std = self.distribution(obs)
        noise = torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        # log of the Gaussian less log |d tanh / d raw|, the latter in a form that stays exact far out
        squash = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        log_prob = (-0.5 * noise.square() - log_std - _HALF_LOG_2PI - squash).sum(-1)
        return torch.tanh(raw), log_prob, torch.tanh(mean)

    def set_training_mode(self, mode: bool) -> None:
        self.train(mode)


class Critics(nn.Module):
    """E critics whose weights lie in one tensor a layer, so that a batched product evaluates them all.

    Args:
        observation, actions: words, D and A.
        hidden: widths of the layers.
        count: E.
        layer_norm: normalise each hidden layer: keeps values of actions no one took from running away (RLPD).
    """

    def __init__(self, observation: int, actions: int, hidden: Sequence[int], count: int, layer_norm: bool) -> None:
        super().__init__()
        widths = [observation + actions, *hidden, 1]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.gains, self.shifts = nn.ParameterList(), nn.ParameterList()
        for inside, outside in zip(widths[:-1], widths[1:], strict=True):
            bound = 1 / math.sqrt(inside)  # as of nn.Linear
            self.weights.append(nn.Parameter(torch.empty(count, inside, outside).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(count, 1, outside).uniform_(-bound, bound)))
        if layer_norm:
            for width in hidden:
                self.gains.append(nn.Parameter(torch.ones(count, 1, width)))
                self.shifts.append(nn.Parameter(torch.zeros(count, 1, width)))

    @property
    def count(self) -> int:
        return len(self.weights[0])

    def forward(self, obs: Tensor, action: Tensor, subset: Tensor | None = None) -> Tensor:
        """Values (E, B) of standardised observations (B, D) and actions (B, A); only of the critics `subset`, (S,)
        indices, when given: (S, B)."""
        pick = (lambda p: p) if subset is None else (lambda p: p.index_select(0, subset))
        x = torch.cat((obs, action), -1)
        first = pick(self.weights[0])
        x = torch.baddbmm(pick(self.biases[0]), x.expand(len(first), -1, -1), first)
        for layer in range(1, len(self.weights)):
            if len(self.gains):
                x = F.layer_norm(x, x.shape[-1:])
                x = torch.addcmul(pick(self.shifts[layer - 1]), x, pick(self.gains[layer - 1]))
            x = torch.baddbmm(pick(self.biases[layer]), F.relu(x), pick(self.weights[layer]))
        return x.squeeze(-1)

    def set_training_mode(self, mode: bool) -> None:
        self.train(mode)
