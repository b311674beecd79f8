"""How an episode of a family begins: joints, slots, the point to reach. All follows from the episode's seed alone."""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np

from so101.errors import So101Error
from so101.families.declaration import Family, FamilyTask
from so101.families.goals import Goal, points_of
from so101.families.scene import compiled, slot_names, workshop

JOINTS, POINT, SLOTS = 0, 1, 2  # streams: each draw has its own, so that none moves the others


class PlacementError(So101Error):
    """The slots of a task do not fit where it places them."""


class Beginning(NamedTuple):
    """q (6,) rad; poses: slot -> (7,) position m and quaternion w x y z in the family's world, absent ones left out;
    point (3,) m, zeros where the goal has none."""

    q: np.ndarray
    poses: dict[str, np.ndarray]
    point: np.ndarray


def stream(seed: int, kind: int, number: int = 0, attempt: int = 0) -> np.random.Generator:
    """Random numbers that depend on these four and on nothing else (Philox, counter-based)."""
    return np.random.Generator(np.random.Philox(key=[seed, kind], counter=[0, 0, number, attempt]))


def draw_beginning(task: FamilyTask, goal: Goal, seed: int) -> Beginning:
    """Draw the start of the episode `seed` (>= 0).

    Raises:
        PlacementError: after placement.attempts the slots still overlap.
    """
    declared = task.family.declaration
    point = np.zeros(3)
    for number, reach in enumerate(points_of(goal)):
        point = reach.draw(stream(seed, POINT, number))
    if declared.workshop_task is not None:
        from so101.tasks.start import draw_start

        start = draw_start(workshop(task.family), np.random.default_rng(seed))
        return Beginning(start.q, start.objects, point)
    start = declared.start
    q = np.array(start.qpos_rad) + stream(seed, JOINTS).uniform(-1, 1, 6) * start.noise_rad
    return Beginning(q, _draw_slots(task, seed, q), point)


def _draw_slots(task: FamilyTask, seed: int, q: np.ndarray) -> dict[str, np.ndarray]:
    declared = task.family.declaration
    attempts, near = declared.placement.attempts, declared.placement.arm_clearance_m > 0
    arm = _arm(task.family) if near else None
    poses: dict[str, np.ndarray] = {}
    for number, name in enumerate(slot_names(task.family)):
        place = task.declaration.place.get(name)
        if place is None:
            continue
        region, slot = declared.regions[place.region], declared.slots[name]
        for attempt in range(attempts):
            rng = stream(seed, SLOTS, number, attempt)
            x, y = rng.uniform(region.rect_m[:2], region.rect_m[2:]) + region.origin_m[:2]
            yaw = rng.uniform(-np.pi, np.pi) if place.yaw else 0.0
            apart = [
                np.hypot(x - pose[0], y - pose[1])
                - (place.separation_m or slot.radius_m + declared.slots[other].radius_m)
                for other, pose in poses.items()
            ]
            z = region.origin_m[2] - slot.bottom_m
            pose = np.array([x, y, z, np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])
            if all(gap >= 0 for gap in apart) and (arm is None or arm.is_clear_of(q, name, pose)):
                break
        else:
            raise PlacementError(
                f"{task.name}: no room for {name!r} in region {place.region!r} beside "
                f"{', '.join([*poses, 'the arm'])} after {attempts} attempts (seed {seed}); make the region larger or "
                "separation_m smaller in "
                f"configs/families/{task.family.file}"
            )
        poses[name] = pose + [0, 0, declared.start.drop_m, 0, 0, 0, 0]
    return poses


class _Arm:
    """The arm at its start, to see whether a slot comes too near. Not thread-safe: it owns one MjData."""

    def __init__(self, family: Family) -> None:
        self._near = family.declaration.placement.arm_clearance_m + family.declaration.start.drop_m
        self._model = model = compiled(family)
        self._data = mujoco.MjData(model)
        collide = np.flatnonzero(model.geom_contype)
        body = model.geom_bodyid[collide]
        self._arm = collide[model.body_rootid[body] == model.body("base").id]
        self._slots = {name: collide[body == model.body(name).id] for name in slot_names(family)}
        self._qpos = {name: int(model.joint(name).qposadr[0]) for name in self._slots}

    def is_clear_of(self, q: np.ndarray, name: str, pose: np.ndarray) -> bool:
        """Whether the slot at `pose` (7,) keeps off the arm at joints (6,) rad by the clearance and what it falls."""
        model, data = self._model, self._data
        start = self._qpos[name]
        data.qpos[: len(q)], data.qpos[start : start + 7] = q, pose
        mujoco.mj_kinematics(model, data)
        slot, arm = self._slots[name], self._arm
        between = np.linalg.norm(data.geom_xpos[arm][:, None] - data.geom_xpos[slot], axis=-1)
        reach = model.geom_rbound[arm][:, None] + model.geom_rbound[slot] + self._near
        return all(
            mujoco.mj_geomDistance(model, data, arm[i], slot[j], self._near, None) >= self._near
            for i, j in zip(*np.nonzero(between < reach), strict=True)
        )


_arms: list[tuple[Family, _Arm]] = []  # of the family asked for last


def _arm(family: Family) -> _Arm:
    if not _arms or _arms[0][0] is not family:
        _arms[:] = [(family, _Arm(family))]
    return _arms[0][1]
