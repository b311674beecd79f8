"""The pseudo-real rig: a twin that differs from the training twin as an arm on a table would, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from so101.config import Config
from so101.config.ranges import between
from so101.rendering.looks import draw_looks
from so101.sim.randomisation import child_generator, draw_randomisation

_JOINTS = 6


@dataclass(frozen=True)
class RigDraw:
    """How a rig differs from the twin.

    Attributes:
        physics: as `so101.sim.randomisation` draws it, joints only.
        looks: as `so101.rendering.looks` draws them: lights, and cameras off their places.
        backlash_rad, zero_error_rad: (6,) play of the gears; measured less true joint.
        reply_delay_s: of the servos; as in robot.yaml when None.
    """

    physics: dict[str, Any] = field(default_factory=dict)
    looks: dict[str, Any] = field(default_factory=dict)
    backlash_rad: np.ndarray = field(default_factory=lambda: np.zeros(_JOINTS))
    zero_error_rad: np.ndarray = field(default_factory=lambda: np.zeros(_JOINTS))
    reply_delay_s: float | None = None


NOMINAL = RigDraw()


def draw_rig(config: Config, seed: int) -> RigDraw:
    """The pseudo-real rig of robot.yaml's ranges; equal seeds give equal rigs."""
    ranges = config.robot.virtual.pseudo_real
    off = dict.fromkeys(("jaw_friction", "objects", "statics", "racked", "distractors"))
    drawn = config.scene.randomisation.model_copy(update={"enabled": True, "joints": ranges.joints, **off})
    scene = config.scene.model_copy(update={"randomisation": drawn})
    render = config.render.model_copy(update={"randomisation": ranges.looks})
    other = config.model_copy(update={"scene": scene, "render": render})
    physics = draw_randomisation(other, child_generator(seed, "rig physics"))["physics"]

    def per_joint(interval: tuple[float, float], name: str) -> np.ndarray:
        return np.array([between(interval, u) for u in child_generator(seed, f"rig {name}").random(_JOINTS).tolist()])

    return RigDraw(
        physics={"joints": physics["joints"]},
        looks=draw_looks(other, seed),
        backlash_rad=per_joint(ranges.backlash_rad, "backlash"),
        zero_error_rad=per_joint(ranges.zero_error_rad, "zero error"),
        reply_delay_s=between(ranges.reply_delay_s, child_generator(seed, "rig reply delay").random()),
    )
