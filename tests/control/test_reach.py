"""A reach policy on the virtual servo bus: what it sees, what is sent, what stops it."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.control.reach import ease_to, run_reach
from so101.control.reach_model import ReachModel
from so101.control.reach_run import ReachRun, reversals_pct
from so101.errors import ConfigError
from so101.families import find_task, make_env
from so101.kinematics.arm import ArmKinematics
from so101.policies.base import PolicyError
from so101.robot import TorqueLeftOn
from so101.robot.base import CalibrationError
from so101.robot.tick_map import TickMap
from so101.robot.virtual import Fault
from tests.control.reach_rig import ReachRig

CONFIG = load_config(overrides=["robot.bus.reply_timeout_ms=200", "robot.safety.return_min_s=0.3"])
TARGET = np.array([0.20, -0.12, 0.16])


@pytest.fixture(scope="module")
def model():
    return ReachModel(find_task("so101_reach"))


@pytest.fixture
def rig(tmp_path):
    with ReachRig(CONFIG, tmp_path) as made:
        yield made


def reach(rig, reacher, seconds=2.0, **options):
    return run_reach(rig.driver, reacher, TARGET, seconds=seconds, clock=rig, moves=True, **options)


class Constant:
    """Answers the same to everything."""

    def __init__(self, action) -> None:
        self.action = np.array(action, float)

    def act(self, observation):
        return self.action[None]


def test_the_oracle_sees_what_the_policy_saw_in_training(model):
    env = make_env("so101_reach", 1, threads=1)
    seen, _ = env.reset(options={"seeds": [1_000_003]})
    q, target = model.beginning(1_000_003)
    assert seen[0] == pytest.approx(model.observation(q, np.zeros(6), target, model.action_of(q))[0], abs=1e-6)
    rng, names = np.random.default_rng(0), env.observation_names
    assert model.words == len(names) == 27
    for _ in range(20):
        action = rng.uniform(-1, 1, (1, 6))
        seen = env.step(action)[0]
        again = model.observation(env.qpos[0], env.qvel[0], env.targets[0], action[0])
        assert seen[0] == pytest.approx(again[0], abs=1e-6)
        assert model.point(env.qpos[0]) == pytest.approx(env.data(0).site("grasp_center").xpos, abs=1e-9)
        assert model.joints_of(action[0]) == pytest.approx(env.action_to_ctrl(action[0]))
        assert model.action_of(env.action_to_ctrl(action[0])) == pytest.approx(action[0])
    env.close()


def test_the_oracle_and_the_twin_of_the_pipeline_agree_where_the_hand_is(model):
    kinematics, rng = ArmKinematics(CONFIG), np.random.default_rng(1)
    site = find_task("so101_reach").family.declaration.arm.sites["grasp_center"]
    for q in rng.uniform(model.lower, model.upper, (20, 6)):
        positions, rotations = kinematics.bodies(q, kinematics.body_ids([site.body]))
        assert model.point(q) == pytest.approx(positions[0] + rotations[0] @ np.array(site.position_m), abs=1e-9)


def test_the_jacobian_is_the_derivative_of_the_point(model):
    q = np.array([0.3, -0.4, 0.5, 0.6, -0.2, 0.1])
    steps = 1e-6 * np.eye(6)
    numeric = np.array([(model.point(q + s) - model.point(q - s)) / 2e-6 for s in steps]).T
    assert model.jacobian(q) == pytest.approx(numeric, abs=1e-8)


def test_tasks_that_an_arm_alone_cannot_do_are_refused():
    with pytest.raises(ConfigError, match="its goal is above, not at_point"):
        ReachModel(find_task("so101_tower_lift_brick"))


def test_a_dry_run_sends_nothing(tmp_path):
    with ReachRig(CONFIG, tmp_path, may_arm=False) as rig:
        before = rig.bus.state().q
        run = run_reach(rig.driver, rig.reacher(), TARGET, seconds=1.0, clock=rig, moves=False)
        rig.driver.close()
        assert rig.written == []
        state = rig.bus.state()
        assert not state.torque_on.any() and np.abs(state.q - before).max() < 0.01
    assert len(run.time_s) == 51 and not run.moved and run.limited == 0
    assert np.abs(run.goals[-1] - run.goals[0]).max() > 0.01  # it would have moved
    assert run.lines(0.02, 2, rig.config.robot.joint_names)[0].startswith("dry run, target 0.200, -0.120, 0.160 m")


def test_armed_it_comes_to_the_point_and_goes_home(rig):
    rig.driver.arm()
    ease_to(
        rig.driver, rig.model.start, seconds=0.5, speed_rad_s=2.0, rate_hz=50, clock=rig,
    )  # fmt: skip
    assert np.abs(rig.bus.state().q - rig.model.start).max() < 0.25
    run = reach(rig, rig.reacher(), seconds=4.0)
    assert 1000 * np.linalg.norm(rig.true_point() - TARGET) < 5.0
    told = run.summary(0.02)
    assert told["final_mm"] < 5.0 and told["closest_mm"] <= told["final_mm"]
    assert told["looks"] == 201 and told["rate_hz"] == pytest.approx(50, abs=0.01) and told["dropped"] == 0
    assert told["inside_pct"] == pytest.approx(100 * np.mean(run.errors_m <= 0.02), abs=0.1) and told["inside_pct"] > 30
    assert told["ended_by"] is None and run.moved
    rig.driver.close()
    state, home = rig.bus.state(), np.array([joint.home_rad for joint in rig.config.robot.joints])
    assert not state.torque_on.any() and np.abs(state.q - home)[:5].max() < 0.2


def test_equal_runs_are_equal(tmp_path):
    runs = []
    for name in "ab":
        (tmp_path / name).mkdir()
        with ReachRig(CONFIG, tmp_path / name) as rig:
            rig.driver.arm()
            runs.append(reach(rig, rig.reacher(), seconds=1.0))
    assert (runs[0].q == runs[1].q).all() and (runs[0].goals == runs[1].goals).all()


def test_a_step_without_all_six_answers_is_left_out(rig):
    rig.driver.arm()
    fault = None

    def break_it(step, index):
        nonlocal fault
        if index == 20:
            fault = rig.bus.faults.add(Fault("lost_reply", ids=(3,), count=4))  # two answers a look with a retry

    run = reach(rig, rig.reacher(), watch=break_it)
    assert fault.fired == 4
    assert 1 <= run.dropped <= 2 and run.ended_by == "" and len(run.time_s) + run.dropped == 101


def test_a_bus_that_dies_leaves_the_torque_on_and_says_so(rig):
    rig.driver.arm()

    run = reach(rig, rig.reacher(), watch=lambda step, index: index == 10 and rig.bus.unplug())
    assert "the port is gone" in run.ended_by
    assert run.lines(0.02, 2, rig.config.robot.joint_names)[-1].startswith("  ended early: ")
    with pytest.raises(TorqueLeftOn, match="LEFT ON"):
        rig.driver.close()
    assert rig.bus.state().torque_on.all()


def test_an_arm_that_cannot_get_home_keeps_its_torque(rig):
    rig.driver.arm()
    reach(rig, rig.reacher(), seconds=1.0)
    rig.bus.faults.add(Fault("stuck", ids=(1, 2, 3)))
    with pytest.raises(TorqueLeftOn, match="TORQUE LEFT ON, home was not reached"):
        rig.driver.close()
    assert rig.bus.state().torque_on.all()


def test_a_stop_by_somebody_else_ends_the_run(rig):
    rig.driver.arm()
    run = reach(rig, rig.reacher(), watch=lambda step, index: index == 30 and rig.driver.stop())
    assert "no command is taken while the arm is stopped" in run.ended_by and len(run.time_s) == 31


def test_a_wish_to_stop_ends_the_run(rig):
    rig.driver.arm()
    asked = iter([False] * 5 + [True])
    run = reach(rig, rig.reacher(), stopped=lambda: next(asked))
    assert run.ended_by == "stopped" and len(run.time_s) == 5


def test_the_step_clamp_keeps_goals_near_and_is_counted(rig):
    rig.driver.arm()
    run = reach(rig, rig.reacher(Constant([0.9, 0, 0, 0, 0, 0]), step_ticks=30), seconds=0.5)
    assert run.throttled > 20
    assert np.abs(run.goals - run.q).max() <= 31 * 2 * np.pi / 4095
    assert "steps were shortened" in "\n".join(run.lines(0.02, 2, rig.config.robot.joint_names))


def test_smoothing_comes_from_where_the_arm_is(rig):
    rig.driver.arm()
    q = rig.driver.read().q_rad
    wanted = q + [0.1, 0, 0, 0, 0, 0]
    reacher = rig.reacher(Constant(rig.model.action_of(wanted)), ema_alpha=0.25, step_ticks=4000)
    run = reach(rig, reacher, seconds=0.1)
    way = (run.goals[:, 0] - q[0]) / 0.1
    assert way == pytest.approx(1 - 0.75 ** np.arange(1, 7), abs=0.03)


@pytest.mark.parametrize("answer", [[np.nan] * 6, [0.0] * 5, [np.inf, 0, 0, 0, 0, 0]])
def test_a_policy_that_answers_nonsense_ends_at_home(rig, answer):
    rig.driver.arm()
    with pytest.raises(PolicyError, match="it must give six finite numbers"):
        reach(rig, rig.reacher(Constant(answer)))
    rig.driver.close()
    assert not rig.bus.state().torque_on.any()


def test_a_map_that_does_not_come_back_is_not_used(rig, monkeypatch):
    monkeypatch.setattr(TickMap, "round_trip_error_rad", lambda self, fractions: 0.05)
    with pytest.raises(CalibrationError, match="0.050 rad off inside of the joints' ranges; allowed: 0.02"):
        rig.reacher()
    monkeypatch.setattr(TickMap, "round_trip_error_rad", lambda self, fractions: float("nan"))
    with pytest.raises(CalibrationError, match="nan rad off"):
        rig.reacher()


def test_a_mirrored_joint_of_the_arm_is_mirrored_on_both_ways(rig):
    """An arm whose pan turns the other way: the policy sees the model's joint, the servo gets its own."""
    rig.driver.arm()
    own = rig.config.deploy.reach.tick_map.model_copy(update={"sign": [-1, 1, 1, 1, 1, 1]})
    reacher = rig.reacher(Constant(np.zeros(6)), tick_map=own)
    reacher.begin(TARGET, rig.driver.read())
    step = reacher.step(rig.driver.read())
    assert step.q[0] == -rig.driver.read().q_rad[0] != 0
    assert step.command[0] == -step.goal[0] and (step.command[1:] == step.goal[1:]).all()


def test_poses_beyond_the_model_are_told_and_not_fatal(rig):
    own = rig.config.deploy.reach.tick_map.model_copy(update={"offset_rad": [0, 0, 0, 0.3, 0, 0]})
    run = run_reach(rig.driver, rig.reacher(tick_map=own), TARGET, seconds=0.1, clock=rig, moves=False)
    beyond = 1.5148 + 0.3 - 1.65806
    assert run.beyond_rad[3] == pytest.approx(beyond, abs=0.01) and run.ended_by == ""
    told = run.lines(0.02, 2, rig.config.robot.joint_names)[-1]
    assert told == f"  beyond the model's limits, deg: wrist_flex {np.degrees(run.beyond_rad[3]):.1f}"


def made_run(**changes) -> ReachRun:
    """Three looks, 20 ms apart, 30, 10 and 15 mm from the target."""
    tick = 2 * np.pi / 4095
    given = {
        "target": np.zeros(3), "control_dt": 0.02, "time_s": np.array([0.0, 0.02, 0.04]), "q": np.zeros((3, 6)),
        "goals": tick * np.array([[0.0] * 6, [10, 0, 0, 0, 0, 0], [6, 3, 0, 0, 0, 0]]),
        "points": np.array([[0.03, 0, 0], [0, 0.01, 0], [0, 0, 0.015]]), "beyond_rad": np.zeros(6), "moved": True,
        "throttled": 0, "limited": 0, "dropped": 0, "ended_by": "",
    }  # fmt: skip
    return ReachRun(**{**given, **changes})


def test_the_numbers_of_a_run():
    told = made_run().summary(0.012)
    assert (told["closest_mm"], told["final_mm"], told["inside_pct"], told["rate_hz"]) == (10.0, 15.0, 33.3, 50.0)
    assert (told["mean_step_ticks"], told["max_step_ticks"], told["reversals_pct"]) == (7.0, 10.0, 100.0)


def test_a_run_without_a_look_has_no_numbers():
    empty = {"time_s": np.zeros(0), "q": np.zeros((0, 6)), "goals": np.zeros((0, 6)), "points": np.zeros((0, 3))}
    run = made_run(**empty, dropped=3, ended_by="gone")
    assert run.summary(0.02)["final_mm"] is None
    assert run.lines(0.02, 2, ("a",) * 6) == ["nothing was measured: gone"]


def test_reversals_count_moves_that_follow_one_another():
    assert reversals_pct(np.array([[5.0], [-3.0], [0.2], [4.0], [4.0]])) == 50.0  # one turn of two pairs
    assert reversals_pct(np.zeros((4, 6))) is None
    assert reversals_pct(np.zeros((0, 6))) is None
