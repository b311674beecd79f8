"""Cameras: a point appears at the pixel that the pinhole formula says, for any base pose and principal point."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.config import load_config
from so101.errors import ConfigError, SimulationError
from so101.geometry import invert_pose, pose_from_pos_quat
from so101.geometry.frames import base_from_world
from so101.rendering.renderer import FrameRenderer
from so101.sim.bake import T_world_base, bake

RED = (1.0, 0.0, 0.0, 1.0)


def pixel_of(config, camera, point_world):
    """(2,) column and row of a world point in a camera fixed to the world, by the pinhole formula."""
    settings = config.cameras.cameras[camera]
    T_world_cam = pose_from_pos_quat([*settings.position_m, *settings.quat_wxyz])
    x, y, z, _ = invert_pose(T_world_cam) @ [*point_world, 1.0]
    return np.array([settings.cx_px + settings.fx_px * x / -z, settings.cy_px - settings.fy_px * y / -z])


def centre_of_red(picture):
    rows, columns = np.nonzero((picture[..., 0] > 150) & (picture[..., 1] < 60) & (picture[..., 2] < 60))
    assert len(rows) > 4, "the marker is not in the picture"
    return np.array([columns.mean(), rows.mean()]) + 0.5


def picture_with_marker(config, camera, point_world):
    """The scene of props alone with a bright red ball, no arm in the way."""
    spec = bake(config)
    for geom in spec.geoms:
        geom.rgba = (0, 0, 0, 1)
        geom.material = ""
    point = base_from_world(T_world_base(config), pose_from_pos_quat([*point_world, 1, 0, 0, 0]))[:3, 3]
    spec.add_material(name="glow", rgba=RED, emission=1.0)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(0.006, 0, 0), pos=point, material="glow", group=2)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)
    with FrameRenderer(model, config) as renderer:
        return renderer.render(data, camera)


@pytest.mark.parametrize("camera", ["side", "top"])
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["robot.base_position_m=[0.1, -0.07, 0.02]", "robot.base_yaw_rad=0.6"],
        ["cameras.cameras.{}.cx_px=250", "cameras.cameras.{}.cy_px=300", "cameras.cameras.{}.fx_px=500"],
    ],
    ids=["as configured", "base moved and turned", "principal point off the middle, unequal focal lengths"],
)
def test_a_world_point_appears_where_the_pinhole_says(camera, overrides):
    config = load_config(overrides=[text.format(camera) for text in overrides])
    point = (0.33, -0.10, 0.12)
    found = centre_of_red(picture_with_marker(config, camera, point))
    assert np.abs(found - pixel_of(config, camera, point)).max() < 1.0


def test_world_to_base_is_the_inverse_of_the_base_pose():
    config = load_config(overrides=["robot.base_position_m=[0.3, -0.2, 0.1]", "robot.base_yaw_rad=-1.1"])
    assert np.allclose(base_from_world(T_world_base(config), T_world_base(config)), np.eye(4), atol=1e-12)


def test_the_wrist_camera_moves_with_the_gripper_and_the_others_stay():
    config = load_config()
    model = bake(config).compile()
    data = mujoco.MjData(model)
    positions = []
    for pan in (0.0, 0.5):
        data.joint("shoulder_pan").qpos[0] = pan
        mujoco.mj_kinematics(model, data)
        mujoco.mj_camlight(model, data)
        positions.append({name: data.camera(name).xpos.copy() for name in config.cameras.names})
    assert np.linalg.norm(positions[0]["ego"] - positions[1]["ego"]) > 0.05
    assert np.array_equal(positions[0]["side"], positions[1]["side"])


def test_the_wrist_camera_has_the_measured_field_of_view():
    model = bake(load_config()).compile()
    focal, sensor = model.cam_intrinsic[model.camera("ego").id][:2], model.cam_sensorsize[model.camera("ego").id]
    assert 2 * np.degrees(np.arctan(sensor[1] / 2 / focal[1])) == pytest.approx(73.7398, abs=1e-4)


def test_an_unknown_body_is_named_with_those_there_are():
    config = load_config(overrides=["cameras.cameras.ego.body=hand"])
    with pytest.raises(SimulationError, match=r"cameras\.ego\.body is 'hand'.*it has world, base, .*gripper"):
        bake(config)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        (
            "cameras.cameras.top.quat_wxyz=[1, 1, 0, 0]",
            r"quat_wxyz is \[1, 1, 0, 0\]; its length must be 1, is 1\.41421",
        ),
        ("cameras.cameras.top.cx_px=900", r"cameras\.top: principal point \(900\.0, 240\.0\) px lies outside"),
        ("cameras.width_px=641", r"width_px is 641; .*multiple of 2"),
    ],
)
def test_impossible_cameras_are_refused(override, text):
    with pytest.raises(ConfigError, match=text):
        load_config(overrides=[override])
