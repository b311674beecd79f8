"""Frames: kinematics alone is enough, what is drawn depends on the state only, failures say what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import mujoco
import numpy as np
import pytest

from so101.config import load_config
from so101.errors import DataError, SimulationError
from so101.rendering.gl import make_context
from so101.rendering.renderer import FrameRenderer, FrameScaler, StateRenderer
from so101.sim.bake import baked_model

from .scene_states import home, start_objects


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=["render.setting=fast"])


@pytest.fixture(scope="module")
def renderer(config):
    with StateRenderer(config) as renderer:
        yield renderer


def test_frames_are_what_full_physics_would_show(config, renderer):
    """A state set by kinematics looks as after mj_forward of the same state."""
    q, objects = home(config) + 0.1, start_objects(config)
    renderer.set_state(q, objects)
    ours = {camera: renderer.render_state(camera) for camera in config.cameras.names}
    model = renderer.model
    data = mujoco.MjData(model)
    for name, value in zip(config.robot.joint_names, q, strict=True):
        data.joint(name).qpos[0] = value
    for name, pose in objects.items():
        data.joint(name).qpos[:] = pose
    mujoco.mj_forward(model, data)
    for camera, picture in ours.items():
        assert np.array_equal(picture, renderer.render(data, camera))
        assert picture.shape == (config.cameras.height_px, config.cameras.width_px, 3) and picture.dtype == np.uint8


def test_a_frame_depends_on_its_state_only(config, renderer):
    q, objects = home(config), start_objects(config)
    renderer.set_state(q, objects)
    first = {camera: renderer.render_state(camera) for camera in config.cameras.names}
    moved = {name: pose + [0.03, 0.02, 0, 0, 0, 0, 0] for name, pose in objects.items()}
    renderer.set_state(q + 0.2, moved)
    for camera in config.cameras.names:
        assert not np.array_equal(renderer.render_state(camera), first[camera])
    renderer.set_state(q, objects)
    for camera in reversed(config.cameras.names):
        assert np.array_equal(renderer.render_state(camera), first[camera])


def test_every_camera_sees_every_object_and_the_arm(config, renderer):
    """Taking a thing away changes the picture of each camera (looking from home, over the mat)."""
    q, objects = home(config), start_objects(config)
    for camera in config.cameras.names:
        renderer.set_state(q, objects)
        whole = renderer.render_state(camera).astype(int)
        for name in objects:
            renderer.set_state(q, {**objects, name: objects[name] + [0, 0, -1, 0, 0, 0, 0]})
            changed = np.abs(renderer.render_state(camera) - whole).max(axis=-1) > 20
            assert changed.sum() > 300, f"{camera} does not see {name}"
        renderer.set_state(q + [0, 0, 0, 0, 0, 0.8], objects)
        assert (np.abs(renderer.render_state(camera) - whole).max(axis=-1) > 20).sum() > 100, f"{camera}: no jaw"


def test_shadows_darken_some_of_the_picture_and_brighten_next_to_none(config):
    q, objects = home(config), start_objects(config)
    pictures = []
    for setting in ("fast", "shadows"):
        chosen = load_config(overrides=[f"render.setting={setting}", f"render.settings.{setting}.supersample=1"])
        with StateRenderer(chosen) as renderer:
            renderer.set_state(q, objects)
            pictures.append(renderer.render_state("top").astype(int).sum(axis=-1))
    fast, shadows = pictures
    assert (shadows < fast - 30).mean() > 0.01
    assert (shadows > fast + 30).mean() < 0.005


def test_a_fixed_object_can_be_placed_too():
    config = load_config(overrides=["scene.props.rack.free=false"])
    q, objects = home(config), start_objects(config)
    with StateRenderer(config, baked_model(config, looks=True)) as renderer:
        renderer.set_state(q, objects)
        before = renderer.render_state("top")
        renderer.set_state(q, {**objects, "rack": objects["rack"] + [0.05, 0, 0, 0, 0, 0, 0]})
        assert not np.array_equal(renderer.render_state("top"), before)


def test_the_scaler_averages_and_keeps_the_rows_in_order(config):
    scaler = FrameScaler(config, "rgb24")
    large = np.zeros((720, 960, 3), np.uint8)
    large[:360] = (200, 100, 50)
    small = scaler.scale(large[::-1]).to_ndarray()
    assert small.shape == (480, 640, 3)
    assert np.abs(small[241:].astype(int) - (200, 100, 50)).max() <= 1
    assert small[:239].max() <= 1


@pytest.mark.parametrize("size", [(480, 640), (600, 800)])
def test_a_frame_stays_what_it_was_when_the_next_one_is_scaled(config, size):
    scaler = FrameScaler(config, "rgb24")
    kept = [scaler.scale(np.full((*size, 3), value, np.uint8)).to_ndarray() for value in (10, 20, 30)]
    assert [int(picture.mean()) for picture in kept] == [10, 20, 30]


def test_unknown_names_are_told_with_what_there_is(config, renderer):
    with pytest.raises(SimulationError, match=r"no camera 'front'; cameras\.yaml has ego, side, top"):
        renderer.render_state("front")
    with pytest.raises(DataError, match=r"cannot draw object 'cup'; task '.*' has .*vial"):
        renderer.set_state(home(config), {"cup": np.array([0, 0, 0, 1, 0, 0, 0])})


def test_a_model_without_looks_is_refused(config):
    with pytest.raises(SimulationError, match="no camera 'ego': bake it with looks"):
        FrameRenderer(baked_model(config, looks=False), config)


def test_closing_twice_is_fine(config):
    renderer = StateRenderer(config)
    renderer.close()
    renderer.close()


def test_an_unknown_opengl_backend_is_explained(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "vulkan")
    with pytest.raises(SimulationError, match=r"MUJOCO_GL is 'vulkan'; set it to egl"):
        make_context(64, 64)


@pytest.mark.parametrize("trouble", [ImportError("libEGL.so.1"), AttributeError("None"), RuntimeError("no display")])
def test_a_failing_driver_names_the_variable_and_the_packages(monkeypatch, trouble):
    import mujoco.egl

    def refuse(*_):
        raise trouble

    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setattr(mujoco.egl, "GLContext", refuse)
    with pytest.raises(SimulationError, match=r"MUJOCO_GL=egl \(.*\)\. .*apt-get install libegl1 .*osmesa"):
        make_context(64, 64)


@pytest.mark.parametrize("name", ["vulkan", "egl"])
def test_the_choice_of_opengl_is_kept_from_the_import_of_mujoco(name):
    """It fails there with an error of its own, also for commands that draw nothing."""
    script = "from so101.rendering.gl import backend, set_aside; set_aside(); import mujoco; print(backend())"
    environment = {**os.environ, "MUJOCO_GL": name}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"{name}\n"), ended.stderr
