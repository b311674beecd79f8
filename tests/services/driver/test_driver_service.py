"""The driver service over real sockets, with a virtual arm behind: one commander, clear refusals, home at the end."""

import threading
import time

import numpy as np
import pytest

from proto.codec import encode
from proto.errors import RemoteError
from proto.messages.driver import STATE_TOPIC, Arm, Command, DriverState
from proto.sockets import Client, Subscriber
from proto.stopping import StopFlag
from services.driver.client import RemoteRobot, state_of_message
from services.driver.service import DriverService, run
from so101.config import load_config
from so101.robot import CommandRefused, NotArmed, RobotError, TorqueLeftOn, make_driver
from so101.robot.sessions import Busy, Sessions
from so101.robot.virtual import Fault, VirtualBus
from tests.robot.rig import Rig

HOME = np.array([joint.home_rad for joint in load_config().robot.joints])
AWAY = HOME + np.array([0.3, 0.2, -0.2, 0, 0, 0.3])
SESSION = "a" * 16
PATIENT = (
    "robot.bus.reply_timeout_ms=300",
    "deploy.messages.timeout_s=30",
    "robot.safety.arrival_timeout_s=1.0",
)  # busy machines


class Running:
    """The whole service on threads of this process; its sockets in a folder."""

    def __init__(self, folder, *, arm: bool, overrides=()):
        sockets = [
            f"deploy.sockets.{name}={{bind: 'ipc://{folder}/{name}', connect: 'ipc://{folder}/{name}'}}"
            for name in ("driver", "driver_state")
        ]
        self.config = load_config(overrides=[*sockets, *PATIENT, *overrides])
        self.bus = VirtualBus(self.config, pacing=False)
        self.bus.calibration.write(folder / "follower.json")
        self.bus.start()
        self.stop, self.ended_with = StopFlag(), None
        driver = make_driver(self.config, arm=arm, port=self.bus.port, calibration=folder / "follower.json")
        self.thread = threading.Thread(target=self._run, args=(driver,))
        self.thread.start()

    def _run(self, driver) -> None:
        try:
            run(self.config, driver, self.stop)
        except Exception as error:
            self.ended_with = error

    def robot(self, name="test") -> RemoteRobot:
        robot = RemoteRobot(self.config, name=name)
        robot.connect()
        return robot

    def end(self) -> None:
        self.stop.set()
        self.thread.join()

    def close(self) -> None:
        self.end()
        self.bus.close()


@pytest.fixture
def running(tmp_path):
    made = Running(tmp_path, arm=True, overrides=["robot.safety.session_s=0.5"])
    yield made
    made.close()


def go(robot: RemoteRobot, q: np.ndarray, times: int = 15) -> None:
    for _ in range(times):
        robot.command(q)
        time.sleep(1 / 30)


def wait_for(robot: RemoteRobot, mode: str):
    for _ in range(400):
        state = robot.read()
        if state.mode == mode:
            return state
        time.sleep(0.05)
    raise AssertionError(f"never {mode}: {state.mode}, {state.reason}")


def test_without_arm_it_is_only_looked_at(tmp_path):
    running = Running(tmp_path, arm=False)
    with running.robot() as robot:
        assert robot.read().mode == "released" and not robot.driver_state.may_arm
        for forbidden in (robot.arm, lambda: robot.command(HOME)):
            with pytest.raises(NotArmed, match="this driver was started without --arm"):
                forbidden()
    assert not running.bus.state().torque_on.any()
    running.close()
    assert running.ended_with is None


def test_a_remote_arm_is_driven_like_one_here(running):
    with running.robot() as robot:
        robot.arm()
        assert robot.read().mode == "holding"
        go(robot, AWAY)
        assert np.abs(robot.command(AWAY) - AWAY).max() < 0.002
        state = robot.read()
        assert state.mode == "following" and np.abs(state.q_rad - AWAY).max() < 0.15
        robot.hold()
        assert robot.read().mode == "holding"
        robot.disarm()
        assert robot.read().mode == "released" and not running.bus.state().torque_on.any()


def test_one_commander_at_a_time(running):
    with running.robot("first") as first, running.robot("second") as second:
        first.arm()
        with pytest.raises(RobotError, match="'first' commands the arm"):
            second.arm()
        with pytest.raises(RobotError, match="'first' commands"):
            second.command(HOME)
        with pytest.raises(RobotError, match="'first' commands"):
            second.disarm()
        assert second.driver_state.commander == "first"
        time.sleep(0.6)
        second.arm()  # the first one was silent
        with pytest.raises(RobotError, match="'second' commands the arm now; arm it again"):
            first.command(HOME)
        second.disarm()
        with pytest.raises(RobotError, match="your session has ended"):
            second.hold()


def test_anyone_may_stop_and_then_disarm(running):
    with running.robot("policy") as policy, running.robot("page") as page:
        policy.arm()
        go(policy, AWAY)
        page.stop()
        assert page.read().mode == "stopped"
        with pytest.raises(RobotError, match="session has ended"):
            policy.command(AWAY)
        page.disarm()
        assert page.read().mode == "released"


def test_who_was_stopped_by_another_does_not_move_the_arm_by_ending(running):
    with running.robot("page") as page:
        with running.robot("policy") as policy:
            policy.arm()
            go(policy, AWAY)
            page.stop()
            with pytest.raises(Busy, match="stays as it is until somebody"):
                policy.disarm(wait=False)
        time.sleep(0.3)
        assert page.read().mode == "stopped" and running.bus.state().torque_on.all()
        page.disarm()


def test_a_client_that_vanishes_leaves_the_arm_at_home_without_torque(tmp_path):
    running = Running(tmp_path, arm=True, overrides=["robot.safety.home_after_s=1.0"])
    robot = running.robot()
    robot.arm()
    go(robot, AWAY)
    robot._client.close()
    with running.robot() as looking:
        assert "no" in wait_for(looking, "holding").reason
        assert "nothing was commanded" in wait_for(looking, "returning").reason
        assert np.abs(wait_for(looking, "released").q_rad - HOME).max() < 0.16
    running.close()


def test_ending_in_motion_takes_the_arm_home_and_lets_go(running):
    robot = running.robot()
    robot.arm()
    go(robot, AWAY)
    running.end()
    assert running.ended_with is None
    state = running.bus.state()
    assert not state.torque_on.any() and np.abs(state.q - HOME).max() < 0.16


def test_ending_is_stopped_by_a_stop_and_says_that_torque_is_on(running):
    robot = running.robot()
    robot.arm()
    go(robot, AWAY)
    running.stop.set()
    wait_for(robot, "returning")
    with pytest.raises(NotArmed, match="ending"):
        robot.arm()
    robot.stop()
    running.thread.join()
    assert isinstance(running.ended_with, TorqueLeftOn) and running.ended_with.exit_code == 8
    assert running.bus.state().torque_on.all()


def test_a_blocked_arm_keeps_its_torque_when_the_service_ends(running):
    robot = running.robot()
    robot.arm()
    go(robot, AWAY)
    running.bus.faults.add(Fault("stuck", ids=(1,)))
    running.end()
    assert isinstance(running.ended_with, TorqueLeftOn) and "shoulder_pan" in str(running.ended_with)
    assert running.bus.state().torque_on.all()


@pytest.mark.parametrize("q", [[np.nan] * 6, [0, 0, 0, 0, 0, np.inf]])
def test_nonsense_is_refused_and_the_next_command_works(running, q):
    with running.robot() as robot:
        robot.arm()
        with pytest.raises(CommandRefused, match="six finite joints"):
            robot.command(q)
        with pytest.raises(CommandRefused, match="needs 6 joints, got 3"):
            robot.command([0, 0, 0])
        robot.command(HOME)


@pytest.mark.parametrize("age_s", [2.0, -2.0, float("nan")])
def test_old_commands_are_refused(running, age_s):
    with Client(running.config.deploy.sockets.driver.connect, timeout_s=30) as client:
        client.request(Arm(session=SESSION, name="test"))
        with pytest.raises(RemoteError, match="clocks of both machines") as error:
            client.request(Command(session=SESSION, q_rad=tuple(HOME.tolist()), stamp_s=time.time() - age_s))
        assert error.value.code == "refused"


def test_states_are_published(running):
    with Subscriber(running.config.deploy.sockets.driver_state.connect) as subscriber:
        states = [subscriber.receive(30.0) for _ in range(5)]
    assert all(topic == STATE_TOPIC and isinstance(state, DriverState) for topic, state in states)
    stamps = [state.stamp_s for _, state in states]
    assert stamps == sorted(stamps) and stamps[-1] > stamps[0]


def test_a_state_survives_the_wire(tmp_path):
    with Rig(load_config(), tmp_path) as rig:
        service = DriverService(load_config(), rig.driver)
        state = rig.state
        again = state_of_message(service.state_message(state))
        encode(service.state_message(state))
    assert all(np.array_equal(getattr(again, name), value) for name, value in vars(state).items())


def test_sessions_by_the_clock():
    now = [0.0]
    sessions = Sessions(2.0, lambda: now[0])
    sessions.take("one", "a policy")
    now[0] = 1.9
    with pytest.raises(Busy, match=r"'a policy' commands the arm \(last heard 1.9 s ago\)"):
        sessions.take("two", "")
    sessions.heard("one")
    now[0] = 3.8
    with pytest.raises(Busy):
        sessions.may_end("two")
    now[0] = 4.0
    sessions.heard("one")  # silent, but nobody took its place
    now[0] = 6.1
    sessions.take("two", "")
    assert sessions.commander == "unnamed"
    with pytest.raises(Busy, match="'unnamed' commands the arm now"):
        sessions.heard("one")
