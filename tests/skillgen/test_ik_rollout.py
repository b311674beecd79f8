"""One attempt: a pure function of its number, with named causes, noise where it belongs, a settled hand at the jaw."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import demo_to_bytes
from so101.errors import DataError
from so101.skillgen import causes
from so101.skillgen.ik_rollout import AttemptRunner
from so101.skillgen.subtasks import jaw_changes
from so101.tasks.success import judge


def runner(seeds, *overrides: str) -> AttemptRunner:
    return AttemptRunner(load_config(overrides=["task.name=vial_to_rack", *overrides]), seeds)


@pytest.fixture(scope="module")
def demos(vial_runner):
    """Attempts 0 to 5."""
    return [vial_runner.run(index) for index in range(6)]


def closing_frame(demo, config) -> int:
    """Where the jaw begins to close on the object."""
    _, first, last = demo.meta["subtasks"][0]
    start, _ = jaw_changes(demo.q_target[first:last, 5], config.skillgen.gate.gripper_change_rad)[-1]
    return first + start


def test_most_attempts_succeed(demos):
    assert sum(demo.strict for demo in demos) >= 4
    for demo in demos:
        assert demo.strict == (demo.cause == "")
        assert demo.cause == "" or demo.cause in causes.CAUSES


def test_the_same_number_is_the_same_bytes_whatever_ran_before(vial_runner, vial_config, vial_seeds, demos):
    first = demo_to_bytes(demos[2])
    assert demo_to_bytes(vial_runner.run(2)) == first  # after attempt 5
    vial_runner.run(4)
    assert demo_to_bytes(vial_runner.run(2)) == first
    assert demo_to_bytes(AttemptRunner(vial_config, vial_seeds).run(2)) == first
    assert demo_to_bytes(demos[3]) != first


def test_a_demo_is_complete(demos, vial_config):
    for demo in demos:
        n = demo.num_frames
        assert demo.q.shape == demo.q_target.shape == (n, 6)
        assert {name: poses.shape for name, poses in demo.objects.items()} == {"vial": (n, 7), "rack": (n, 7)}
        lower = [joint.lower_rad for joint in vial_config.robot.joints]
        upper = [joint.upper_rad for joint in vial_config.robot.joints]
        assert ((demo.q_target >= lower) & (demo.q_target <= upper)).all()
        assert demo.seed == vial_config.skillgen.base_seed + demo.index
        for name, place in vial_config.task.active.objects.items():
            low, high = place.x_m
            assert low <= demo.meta["randomisation"]["placements"][name]["x_m"] <= high


def test_the_verdict_is_that_of_the_recorded_arrays(demos, vial_config):
    for demo in demos:
        if demo.cause in ("", causes.NOT_INSERTED, causes.RACK_COLLISION):
            verdict = judge(vial_config, demo.objects, demo.q)
            assert (verdict.strict, verdict.geometric) == (demo.strict, demo.geometric)


def test_sources_are_seeds_and_subtasks_cover_the_attempt(demos, vial_seeds):
    names = {seed.name for seed in vial_seeds}
    for demo in (demo for demo in demos if demo.strict):
        assert set(demo.meta["sources"]) <= names
        assert [mark[0] for mark in demo.meta["subtasks"]] == ["grasp", "place"]
        (_, first, end), (_, start, last) = demo.meta["subtasks"]
        assert first == 0 and end == start and last <= demo.num_frames


def test_noise_is_on_the_arm_and_never_on_the_jaw(vial_seeds):
    noisy = runner(vial_seeds, "skillgen.action_noise_rad=0.05")
    noisy.run(0)  # sets up a recording
    q, jaw = np.array([0.0, -0.3, 0.2, 0.5, 1.5]), 0.612345
    sent = []
    for _ in range(50):
        noisy._noise[:] = 0
        noisy._offset[:] = 0
        noisy._send(q, jaw, noisy=True)
        sent.append(noisy._record.q_target[-1])
    sent = np.array(sent)
    assert (sent[:, 5] == jaw).all()
    assert (np.abs(sent[:, :5] - q).max(0) > 0.01).all()
    noisy._noise[:] = 0
    noisy._send(q, jaw, noisy=False)
    np.testing.assert_array_equal(noisy._record.q_target[-1], [*noisy._lead.command(q), jaw])


def test_noise_leaves_the_start_and_the_draws_alone(vial_seeds, demos):
    quiet = runner(vial_seeds, "skillgen.action_noise_rad=0").run(0)
    assert quiet.meta["randomisation"] == demos[0].meta["randomisation"]
    np.testing.assert_array_equal(quiet.q[0], demos[0].q[0])
    assert not np.array_equal(quiet.q_target[:20], demos[0].q_target[:20])


def test_the_hand_stands_still_when_the_jaw_begins_to_close(vial_runner, vial_config, vial_seeds, demos):
    """The gate waits until the hand is slower than its tolerance, or for as long as it may."""
    gate, fk = vial_config.skillgen.gate, vial_runner.simulator.fk

    def speed(demo, frame) -> float:
        return float(np.linalg.norm(np.diff(fk(demo.q[frame - 1 : frame + 1])[:, :3, 3], axis=0))) * demo.fps

    without_gate = runner(vial_seeds, "skillgen.gate.enabled=false")
    compared = 0
    for demo in demos[:4]:
        if len(demo.meta["subtasks"]) == 0:
            continue
        frame = closing_frame(demo, vial_config)
        held = demo.q_target[frame - gate.max_frames : frame, 5]
        assert speed(demo, frame) < gate.speed_tolerance_m_s or np.ptp(held) == 0
        fast = without_gate.run(demo.index)
        if fast.meta["subtasks"]:
            assert fast.meta["subtasks"][0][2] < demo.meta["subtasks"][0][2]  # the gate costs frames
            compared += 1
    assert compared


def test_one_neighbour_is_the_seed_with_the_nearest_object(vial_seeds):
    from so101.geometry import pose_from_pos_quat
    from so101.skillgen.selection import pose_distance

    nearest = runner(vial_seeds, "skillgen.selection.nn_k=1")
    axis = np.array([0.0, 0.0, 1.0])
    for index in range(3):
        demo = nearest.run(index)
        now = pose_from_pos_quat(demo.objects["vial"][0])
        order = sorted(
            vial_seeds,
            key=lambda seed, now=now: pose_distance(
                now, seed.objects["vial"][0], nearest.settings.selection, axis
            ),
        )  # fmt: skip
        assert demo.meta["sources"][0] == order[0].name


# Causes


@pytest.mark.parametrize(
    "place", ["vial.x_m=[0.14, 0.14]", "vial.x_m=[0.3, 0.3]", "vial.x_m=[2, 2]", "rack.x_m=[0.4, 0.4]"]
)
def test_a_place_out_of_reach_is_unreachable_however_far(vial_seeds, place):
    demo = runner(vial_seeds, f"task.tasks.vial_to_rack.objects.{place}").run(0)
    assert demo.cause == causes.UNREACHABLE
    assert not demo.strict
    assert demo.meta["diagnostics"]["position_error_m"] > 0.015


def test_a_vial_that_is_gone_when_the_jaw_closes_is_a_missed_grasp(vial_config, vial_seeds, monkeypatch):
    attempt = AttemptRunner(vial_config, vial_seeds)
    sim, calls = attempt.simulator, []
    step = sim.step

    def take_away(env: int, q_target: np.ndarray) -> None:
        calls.append(env)
        if len(calls) == 3:
            sim.data[0].qpos[sim.object_slice("vial")][:3] += [0.3, -0.3, 0.0]
        step(env, q_target)

    monkeypatch.setattr(sim, "step", take_away)
    demo = attempt.run(0)
    assert demo.cause == causes.GRASP_MISSED
    assert not demo.strict and not demo.geometric


def test_a_vial_lost_on_the_way_is_dropped(vial_config, vial_seeds, monkeypatch, demos):
    attempt = AttemptRunner(vial_config, vial_seeds)
    sim, calls = attempt.simulator, []
    step = sim.step
    good = next(demo for demo in demos if demo.strict)
    end_of_grasp = good.meta["subtasks"][0][2]

    def knock_out(env: int, q_target: np.ndarray) -> None:
        calls.append(env)
        if len(calls) == end_of_grasp + 3:
            sim.data[0].qpos[sim.object_slice("vial")][:3] += [0.0, 0.0, 0.3]
        step(env, q_target)

    monkeypatch.setattr(sim, "step", knock_out)
    assert attempt.run(good.index).cause == causes.DROPPED


def test_too_few_frames_are_a_timeout(vial_seeds):
    demo = runner(vial_seeds, "skillgen.max_frames_per_subtask=30").run(0)
    assert demo.cause == causes.TIMEOUT
    assert demo.num_frames == 60


def test_seeds_that_cannot_be_cut_are_refused_with_the_reason(vial_config, vial_seeds):
    import dataclasses

    blind = [dataclasses.replace(seed, signals={}) for seed in vial_seeds]
    with pytest.raises(DataError, match=r"no seed can be cut into the task's subtasks:\nseed demo_0: signal 'grasped'"):
        AttemptRunner(vial_config, blind)
    with pytest.raises(DataError, match="there are no seeds"):
        AttemptRunner(vial_config, [])


# What an attempt says about itself


def test_transits_and_draws_are_in_the_demo(demos):
    for demo in (demo for demo in demos if demo.strict):
        marks = demo.meta["subtasks"]
        assert len(demo.meta["transits"]) == len(marks)
        for (first, end), (_, start, last) in zip(demo.meta["transits"], marks, strict=True):
            assert first == start and first < end < last
        assert set(demo.meta["randomisation"]["placements"]) == set(demo.objects)


# Gates


class Noted:
    """Wraps a gate of a runner: frames before, its arguments, frames after."""

    def __init__(self, attempt: AttemptRunner, name: str):
        self.attempt, self.gate, self.calls = attempt, getattr(attempt, name), []
        setattr(attempt, name, self)

    def __call__(self, *arguments):
        before = len(self.attempt._record.q)
        self.gate(*arguments)
        sim = self.attempt.simulator
        state = sim.ee_pose(0)[:3, 3].copy(), sim.joint_positions(0)[5], self.attempt._command[5]
        self.calls.append((arguments, len(self.attempt._record.q) - before, *state))


# Drawn physics without the preset: slow servos, for which the gates are made.
SLOW = ["scene.randomisation.enabled=true", "skillgen.transit.max_joint_speed_rad_s=2.2"]


@pytest.fixture(scope="module")
def slow(vial_seeds):
    """A runner with slow servos after four attempts, and what its transits and the gate of the jaw did."""
    attempt = runner(vial_seeds, *SLOW)
    transit, await_jaw = Noted(attempt, "_transit"), Noted(attempt, "_await_jaw")
    for index in range(4):
        attempt.run(index)
    return attempt, transit.calls, await_jaw.calls


def test_transits_end_where_they_should_however_slow_the_servos(slow):
    attempt, calls, _ = slow
    gate, waited = attempt.settings.gate, 0
    for (path, _, _), frames, hand, _, _ in calls:
        off = np.linalg.norm(hand - attempt.simulator.fk(path[-1])[:3, 3])
        assert off < gate.arrival_tolerance_m or frames >= len(path) + gate.max_frames
        waited += frames > len(path)
    assert waited >= 2  # there was something to wait for


def test_the_arm_waits_until_the_jaw_has_arrived_or_is_stopped(slow):
    attempt, _, calls = slow
    gate, stopped = attempt.settings.gate, 0
    for _, frames, _, jaw, command in calls:
        arrived = abs(jaw - command) < gate.jaw_tolerance_rad
        assert arrived or gate.jaw_still_frames <= frames <= gate.max_frames
        stopped += not arrived
    assert 0 < stopped < len(calls)  # a vial stops the jaw, air does not


def test_a_transit_never_runs_ahead_of_the_hand_by_more_than_it_may(vial_seeds):
    attempt = runner(vial_seeds, "skillgen.gate.max_lag_m=0.02")
    noted = Noted(attempt, "_arrive")
    demo = attempt.run(0)
    waits = [frames for (_, tolerance), frames, *_ in noted.calls if tolerance == 0.02]
    assert sum(waits) > 5
    assert demo.num_frames > sum(waits)


def test_with_the_gate_at_the_start_segments_begin_where_they_should(vial_seeds):
    gated, plain = runner(vial_seeds, "skillgen.gate.at_start=true"), runner(vial_seeds)
    at_start, otherwise = Noted(gated, "_settle"), Noted(plain, "_settle")
    demo, before = gated.run(0), plain.run(0)
    assert demo.strict and before.strict
    assert len(at_start.calls) == len(otherwise.calls) + len(demo.meta["subtasks"])
    tolerance, limit = gated.settings.gate.position_tolerance_m, gated.settings.gate.max_frames
    for (_, T_wanted), frames, hand, *_ in at_start.calls:
        assert np.linalg.norm(hand - T_wanted[:3, 3]) < tolerance or frames == limit


def test_without_the_gate_nothing_waits(vial_seeds):
    attempt = runner(vial_seeds, "skillgen.gate.enabled=false")
    gates = [Noted(attempt, name) for name in ("_arrive", "_await_jaw", "_settle")]
    attempt.run(0)
    assert not any(gate.calls for gate in gates)


def test_another_source_serves_when_no_way_of_the_drawn_one_works(vial_seeds, monkeypatch):
    """Grasps of one seed are made to fail: attempts go on with the other, or fail with its cause without fallbacks."""
    cause = {}
    for fallbacks in (0, 4):
        attempt = runner(vial_seeds, f"skillgen.selection.fallbacks={fallbacks}", "skillgen.selection.nn_k=1")
        drawn = attempt.run(0).meta["sources"][0]
        plans = attempt.planner.plans

        def refuse(subtask, segment, *rest, plans=plans, drawn=drawn):
            if segment.seed_name == drawn and subtask.held is None:
                raise causes.AttemptFailed(causes.UNREACHABLE)
            return plans(subtask, segment, *rest)

        monkeypatch.setattr(attempt.planner, "plans", refuse)
        demo = attempt.run(0)
        cause[fallbacks] = demo.cause
        assert (demo.meta["sources"][0] == drawn) == (fallbacks == 0)
    assert cause == {0: causes.UNREACHABLE, 4: ""}
