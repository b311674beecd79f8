"""The driver over a virtual bus: it moves only when told to, stays safe on its own, and goes home before it lets go."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from so101.config import load_config
from so101.robot import CalibrationError, CommandRefused, NotArmed, TorqueLeftOn
from so101.robot.calibration import ArmCalibration
from so101.robot.virtual import Fault, VirtualBus
from so101.robot.virtual.pseudo_real import draw_rig
from so101.robot.virtual.twin_plant import TwinPlant
from tests.robot.rig import Rig

CONFIG = load_config(
    overrides=[
        "robot.safety.home_after_s=2.0",  # ten would only make the tests longer
        "robot.bus.reply_timeout_ms=100",  # replies come by the real clock, from a machine with other things to do
    ]
)
SAFETY = CONFIG.robot.safety
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])
REAL = sorted((Path(__file__).parents[2].parent / "shared/data/calibration").glob("arm0[125]*.json"))
AWAY = HOME + np.array([0.4, 0.3, -0.3, -0.2, 0.3, 0.4])
TICK_RAD = 0.002


@pytest.fixture
def rig(tmp_path):
    with Rig(CONFIG, tmp_path) as made:
        yield made


def armed(rig: Rig) -> Rig:
    rig.driver.arm()
    return rig


def test_connecting_energises_nothing(rig):
    rig.run(0.2)
    assert rig.state.mode == "released" and not rig.state.armed
    assert not rig.bus.state().torque_on.any()


def test_without_permission_nothing_is_energised(tmp_path):
    with Rig(CONFIG, tmp_path, may_arm=False) as rig:
        with pytest.raises(NotArmed, match="start with --arm"):
            rig.driver.arm()
        with pytest.raises(NotArmed, match="start with --arm"):
            rig.driver.command(HOME)
        rig.run(0.1)
        assert not rig.bus.state().torque_on.any()


def test_a_command_before_arming_is_refused(rig):
    with pytest.raises(NotArmed, match="arm it first"):
        rig.driver.command(AWAY)


def test_arming_moves_nothing_whatever_the_goals_were(rig):
    for servo in range(1, 7):
        rig.arm.bus.write(servo, "goal_position", 1000)
    before = rig.state.q_rad
    armed(rig).run(0.5)
    assert rig.bus.state().torque_on.all()
    assert np.abs(rig.state.q_rad - before).max() < TICK_RAD


def test_the_arm_follows_and_says_what_was_sent(rig):
    armed(rig)
    modes = rig.follow(AWAY, 2.0)
    assert modes == ["following"]
    assert np.abs(rig.driver.command(AWAY) - AWAY).max() < TICK_RAD
    assert np.abs(rig.bus.state().q - AWAY).max() < 0.1


def test_a_far_command_is_cut_and_says_so(rig):
    armed(rig).run(0.1)
    limited = rig.driver.command_limited(HOME + 3.0)
    assert "joint limits" in limited.by and "step" in limited.by
    assert np.abs(limited.goal - HOME).max() <= max(SAFETY.max_step_rad) + TICK_RAD


@pytest.mark.parametrize("bad", [[np.nan] * 6, [0.0] * 5, [np.inf, 0, 0, 0, 0, 0]])
def test_nonsense_is_refused_and_changes_nothing(rig, bad):
    armed(rig)
    goal = rig.state.goal_rad
    with pytest.raises(CommandRefused, match="six finite joints"):
        rig.driver.command(bad)
    assert rig.run(0.1) == ["holding"] and np.array_equal(rig.state.goal_rad, goal)


def test_silence_holds_then_goes_home_then_lets_go(rig):
    armed(rig).follow(AWAY, 1.5)
    modes = rig.run(SAFETY.home_after_s + 10, until="released")
    assert modes == ["following", "holding", "returning", "released"]
    assert np.abs(rig.state.q_rad - HOME).max() < 0.16
    assert not rig.bus.state().torque_on.any() and not rig.state.armed


def test_silence_is_broken_by_hold(rig):
    armed(rig).follow(AWAY, 0.5)
    for _ in range(4):
        rig.run(SAFETY.home_after_s * 0.6)
        rig.driver.hold()
    assert rig.state.mode == "holding" and rig.state.armed


def test_commands_go_on_after_a_pause(rig):
    armed(rig).follow(AWAY, 0.5)
    assert rig.run(1.0) == ["following", "holding"]
    assert rig.follow(AWAY, 0.2) == ["following"]


def test_disarming_goes_home_slowly_and_lets_go_there(rig):
    armed(rig).follow(AWAY, 1.5)
    rig.driver.disarm(wait=False)
    speeds, before = [], rig.state.goal_rad
    while rig.state.mode == "returning":
        rig.tick()
        if rig.state.armed:
            speeds.append(np.abs(rig.state.goal_rad - before).max() * 60)
            before = rig.state.goal_rad
    assert rig.state.mode == "released" and "home" in rig.state.reason
    assert max(speeds) < SAFETY.return_speed_rad_s + 60 * TICK_RAD
    assert np.abs(rig.state.q_rad - HOME).max() < 0.16


def test_no_command_on_the_way_home(rig):
    armed(rig).follow(AWAY, 0.5)
    rig.driver.disarm(wait=False)
    with pytest.raises(CommandRefused, match="returning"):
        rig.driver.command(AWAY)


def test_stop_freezes_and_stays(rig):
    armed(rig).follow(AWAY, 0.3)
    rig.driver.stop()
    there = rig.state.q_rad
    assert rig.run(SAFETY.home_after_s + 3) == ["stopped"]
    assert np.abs(rig.state.q_rad - there).max() < 0.2 and rig.bus.state().torque_on.all()
    with pytest.raises(CommandRefused, match="emergency stop"):
        rig.driver.command(AWAY)
    rig.driver.arm()
    assert rig.follow(AWAY, 0.2) == ["following"]


def test_a_way_home_can_be_stopped(rig):
    armed(rig).follow(AWAY, 0.5)
    rig.driver.disarm(wait=False)
    rig.run(0.3)
    rig.driver.stop()
    assert rig.run(12)[-1] == "stopped" and rig.state.armed


def test_a_blocked_way_home_leaves_the_torque_on_and_says_so(rig, caplog):
    armed(rig).follow(AWAY, 1.5)
    rig.bus.faults.add(Fault("stuck", ids=(3,)))
    rig.driver.disarm(wait=False)
    with caplog.at_level(logging.CRITICAL):
        rig.run(20, until="stuck")
    assert rig.state.mode == "stuck" and rig.state.armed and rig.bus.state().torque_on.all()
    assert "TORQUE LEFT ON" in rig.state.reason and "elbow_flex" in rig.state.reason
    assert any("TORQUE LEFT ON" in record.message for record in caplog.records)
    with pytest.raises(TorqueLeftOn, match="elbow_flex"):
        rig.driver.close()
    assert rig.bus.state().torque_on.all()


def test_a_freed_arm_gets_home_at_the_second_try(rig):
    armed(rig).follow(AWAY, 1.5)
    rig.bus.faults.add(Fault("stuck", ids=(3,)))
    rig.driver.disarm(wait=False)
    rig.run(20, until="stuck")
    rig.bus.faults.clear()
    rig.driver.disarm(wait=False)
    assert rig.run(20, until="released")[-1] == "released"
    assert not rig.bus.state().torque_on.any()


def test_an_unplugged_arm_is_lost_said_so_and_found_again(rig):
    armed(rig).follow(AWAY, 1.0)
    rig.bus.unplug()
    assert rig.run(1.0) == ["following", "lost"]
    assert rig.state.armed and "LEFT ON" in rig.state.reason and rig.state.missed_reads > 10
    assert rig.bus.state().torque_on.all()
    with pytest.raises(NotArmed):
        rig.driver.command(AWAY)
    rig.bus.replug()
    assert rig.run(2.0) == ["lost", "holding"]
    assert rig.follow(AWAY, 0.2) == ["following"]


def test_what_was_to_go_home_goes_on_when_the_bus_is_back(rig):
    armed(rig).follow(AWAY, 1.0)
    rig.driver.disarm(wait=False)
    rig.run(0.2)
    rig.bus.unplug()
    rig.run(1.0)
    rig.bus.replug()
    assert rig.run(15, until="released") == ["lost", "returning", "released"]


def test_servos_that_lost_power_are_not_called_armed(rig):
    armed(rig).follow(AWAY, 0.5)
    rig.bus.power_cycle()
    assert rig.run(0.1)[-1] == "released" and "power" in rig.state.reason


def test_an_arm_found_with_torque_is_left_as_it_is(tmp_path):
    with Rig(CONFIG, tmp_path, may_arm=False) as rig:
        for servo in range(1, 7):
            rig.arm.bus.write(servo, "torque_enable", 1)
        rig.arm.close()
        rig.driver.connect()
        assert rig.state.mode == "stopped" and rig.state.armed
        rig.driver.close()
        assert rig.bus.state().torque_on.all()


def test_hands_stay_above_the_floor(tmp_path):
    from so101.kinematics.finger_tips import FingerTips

    lowest_m = FingerTips(CONFIG, SAFETY.floor_boxes).lowest_m
    with Rig(CONFIG, tmp_path, lowest_m=lowest_m) as rig:
        rig.driver.arm()
        down = HOME + np.array([0, 1.5, 0.6, 0, 0, 0])
        assert lowest_m(down) < SAFETY.floor_z_m - 0.02
        for _ in range(60):
            limited = rig.driver.command_limited(down)
            rig.run(2 / 60)
            assert lowest_m(rig.state.goal_rad) > SAFETY.floor_z_m - 0.001
        assert "floor" in limited.by


@pytest.mark.parametrize("rig_seed", [None, 2])
def test_with_weight_and_friction_it_gets_home_and_stays_there_when_released(rig_seed, tmp_path):
    plant = TwinPlant(CONFIG) if rig_seed is None else TwinPlant(CONFIG, draw_rig(CONFIG, rig_seed))
    plant.reset(seed=1)
    bus = VirtualBus(CONFIG, plant=plant, pacing=False, real_time=False, reply_delay_s=0.0)
    with Rig(CONFIG, tmp_path, bus=bus) as rig:
        armed(rig).follow(AWAY, 1.0)
        rig.driver.disarm(wait=False)
        assert rig.run(20, until="released")[-1] == "released"
        released_at = bus.state().q
        rig.run(2.0)
        assert np.abs(bus.state().q - released_at).max() < 0.1


@pytest.mark.skipif(not REAL, reason="no real calibration files here")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_arms_with_real_calibrations_go_where_they_are_told(path, tmp_path):
    bus = VirtualBus(CONFIG, calibration=path, pacing=False, real_time=False, reply_delay_s=0.0)
    with Rig(CONFIG, tmp_path, bus=bus) as rig:
        assert np.abs(rig.state.q_rad - HOME).max() < TICK_RAD
        armed(rig).follow(AWAY, 2.0)
        assert np.abs(rig.driver.command(AWAY) - AWAY).max() < TICK_RAD
        assert np.abs(rig.bus.state().q - AWAY).max() < 0.1


def test_interrupted_on_the_way_home_it_says_that_torque_is_on(rig, monkeypatch, caplog):
    armed(rig).follow(AWAY, 0.5)
    monkeypatch.setattr(rig.driver, "step", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        rig.driver.close()
    assert "TORQUE LEFT ON" in caplog.text and rig.bus.state().torque_on.all()


def test_servos_of_another_calibration_are_not_energised(rig):
    rig.bus.faults.add(Fault("eeprom_mismatch", ids=(2,)))
    rig.bus.advance(0.1)
    rig.arm.close()
    rig.driver.connect()
    with pytest.raises(CalibrationError, match="shoulder_lift homing_offset: .*another arm's file"):
        rig.driver.arm()
    assert not rig.bus.state().torque_on.any()
    assert rig.state.mode == "released"  # looking is fine


def test_a_silent_servo_for_a_moment_changes_nothing(rig):
    armed(rig).follow(AWAY, 0.5)
    rig.bus.faults.add(Fault("lost_reply", ids=(4,), probability=0.3))
    assert rig.follow(AWAY, 1.0) == ["following"]


def test_a_silent_servo_for_long_is_a_lost_arm(rig):
    armed(rig).follow(AWAY, 0.5)
    rig.bus.faults.add(Fault("silent", ids=(4,)))
    goal = rig.driver.command(AWAY)
    rig.tick()
    assert np.array_equal(rig.driver.command(AWAY + 0.1), goal)  # a partial look: nothing is sent
    assert rig.run(1.5, until="lost")[-1] == "lost" and "wrist_flex (servo 4)" in rig.state.reason


def test_an_arm_that_was_stopped_stays_stopped_when_the_bus_is_back(rig):
    armed(rig).follow(AWAY, 0.5)
    rig.driver.stop()
    rig.bus.unplug()
    rig.run(1.0)
    rig.bus.replug()
    assert rig.run(SAFETY.home_after_s + 3) == ["lost", "stopped"]


def test_whoever_watches_badly_disturbs_nobody(rig):
    seen = []
    rig.driver.watch(lambda state: 1 / 0)
    rig.driver.watch(lambda state: seen.append(state.mode))
    armed(rig).run(0.1)
    assert seen[-1] == "holding"


def test_a_programming_error_in_a_look_is_a_missed_look(rig, monkeypatch, caplog):
    armed(rig).follow(AWAY, 0.3)
    monkeypatch.setattr(rig.arm, "read", lambda: 1 / 0)
    assert rig.run(1.0)[-1] == "lost" and "division by zero" in rig.state.reason
    assert "Traceback" in caplog.text and rig.bus.state().torque_on.all()
    monkeypatch.undo()
    assert rig.run(0.1)[-1] == "holding"


def test_heat_warns_then_holds_then_goes_home(rig):
    armed(rig).follow(AWAY, 0.5)
    rig.bus.faults.add(Fault("overheat", ids=(2,), value=2.5))
    modes, warned = [], False
    for _ in range(1500):
        try:
            rig.driver.command(AWAY)
        except (CommandRefused, NotArmed):
            pass
        rig.tick()
        warned |= rig.state.mode == "following" and any("warn from 50" in text for text in rig.state.warnings)
        if rig.state.mode not in modes[-1:]:
            modes.append(rig.state.mode)
        if rig.state.mode == "released":
            break
    assert warned and modes == ["following", "holding", "returning", "released"]
    assert "shoulder_lift" in rig.state.reason
    with pytest.raises(CommandRefused, match="let it cool down"):
        rig.driver.arm()


def test_stopping_again_and_again_does_not_lower_the_arm(rig):
    """Under weight every new goal at the present pose is a lower one."""
    armed(rig).follow(AWAY, 1.0)
    rig.driver.stop()
    rig.run(0.2)
    goals = [servo.memory["goal_position"] for servo in rig.bus.servos.values()]
    rig.bus.plant.place(rig.bus.state().q - 0.02)
    rig.run(0.1)
    rig.driver.stop()
    rig.run(0.1)
    assert goals == [servo.memory["goal_position"] for servo in rig.bus.servos.values()]


def test_a_servo_that_was_reset_while_connected_is_not_energised(rig):
    servo = rig.bus.servos["elbow_flex"]
    servo.memory.reset()
    servo.motor.restart()
    with pytest.raises(CalibrationError, match="not the one that was connected: elbow_flex homing_offset"):
        rig.driver.arm()
    assert rig.state.mode == "released" and not rig.bus.state().torque_on.any()


def test_one_new_servo_without_a_file_is_not_energised(rig):
    rig.file.unlink()
    servo = rig.bus.servos["elbow_flex"]
    servo.memory.reset()
    servo.motor.restart()
    rig.arm.connect()
    with pytest.raises(CalibrationError, match="a servo is new"):
        rig.arm.torque_on()


def test_a_joint_outside_of_its_range_is_not_energised(rig):
    servo = rig.bus.servos["elbow_flex"]
    place = servo.motor.ticks
    servo.motor.ticks = rig.bus.calibration.motors["elbow_flex"].range_max + servo.memory["homing_offset"] + 150
    with pytest.raises(CalibrationError, match="elbow_flex is at .* ticks, its range is .* by hand"):
        rig.driver.arm()
    assert not rig.bus.state().torque_on.any()
    servo.motor.ticks = place
    rig.driver.arm()


def test_an_arm_found_with_torque_and_another_calibration_is_not_moved_by_anything(rig, caplog):
    """Killed in motion, the file exchanged: the way home would end elsewhere, and torque be released there."""
    armed(rig).follow(AWAY, 1.5)
    rig.arm.close()
    motors = dict(rig.bus.calibration.motors)
    joint = motors["shoulder_lift"]
    motors["shoulder_lift"] = replace(joint, range_min=joint.range_min + 600, range_max=joint.range_max + 600)
    ArmCalibration(motors, "another").write(rig.file)
    rig.driver.connect()
    before = rig.bus.state()
    rig.driver.stop()
    with pytest.raises(CalibrationError):
        rig.driver.arm()
    with pytest.raises(TorqueLeftOn, match="is not what the servos hold"):
        rig.driver.disarm()
    rig.run(1.0)
    with pytest.raises(TorqueLeftOn):
        rig.driver.close()
    after = rig.bus.state()
    assert after.torque_on.all() and np.abs(after.q - before.q).max() < TICK_RAD
    assert "TORQUE LEFT ON" in caplog.text
