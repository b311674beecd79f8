"""Twin cameras draw the states they are told."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from so101.cameras import CameraSet, NoFrameYet, SceneState, make_camera, make_cameras
from so101.errors import DataError
from so101.rendering.renderer import StateRenderer

from ..rendering.scene_states import home, start_objects


@pytest.fixture(scope="module")
def config(configured):
    return configured(overrides=("render.setting=fast", "render.settings.fast.supersample=1"))


def test_a_frame_is_what_the_renderer_draws_with_the_stamp_of_its_state(config):
    q, objects = home(config), start_objects(config)
    looks = {"light_rgb": [0.5, 0.5, 0.5]}
    with StateRenderer(config) as renderer:
        expected = []
        for joints, drawn in ((q, {}), (q + 0.1, {}), (q + 0.1, looks)):
            renderer.set_scene({}, drawn)
            renderer.set_state(joints, objects)
            expected.append(renderer.render_state("side"))
    states = []
    camera = make_camera("side", config, lambda: states[-1] if states else None)
    camera.open()
    try:
        with pytest.raises(
            NoFrameYet, match=r"no state of the rig within 0\.05 s; is one running \(`./twin serve rig`"
        ):
            camera.read(0.05)
        now = time.monotonic()
        for k, (joints, drawn) in enumerate(((q, {}), (q + 0.1, {}), (q + 0.1, looks))):
            states.append(SceneState(now + k / 30, joints, objects, drawn))
            frame = camera.read(1.0)
            assert np.array_equal(frame.image, expected[k])
            assert frame.stamp_s == now + k / 30 and frame.index == k
        with pytest.raises(NoFrameYet, match="no new state"):
            camera.read(0.05)
        states.append(SceneState(now + 5 / 30, q, objects))
        assert camera.read(1.0).index == 5  # two periods passed without a state, or without time to draw one
        states.append(SceneState(now - 100, q, objects))
        assert camera.read(1.0).stamp_s == now - 100  # another rig, another clock
    finally:
        camera.close()


def test_faster_states_are_thinned_to_the_rate(config):
    q, objects, start = home(config), start_objects(config), time.monotonic()
    camera = make_camera("ego", config, lambda: SceneState(time.monotonic(), q, objects))
    camera.open()
    stamps = [camera.read(1.0).stamp_s for _ in range(6)]
    camera.close()
    assert min(np.diff(stamps)) >= 0.9 / 30 and stamps[0] >= start


def test_an_object_the_task_does_not_have_is_told(config):
    camera = make_camera("ego", config, lambda: SceneState(time.monotonic(), home(config), {"cup": np.eye(7)[0]}))
    camera.open()
    with pytest.raises(DataError, match="cannot draw object 'cup'"):
        camera.read(1.0)
    camera.close()


def test_three_cameras_on_three_threads_show_what_one_thread_would(config):
    q, objects = home(config), start_objects(config)
    with StateRenderer(config) as renderer:
        renderer.set_state(q, objects)
        expected = {name: renderer.render_state(name) for name in config.cameras.names}
    before = threading.active_count()
    still = SceneState(time.monotonic(), q, objects)
    with CameraSet(make_cameras(config, state=lambda: still), config.cameras.capture) as cameras:
        seen = {}
        while len(seen) < 3:
            seen |= {frame.camera: frame.image for frame in cameras.take(5.0)}
    assert all(np.array_equal(seen[name], expected[name]) for name in expected)
    assert threading.active_count() == before
