"""How an episode of a family begins: joints, slots, the point to reach. All follows from the episode's seed alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from so101.errors import So101Error
from so101.families.declaration import FamilyTask
from so101.families.goals import Goal, points_of
from so101.families.scene import slot_names, workshop

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
    return Beginning(q, _draw_slots(task, seed), point)


def _draw_slots(task: FamilyTask, seed: int) -> dict[str, np.ndarray]:
    declared = task.family.declaration
    attempts = declared.placement["attempts"]
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
            if all(gap >= 0 for gap in apart):
                break
        else:
            raise PlacementError(
                f"{task.name}: no room for {name!r} in region {place.region!r} beside {', '.join(poses)} after "
                f"{attempts} attempts (seed {seed}); make the region larger or separation_m smaller in "
                f"configs/families/{task.family.name}.yaml"
            )
        z = region.origin_m[2] - slot.bottom_m + declared.start.drop_m
        poses[name] = np.array([x, y, z, np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])
    return poses
