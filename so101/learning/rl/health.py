"""Whether the critics believe in more than the rewards bear out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Health:
    """`ratio`: mean Q over what a reward as in the batches, with its share of entropy, would add up to for ever."""

    mean_q: float
    borne_out: float
    state: Literal["fine", "overshoot", "diverged"]

    @property
    def ratio(self) -> float:
        return self.mean_q / self.borne_out

    @property
    def line(self) -> str:
        """For a progress bar."""
        return f"Q {self.mean_q:.1f} of {self.borne_out:.1f}" + ("" if self.state == "fine" else f", {self.state}")

    @property
    def advice(self) -> str:
        """For a log, once."""
        if self.state == "fine":
            return f"values are borne out again: mean Q {self.mean_q:.1f}, rewards {self.borne_out:.1f}"
        word = "overshoot" if self.state == "overshoot" else "have diverged"
        return (
            f"values {word}: mean Q {self.mean_q:.1f} is {self.ratio:.1f} times what the rewards bear out "
            f"({self.borne_out:.1f}); lower training.rl.target.tau or update_ratio, or take more critics"
        )


def judge(figures: dict[str, float], gamma: float, backup: bool, overshoot: float, diverged: float) -> Health | None:
    """The health of a stretch of training from its figures (mean_q, batch_reward, alpha, entropy); None before there
    are any. Rewards that are mostly negative or cancel out are measured by their size."""
    if "mean_q" not in figures or "entropy" not in figures:
        return None
    bonus = figures["alpha"] * max(0.0, figures["entropy"]) if backup else 0.0
    borne_out = max((figures["batch_reward"] + bonus) / (1 - gamma), 1e-6)
    ratio = figures["mean_q"] / borne_out
    state = "diverged" if ratio > diverged else "overshoot" if ratio > overshoot else "fine"
    return Health(figures["mean_q"], borne_out, state)
