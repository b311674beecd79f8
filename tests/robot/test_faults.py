"""What the arm does when something goes wrong: the real driver on the virtual servo bus, every fault the bus has.

Waiting times of robot.yaml are shortened; what happens does not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import pytest

from so101.config import load_config
from so101.robot import make_driver
from so101.robot.base import BusError, CalibrationError, CommandRefused, TorqueLeftOn
from so101.robot.driver import ArmDriver
from so101.robot.virtual import Fault, VirtualBus
from so101.robot.virtual.faults import EVENT_FAULTS, KINDS, REPLY_FAULTS, STATE_FAULTS

SHORT = (
    "return_min_s=0.2",
    "return_speed_rad_s=3.0",
    "arrival_timeout_s=0.8",
    "lost_after_s=0.2",
    "home_after_s=60.0",
    "temperature_c.after_s=0.1",
    "load_pct.after_s=0.3",
)
OTHER = (
    "robot.bus.reopen_s=0.1",
    "robot.bus.reply_timeout_ms=100",  # of a bus on a machine with other things to do
    "robot.bus.supply_v=[7, 13]",
    "robot.virtual.pacing=false",
)
CONFIG = load_config(overrides=[*(f"robot.safety.{setting}" for setting in SHORT), *OTHER])
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])
AWAY = HOME + [1.2, 0, 0, 0, 0, 0]
NEAR = 0.02  # rad; the driver's own tolerance is larger
PATIENCE_S = 15.0  # of a slow machine


class Scene:
    """A bus, a driver on it, and somebody who commands."""

    def __init__(self, bus: VirtualBus, driver: ArmDriver) -> None:
        self.bus, self.driver = bus, driver
        self.limits: set[str] = set()  # what kept commands from being sent as they were

    def command_until(self, condition: Callable[[], bool], target: np.ndarray = AWAY) -> bool:
        """Command `target` at about 60 Hz until something is the case, or for a long time."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                return False
            try:
                self.limits |= set(self.driver.command_limited(target).by)
            except (CommandRefused, BusError):
                pass
            except Exception as error:  # NotArmed: released or lost
                self.limits.add(type(error).__name__)
            time.sleep(0.015)
        return True

    def mode_is(self, mode: str) -> Callable[[], bool]:
        return lambda: self.driver.read().mode == mode

    def comes_to(self, mode: str) -> bool:
        return _comes(self.mode_is(mode))

    def is_at(self, q: np.ndarray, tolerance: float = NEAR) -> bool:
        return bool(np.abs(self.bus.state().q - q).max() < tolerance)

    def in_motion(self) -> Scene:
        """Armed and on the way from home."""
        self.driver.arm()
        follows = self.mode_is("following")
        assert self.command_until(lambda: follows() and self.bus.state().q[0] > HOME[0] + 0.4)
        return self

    def goes_home_and_lets_go(self) -> bool:
        self.driver.disarm()
        return self.driver.read().mode == "released" and self.is_at(HOME, 0.1) and not self.bus.state().torque_on.any()


def _comes(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def _scene(folder, **options):
    with VirtualBus(CONFIG, **options) as bus:
        bus.calibration.write(folder / "arm.json")
        driver = make_driver(CONFIG, arm=True, port=bus.port, calibration=folder / "arm.json")
        driver.connect()
        try:
            yield Scene(bus, driver)
        finally:
            bus.faults.clear()
            bus.replug()
            try:
                driver.close()
            except TorqueLeftOn:
                pass


@pytest.fixture
def scene(tmp_path):
    with _scene(tmp_path) as scene:
        yield scene


def test_every_fault_of_the_bus_has_a_test_here():
    tested = {*REPLY_FAULTS, "silent", "no_power", "overheat", "voltage_sag", "stuck", *EVENT_FAULTS}
    assert tested == set(KINDS) and set(STATE_FAULTS) <= tested


def test_without_faults_it_goes_there_and_home(scene):
    scene.in_motion()
    assert scene.command_until(lambda: scene.is_at(AWAY))
    assert scene.goes_home_and_lets_go()


@pytest.mark.parametrize("kind", REPLY_FAULTS)
def test_one_spoilt_reply_in_ten_changes_nothing(scene, kind):
    value = 0.003 if kind == "slow_reply" else None
    scene.in_motion()
    spoilt = scene.bus.faults.add(Fault(kind, probability=0.1, value=value))
    assert scene.command_until(lambda: scene.is_at(AWAY))
    assert scene.goes_home_and_lets_go()
    assert spoilt.fired > 3


@pytest.mark.parametrize("kind", ["lost_reply", "corrupt_reply", "truncated_reply", "silent"])
def test_a_servo_without_good_replies_stops_the_arm_where_it_is_and_torque_stays(scene, kind):
    scene.in_motion()
    fault = scene.bus.faults.add(Fault(kind, ids=(3,)))
    assert scene.command_until(scene.mode_is("lost"))
    state = scene.driver.read()
    assert "LEFT ON" in state.reason and "elbow_flex" in state.reason
    stopped_at = scene.bus.state().q
    assert stopped_at[0] < AWAY[0] - NEAR  # commands ended with the first look that failed
    assert scene.bus.state().torque_on.all()
    assert "NotArmed" in scene.limits or scene.command_until(lambda: "NotArmed" in scene.limits)
    assert scene.is_at(stopped_at)
    fault.cancel()
    assert scene.comes_to("holding")
    assert scene.goes_home_and_lets_go()


def test_replies_later_than_the_driver_waits_count_as_none_and_never_as_answers_to_other_questions(scene):
    scene.in_motion()
    slow = scene.bus.faults.add(Fault("slow_reply", value=0.2))
    assert scene.command_until(scene.mode_is("lost"))
    slow.cancel()
    assert scene.comes_to("holding")
    assert scene.driver.read().q_rad == pytest.approx(scene.bus.state().q, abs=5e-3)
    assert scene.goes_home_and_lets_go()


def test_ending_while_a_servo_is_silent_leaves_torque_on_and_says_so(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("silent", ids=(3,)))
    with pytest.raises(TorqueLeftOn, match="LEFT ON"):
        scene.driver.close()
    assert scene.bus.state().torque_on.all()


def test_a_servo_without_power_is_lost_and_the_others_hold(scene):
    scene.in_motion()
    fault = scene.bus.faults.add(Fault("no_power", ids=(4,)))
    assert scene.command_until(scene.mode_is("lost"))
    assert scene.bus.state().torque_on.tolist() == [True, True, True, False, True, True]
    fault.cancel()
    assert scene.comes_to("stopped")
    assert "no torque on wrist_flex" in scene.driver.read().reason
    assert scene.bus.state().torque_on.sum() == 5


def test_unplugged_in_motion_it_holds_and_goes_on_when_plugged_in(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("unplug"))
    assert scene.command_until(scene.mode_is("lost"))
    assert "LEFT ON" in scene.driver.read().reason and not scene.bus.state().plugged
    stopped_at = scene.bus.state().q
    assert scene.bus.state().torque_on.all() and stopped_at[0] < AWAY[0] - NEAR
    scene.bus.replug()
    assert scene.comes_to("holding")
    assert scene.is_at(stopped_at)
    assert scene.command_until(lambda: scene.is_at(AWAY))
    assert scene.goes_home_and_lets_go()


def test_a_short_loss_of_the_cable_on_the_way_home_does_not_stop_the_way_home(scene):
    scene.in_motion()
    scene.driver.disarm(wait=False)
    scene.bus.faults.add(Fault("unplug", duration_s=0.4))
    assert _comes(lambda: not scene.bus.state().plugged)
    assert scene.comes_to("released")
    assert scene.is_at(HOME, 0.1) and not scene.bus.state().torque_on.any()


def test_ending_while_unplugged_leaves_torque_on_and_says_so(scene):
    scene.in_motion()
    scene.bus.unplug()
    with pytest.raises(TorqueLeftOn, match="LEFT ON"):
        scene.driver.close()
    assert scene.bus.state().torque_on.all()


def test_getting_hot_it_is_told_then_holds_then_goes_home_and_lets_go(scene):
    scene.in_motion()
    scene.bus.servos["shoulder_lift"].motor.temperature_c = 45.0
    scene.bus.faults.add(Fault("overheat", ids=(2,), value=6.0))
    seen: list[str] = []

    def gone() -> bool:
        state = scene.driver.read()
        seen.extend([*state.warnings, f"{state.mode}: {state.reason}"])
        return state.mode == "released"

    assert scene.command_until(gone)
    told = "\n".join(seen)
    order = [told.find(text) for text in ("shoulder_lift: 50", "holding: protected: shoulder_lift", "returning: ")]
    assert -1 not in order and order == sorted(order)
    assert scene.is_at(HOME, 0.1) and not scene.bus.state().torque_on.any()
    assert not scene.bus.state().errors.any()  # in time: no servo had to protect itself


def test_when_a_servo_lets_go_by_itself_the_others_hold(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("overheat", ids=(1,), value=400.0, duration_s=0.2))
    assert scene.command_until(scene.mode_is("stopped"))
    assert "shoulder_pan" in scene.driver.read().reason
    assert scene.bus.state().torque_on.tolist() == [False, True, True, True, True, True]
    with pytest.raises(CommandRefused):
        scene.driver.command(AWAY)


def test_an_overloaded_servo_makes_the_arm_hold(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("overload", ids=(2,)))
    assert scene.command_until(lambda: "overload" in scene.driver.read().reason)
    state = scene.driver.read()
    assert state.mode == "holding" and "shoulder_lift: servo reports overload" in state.warnings
    held = state.goal_rad
    for _ in range(20):
        scene.driver.command(AWAY)
        time.sleep(0.015)
    assert scene.is_at(held)


def test_a_jaw_that_squeezes_itself_into_overload_does_not_stop_the_arm(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("overload", ids=(6,)))
    assert scene.command_until(lambda: scene.is_at(AWAY))
    assert any("gripper: servo reports overload" in text for text in scene.driver.read().warnings)
    assert scene.goes_home_and_lets_go()


def test_a_blocked_joint_is_not_fought_and_the_torque_stays_on_when_it_cannot_get_home(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("stuck", ids=(1,)))
    assert _comes(lambda: scene.bus.plant.stuck[0])
    blocked = scene.bus.state().q[0]
    assert scene.command_until(lambda: scene.driver.read().mode not in ("following",), AWAY)
    assert "shoulder_pan" in scene.driver.read().reason and "load" in scene.driver.read().reason
    assert scene.comes_to("stuck") or scene.driver.read().mode == "holding"
    if scene.driver.read().mode == "holding":
        with pytest.raises(TorqueLeftOn):
            scene.driver.disarm()
    assert "TORQUE LEFT ON" in scene.driver.read().reason and scene.bus.state().torque_on.all()
    assert scene.bus.state().q[0] == pytest.approx(blocked, abs=1e-6)
    scene.bus.faults.clear()  # somebody frees it
    assert _comes(lambda: not scene.bus.plant.stuck[0])
    assert scene.goes_home_and_lets_go()


def test_a_low_supply_is_told_and_the_arm_goes_on(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("voltage_sag", value=6.5))
    assert scene.command_until(lambda: scene.is_at(AWAY))
    assert _comes(lambda: any("supply is" in text for text in scene.driver.read().warnings))
    assert scene.goes_home_and_lets_go()


def test_when_the_supply_breaks_down_the_arm_is_limp_and_stays_limp_when_it_is_back(scene):
    scene.in_motion()
    scene.bus.faults.add(Fault("voltage_sag", value=3.0, duration_s=0.5))
    assert scene.command_until(scene.mode_is("lost"))
    assert scene.comes_to("released")
    assert "no servo has torque" in scene.driver.read().reason
    assert not scene.bus.state().torque_on.any()
    scene.in_motion()  # armed anew, it goes on
    assert scene.goes_home_and_lets_go()


def test_servos_with_another_calibration_than_the_file_are_never_energised(tmp_path):
    with _scene(tmp_path) as scene:
        scene.driver.close()
        scene.bus.faults.add(Fault("eeprom_mismatch", ids=(2,), value=150))
        offset = scene.bus.calibration.motors["shoulder_lift"].homing_offset + 150
        assert _comes(lambda: scene.bus.servos["shoulder_lift"].memory["homing_offset"] == offset)
        driver = make_driver(CONFIG, arm=True, port=scene.bus.port, calibration=tmp_path / "arm.json")
        with driver, pytest.raises(CalibrationError, match="shoulder_lift homing_offset"):
            driver.arm()
        assert not scene.bus.state().torque_on.any()


def test_an_exception_of_the_program_that_drives_sends_the_arm_home(tmp_path):
    with VirtualBus(CONFIG) as bus:
        bus.calibration.write(tmp_path / "arm.json")
        with (
            pytest.raises(ZeroDivisionError),
            make_driver(CONFIG, arm=True, port=bus.port, calibration=tmp_path / "arm.json") as driver,
        ):
            Scene(bus, driver).in_motion()
            raise ZeroDivisionError
        assert np.abs(bus.state().q - HOME).max() < 0.1 and not bus.state().torque_on.any()


def test_another_arm_plugged_in_instead_is_not_taken_for_the_first(scene):
    """Its servos hold another calibration: it stays lost until the right one is back."""
    scene.in_motion()
    scene.bus.unplug()
    assert scene.command_until(scene.mode_is("lost"))
    wrong = scene.bus.servos["elbow_flex"].memory
    right_offset = wrong["homing_offset"]
    wrong.save("homing_offset", right_offset + 300)
    stopped_at = scene.bus.state().q
    heard = scene.bus.counts.replies
    scene.bus.replug()
    assert _comes(lambda: "elbow_flex homing_offset" in scene.driver.read().reason)
    assert _comes(lambda: scene.bus.counts.replies > heard + 200)  # looked at again and again, and refused
    assert scene.driver.read().mode == "lost" and scene.is_at(stopped_at)
    wrong.save("homing_offset", right_offset)
    assert scene.comes_to("holding")
    assert scene.goes_home_and_lets_go()
