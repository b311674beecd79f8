"""Cutting seeds: where subtasks end, where the jaw acts, which rows are replayed."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.seeds import SeedDemo
from so101.errors import DataError
from so101.geometry import make_pose
from so101.skillgen.fk_replay import EePath, fk_replay
from so101.skillgen.ik_rollout import AttemptRunner
from so101.skillgen.subtasks import cut_segment, jaw_changes, subtask_ends

N, GRASPED, CLOSE, OPEN = 100, 50, 40, 80
SETTINGS = load_config().skillgen.segment.model_copy(
    update={"approach_distance_m": 0.05, "speed": 1.0, "idle_speed_m_s": 0.0, "keep_idle_frames": 2}
)


def jaw() -> np.ndarray:
    """Open, closes over frames 40 to 44, opens over frames 80 to 84."""
    t = np.arange(N)
    return 0.8 - 0.15 * np.clip(t - CLOSE + 1, 0, 4) + 0.15 * np.clip(t - OPEN + 1, 0, 4)


def straight(speed_m: float = 0.004) -> EePath:
    """The hand moves along x, `speed_m` a frame; measured 1 mm behind."""
    p = np.zeros((N, 3))
    p[:, 0] = speed_m * np.arange(N)
    return EePath(make_pose(np.eye(3), p), make_pose(np.eye(3), p - [0.001, 0, 0]))


def seed(**changes) -> SeedDemo:
    objects = {name: np.tile(np.eye(4), (N, 1, 1)) for name in ("vial", "rack")}
    objects["vial"][:, 0, 3] = np.arange(N)  # tells which row was taken
    targets = np.zeros((N, 6))
    targets[:, 5] = jaw()
    values = dict(
        name="demo_7", task="vial_to_rack", source="made", fps=30.0, q_target=targets, q=targets, objects=objects,
        signals={"grasped": np.arange(N) >= GRASPED},
    )  # fmt: skip
    return SeedDemo(**{**values, **changes})


@pytest.fixture
def task(vial_config):
    return vial_config.task.active


def cut(task, index, offset=0, demo=None, path=None, settings=SETTINGS):
    return cut_segment(demo or seed(), path or straight(), task, index, offset, settings, 0.05)


def test_a_subtask_ends_with_the_first_edge_of_its_signal_and_the_last_with_the_demo(task):
    assert subtask_ends(seed(), task) == [GRASPED, N]
    signal = np.arange(N) >= GRASPED
    signal[60:70] = False  # slipped and taken again: the first edge counts
    assert subtask_ends(seed(signals={"grasped": signal}), task) == [GRASPED, N]


def test_a_signal_that_is_on_from_the_start_counts_from_its_next_edge(task):
    signal = np.ones(N, bool)
    signal[10:20] = False
    assert subtask_ends(seed(signals={"grasped": signal}), task) == [20, N]


def test_an_absent_signal_is_named_with_those_there_are(task):
    with pytest.raises(DataError, match="seed demo_7: signal 'grasped' of subtask 'grasp' is missing; it has: lifted"):
        subtask_ends(seed(signals={"lifted": np.zeros(N)}), task)
    with pytest.raises(DataError, match="it has: none"):
        subtask_ends(seed(signals={}), task)


@pytest.mark.parametrize("value", [False, True])
def test_a_signal_that_never_rises_is_refused(task, value):
    with pytest.raises(DataError, match="signal 'grasped' never rises from 0 to 1"):
        subtask_ends(seed(signals={"grasped": np.full(N, value)}), task)


def test_jaw_changes_are_the_intervals_of_one_direction():
    assert jaw_changes(jaw(), 0.05) == [(CLOSE, CLOSE + 4), (OPEN, OPEN + 4)]
    assert jaw_changes(np.zeros(9), 0.05) == []
    assert jaw_changes(np.array([0.0, 0.02, 0.04, 0.04, 0.04, 0.04, 0.04]), 0.05) == []  # too small to count
    there_and_back = np.array([0.0, 0.1, 0.2, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert [stop - start for start, stop in jaw_changes(there_and_back, 0.05)] == [2, 2]


def test_repeated_leader_samples_do_not_split_a_change():
    stuttering = np.array([0.8, 0.8, 0.7, 0.7, 0.6, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4])
    (change,) = jaw_changes(stuttering, 0.05)
    assert change[0] == 2 and change[1] >= 7


def test_a_grasp_runs_from_nearby_to_its_signal(task):
    segment = cut(task, 0)
    first = round(segment.T_base_target[0, 0, 3] / 0.004)
    assert first == CLOSE - 12  # 50 mm at 4 mm a frame
    assert len(segment.T_base_target) == GRASPED - first
    assert segment.anchor == CLOSE - first
    assert segment.release_end == CLOSE + 4 - first
    assert segment.T_base_obj[0, 3] == first  # the object as it lay when the segment starts
    assert segment.T_ee_held is None
    np.testing.assert_allclose(segment.T_base_ee[:, 0, 3], segment.T_base_target[:, 0, 3] - 0.001)
    np.testing.assert_array_equal(segment.jaw_target, jaw()[first:GRASPED])


@pytest.mark.parametrize("speed", [1.25, 2.0])
def test_a_faster_replay_skips_rows_and_keeps_the_way(task, speed):
    whole, fast = cut(task, 0), cut(task, 0, settings=SETTINGS.model_copy(update={"speed": speed}))
    assert len(fast.T_base_target) == pytest.approx(len(whole.T_base_target) / speed, abs=1)
    np.testing.assert_array_equal(fast.T_base_target[0], whole.T_base_target[0])
    before, after = fast.jaw_target[fast.anchor - 1], fast.jaw_target[fast.anchor]
    assert before == jaw()[0] > after  # the anchor is the first row with another jaw command


def test_an_offset_moves_the_end_of_a_grasp(task):
    assert len(cut(task, 0, 10).T_base_target) == len(cut(task, 0).T_base_target) + 10


def test_a_place_starts_after_the_grasp_and_ends_when_the_hand_is_away(task):
    segment = cut(task, 1)
    first = round(segment.T_base_target[0, 0, 3] / 0.004)
    last = round(segment.T_base_target[-1, 0, 3] / 0.004)
    assert first == OPEN - 12 and last == OPEN + 12
    expected = np.linalg.inv(straight().T_base_ee[first]) @ seed().objects["vial"][first]
    np.testing.assert_allclose(segment.T_ee_held, expected)


def test_a_place_never_reaches_back_before_the_longest_grasp(task):
    slow = straight(0.0001)  # the hand is near all the time
    segment = cut(task, 1, path=slow)
    first = round(segment.T_base_target[0, 0, 3] / 0.0001)
    assert first == GRASPED + task.subtasks[0].end_offset_frames[1]


def test_a_jaw_that_does_not_move_is_refused(task):
    demo = seed(q_target=np.zeros((N, 6)))
    with pytest.raises(DataError, match=r"seed demo_7: the jaw does not move in subtask 'grasp' \(frames 0 to 50\)"):
        cut(task, 0, demo=demo)


def test_idle_frames_are_shortened_and_the_jaw_is_never_cut(task):
    still = straight()
    for poses in still:
        poses[55:75] = poses[55]  # a pause of 20 frames
    settings = SETTINGS.model_copy(update={"idle_speed_m_s": 0.01, "approach_distance_m": 1.0})
    whole, shorter = cut(task, 1, path=still), cut(task, 1, path=still, settings=settings)
    start = GRASPED + task.subtasks[0].end_offset_frames[1]
    assert len(shorter.T_base_target) < N - start - 8
    assert np.ptp(shorter.jaw_target) == pytest.approx(np.ptp(whole.jaw_target))
    opening = shorter.jaw_target[shorter.anchor : shorter.release_end]
    np.testing.assert_allclose(opening, jaw()[OPEN : OPEN + 4])


def test_fk_replay_is_the_fk_of_wanted_and_measured_joints(vial_config, vial_seeds):
    from so101.kinematics import ArmKinematics
    from so101.kinematics.servo_lead import ServoLead

    arm, demo = ArmKinematics(vial_config), vial_seeds[0]
    lead = ServoLead(vial_config, arm)
    path = fk_replay(demo, arm, lead)
    assert path.T_base_target.shape == path.T_base_ee.shape == (demo.num_frames, 4, 4)
    wanted = lead.wanted_path(demo.q_target, demo.q[0])
    for t in (0, 100, demo.num_frames - 1):
        np.testing.assert_array_equal(path.T_base_target[t], arm.fk(wanted[t]))
        np.testing.assert_array_equal(path.T_base_ee[t], arm.fk(demo.q[t]))


def test_an_offset_that_leaves_nothing_of_a_subtask_is_refused(vial_seeds):
    runner_config = load_config(
        overrides=["task.name=vial_to_rack", "task.tasks.vial_to_rack.subtasks.0.end_offset_frames=[-1000, -1000]"]
    )
    with pytest.raises(DataError, match="the jaw does not move in subtask 'grasp'"):
        AttemptRunner(runner_config, vial_seeds)
