"""Diagnoses: a good demo has none; every failure made from it by an edit is told, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from so101.evaluation.diagnosis import diagnose, summarise, turning_frames
from so101.evaluation.frame import nearest_reference
from so101.evaluation.joint_errors import joint_errors
from so101.evaluation.tracks import Track
from so101.geometry import pose_to_pos_quat
from so101.kinematics.arm import ArmKinematics


@pytest.fixture(scope="module")
def fk(vial_config):
    return ArmKinematics(vial_config).fk


@pytest.fixture(scope="module")
def good(vial_seeds):
    """A take of the scripted operator, with what a simulator knows."""
    seed = vial_seeds[0]
    objects = {name: np.array([pose_to_pos_quat(T) for T in poses]) for name, poses in seed.objects.items()}
    nothing = np.full(len(seed.q), -1)
    return Track("good", seed.fps, seed.q, seed.q_target, seed.q_target, nothing, objects=objects)


@pytest.fixture(scope="module")
def told(vial_config, fk, good):
    """name -> sentence of what a track shows; with `demos`, compared with the good one."""

    def names(track, demos=False):
        near = nearest_reference(fk(track.q)[:, :3, 3], [("good", fk(good.q)[:, :3, 3])]) if demos else None
        return {d.name: d.sentence for d in diagnose(vial_config, track, fk, joint_errors(vial_config, track), near)}

    return names


def real(track):
    """As an arm would have it: nobody knows the objects."""
    return replace(track, objects={})


def untouched(track):
    """Nothing was moved."""
    return replace(track, objects={name: np.tile(poses[:1], (len(poses), 1)) for name, poses in track.objects.items()})


def joints(track, q=None, sent=None):
    sent = track.sent if sent is None else sent
    return replace(track, q=track.q if q is None else q, sent=sent, q_target=sent)


def with_jaw(track, q, sent):
    """Other columns for the jaw, (T,) or a number, rad."""
    new_q, new_sent = track.q.copy(), track.sent.copy()
    new_q[:, -1], new_sent[:, -1] = q, sent
    return joints(track, new_q, new_sent)


def delayed(values, frames):
    return np.concatenate([np.repeat(values[:1], frames, axis=0), values])[: len(values)]


def waiting(track, frame, moves):
    """The rest begins later: first `moves` (N, 6) rad are added to the pose of `frame`."""

    def longer(values, extra):
        held = np.repeat(values[frame : frame + 1], len(moves), axis=0)
        return np.concatenate([values[:frame], held + extra, values[frame:]])

    still = np.zeros((len(moves), 7))
    sent = longer(track.sent, moves)
    return replace(
        track,
        q=longer(track.q, moves),
        sent=sent,
        q_target=sent,
        chunk=np.full(len(sent), -1),
        objects={name: longer(poses, still) for name, poses in track.objects.items()},
    )


def test_a_good_demo_has_none(told, good):
    assert told(good) == {} == told(good, demos=True) == told(real(good), demos=True)


def test_a_gripper_that_is_never_commanded(told, good):
    open_jaw = good.sent[0, -1]
    for track in (untouched(good), real(good)):
        found = told(with_jaw(track, open_jaw, open_jaw))
        assert list(found) == ["gripper never commanded"]
    assert "span 0.0 of 100" in found["gripper never commanded"]
    assert "low because nothing was asked" in found["gripper never commanded"]


def test_a_gripper_that_does_not_follow(told, good):
    for track in (untouched(good), real(good)):
        assert list(told(with_jaw(track, good.q[0, -1], good.sent[:, -1]))) == ["gripper does not follow"]


def test_a_gripper_that_closes_on_nothing(told, good):
    jaw = delayed(good.sent[:, -1], 4)
    for track in (untouched(good), real(good)):
        found = told(with_jaw(track, jaw, good.sent[:, -1]))
        assert list(found) == ["nothing held"] and "never stopped by an object" in found["nothing held"]
    aside = np.array([0.1, 0, 0, 0, 0, 0])  # some centimetres beside the object
    missed = with_jaw(untouched(joints(good, good.q + aside, good.sent + aside)), jaw, good.sent[:, -1])
    assert re.search(r"it closed at \d+\.\d s, [12]\d mm away from it", told(missed)["nothing held"])


def test_a_hand_that_goes_elsewhere_is_off_and_approaches_nothing(told, good):
    aside = np.array([0.6, 0, 0, 0, 0, 0])
    track = joints(good, good.q + aside, good.sent + aside)
    assert list(told(untouched(track))) == ["never approached"]
    assert "came to no object of the task by 3 cm" in told(untouched(track))["never approached"]
    found = told(real(track), demos=True)
    assert list(found) == ["trajectory off"] and "of the nearest demo, good" in found["trajectory off"]


def test_a_hand_that_ends_elsewhere_is_off(told, good):
    drift = np.outer(np.clip(np.linspace(-4, 1, good.num_frames), 0, 1), [0.8, 0, 0, 0, 0, 0])
    assert list(told(real(joints(good, good.q + drift, good.sent + drift)), demos=True)) == ["trajectory off"]


def test_joints_that_run_behind(told, good):
    q = good.q.copy()
    q[:, :5] = delayed(q[:, :5], 8)
    found = told(real(joints(good, q)))
    assert list(found) == ["tracking lag"] and "shoulder_lift 1" in found["tracking lag"]
    only = good.q.copy()
    only[:, 2] = delayed(only[:, 2], 8)
    found = told(real(joints(good, only)))
    assert "elbow_flex" in found["tracking lag"] and "shoulder" not in found["tracking lag"]


def test_an_arm_that_stands_still(told, good):
    track = waiting(good, 60, np.zeros((170, 6)))
    found = told(track)
    assert list(found) == ["stuck"] and found["stuck"].endswith("the hand moved 0 mm in 5 s")
    assert told(replace(track, success=True)) == {}  # it did the task: it may wait


def test_an_arm_that_dithers(told, good):
    wobble = np.outer(0.04 * np.sin(2 * np.pi * np.arange(120) / 10), [1, 0, 0, 0, 0, 0])
    found = told(waiting(good, 60, wobble))
    assert list(found) == ["dithering"] and "turned back 1" in found["dithering"]
    assert told(waiting(good, 60, wobble[:20])) == {}  # a moment of it is nothing


def test_commands_that_safety_cuts(told, good):
    wanted = good.sent.copy()
    wanted[: good.num_frames // 5, 1] += 0.1
    found = told(replace(good, q_target=wanted))
    assert list(found) == ["clamped by safety"] and "(shoulder_lift 20%)" in found["clamped by safety"]
    wanted[good.num_frames // 50 :] = good.sent[good.num_frames // 50 :]
    assert told(replace(good, q_target=wanted)) == {}


def test_ticks_without_a_fresh_action(told, good):
    found = told(replace(good, misses={frame: "inference" for frame in range(0, good.num_frames, 10)}))
    assert list(found) == ["missed ticks"] and "(inference " in found["missed ticks"]
    assert told(replace(good, misses={3: "camera"})) == {}


def test_a_high_action_mse_alone_is_no_failure(vial_config, told, good):
    """Who moves more, or grips, has a higher one: the published successes do."""
    assert joint_errors(vial_config, good).action_mse > 100 and told(good) == {}


def test_turns_are_counted_over_noise():
    there_and_back = np.concatenate([np.linspace(0, 0.1, 20), np.linspace(0.1, 0, 20), np.linspace(0, 0.1, 20)])
    path = there_and_back[:, None] * [1.0, 0, 0] + np.random.default_rng(0).normal(0, 2e-4, (60, 3))
    assert turning_frames(path, 0.003) == pytest.approx([20, 40], abs=2)
    assert turning_frames(np.random.default_rng(0).normal(0, 2e-4, (60, 3)), 0.003).size == 0


def test_many_rollouts_are_summed_up(vial_config, fk, good):
    jaw = with_jaw(untouched(good), 1.0, 1.0)
    each = [diagnose(vial_config, track, fk, joint_errors(vial_config, track)) for track in (jaw, good, jaw)]
    assert summarise(each) == [("gripper never commanded", 2)]
