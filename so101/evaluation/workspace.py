"""Where the arm can grasp: approaches and yaws it serves over the table, room to its joint limits, and a slice through
the height. By kinematics alone; nothing is in the way.

Turned about its pan axis the arm stays the same, so IK is asked along one ray from that axis, and the map of the table
follows: a cell has what its distance has, as far as the pan joint turns.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

from so101.config import Config
from so101.errors import ConfigError, did_you_mean
from so101.evaluation.coverage import is_moved, turning_point
from so101.geometry import make_pose
from so101.geometry.frames import base_from_world, world_from_base
from so101.kinematics import ArmKinematics
from so101.kinematics.arm import NUM_ARM_JOINTS
from so101.sim.bake import T_world_base
from so101.tasks.grasping import PinchFinder, level_roll, table_top_m
from so101.tasks.placement import nominal_placements


@dataclass(frozen=True)
class StartArea:
    """Where an object of the task may start: ranges in world, m."""

    name: str
    moved: bool
    x_m: tuple[float, float]
    y_m: tuple[float, float]


@dataclass(frozen=True)
class TableMap:
    """What is reached at grasp height, in (NX, NY) cells of the table between edges in world, m.

    Attributes:
        height_m: of the grasp over the base.
        dips_deg: (D,) approaches below the horizontal that were tried.
        dips_served: (NX, NY, D) bool: at some yaw.
        yaw_share: share of the yaws of an object that are served, at some dip.
        margin: of the solution that stays farthest from the joint limits, the distance of its nearest joint to a limit
            as a share of that joint's range; nan out of reach.
        nearest_joint: index of that joint; -1 out of reach.
    """

    height_m: float
    x_edges: np.ndarray
    y_edges: np.ndarray
    dips_deg: np.ndarray
    dips_served: np.ndarray
    yaw_share: np.ndarray
    margin: np.ndarray
    nearest_joint: np.ndarray

    @property
    def reached(self) -> np.ndarray:
        """(NX, NY) bool."""
        return self.yaw_share > 0

    def yaw_share_in(self, x_m: tuple[float, float], y_m: tuple[float, float]) -> float:
        """Mean share of the yaws that are served in a rectangle of world."""
        return float(self.yaw_share[self.within(x_m, y_m)].mean())

    def within(self, x_m: tuple[float, float], y_m: tuple[float, float]) -> np.ndarray:
        """(NX, NY) bool: cells with their middle in a rectangle of world; of a smaller one, the cells nearest to its
        middle."""
        x, y = np.meshgrid(_middles(self.x_edges), _middles(self.y_edges), indexing="ij")
        inside = (x >= x_m[0]) & (x <= x_m[1]) & (y >= y_m[0]) & (y <= y_m[1])
        if not inside.any():
            away = np.hypot(x - np.mean(x_m), y - np.mean(y_m))
            inside = away == away.min()
        return inside


@dataclass(frozen=True)
class HeightSlice:
    """Approaches that the joint limits leave in the arm's own plane, in (NR, NZ) cells of distance from the pan axis
    and height over the base, m: lowest and highest dip below the horizontal, deg; nan out of reach."""

    radius_edges: np.ndarray
    height_edges: np.ndarray
    dip_low_deg: np.ndarray
    dip_high_deg: np.ndarray

    def serves(self, dip_deg: float) -> np.ndarray:
        """(NR, NZ) bool."""
        return (self.dip_low_deg <= dip_deg) & (dip_deg <= self.dip_high_deg)


@dataclass(frozen=True)
class Workspace:
    """All maps of one configuration; `joints` names the arm's joints, `pan_axis_m` (2,) is in world."""

    table: TableMap
    slice: HeightSlice
    slice_dips_deg: list[float]
    areas: list[StartArea]
    joints: list[str]
    pan_axis_m: np.ndarray


def workspace(config: Config) -> Workspace:
    """Maps for the task in use, remembered for the next page of the same process.

    Raises:
        ConfigError: dataset.yaml names a table that scene.yaml does not have.
    """
    return _workspace(config.model_dump_json())


@functools.lru_cache(maxsize=4)
def _workspace(config_json: str) -> Workspace:
    config = Config.model_validate_json(config_json)
    kinematics = ArmKinematics(config)
    pan_axis = np.array([*config.skillgen.transit.pan_axis_m, 0.0])
    return Workspace(
        table=_table_map(config, kinematics),
        slice=_height_slice(config, kinematics),
        slice_dips_deg=config.dataset.report.workspace.slice_dips_deg,
        areas=start_areas(config),
        joints=[joint.name for joint in config.robot.joints[:NUM_ARM_JOINTS]],
        pan_axis_m=world_from_base(T_world_base(config), make_pose(np.eye(3), pan_axis))[:2, 3],
    )


def start_areas(config: Config) -> list[StartArea]:
    """Start areas of the objects of the task in use, those that are moved first."""
    task, areas = config.task.active, []
    for name, placement in task.objects.items():
        x, y = turning_point(placement)
        ranges = ((float(at + low), float(at + high)) for at, (low, high) in ((x, placement.x_m), (y, placement.y_m)))
        areas.append(StartArea(name, is_moved(name, task), *ranges))
    return sorted(areas, key=lambda area: not area.moved)


def workspace_numbers(maps: Workspace) -> dict[str, Any]:
    """The maps as JSON values; cells out of reach are null."""
    table, height = maps.table, maps.slice
    dips = [[[float(d) for d in table.dips_deg[served]] for served in row] for row in table.dips_served]
    return {
        "start_areas": {area.name: area_numbers(maps, area) for area in maps.areas},
        "table": {
            "grasp_height_m": round(table.height_m, 6),
            "x_edges_m": np.round(table.x_edges, 6).tolist(),
            "y_edges_m": np.round(table.y_edges, 6).tolist(),
            "reached_share": float(table.reached.mean()),
            "yaw_share": np.round(table.yaw_share, 4).tolist(),
            "dips_deg": dips,
            "limit_margin": _or_none(table.margin),
            "nearest_joint": [[maps.joints[j] if j >= 0 else None for j in row] for row in table.nearest_joint],
        },
        "slice": {
            "radius_edges_m": np.round(height.radius_edges, 6).tolist(),
            "height_edges_m": np.round(height.height_edges, 6).tolist(),
            "dip_low_deg": _or_none(height.dip_low_deg),
            "dip_high_deg": _or_none(height.dip_high_deg),
        },
    }


def area_numbers(maps: Workspace, area: StartArea) -> dict[str, Any]:
    """What the cells of a start area have, as JSON values."""
    table = maps.table
    inside = table.within(area.x_m, area.y_m)
    reached = inside & table.reached
    numbers: dict[str, Any] = {
        "moved": area.moved,
        "x_m": area.x_m,
        "y_m": area.y_m,
        "cells": int(inside.sum()),
        "reached": int(reached.sum()),
        "yaw_share": table.yaw_share_in(area.x_m, area.y_m),
        "dips_deg": None,
        "limit_margin": None,
        "nearest_joint": None,
    }
    if reached.any():
        everywhere = table.dips_deg[table.dips_served[reached].all(0)]
        tightest = np.nanargmin(np.where(reached, table.margin, np.nan))
        numbers["dips_deg"] = [float(everywhere.min()), float(everywhere.max())] if len(everywhere) else None
        numbers["limit_margin"] = round(float(table.margin.flat[tightest]), 4)
        numbers["nearest_joint"] = maps.joints[table.nearest_joint.flat[tightest]]
    return numbers


def _or_none(values: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(value) else round(float(value), 4) for value in row] for row in values]


def _middles(edges: np.ndarray) -> np.ndarray:
    return (edges[:-1] + edges[1:]) / 2


def _edges(low: float, high: float, cell: float) -> np.ndarray:
    return np.linspace(low, high, max(1, round((high - low) / cell)) + 1)


def _table_map(config: Config, kinematics: ArmKinematics) -> TableMap:
    settings = config.dataset.report.workspace
    (x_low, x_high), (y_low, y_high) = _table_extent(config)
    x_edges, y_edges = _edges(x_low, x_high, settings.cell_m), _edges(y_low, y_high, settings.cell_m)
    height = _grasp_height(config)
    finder = PinchFinder(config, kinematics)
    radii = np.arange(0.5, settings.radius_m / settings.cell_m) * settings.cell_m
    q = _along_the_ray(config, finder, radii, height)  # (R, D, Y, 2, 5)
    shape = len(x_edges) - 1, len(y_edges) - 1
    dips = np.array(config.task.pinch.dips_deg)
    served, yaw_share = np.zeros((*shape, len(dips)), bool), np.zeros(shape)
    margin, nearest = np.full(shape, np.nan), np.full(shape, -1)
    lower, upper = kinematics.lower[:NUM_ARM_JOINTS], kinematics.upper[:NUM_ARM_JOINTS]
    middles = np.stack(np.meshgrid(_middles(x_edges), _middles(y_edges), [0.0], indexing="ij"), -1)[:, :, 0]
    T_base_cell = base_from_world(T_world_base(config), make_pose(np.eye(3), middles))
    from_axis = T_base_cell[..., :2, 3] - finder.pan_axis  # (NX, NY, 2)
    for cell in np.ndindex(shape):
        azimuth = np.arctan2(from_axis[cell][1], from_axis[cell][0])
        ring = round(float(np.hypot(*from_axis[cell])) / settings.cell_m - 0.5)
        if ring >= len(radii):
            continue
        there = q[ring].copy()
        there[..., 0] -= azimuth  # the pan joint turns against azimuth
        room = np.minimum(there - lower, upper - there) / (upper - lower)  # (D, Y, 2, 5), nan where not reached
        fits = room.min(-1) >= 0
        served[cell], yaw_share[cell] = fits.any((1, 2)), fits.any((0, 2)).mean()
        if fits.any():
            joints = room.reshape(-1, NUM_ARM_JOINTS)[np.where(fits, room.min(-1), -1.0).argmax()]
            margin[cell], nearest[cell] = joints.min(), joints.argmin()
    return TableMap(height, x_edges, y_edges, dips, served, yaw_share, margin, nearest)


def _along_the_ray(config: Config, finder: PinchFinder, radii: np.ndarray, height_m: float) -> np.ndarray:
    """(R, D, Y, 2, 5) joints, rad, of pinches at (R,) distances from the pan axis straight ahead, for every dip, every
    yaw of a line that lies on the table, and either side of the hand up; nan where there is none.

    With the line straight ahead the hand is level, and the wrist turns least: elsewhere than there and one step beside
    no other yaw is asked for.
    """
    dips = np.deg2rad(config.task.pinch.dips_deg)
    yaws = np.deg2rad(np.arange(0.0, 180.0, config.dataset.report.workspace.yaw_step_deg))
    q = np.full((len(radii), len(dips), len(yaws), 2, NUM_ARM_JOINTS), np.nan)

    def ask(r: int, d: int, y: int) -> None:
        point = np.array([finder.pan_axis[0] + radii[r], finder.pan_axis[1], height_m])
        axis = np.array([np.cos(yaws[y]), np.sin(yaws[y]), 0.0])
        for flipped in (False, True):
            pinch = finder.pinch(point, axis, dips[d], flipped)
            if pinch is not None:
                q[r, d, y, int(flipped)] = pinch.q

    for d in range(len(dips)):
        for r in range(len(radii)):
            ask(r, d, 0)
        ahead = np.isfinite(q[:, d, 0, :, 0]).any(-1)
        for r in np.flatnonzero(ndimage.binary_dilation(ahead)):
            for y in range(1, len(yaws)):
                ask(r, d, y)
    return q


def _height_slice(config: Config, kinematics: ArmKinematics) -> HeightSlice:
    """Forward kinematics of a grid of the three joints that move in the plane."""
    settings = config.dataset.report.workspace
    low, high = kinematics.lower[1:4], kinematics.upper[1:4]
    samples = np.linspace(low, high, settings.slice_samples)
    grid = np.stack(np.meshgrid(*samples.T, indexing="ij"), -1).reshape(-1, 3)
    still = np.zeros((len(grid), 1))
    T = kinematics.fk(np.concatenate([still, grid, still + level_roll(kinematics)], -1))
    radius, height = T[:, 0, 3] - config.skillgen.transit.pan_axis_m[0], T[:, 2, 3]
    dip = np.rad2deg(np.arctan2(-T[:, 2, 0], T[:, 0, 0]))
    radius_edges = _edges(0.0, settings.radius_m, settings.slice_cell_m)
    height_edges = _edges(table_top_m(config), settings.slice_top_m, settings.slice_cell_m)
    column = np.digitize(radius, radius_edges) - 1
    row = np.digitize(height, height_edges) - 1
    shape = len(radius_edges) - 1, len(height_edges) - 1
    inside = (column >= 0) & (column < shape[0]) & (row >= 0) & (row < shape[1])
    lowest, highest = np.full(shape, np.inf), np.full(shape, -np.inf)
    np.minimum.at(lowest, (column[inside], row[inside]), dip[inside])
    np.maximum.at(highest, (column[inside], row[inside]), dip[inside])
    empty = lowest > highest
    return HeightSlice(radius_edges, height_edges, np.where(empty, np.nan, lowest), np.where(empty, np.nan, highest))


def _table_extent(config: Config) -> tuple[tuple[float, float], tuple[float, float]]:
    """x and y of the table's first box, m, in world."""
    name, statics = config.dataset.report.workspace.table, config.scene.statics
    if name not in statics:
        raise ConfigError(
            f"dataset.yaml: report.workspace.table is {name!r}; scene.yaml has the statics "
            f"{', '.join(sorted(statics))}{did_you_mean(name, statics)}"
        )
    geom = statics[name].geoms[0]
    middle = np.array(config.scene.static_positions_m[name][:2]) + geom.position_m[:2]
    half = np.array([geom.size_m[0], geom.size_m[min(1, len(geom.size_m) - 1)]])
    return tuple((float(at - reach), float(at + reach)) for at, reach in zip(middle, half, strict=True))


def _grasp_height(config: Config) -> float:
    """Height over the base, m, of the first object that is moved, of the first of all when none is."""
    task = config.task.active
    name = next((name for name in task.objects if is_moved(name, task)), next(iter(task.objects)))
    return float(nominal_placements(config)[name][2])
