"""Goals: whether one holds, and how far it is from holding, for N lanes at once.

A new kind of goal is a section in `declaration.py` and a class here; a new task needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from so101.families.declaration import AtPoint, Family, FamilyTask, Region, Seated
from so101.families.declaration import Goal as GoalDeclaration


@dataclass
class Features:
    """What goals and rewards look at, of N lanes. Positions in the family's world, m.

    Attributes:
        qpos, qvel: (N, nq), (N, nv).
        bodies: name -> (N, 3) origins of statics and slots.
        rotations: slot -> (N, 4) quaternion w x y z.
        sites: name -> (N, 3).
        grasped: slot -> (N,) bool, both jaws touch it.
        target: (N, 3) the point drawn for the episode.
        action, previous_action: (N, 6) in [-1, 1].
    """

    qpos: np.ndarray
    qvel: np.ndarray
    bodies: dict[str, np.ndarray]
    rotations: dict[str, np.ndarray]
    sites: dict[str, np.ndarray]
    grasped: dict[str, np.ndarray]
    target: np.ndarray
    action: np.ndarray
    previous_action: np.ndarray
    gripper_site: str = field(default="")

    @property
    def gripper(self) -> np.ndarray:
        """(N, 3) of the family's gripper site."""
        return self.sites[self.gripper_site]


class Goal(Protocol):
    """A condition on `Features`."""

    hand_goes_to_subject: bool  # whether the hand terms of the reward make sense

    def shortfall_m(self, f: Features) -> np.ndarray:
        """(N,) m from holding; 0 exactly where it holds."""

    def subject_m(self, f: Features) -> np.ndarray:
        """(N, 3) where the hand is to go."""

    def target_m(self, f: Features) -> np.ndarray:
        """(N, 3) where the subject is to go."""


def holds(goal: Goal, f: Features) -> np.ndarray:
    """(N,) bool."""
    return goal.shortfall_m(f) <= 0.0


class _OfBodies:
    hand_goes_to_subject = True

    def __init__(self, subject: str, target: str) -> None:
        self.subject, self.target = subject, target

    def subject_m(self, f: Features) -> np.ndarray:
        return f.bodies[self.subject]

    def target_m(self, f: Features) -> np.ndarray:
        return f.bodies[self.target]


class Near(_OfBodies):
    """Distance of the origins at most radius_m."""

    def __init__(self, subject: str, target: str, radius_m: float) -> None:
        super().__init__(subject, target)
        self.radius_m = radius_m

    def shortfall_m(self, f: Features) -> np.ndarray:
        return np.maximum(0.0, np.linalg.norm(self.target_m(f) - self.subject_m(f), axis=-1) - self.radius_m)


class Above(_OfBodies):
    """The subject's origin at least margin_m over the target's, wherever it is seen from above."""

    def __init__(self, subject: str, target: str, margin_m: float) -> None:
        super().__init__(subject, target)
        self.margin_m = margin_m

    def shortfall_m(self, f: Features) -> np.ndarray:
        return np.maximum(0.0, self.target_m(f)[:, 2] + self.margin_m - self.subject_m(f)[:, 2])


def _outside_m(points: np.ndarray, region: Region, below_m: float, above_m: float) -> np.ndarray:
    """(N,) distance of points (N, 3) from the box over a region; 0 inside."""
    low = np.array([*region.rect_m[:2], -below_m]) + region.origin_m
    high = np.array([*region.rect_m[2:], above_m]) + region.origin_m
    return np.linalg.norm(np.maximum(0.0, np.maximum(low - points, points - high)), axis=-1)


class AtRegion:
    """A site inside a region."""

    hand_goes_to_subject = False

    def __init__(self, site: str, region: Region) -> None:
        self.site, self.region = site, region

    def shortfall_m(self, f: Features) -> np.ndarray:
        return _outside_m(f.sites[self.site], self.region, self.region.half_height_m, self.region.half_height_m)

    def subject_m(self, f: Features) -> np.ndarray:
        return f.sites[self.site]

    def target_m(self, f: Features) -> np.ndarray:
        return np.broadcast_to(self.region.origin_m, f.gripper.shape)


class OnRegion:
    """A body's origin over a region, from below_m under its surface to above_m over it."""

    hand_goes_to_subject = True

    def __init__(self, subject: str, region: Region, below_m: float, above_m: float) -> None:
        self.subject, self.region, self.heights = subject, region, (below_m, above_m)

    def shortfall_m(self, f: Features) -> np.ndarray:
        return _outside_m(f.bodies[self.subject], self.region, *self.heights)

    def subject_m(self, f: Features) -> np.ndarray:
        return f.bodies[self.subject]

    def target_m(self, f: Features) -> np.ndarray:
        return np.broadcast_to(self.region.origin_m, f.gripper.shape)


class ReachPoint:
    """A site within radius_m of the point drawn for the episode."""

    hand_goes_to_subject = False

    def __init__(self, declared: AtPoint) -> None:
        self.declared = declared

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """(3,) a point, uniform in azimuth, elevation and distance."""
        d = self.declared
        azimuth, elevation, distance = (rng.uniform(*r) for r in (d.azimuth_rad, d.elevation_rad, d.distance_m))
        flat = distance * np.cos(elevation)
        offset = [flat * np.cos(azimuth), flat * np.sin(azimuth), distance * np.sin(elevation)]
        return np.array(d.center_m) + offset

    def distance_m(self, f: Features) -> np.ndarray:
        """(N,) of the site from the point."""
        return np.linalg.norm(self.subject_m(f) - f.target, axis=-1)

    def shortfall_m(self, f: Features) -> np.ndarray:
        return np.maximum(0.0, self.distance_m(f) - self.declared.radius_m)

    def subject_m(self, f: Features) -> np.ndarray:
        return f.sites[self.declared.site]

    def target_m(self, f: Features) -> np.ndarray:
        return f.target


class InOpening:
    """The subject's origin in an opening of the target, upright, at the height of one that is seated (task.yaml)."""

    hand_goes_to_subject = True

    def __init__(self, declared: Seated, family: Family) -> None:
        success = family.config.task.tasks[family.declaration.workshop_task].success
        self.declared, self.strict = declared, success.strict
        self.openings = np.array(success.openings_m)  # (K, 2) in the target's frame

    def shortfall_m(self, f: Features) -> np.ndarray:
        strict = self.strict
        local = _rotate_back(f.rotations[self.declared.target], f.bodies[self.declared.subject] - self.target_origin(f))
        off_axis = np.linalg.norm(local[:, None, :2] - self.openings, axis=-1).min(-1) - strict.max_axis_distance_m
        height = np.maximum(strict.min_height_m - local[:, 2], local[:, 2] - strict.max_height_m)
        up = rotate(f.rotations[self.declared.subject], np.array([0.0, 0.0, 1.0]))[:, 2]
        far = np.linalg.norm(np.maximum(0.0, np.stack([off_axis, height], -1)), axis=-1)
        lean = np.maximum(0.0, strict.min_upright_cos - up) * 0.05  # 5 cm for the whole turn, so that it shows
        return far + lean

    def target_origin(self, f: Features) -> np.ndarray:
        """(N, 3) of the container's frame."""
        return f.bodies[self.declared.target]

    def subject_m(self, f: Features) -> np.ndarray:
        name = self.declared.subject
        return f.bodies[name] + rotate(f.rotations[name], np.array(self.declared.subject_point_m))

    def target_m(self, f: Features) -> np.ndarray:
        middle = self.openings.mean(0)
        return self.target_origin(f) + rotate(f.rotations[self.declared.target], np.array([*middle, 0.0]))


class AllOf:
    """Every part holds; the hand serves the first."""

    def __init__(self, parts: list[Goal]) -> None:
        self.parts = parts
        self.hand_goes_to_subject = parts[0].hand_goes_to_subject

    def shortfall_m(self, f: Features) -> np.ndarray:
        return np.max([part.shortfall_m(f) for part in self.parts], axis=0)

    def subject_m(self, f: Features) -> np.ndarray:
        return self.parts[0].subject_m(f)

    def target_m(self, f: Features) -> np.ndarray:
        return self.parts[0].target_m(f)


class AnyOf(AllOf):
    """One part holds."""

    def shortfall_m(self, f: Features) -> np.ndarray:
        return np.min([part.shortfall_m(f) for part in self.parts], axis=0)


class Negated(AllOf):
    """The part does not hold. How far that is nobody can say: 1 cm."""

    NOT_YET_M = 0.01

    def shortfall_m(self, f: Features) -> np.ndarray:
        return np.where(holds(self.parts[0], f), self.NOT_YET_M, 0.0)


def make_goal(task: FamilyTask) -> Goal:
    """The goal of a task."""
    return _make(task.goal, task.family)


def _make(declared: GoalDeclaration, family: Family) -> Goal:
    kind, value = declared.term
    regions = family.declaration.regions
    if kind == "near":
        return Near(value.subject, value.target, value.radius_m)
    if kind == "above":
        return Above(value.subject, value.target, value.margin_m)
    if kind == "at_region":
        return AtRegion(value.site, regions[value.region])
    if kind == "on_region":
        return OnRegion(value.subject, regions[value.region], value.below_m, value.above_m)
    if kind == "at_point":
        return ReachPoint(value)
    if kind == "seated":
        return InOpening(value, family)
    if kind == "negated":
        return Negated([_make(value, family)])
    return {"all_of": AllOf, "any_of": AnyOf}[kind]([_make(part, family) for part in value])


def points_of(goal: Goal) -> list[ReachPoint]:
    """The goals in it for which a point is drawn."""
    if isinstance(goal, AllOf):
        return [point for part in goal.parts for point in points_of(part)]
    return [goal] if isinstance(goal, ReachPoint) else []


def rotate(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """(N, 3) vectors (3,) or (N, 3) turned by quaternions (N, 4) w x y z."""
    w, v = quat[:, :1], quat[:, 1:]
    vector = np.broadcast_to(vector, v.shape)
    cross = np.cross(v, vector)
    return vector + 2.0 * (w * cross + np.cross(v, cross))


def _rotate_back(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return rotate(quat * [1.0, -1.0, -1.0, -1.0], vector)
