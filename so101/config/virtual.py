"""robot.yaml, `virtual`: the servo bus without an arm, and how the pseudo-real rig differs from the twin."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from so101.config.base import Section
from so101.config.ranges import Interval
from so101.config.render import LooksRandomisation
from so101.config.scene import JointRandomisation


class VirtualServoConfig(Section):
    """What the registers do not say about an STS3215."""

    supply_v: float = Field(gt=0, le=25)
    supply_ohm: float = Field(ge=0)
    brownout_v: float = Field(ge=0)
    stall_current_a: float = Field(gt=0)
    ambient_c: float
    heating_c: float = Field(ge=0)
    heating_s: float = Field(gt=0)
    cooled_c: float = Field(ge=0)
    identified_acceleration: int = Field(ge=1, le=254)
    identified_p_coefficient: int = Field(ge=1, le=254)
    identified_jaw_max_torque: int = Field(ge=1, le=1000)
    kinematic_lag_s: float = Field(ge=0)


class PseudoRealConfig(Section):
    """A rig that is not quite the twin; every value is drawn from its seed. Joints and looks as in scene.yaml and
    render.yaml; backlash and zero error are per joint."""

    joints: JointRandomisation
    backlash_rad: Interval
    zero_error_rad: Interval
    reply_delay_s: Interval
    looks: LooksRandomisation


class VirtualConfig(Section):
    """The virtual servo bus."""

    pacing: bool
    reply_delay_s: float = Field(ge=0)
    silence_s: float = Field(gt=0)
    wake_s: float = Field(gt=0, le=0.1)
    max_behind_s: float = Field(gt=0)
    nice: int = Field(ge=-20, le=19)
    homing_offset_ticks: Annotated[list[Annotated[int, Field(ge=-2047, le=2047)]], Field(min_length=6, max_length=6)]
    servo: VirtualServoConfig
    pseudo_real: PseudoRealConfig
