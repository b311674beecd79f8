"""How a demo looks: drawn from its seed, written into the fields of a model that are read anew for every frame.

A draw is plain JSON and holds colours, shifts and factors by name; equal seeds and settings give equal draws.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from so101.config import Config
from so101.config.ranges import between
from so101.config.render import ColorRandomisation, TemperatureRandomisation
from so101.errors import SimulationError, did_you_mean
from so101.geometry import (
    quat_from_rotation,
    rotation_about_axis,
    rotation_from_quat,
    rotation_from_rotation_vector,
)
from so101.sim.randomisation import child_generator

# Planck's law: second radiation constant hc/k in m K, and where eyes and sRGB put red, green and blue, in m.
_RADIATION_M_K = 0.014388
_PRIMARIES_M = np.array([612e-9, 549e-9, 465e-9])
_UP = np.array([0.0, 0.0, 1.0])

_FIELDS = (
    "light_pos", "light_dir", "light_diffuse", "light_ambient", "light_specular",
    "mat_rgba", "geom_rgba", "cam_pos", "cam_quat", "cam_fovy", "cam_intrinsic",
)  # fmt: skip
_LIGHT_COLORS = ("diffuse", "ambient", "specular")


def draw_looks(config: Config, seed: int) -> dict[str, Any]:
    """Draw how the demo with this attempt seed looks. Every group has a generator of its own.

    Returns:
        {} when render.randomisation is off, else, of the groups that are on:
            exposure_ev, temperature_k, and light_rgb: the factors of all light that follow from them.
            lamps: name -> shift m, world axes.
            robot_rgb: printed parts.
            surfaces: name -> rgb.
            objects: name -> hue_turn, saturation, value, as in render.yaml.
            cameras: name -> focal factor, shift_m in the axes of its body, turn_rad about its own axes.
    """
    settings = config.render.randomisation
    if not settings.enabled:
        return {}
    looks: dict[str, Any] = {}
    if settings.exposure_ev:
        looks["exposure_ev"] = between(settings.exposure_ev, child_generator(seed, "exposure").random())
    if settings.temperature:
        looks["temperature_k"] = between(settings.temperature.range_k, child_generator(seed, "temperature").random())
    looks["light_rgb"] = light_rgb(config, looks).tolist()
    if settings.lamp_shift_m:
        looks["lamps"] = {
            light.name: _within(settings.lamp_shift_m, child_generator(seed, f"lamp {light.name}"))
            for light in config.render.lights
        }
    if settings.robot_rgb:
        index = int(child_generator(seed, "robot").random() * len(settings.robot_rgb))
        looks["robot_rgb"] = list(settings.robot_rgb[index])
    looks["surfaces"] = {}
    for name, surface in (settings.surfaces or {}).items():
        shares = child_generator(seed, f"surface {name}").random(3).tolist()
        intervals = zip(surface.low_rgb, surface.high_rgb, strict=True)
        looks["surfaces"][name] = [between(interval, u) for interval, u in zip(intervals, shares, strict=True)]
    looks["objects"] = {}
    for name, placement in config.objects.items():
        ranges = settings.distractors if name in config.distractors else settings.objects
        if ranges:
            looks["objects"][name] = _draw_color(ranges, child_generator(seed, f"prop {placement.prop}"))
    looks["cameras"] = {}
    for name, ranges in (settings.cameras or {}).items():
        rng = child_generator(seed, f"camera {name}")
        focal = between(ranges.focal, rng.random())
        shift, turn = _within(ranges.shift_m, rng), _within(ranges.turn_rad, rng)
        looks["cameras"][name] = {"focal": focal, "shift_m": shift, "turn_rad": turn}
    return looks


def light_rgb(config: Config, looks: Mapping[str, Any]) -> np.ndarray:
    """(3,) factors of all light that follow from exposure_ev and temperature_k of a draw."""
    light = np.ones(3)
    if "exposure_ev" in looks:
        light *= 2.0 ** looks["exposure_ev"]
    if "temperature_k" in looks:
        light *= temperature_rgb(looks["temperature_k"], config.render.randomisation.temperature)
    return light


def temperature_rgb(temperature_k: float, settings: TemperatureRandomisation) -> np.ndarray:
    """(3,) factors for red, green, blue: what the camera's white balance leaves of a black body's colour."""
    color = _black_body(temperature_k) / _black_body(settings.white_k)
    return (color / color.mean()) ** settings.seen


class Dresser:
    """Writes looks into a model of one's own, made from `config` with looks; equal draws give equal models.

    Raises:
        SimulationError: render.randomisation names a geom that the model does not have.
    """

    def __init__(self, config: Config, model: mujoco.MjModel) -> None:
        self._config, self._model = config, model
        self._nominal = {field: getattr(model, field).copy() for field in _FIELDS}
        self._headlight = {color: np.array(getattr(model.vis.headlight, color)) for color in _LIGHT_COLORS}
        self._lamps = {light.name: model.light(light.name).id for light in config.render.lights}
        self._robot = self._robot_materials()
        self._surfaces = {
            name: [self._geom(name, geom) for geom in surface.geoms]
            for name, surface in (config.render.randomisation.surfaces or {}).items()
        }
        self._objects = {name: model.body(name).id for name in config.objects}

    def dress(self, looks: Mapping[str, Any]) -> None:
        """Make the model look as drawn, as render.yaml says where nothing is drawn."""
        model = self._model
        for field, values in self._nominal.items():
            getattr(model, field)[:] = values
        gain = looks.get("light_rgb", (1.0, 1.0, 1.0))
        for color, values in self._headlight.items():
            getattr(model.vis.headlight, color)[:] = values * gain
            getattr(model, f"light_{color}")[:] *= gain
        for name, shift in looks.get("lamps", {}).items():
            self._move_lamp(self._lamps[name], shift)
        if "robot_rgb" in looks:
            model.mat_rgba[self._robot, :3] = looks["robot_rgb"]
        for name, rgb in looks.get("surfaces", {}).items():
            model.geom_rgba[self._surfaces[name], :3] = rgb
        for name, change in looks.get("objects", {}).items():
            body = self._objects[name]
            first = int(model.body_geomadr[body])
            for geom in range(first, first + int(model.body_geomnum[body])):
                model.geom_rgba[geom, :3] = changed_color(self._nominal["geom_rgba"][geom, :3], **change)
        for name, change in looks.get("cameras", {}).items():
            self._move_camera(model.camera(name).id, **change)

    def _move_lamp(self, lamp: int, shift_world: list[float]) -> None:
        """It still points at what it pointed at, which for a lamp of render.yaml is its target."""
        light = self._config.render.lights[lamp]
        R_base_world = rotation_about_axis(_UP, -self._config.robot.base_yaw_rad)
        shift = R_base_world @ shift_world
        to_target = R_base_world @ (np.array(light.target_m) - light.position_m) - shift
        self._model.light_pos[lamp] += shift
        self._model.light_dir[lamp] = to_target / np.linalg.norm(to_target)

    def _move_camera(self, camera: int, focal: float, shift_m: list[float], turn_rad: list[float]) -> None:
        model = self._model
        R_body_cam = rotation_from_quat(model.cam_quat[camera])
        model.cam_quat[camera] = quat_from_rotation(R_body_cam @ rotation_from_rotation_vector(np.array(turn_rad)))
        shift = np.array(shift_m)
        if model.cam_bodyid[camera] == 0:  # shifts are along world axes, the model stands in base
            shift = rotation_about_axis(_UP, -self._config.robot.base_yaw_rad) @ shift
        model.cam_pos[camera] += shift
        model.cam_intrinsic[camera, :2] *= focal
        half = np.tan(np.deg2rad(model.cam_fovy[camera]) / 2) / focal
        model.cam_fovy[camera] = 2 * np.rad2deg(np.arctan(half))

    def _robot_materials(self) -> list[int]:
        """Materials of the visual meshes that are no motors."""
        model, prefix = self._model, self._config.render.motor_mesh_prefix
        meshes = np.flatnonzero((model.geom_type == mujoco.mjtGeom.mjGEOM_MESH) & (model.geom_matid >= 0))
        printed = [g for g in meshes.tolist() if not model.mesh(int(model.geom_dataid[g])).name.startswith(prefix)]
        return sorted({int(model.geom_matid[geom]) for geom in printed})

    def _geom(self, surface: str, name: str) -> int:
        geom = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_GEOM, name)
        if geom < 0:
            known = [self._model.geom(i).name for i in range(self._model.ngeom)]
            raise SimulationError(
                f"render.yaml: randomisation.surfaces.{surface} names geom {name!r}, which this scene does not have; "
                f"it has {', '.join(filter(None, known))}{did_you_mean(name, known)}"
            )
        return geom


def changed_color(rgb: np.ndarray, hue_turn: float, saturation: float, value: float) -> tuple[float, float, float]:
    """An rgb colour with its hue turned (a full turn is 1), saturation and value multiplied, each at most 1."""
    h, s, v = colorsys.rgb_to_hsv(*rgb.tolist())
    return colorsys.hsv_to_rgb((h + hue_turn) % 1.0, min(1.0, s * saturation), min(1.0, v * value))


def _draw_color(ranges: ColorRandomisation, rng: np.random.Generator) -> dict[str, float]:
    return {
        key: between(getattr(ranges, key), u)
        for key, u in zip(("hue_turn", "saturation", "value"), rng.random(3).tolist(), strict=True)
    }


def _within(extents: tuple[float, float, float], rng: np.random.Generator) -> list[float]:
    return [between((-extent, extent), u) for extent, u in zip(extents, rng.random(3).tolist(), strict=True)]


def _black_body(temperature_k: float) -> np.ndarray:
    """(3,) radiance at the primaries, up to a factor."""
    return _PRIMARIES_M**-5.0 / np.expm1(_RADIATION_M_K / (_PRIMARIES_M * temperature_k))
