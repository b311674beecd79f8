"""Lights, colours and quality of the model: what render.yaml says."""

from __future__ import annotations

import mujoco
import numpy as np

from so101.config import Config
from so101.config.render import LightConfig, MaterialConfig
from so101.geometry import make_pose, pose_to_pos_quat
from so101.geometry.frames import base_from_world
from so101.sim.bake import T_world_base

OBJECT_MATERIAL = "so101_object"
ROOM = "room"
_DRAWN_BOX = {"type": mujoco.mjtGeom.mjGEOM_BOX, "group": 2, "contype": 0, "conaffinity": 0, "mass": 0}
_LIGHTS = {
    "directional": mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
    "point": mujoco.mjtLightType.mjLIGHT_POINT,
    "spot": mujoco.mjtLightType.mjLIGHT_SPOT,
}


def apply_look(spec: mujoco.MjSpec, config: Config) -> None:
    """Set lights, colours, materials, surroundings and drawing quality for the active render setting."""
    _set_quality(spec, config)
    _add_room(spec, config)
    _set_lights(spec, config)
    _set_materials(spec, config)


def frame_size(config: Config) -> tuple[int, int]:
    """(width, height) px at which frames are drawn before they are averaged down to the size in cameras.yaml."""
    scale = config.render.active.supersample
    return round(config.cameras.width_px * scale), round(config.cameras.height_px * scale)


def _set_quality(spec: mujoco.MjSpec, config: Config) -> None:
    render, visual = config.render, spec.visual
    spec.stat.extent = render.extent_m  # fixed: a far object would otherwise move all clipping planes
    spec.stat.center = _point_in_base(config, render.center_m)
    visual.map.znear = render.znear_m / render.extent_m  # MuJoCo counts these in extents
    visual.map.zfar = render.zfar_m / render.extent_m
    visual.map.shadowclip = render.shadow_half_width_m / render.extent_m
    visual.quality.shadowsize = render.active.shadow_map_px
    visual.quality.offsamples = 0  # supersampling costs half of what multisampling does on llvmpipe, and smooths more
    visual.quality.numquads = render.primitive_quads
    visual.quality.numslices, visual.quality.numstacks = render.primitive_slices, render.primitive_stacks
    visual.global_.offwidth, visual.global_.offheight = frame_size(config)


def _add_room(spec: mujoco.MjSpec, config: Config) -> None:
    for texture in list(spec.textures):
        if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            spec.delete(texture)  # it fills the whole frame before anything hides it
    room = config.render.room
    T_base_room = base_from_world(T_world_base(config), make_pose(np.eye(3), np.array(room.center_m)))
    pose = pose_to_pos_quat(T_base_room)
    body = spec.worldbody.add_body(name=ROOM, pos=pose[:3], quat=pose[3:])
    half, high, thick = room.half_width_m, room.height_m / 2, 0.01
    ground, wall = {**_DRAWN_BOX, "rgba": (*room.ground_rgb, 1)}, {**_DRAWN_BOX, "rgba": (*room.wall_rgb, 1)}
    body.add_geom(name="room/ground", pos=(0, 0, -thick), size=(half, half, thick), **ground)
    for name, x, y in (("front", 1, 0), ("back", -1, 0), ("left", 0, 1), ("right", 0, -1)):
        size = (thick if x else half, thick if y else half, high)
        body.add_geom(name=f"room/{name}", pos=(x * half, y * half, high), size=size, **wall)


def _set_lights(spec: mujoco.MjSpec, config: Config) -> None:
    render = config.render
    head = spec.visual.headlight
    head.ambient, head.diffuse = render.headlight.ambient, render.headlight.diffuse
    head.specular = render.headlight.specular
    for light in list(spec.lights):
        spec.delete(light)
    for light in render.lights:
        _add_light(spec, config, light)


def _add_light(spec: mujoco.MjSpec, config: Config, light: LightConfig) -> None:
    position, target = _point_in_base(config, light.position_m), _point_in_base(config, light.target_m)
    direction = target - position
    spec.worldbody.add_light(
        name=light.name, type=_LIGHTS[light.type], pos=position, dir=direction / np.linalg.norm(direction),
        diffuse=light.diffuse, ambient=light.ambient, specular=light.specular,
        castshadow=light.casts_shadow and config.render.active.shadows,
    )  # fmt: skip


def _set_materials(spec: mujoco.MjSpec, config: Config) -> None:
    """Parts of the arm in the colours of robot.yaml; everything else keeps its colour and gets one gloss (MuJoCo's
    default gloss turns light surfaces white)."""
    render, robot = config.render, config.robot
    _set_gloss(spec.add_material(name=OBJECT_MATERIAL), render.object_material)
    for geom in spec.geoms:
        if not geom.material:
            geom.material = OBJECT_MATERIAL
        elif geom.type == mujoco.mjtGeom.mjGEOM_MESH:
            material = spec.material(geom.material)
            motor = geom.meshname.startswith(render.motor_mesh_prefix)
            material.rgba = robot.motor_color_rgba if motor else robot.color_rgba
            _set_gloss(material, render.robot_material)


def _set_gloss(material: mujoco.MjsMaterial, values: MaterialConfig) -> None:
    material.specular, material.shininess = values.specular, values.shininess
    material.reflectance = values.reflectance


def _point_in_base(config: Config, point_world: tuple[float, float, float]) -> np.ndarray:
    return base_from_world(T_world_base(config), make_pose(np.eye(3), np.array(point_world)))[:3, 3]
