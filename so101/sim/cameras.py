"""Cameras of the model: pinholes with the intrinsics of cameras.yaml."""

from __future__ import annotations

import mujoco

from so101.config import Config
from so101.errors import SimulationError
from so101.geometry import pose_from_pos_quat, pose_to_pos_quat
from so101.geometry.frames import base_from_world
from so101.sim.bake import T_world_base

PIXEL_SIZE_M = 1e-5  # MuJoCo wants a sensor; any pixel size gives the same picture


def add_cameras(spec: mujoco.MjSpec, config: Config) -> None:
    """Add the cameras of cameras.yaml, those of body `world` moved into the base frame.

    Raises:
        SimulationError: a camera sits on a body the model does not have.
    """
    size = (config.cameras.width_px, config.cameras.height_px)
    for name, camera in config.cameras.cameras.items():
        T_body_cam = pose_from_pos_quat([*camera.position_m, *camera.quat_wxyz])
        if camera.body == "world":
            body, T_body_cam = spec.worldbody, base_from_world(T_world_base(config), T_body_cam)
        else:
            body = spec.body(camera.body)
        if body is None:
            known = ", ".join(body.name for body in spec.bodies)
            raise SimulationError(
                f"cameras.yaml: cameras.{name}.body is {camera.body!r}, which the model does not have; it has {known}"
            )
        pose = pose_to_pos_quat(T_body_cam)
        # MuJoCo counts the principal point from the centre of the picture, to the left and up (tested).
        offset = (size[0] / 2 - camera.cx_px, size[1] / 2 - camera.cy_px)
        body.add_camera(
            name=name, pos=pose[:3], quat=pose[3:], resolution=size, focal_pixel=(camera.fx_px, camera.fy_px),
            principal_pixel=offset, sensor_size=(size[0] * PIXEL_SIZE_M, size[1] * PIXEL_SIZE_M),
        )  # fmt: skip
