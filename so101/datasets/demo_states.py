"""What rows of .demo files say about joints and objects, by the names of their words (so101.families)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from so101.datasets.demo_episode import DemoHeader
from so101.errors import DataError
from so101.families import FamilyTask, FamilyVectorEnv
from so101.families.scene import compiled

_POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")


@dataclass(frozen=True)
class Words:
    """Places in an observation. `objects`: name -> its 7 words of position and quaternion w x y z; `active`: name ->
    the word that is 1 while it is there, of those that have one."""

    joints: list[int]
    objects: dict[str, list[int]]
    active: dict[str, int]
    target: list[int]

    def present(self, obs: np.ndarray) -> list[str]:
        """Objects that are there in all rows of (T, D)."""
        return [name for name in self.objects if name not in self.active or (obs[:, self.active[name]] > 0).all()]


def find_words(header: DemoHeader, joint_names: tuple[str, ...]) -> Words:
    """Where joints and objects are.

    Raises:
        DataError: the observation does not hold every joint.
    """
    at = {name: place for place, name in enumerate(header.observation_names)}
    missing = [name for name in joint_names if f"{name}.pos" not in at]
    if missing:
        raise DataError(
            f"the observations of task {header.task!r} hold no joint {', '.join(missing)} (words: "
            f"{', '.join(header.observation_names[:8])}, ...); only those of task families can be converted"
        )
    objects = [name.removesuffix(".qw") for name in at if name.endswith(".qw")]
    return Words(
        joints=[at[f"{name}.pos"] for name in joint_names],
        objects={name: [at[f"{name}.{part}"] for part in _POSE] for name in objects},
        active={name: at[f"{name}.active"] for name in objects if f"{name}.active" in at},
        target=[at[f"target.{axis}"] for axis in "xyz" if f"target.{axis}" in at],
    )


def header_of(env: FamilyVectorEnv, meta: dict[str, Any] | None = None) -> DemoHeader:
    """The header of rows that an environment gives."""
    return DemoHeader(
        task=env.task.name,
        family=env.family.name,
        control_hz=1.0 / env.control_dt,
        observation_names=tuple(env.observation_names),
        action_names=env.family.config.robot.joint_names,
        meta=meta or {},
    )


def action_to_rad(action: np.ndarray, task: FamilyTask) -> np.ndarray:
    """(T, 6) actions in [-1, 1] as joint targets, rad: affine onto each actuator's range."""
    lower, upper = compiled(task.family).actuator_ctrlrange.T
    return (upper + lower) / 2 + np.clip(np.asarray(action, float), -1, 1) * (upper - lower) / 2


def in_base(poses: np.ndarray, task: FamilyTask) -> np.ndarray:
    """(T, 7) poses in the family's world as T_base_obj, quaternions of length 1."""
    moved = np.asarray(poses, float).copy()
    moved[:, :3] -= task.family.declaration.arm.base_position_m
    moved[:, 3:] /= np.linalg.norm(moved[:, 3:], axis=1, keepdims=True)
    return moved


def in_world(poses: np.ndarray, task: FamilyTask) -> np.ndarray:
    """The inverse of `in_base`."""
    moved = np.asarray(poses, float).copy()
    moved[:, :3] += task.family.declaration.arm.base_position_m
    return moved
