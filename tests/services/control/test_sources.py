"""Other services, spoken by real sockets."""

import time

import numpy as np
import pytest

from proto.errors import RemoteError
from proto.messages.camera import STATUS_TOPIC, CameraFrame, CameraStatus
from proto.messages.driver import STATE_TOPIC, Disarm, DriverState, GetState, Stop
from services.control.errors import Conflict, NotRunning
from services.control.sources.arm import ArmSource
from services.control.sources.cameras import CameraSource
from services.control.sources.policy import PolicySource, as_json
from services.control.sources.work import WorkSource
from services.wire import make_publisher, make_server

STATE = dict(
    stamp_s=1.0, q_rad=(0.1,) * 6, qd_rad_s=(0.0,) * 6, load_pct=(1.0,) * 6, temperature_c=(31.4,) * 6,
    voltage_v=(7.4,) * 6, error_bits=(0,) * 6, goal_rad=(0.1,) * 6, mode="following", reason="", armed=True,
    may_arm=True, port="/dev/ttyACM0", commander="./real", warnings=[], missed_reads=0,
)  # fmt: skip


def wait_for(condition):
    end = time.monotonic() + 30
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return value


def state(**changes):
    return DriverState(**{**STATE, **changes})


def test_the_arm_as_its_driver_tells_it(make_config):
    config = make_config("deploy.control_plane.events.stale_s=0.5")
    source = ArmSource(config)
    with make_publisher(config, "driver_state") as publisher:

        def heard():
            publisher.send(STATE_TOPIC, state())
            return (service := source.look()).running and service

        values = wait_for(heard).values
        assert (values["mode"], values["commander"]) == ("following", "./real")
        assert values["joints"][0] == {
            "name": config.robot.joint_names[0],
            "q_rad": 0.1,
            "load_pct": 1,
            "temperature_c": 31,
            "voltage_v": 7.4,
            "error_bits": 0,
        }
    assert "./twin serve driver" in wait_for(lambda: not (now := source.look()).running and now.problem)
    source.close()


def test_stop_and_home_reach_the_driver(make_config):
    config, said = make_config(), []
    mode = {"now": "following"}

    def stop(message):
        said.append(message)
        mode["now"] = "stopped"
        return state(mode="stopped")

    def disarm(message):
        said.append(message)
        if mode["now"] == "following":
            raise RemoteError("refused", "./real commands the arm")
        mode["now"] = "returning"
        return state(mode="returning")

    source = ArmSource(config)
    handlers = {GetState: lambda message: state(mode=mode["now"]), Stop: stop, Disarm: disarm}
    with make_server(config, "driver", handlers):
        with pytest.raises(Conflict, match="./real commands the arm"):
            source.home()
        assert "stay where it is (stopped)" in source.stop()
        assert "go home (returning)" in source.home()
    assert [type(message) for message in said] == [Disarm, Stop, Disarm]
    with pytest.raises(NotRunning, match="did not answer"):
        source.stop()
    source.close()


def test_pictures_travel_while_somebody_looks(make_config):
    config = make_config("deploy.control_plane.events.camera_idle_s=0.2", "deploy.control_plane.request_timeout_s=5.0")
    source = CameraSource(config)
    image = np.zeros((config.cameras.height_px, config.cameras.width_px, 3), np.uint8)
    image[..., 0] = 200  # red
    with make_publisher(config, "cameras") as publisher:
        import threading

        ended = threading.Event()

        def publish():
            index = 0
            while not ended.wait(0.02):
                index += 1
                publisher.send(
                    "ego",
                    CameraFrame(camera="ego", index=index, stamp_s=time.monotonic(), wall_s=time.time(), image=image),
                )
                publisher.send(
                    STATUS_TOPIC + "ego",
                    CameraStatus(
                        camera="ego",
                        kind="twin",
                        mode="640x480",
                        state="live",
                        fps_hz=30.0,
                        captured=1,
                        dropped=2,
                        skipped=0,
                        failures=0,
                        error="",
                    ),
                )

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            service = wait_for(lambda: (now := source.look()).running and now)
            ego, side, _ = service.values["cameras"]
            assert (ego["state"], ego["dropped"], side["state"]) == ("live", 2, "absent")
            assert source._cameras is None  # nobody looked yet
            jpeg = source.jpeg("ego")
            assert jpeg[:2] == b"\xff\xd8" and source._cameras is not None
            import cv2

            blue, green, red = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR).mean((0, 1))
            assert red > 190 and max(blue, green) < 20
            wait_for(lambda: source.look() and source._cameras is None)
            with pytest.raises(NotRunning, match="camera side sends no pictures"):
                source.jpeg("side")
        finally:
            ended.set()
            thread.join()
    source.close()


def test_a_broker_elsewhere_and_one_here_tell_the_same(make_config):
    config = make_config()
    here = WorkSource(config, embed=True)
    there = WorkSource(config, embed=False)
    assert here.look() == there.look() and here.look().running
    assert not here.has_workers() and not there.has_workers()
    here.close()
    assert "./twin serve broker" in there.look().problem
    there.close()


class FakePolicy:
    endpoint = "tcp://there"

    def __init__(self, answer):
        self._answer = answer

    def stats(self):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_a_policy_server_of_others_is_running_and_counts_nothing():
    service = PolicySource(FakePolicy(RemoteError("failed", "unknown endpoint"))).look()
    assert service.running and "unknown endpoint" in service.values["note"]


@pytest.mark.parametrize(
    "stats", [{"a": np.zeros(3)}, {"a": "x" * 100_000}, {"a": {"b": [1.23456, None]}}, {1: 2}, {"a": float("nan")}]
)
def test_whatever_a_stranger_counts_becomes_small_json(stats):
    import json

    assert len(json.dumps(as_json(stats), allow_nan=False)) < 25_000
