"""The network of the embedded policy: pictures, joints and task in, a chunk of joint targets out.

A small convolutional encoder a camera ends in spatial softmax (Finn et al. 2016, arXiv:1509.06113): where in the
picture each of its channels looks. A residual MLP joins cameras, joints and task. Its head either regresses the chunk
(L1) or learns the velocity field that carries noise to chunks (flow matching, Lipman et al. 2023, arXiv:2210.02747).
While training, a linear layer also tells where the objects are, where that is known.

Letters: B batch, C cameras, H rows of a chunk, D joints.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_TASK_WIDTH, _TIME_WIDTH = 16, 32


@dataclass(frozen=True)
class Architecture:
    """All that decides the shape of the weights. `points`: object points of the auxiliary loss."""

    head: str
    channels: tuple[int, int, int]
    width: int
    blocks: int
    dropout: float
    cameras: int
    joints: int
    horizon: int
    tasks: int
    points: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "channels": list(self.channels)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Architecture:
        return cls(**{**values, "channels": tuple(values["channels"])})


class ChunkNetwork(nn.Module):
    """Everything in and out is normalised: pictures 0..1, joints and chunks to mean 0 and deviation 1."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape = shape
        self.encoders = nn.ModuleList(CameraEncoder(shape.channels) for _ in range(shape.cameras))
        self.task = nn.Embedding(shape.tasks, _TASK_WIDTH)
        features = shape.cameras * self.encoders[0].features + shape.joints + _TASK_WIDTH
        self.trunk = nn.Sequential(
            nn.Linear(features, shape.width), nn.LayerNorm(shape.width), nn.SiLU(), nn.Dropout(shape.dropout),
            ResidualBlock(shape.width, shape.dropout),
        )  # fmt: skip
        self.points = nn.Linear(shape.width, shape.points * 3) if shape.points else None
        self.head = (FlowHead if shape.head == "flow" else RegressionHead)(shape)

    def encode(self, pictures: Tensor, joints: Tensor, task: Tensor) -> Tensor:
        """(C, B, 3, height, width), (B, D), (B,) int -> (B, width)."""
        seen = [encoder(picture) for encoder, picture in zip(self.encoders, pictures, strict=True)]
        return self.trunk(torch.cat([*seen, joints, self.task(task)], dim=1))

    def tell_points(self, encoded: Tensor) -> Tensor:
        """(B, width) -> (B, P, 3), where the object points are."""
        if self.points is None:
            return encoded.new_zeros(len(encoded), 0, 3)
        return self.points(encoded).unflatten(1, (-1, 3))

    def act(self, pictures: Tensor, joints: Tensor, task: Tensor, steps: int, noise: Tensor) -> Tensor:
        """A chunk (B, H, D). `steps` and `noise` (B, H, D), what it begins at, are for flow matching."""
        return self.head.act(self.encode(pictures, joints, task), steps, noise)


class CameraEncoder(nn.Module):
    """(B, 3, height, width) -> (B, features): per channel the mean place in -1..1 and the mean activity."""

    def __init__(self, channels: tuple[int, int, int]) -> None:
        super().__init__()
        first, second, last = channels
        self.features = 3 * last
        self.layers = nn.Sequential(
            nn.Conv2d(3, first, 8, 4, 2), nn.ReLU(),
            nn.Conv2d(first, second, 3, 2, 1), nn.GroupNorm(second // 8, second), nn.ReLU(),
            nn.Conv2d(second, last, 3, 1, 1), nn.GroupNorm(last // 8, last), nn.ReLU(),
            nn.Conv2d(last, last, 3, 1, 1),
        )  # fmt: skip
        self.sharpness = nn.Parameter(torch.ones(last))

    def forward(self, picture: Tensor) -> Tensor:
        maps = self.layers(picture)
        flat = maps.flatten(2)
        share = torch.softmax(flat * self.sharpness[:, None], dim=-1).unflatten(2, maps.shape[2:])
        y = torch.linspace(-1, 1, maps.shape[2], device=maps.device)
        x = torch.linspace(-1, 1, maps.shape[3], device=maps.device)
        return torch.cat([share.sum(2) @ x, share.sum(3) @ y, torch.tanh(flat.mean(-1))], dim=1)


class ResidualBlock(nn.Module):
    """x + MLP(norm(x) + condition)."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), nn.SiLU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor, condition: Tensor | float = 0.0) -> Tensor:
        return x + self.layers(self.norm(x) + condition)


class RegressionHead(nn.Module):
    """The chunk itself."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self._rows = (shape.horizon, shape.joints)
        self.blocks = nn.Sequential(*(ResidualBlock(shape.width, shape.dropout) for _ in range(shape.blocks)))
        self.out = nn.Sequential(nn.LayerNorm(shape.width), nn.Linear(shape.width, math.prod(self._rows)))

    def act(self, encoded: Tensor, steps: int, noise: Tensor | None) -> Tensor:
        return self.out(self.blocks(encoded)).unflatten(1, self._rows)

    def losses(self, encoded: Tensor, chunk: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Mean absolute error of every element of the batch, (B,)."""
        return (self.act(encoded, 0, None) - chunk).abs().mean((1, 2))


class FlowHead(nn.Module):
    """The velocity at x_t = (1 - t) noise + t chunk, which is chunk - noise on average."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self._rows = (shape.horizon, shape.joints)
        self.into = nn.Linear(math.prod(self._rows), shape.width)
        self.time = nn.Linear(_TIME_WIDTH, shape.width)
        self.condition = nn.Linear(shape.width, shape.width)
        self.blocks = nn.ModuleList(ResidualBlock(shape.width, shape.dropout) for _ in range(shape.blocks))
        self.out = nn.Sequential(nn.LayerNorm(shape.width), nn.Linear(shape.width, math.prod(self._rows)))

    def velocity(self, x: Tensor, t: Tensor, encoded: Tensor) -> Tensor:
        """(B, H, D), (B,), (B, width) -> (B, H, D)."""
        condition = self.condition(encoded) + self.time(_waves(t))
        hidden = self.into(x.flatten(1)) + condition
        for block in self.blocks:
            hidden = block(hidden, condition)
        return self.out(hidden).unflatten(1, self._rows)

    def act(self, encoded: Tensor, steps: int, noise: Tensor) -> Tensor:
        """Midpoint steps from noise at t = 0 to a chunk at t = 1."""
        x = noise
        for step in range(steps):
            t = torch.full((len(encoded),), step / steps, device=encoded.device)
            middle = x + self.velocity(x, t, encoded) * (0.5 / steps)
            x = x + self.velocity(middle, t + 0.5 / steps, encoded) / steps
        return x

    def losses(self, encoded: Tensor, chunk: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Mean squared error of the velocity of every element of the batch, (B,), over `samples` noises and times."""
        chunk = chunk.repeat_interleave(samples, 0)
        noise = torch.randn(chunk.shape, generator=generator, device=generator.device).to(chunk.device)
        t = torch.rand(len(chunk), generator=generator, device=generator.device).to(chunk.device)
        x = torch.lerp(noise, chunk, t[:, None, None])
        error = self.velocity(x, t, encoded.repeat_interleave(samples, 0)) - (chunk - noise)
        return error.square().mean((1, 2)).unflatten(0, (-1, samples)).mean(1)


def _waves(t: Tensor) -> Tensor:
    """Sines and cosines of t from half a period to many, (B, _TIME_WIDTH)."""
    angles = t[:, None] * math.pi * torch.logspace(0, 2, _TIME_WIDTH // 2, device=t.device)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def point_loss(told: Tensor, points: Tensor) -> Tensor:
    """Mean absolute error over the object points that are known; both (B, P, 3), `points` with nan where nobody knows.
    0 when none is."""
    known = ~points.isnan()
    error = F.l1_loss(told[known], points[known], reduction="sum")
    return error / known.sum().clamp(min=1)
