"""The pseudo-real rig: a twin that differs from the training twin as an arm on a table would, drawn from a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from so101.config import Config
from so101.config.ranges import Scale, Shift, between
from so101.errors import ConfigError
from so101.rendering.looks import draw_looks, light_rgb
from so101.sim.randomisation import child_generator, draw_randomisation, joint_ranges

_JOINTS = 6
_LIGHT_K = (1000.0, 40000.0)  # embers to the bluest sky


@dataclass(frozen=True)
class RigDraw:
    """How a rig differs from the twin.

    Attributes:
        physics: as `so101.sim.randomisation` draws it, joints only.
        looks: as `so101.rendering.looks` draws them: lights, and cameras off their places.
        backlash_rad, zero_error_rad: (6,) play of the gears; measured less true joint.
        reply_delay_s: of the servos; as in robot.yaml when None.
        seed, strength: as given to `draw_rig`.
    """

    physics: dict[str, Any] = field(default_factory=dict)
    looks: dict[str, Any] = field(default_factory=dict)
    backlash_rad: np.ndarray = field(default_factory=lambda: np.zeros(_JOINTS))
    zero_error_rad: np.ndarray = field(default_factory=lambda: np.zeros(_JOINTS))
    reply_delay_s: float | None = None
    seed: int | None = None
    strength: float = 0.0


NOMINAL = RigDraw()


def draw_rig(config: Config, seed: int, strength: float = 1.0) -> RigDraw:
    """The pseudo-real rig of robot.yaml's ranges; equal seeds give equal rigs.

    Args:
        strength: how far from the twin: 0 is the twin itself (`NOMINAL`), 1 the rig as drawn, 2 the same rig twice as
            far off. What is drawn as a factor goes by ratio, nominal * (drawn / nominal) ** strength: servo gains,
            friction, inertia, focal length, colour temperature, saturation. What is drawn as a difference goes
            linearly: delays, play, zero errors, exposure, places and turns of lamps and cameras, hue. Delays stay
            within robot.max_delay_s, light is that of something that glows. A colour drawn in place of the twin's own
            (robot_rgb, surfaces) is there or not.

    Raises:
        ConfigError: the strength is negative or no number.
    """
    if not (math.isfinite(strength) and strength >= 0):
        raise ConfigError(f"strength of a pseudo-real rig is {strength:g}; it must be 0 (the twin itself) or more")
    if strength == 0:
        return NOMINAL
    ranges = config.robot.virtual.pseudo_real
    off = dict.fromkeys(("jaw_friction", "objects", "statics", "racked", "distractors"))
    drawn = config.scene.randomisation.model_copy(update={"enabled": True, "joints": ranges.joints, **off})
    scene = config.scene.model_copy(update={"randomisation": drawn})
    render = config.render.model_copy(update={"randomisation": ranges.looks})
    other = config.model_copy(update={"scene": scene, "render": render})
    physics = draw_randomisation(other, child_generator(seed, "rig physics"))["physics"]

    def per_joint(interval: tuple[float, float], name: str) -> np.ndarray:
        return np.array([between(interval, u) for u in child_generator(seed, f"rig {name}").random(_JOINTS).tolist()])

    rig = RigDraw(
        physics={"joints": physics["joints"]},
        looks=draw_looks(other, seed),
        backlash_rad=per_joint(ranges.backlash_rad, "backlash"),
        zero_error_rad=per_joint(ranges.zero_error_rad, "zero error"),
        reply_delay_s=between(ranges.reply_delay_s, child_generator(seed, "rig reply delay").random()),
        seed=seed,
        strength=1.0,
    )
    return rig if strength == 1 else _moved_away(other, rig, strength)


def _moved_away(config: Config, rig: RigDraw, strength: float) -> RigDraw:
    """`rig`, drawn with `config`, `strength` times as far from the twin."""
    nominal_delay_s = config.robot.virtual.reply_delay_s
    return RigDraw(
        physics={"joints": _joints(config, rig.physics["joints"], strength)},
        looks=_looks(config, rig.looks, strength),
        backlash_rad=np.maximum(0.0, strength * rig.backlash_rad),
        zero_error_rad=strength * rig.zero_error_rad,
        reply_delay_s=max(0.0, nominal_delay_s + strength * (rig.reply_delay_s - nominal_delay_s)),
        seed=rig.seed,
        strength=strength,
    )


def _joints(config: Config, drawn: dict[str, list[float]], strength: float) -> dict[str, list[float]]:
    ranges = joint_ranges(config)

    def moved(law: Scale | Shift | None, nominal: float, value: float) -> float:
        if isinstance(law, Scale):
            return nominal * (value / nominal) ** strength if nominal > 0 else value
        return max(0.0, nominal + strength * (value - nominal))

    found = {
        key: [
            moved(law, getattr(joint, key), value)
            for law, joint, value in zip(ranges[key], config.robot.joints, values, strict=True)
        ]
        for key, values in drawn.items()
    }
    found["delay_s"] = [min(value, config.robot.max_delay_s) for value in found["delay_s"]]
    return found


def _looks(config: Config, drawn: dict[str, Any], strength: float) -> dict[str, Any]:
    looks = dict(drawn)
    if "exposure_ev" in drawn:
        looks["exposure_ev"] = strength * drawn["exposure_ev"]
    if "temperature_k" in drawn:
        white_k = config.render.randomisation.temperature.white_k
        far_k = white_k * (drawn["temperature_k"] / white_k) ** strength
        looks["temperature_k"] = min(max(far_k, _LIGHT_K[0]), _LIGHT_K[1])
    if drawn:
        looks["light_rgb"] = light_rgb(config, looks).tolist()
    if "lamps" in drawn:
        looks["lamps"] = {name: _times(strength, shift) for name, shift in drawn["lamps"].items()}
    looks["objects"] = {
        name: {
            "hue_turn": strength * change["hue_turn"],
            "saturation": change["saturation"] ** strength,
            "value": change["value"] ** strength,
        }
        for name, change in drawn.get("objects", {}).items()
    }
    looks["cameras"] = {
        name: {
            "focal": change["focal"] ** strength,
            "shift_m": _times(strength, change["shift_m"]),
            "turn_rad": _times(strength, change["turn_rad"]),
        }
        for name, change in drawn.get("cameras", {}).items()
    }
    return looks if drawn else {}


def _times(strength: float, values: list[float]) -> list[float]:
    return [strength * value for value in values]
