"""deploy.yaml, section `transfer`: policies on pseudo-real rigs, and demos recorded there."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from so101.config.base import Section

Strength = Annotated[float, Field(ge=0, le=10)]  # factors go by its power: far beyond, nothing is an arm any more


class RigDemosConfig(Section):
    """Demos that stand for those of a real arm. Attempt k has the placement of seed `first_seed` + k and the rig of
    seed `first_rig` + k modulo `rigs`."""

    first_seed: int = Field(ge=0)
    first_rig: int = Field(ge=0)
    rigs: int = Field(ge=1)
    strength: Strength
    tries_per_demo: int = Field(ge=1)


class TransferConfig(Section):
    """Episode i of `deploy.evaluation` has the rig of seed `first_rig` + i modulo `rigs`. `failures_filmed`: of a
    policy and strength."""

    strengths: Annotated[list[Strength], Field(min_length=1)]
    episodes: int = Field(ge=1)
    first_rig: int = Field(ge=0)
    rigs: int = Field(ge=1)
    failures_filmed: int = Field(ge=0)
    demos: RigDemosConfig
