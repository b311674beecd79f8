"""What the rig publishes becomes what twin cameras draw."""

from __future__ import annotations

import contextlib
import json
import time

import numpy as np
import pytest

from proto.messages.common import Ok
from proto.messages.rig import STATE_TOPIC, RigState
from proto.sockets import Publisher
from services.camera.main import unstarted
from services.camera.rig_feed import RigFeed
from so101.cameras import CameraError
from so101.config import Config, load_config

from ...cameras.fakes import until
from ...rendering.scene_states import home, start_objects


@pytest.fixture
def config(tmp_path) -> Config:
    sets = [
        f"deploy.sockets.rig_state={{bind: 'ipc://{tmp_path}/rig', connect: 'ipc://{tmp_path}/rig'}}",
        "cameras.sources={top: {kind: synthetic}}",
        "cameras.capture.read_timeout_s=0.2",
        "cameras.capture.reopen_min_s=0.05",
        "cameras.capture.reopen_max_s=0.1",
        "render.settings.fast.supersample=1",
    ]
    return load_config(overrides=sets)


@pytest.fixture
def rig(config):
    with Publisher(config.deploy.sockets.rig_state.bind) as publisher:
        yield publisher


def state(config: Config, **changes) -> RigState:
    poses = {name: tuple(pose.tolist()) for name, pose in start_objects(config).items()}
    fields = dict(stamp_s=time.time(), q_rad=tuple(home(config).tolist()), objects=poses, looks_json="{}",
                  randomisation_json="{}", port="")  # fmt: skip
    return RigState(**{**fields, **changes})


def test_the_newest_state_comes_through_with_its_time_on_our_clock(config, rig):
    with RigFeed(config) as feed:
        assert feed() is None
        told = state(config, stamp_s=time.time() - 3.0, looks_json='{"light_rgb": [1, 1, 1]}')
        until(lambda: rig.send(STATE_TOPIC, told) is not None and feed() is not None)
        shown = feed()
        assert abs(time.monotonic() - shown.stamp_s - 3.0) < 1.0
        assert np.array_equal(shown.q, home(config)) and shown.looks == {"light_rgb": [1, 1, 1]}
        assert set(shown.objects) == set(config.objects) and shown.objects["vial"].shape == (7,)
        later = state(config)
        until(lambda: rig.send(STATE_TOPIC, later) is not None and feed().looks == {})


@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 5000])
def test_states_that_cannot_be_shown_are_rejected_and_the_feed_goes_on(config, rig, text):
    with RigFeed(config) as feed:
        bad = state(config, looks_json=text)
        until(lambda: rig.send(STATE_TOPIC, bad) is not None and feed.rejected > 0)
        rig.send(STATE_TOPIC, Ok())
        assert feed() is None
        until(lambda: rig.send(STATE_TOPIC, state(config)) is not None and feed() is not None)


def test_a_twin_camera_shows_the_rig_and_other_cameras_do_not_wait_for_it(config, rig):
    with contextlib.ExitStack() as stack:
        cameras = stack.enter_context(unstarted(config, ("side", "top"), stack))
        assert cameras.take(5.0)[0].camera == "top"
        with pytest.raises(CameraError, match=r"from side: waiting"):
            cameras.latest(0.05)
        until(
            lambda: rig.send(STATE_TOPIC, state(config)) is not None and {f.camera for f in cameras.take(1)} >= {"side"}
        )
        cup = {"cup": (0, 0, 0, 1, 0, 0, 0)}
        until(
            lambda: (
                rig.send(STATE_TOPIC, state(config, objects=cup)) is not None
                and "cannot draw object 'cup'" in cameras.states()[0].error
            )
        )
        until(lambda: rig.send(STATE_TOPIC, state(config)) is not None and cameras.states()[0].state == "live")


def test_looks_of_a_pseudo_real_rig_change_the_picture(config, rig):
    from so101.robot.virtual.pseudo_real import draw_rig

    drawn = draw_rig(config, 3).looks
    with contextlib.ExitStack() as stack:
        cameras = stack.enter_context(unstarted(config, ("side",), stack))
        pictures = []
        for looks in ({}, drawn):
            until(lambda looks=looks: rig.send(STATE_TOPIC, state(config, looks_json=json.dumps(looks))) is not None
                  and _seen(cameras, pictures, since=time.monotonic()))  # fmt: skip
    assert np.abs(pictures[0].astype(int) - pictures[-1]).mean() > 1.0


def _seen(cameras, pictures, since) -> bool:
    """Whether a picture of a state told after `since` came; it is appended."""
    frames = [frame for frame in cameras.take(1.0) if frame.stamp_s >= since - 0.5]
    pictures += [frame.image for frame in frames]
    return bool(frames)
