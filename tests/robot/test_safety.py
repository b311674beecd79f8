"""What the driver does to commands: laws over random arms, poses and commands, then the texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from so101.config import load_config
from so101.robot.base import CommandRefused
from so101.robot.safety import CommandLimiter, Cutoff, HealthMonitor, WayHome

CONFIG = load_config()
SETTINGS = CONFIG.robot.safety
NAMES = CONFIG.robot.joint_names
LOWER = np.array([joint.lower_rad for joint in CONFIG.robot.joints])
UPPER = np.array([joint.upper_rad for joint in CONFIG.robot.joints])
SUPPLY_V = CONFIG.robot.bus.supply_v

joints = arrays(float, 6, elements=st.floats(-4, 4))
shares = arrays(float, 6, elements=st.floats(0, 1))
seconds = st.floats(0, 1)
inside = shares.map(lambda share: LOWER + share * (UPPER - LOWER))


def lowest_m(q: np.ndarray) -> float:
    """A hand that sinks with the sum of its joints."""
    return 0.05 - 0.02 * float(q[:5].sum())


@given(joints, inside, inside, seconds)
def test_goals_stay_within_joint_limits(command, goal, present, elapsed_s):
    sent = CommandLimiter(SETTINGS, LOWER, UPPER).limit(command, goal, present, elapsed_s).goal
    assert (sent >= LOWER - 1e-9).all() and (sent <= UPPER + 1e-9).all()


@given(joints, joints, joints, seconds)
def test_an_arm_outside_its_limits_never_goes_further_out(command, goal, present, elapsed_s):
    limiter = CommandLimiter(SETTINGS, LOWER, UPPER)
    sent = limiter.limit(command, goal, np.clip(present, LOWER, UPPER), elapsed_s).goal
    outside = np.maximum(np.maximum(LOWER - sent, sent - UPPER), 0)
    assert (outside <= np.maximum(np.maximum(LOWER - goal, goal - UPPER), 0) + 1e-9).all()


@given(joints, joints, joints, seconds)
def test_no_step_is_longer_than_step_and_speed_allow(command, goal, present, elapsed_s):
    sent = CommandLimiter(SETTINGS, LOWER, UPPER, lowest_m).limit(command, goal, present, elapsed_s).goal
    way = np.abs(sent - goal)
    assert (way <= np.array(SETTINGS.max_step_rad) + 1e-9).all()
    assert (way <= np.array(SETTINGS.max_speed_rad_s) * elapsed_s + 1e-9).all()


@given(joints, inside, seconds)
def test_a_blocked_arm_is_not_pulled_harder_and_harder(command, present, elapsed_s):
    limiter, goal = CommandLimiter(SETTINGS, LOWER, UPPER), present
    for _ in range(30):
        goal = limiter.limit(command, goal, present, elapsed_s).goal
        assert (np.abs(goal - present) <= np.array(SETTINGS.max_lead_rad) + 1e-9).all()


@given(joints, joints, joints, seconds)
def test_no_goal_sinks_below_the_floor_or_below_where_it_was(command, goal, present, elapsed_s):
    sent = CommandLimiter(SETTINGS, LOWER, UPPER, lowest_m).limit(command, goal, present, elapsed_s).goal
    assert lowest_m(sent) >= min(SETTINGS.floor_z_m, lowest_m(goal)) - 1e-9


@given(inside, shares)
def test_what_is_near_and_allowed_passes_unchanged(goal, share):
    command = np.clip(goal + (share - 0.5) * 0.1, LOWER, UPPER)
    limited = CommandLimiter(SETTINGS, LOWER, UPPER).limit(command, goal, goal, 1 / 30)
    assert np.array_equal(limited.goal, command) and limited.by == ()


@given(joints, inside)
def test_an_arm_that_follows_gets_where_it_was_sent(command, start):
    limiter, goal = CommandLimiter(SETTINGS, LOWER, UPPER), start
    for _ in range(100):
        goal = limiter.limit(command, goal, goal, 1 / 30).goal
    assert np.allclose(goal, np.clip(command, LOWER, UPPER))


@pytest.mark.parametrize("bad", [np.full(6, np.nan), [0, 0, 0, 0, 0, np.inf], np.zeros(5), np.zeros((1, 6)), 1.0])
def test_what_is_no_command_is_refused(bad):
    with pytest.raises(CommandRefused, match="six finite joints"):
        CommandLimiter(SETTINGS, LOWER, UPPER).limit(bad, np.zeros(6), np.zeros(6), 0.1)


def test_a_limited_command_says_by_what():
    limiter = CommandLimiter(SETTINGS, LOWER, UPPER, lambda q: -float(q[1]))
    limited = limiter.limit(np.full(6, 9.0), np.zeros(6), np.zeros(6), 1 / 30)
    assert limited.by == ("joint limits", "lead", "step", "speed", "floor")


@given(st.lists(st.floats(20, 80), min_size=1, max_size=60), st.integers(0, 4))
def test_a_cutoff_needs_its_time_without_a_break(temperatures, looks):
    """After as many looks in a row above a bound as its time is long, one more being the first; not earlier."""
    settings = SETTINGS.temperature_c.model_copy(update={"after_s": looks * 0.25})
    cutoff = Cutoff("{:.0f} degrees", settings, NAMES)
    for look, temperature in enumerate(temperatures):
        level, _ = cutoff.update(np.full(6, temperature), look * 0.25)
    recent = temperatures[-looks - 1 :]
    bounds = {"warn": settings.warn, "hold": settings.hold, "home": settings.home}
    lasting = [name for name, bound in bounds.items() if len(recent) > looks and min(recent) >= bound]
    assert level == (lasting[-1] if lasting else "ok")


def test_the_worst_joint_is_named():
    monitor = HealthMonitor(SETTINGS, NAMES, SUPPLY_V)
    hot = np.array([30, 30, 61.0, 55, 30, 30])
    overload = np.array([0, 0, 0, 0, 0, 32])
    monitor.update(hot, np.zeros(6), np.full(6, 12.0), overload, 0.0)
    health = monitor.update(hot, np.zeros(6), np.full(6, 3.0), overload, 1.0)
    assert health.level == "hold"
    assert health.reason == "elbow_flex: 61 degrees C (hold from 58)"
    assert health.warnings[1:] == (
        "supply is 3 to 3 V, must be 4.5 to 13",
        "gripper: servo reports overload",  # it squeezes on purpose
    )


@pytest.mark.parametrize(("bit", "level"), [(1, "warn"), (2, "home"), (4, "home"), (8, "hold"), (32, "hold")])
def test_the_servos_own_faults_count_when_they_are_told_twice(bit, level):
    monitor = HealthMonitor(SETTINGS, NAMES, SUPPLY_V)
    looks = [np.array([0, told, 0, 0, 0, 0]) for told in (bit, 0, bit, bit)]
    levels = [monitor.update(np.full(6, 25.0), np.zeros(6), np.full(6, 12.0), bits, 0.0).level for bits in looks]
    assert levels == ["ok", "ok", "ok", level]


@given(inside, inside, inside)
def test_the_way_home_is_eased_slow_and_ends_there(start, via, home):
    way = WayHome(start, [via, home], SETTINGS.return_speed_rad_s, SETTINGS.return_min_s)
    times = np.linspace(0, way.duration_s, 400)
    goals = np.array([way.at(t) for t in times])
    speed = np.abs(np.diff(goals, axis=0)).max() / (times[1] - times[0])
    assert np.allclose(goals[0], start) and np.allclose(goals[-1], home) and np.allclose(way.at(1e6), home)
    assert speed <= SETTINGS.return_speed_rad_s * 1.001
    assert way.duration_s >= 2 * SETTINGS.return_min_s
