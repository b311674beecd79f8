"""Physics drawn anew for every attempt, and where optional bodies stand.

A draw is plain JSON and holds the values themselves (a mass in kg, a stiffness in Nm/rad), not factors: what a demo
records says what its world was like, and is all that a replay needs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from so101.config import Config
from so101.config.ranges import Scale, Shift, between
from so101.config.scene import PropConfig
from so101.sim.clutter import draw_distractors, racked_pose

_ROOT = 2**63  # a root seed is below this
_SHIFTS = ("x_m", "y_m", "yaw_rad")


def draw_randomisation(config: Config, rng: np.random.Generator) -> dict[str, Any]:
    """Draw the physics of one attempt.

    One number is taken from `rng`; every group, joint value and object has a generator of its own made from it, so that
    switching one off does not shift the others.

    Returns:
        {} when scene.randomisation is off, else {"physics": {...}} in plain JSON values, SI units:
            joints: key of robot.yaml's joints -> one value a joint.
            jaw_friction: sliding friction of the jaws.
            objects: name -> mass_kg, friction, diameter_change_m of everything that is there.
            statics: name -> x_m, y_m, yaw_rad, moved by this much in the world.
            racked: name -> number of the opening it stands in, and its yaw_rad; empty when there is none.
            distractors: name -> (7,) pose in base of those that are there.
    """
    settings = config.scene.randomisation
    if not settings.enabled:
        return {}
    root = int(rng.integers(_ROOT))
    physics: dict[str, Any] = {}
    if settings.joints:
        physics["joints"] = _draw_joints(config, root)
    if settings.jaw_friction:
        physics["jaw_friction"] = settings.jaw_friction.value(0.0, child_generator(root, "jaw_friction").random())
    if settings.statics:
        physics["statics"] = {
            name: {
                key: between(getattr(ranges, key), u)
                for key, u in zip(_SHIFTS, child_generator(root, f"static {name}").random(3).tolist(), strict=True)
            }
            for name, ranges in settings.statics.items()
        }
    physics["racked"] = _draw_racked(config, child_generator(root, "racked"))
    distractors = child_generator(root, "distractors")
    physics["distractors"] = draw_distractors(config, distractors) if settings.distractors else {}
    if settings.objects:
        there = {*config.task.active.objects, *physics["racked"], *physics["distractors"]}
        physics["objects"] = {
            name: _draw_object(config, config.scene.props[placement.prop], child_generator(root, f"object {name}"))
            for name, placement in config.objects.items()
            if name in there and config.scene.props[placement.prop].free
        }
    return {"physics": physics}


def extra_placements(
    config: Config, randomisation: Mapping[str, Any], objects: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Start poses of the optional bodies that were drawn, name -> (7,) in base; those absent stay parked.

    Args:
        objects: start poses (7,) in base of the objects of the task; a pre-racked object follows its container.
    """
    physics = randomisation.get("physics") or {}
    poses = {name: np.array(pose) for name, pose in physics.get("distractors", {}).items()}
    for name, draw in physics.get("racked", {}).items():
        container = objects[config.task.active.success.container]
        poses[name] = racked_pose(config, container, config.objects[name].prop, draw["opening"], draw["yaw_rad"])
    return poses


def joint_ranges(config: Config) -> dict[str, list[Scale | Shift | None]]:
    """Key of robot.yaml's joints -> what each joint's value is drawn from; None: it stays what it is."""
    ranges, count = config.scene.randomisation.joints, len(config.robot.joints)
    return {
        "stiffness_nm_per_rad": [ranges.stiffness] * (count - 1) + [ranges.gripper_stiffness],
        "velocity_gain_nm_s_per_rad": [ranges.velocity_gain] * count,
        "damping_nm_s_per_rad": [ranges.damping] * count,
        "friction_nm": [ranges.friction] * count,
        "armature_kg_m2": [ranges.armature] * count,
        "delay_s": [ranges.delay_s] * count,
    }


def child_generator(root: int, name: str) -> np.random.Generator:
    """The generator of the draws called `name` that belong to a root seed."""
    return np.random.default_rng([root, zlib.crc32(name.encode())])


def _draw_joints(config: Config, root: int) -> dict[str, list[float]]:
    joints, drawn = config.robot.joints, {}
    for key, choices in joint_ranges(config).items():
        shares = child_generator(root, f"joint {key}").random(len(joints))
        if key == "delay_s":
            shares[:] = shares[0]
        drawn[key] = [
            max(0.0, choice.value(nominal, u)) if choice else nominal
            for choice, nominal, u in zip(choices, [getattr(j, key) for j in joints], shares.tolist(), strict=True)
        ]
    return drawn


def _draw_object(config: Config, prop: PropConfig, rng: np.random.Generator) -> dict[str, float]:
    ranges = config.scene.randomisation.objects
    mass, friction, diameter = rng.random(3).tolist()
    drawn = {}
    if ranges.mass and prop.mass_kg is not None:
        drawn["mass_kg"] = ranges.mass.value(prop.mass_kg, mass)
    if ranges.friction:
        drawn["friction"] = ranges.friction.value(0.0, friction)
    if ranges.diameter_m and any(geom.is_round for geom in prop.geoms):
        drawn["diameter_change_m"] = ranges.diameter_m.value(0.0, diameter)
    return drawn


def _draw_racked(config: Config, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    chance, opening, yaw = rng.random(3).tolist()
    racked, openings = config.racked, len(config.task.active.success.openings_m)
    if racked is None or chance >= racked.probability:
        return {}
    return {racked.object: {"opening": int(opening * openings), "yaw_rad": between((-np.pi, np.pi), yaw)}}
