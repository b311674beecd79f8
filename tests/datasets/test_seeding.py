"""Recordings become seeds: grasps in jaw signals, geometry by its laws, physics on demos of the twin and real arms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets import seeding
from so101.datasets.inference import (
    Fingers,
    NotUsable,
    bottom_m,
    correct_height,
    find_grasp,
    fit_offsets,
    footprint_m,
    offset_spread,
    place_objects,
)
from so101.datasets.recordings import read_recording
from so101.datasets.seeds_hdf5 import read_seeds, write_seeds
from so101.datasets.unit_detection import detect_recording_units
from so101.errors import DataError, InsufficientDemosError
from so101.geometry import pose_from_pos_quat
from so101.kinematics import ArmKinematics
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.tasks.operator import ScriptedOperator

CONFIG = load_config(overrides=["task.name=cube_in_box"])
JOINTS = CONFIG.robot.joint_names
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="the real recordings are not here")
# A hand over the table, fingers down, and the same hand elsewhere.
Q_PICK = np.array([-0.2, 0.55, -0.35, 1.4, 0.0, 0.5])


def jaw_signal(*parts):
    """Straight lines through (frame, rad) points."""
    frames, values = zip(*parts, strict=True)
    return np.interp(np.arange(frames[-1] + 1), frames, values)


@pytest.fixture(scope="module")
def kinematics():
    return ArmKinematics(CONFIG)


@pytest.fixture(scope="module")
def operator_demo():
    """A demo of the scripted operator in the twin's own scene; its table is the mat."""
    operator = ScriptedOperator(CONFIG)
    for take in range(20):
        try:
            return operator.demo(take)
        except Exception as failure:  # noqa: BLE001 - a take that failed, the next one may work
            last = failure
    raise AssertionError(f"no take of the operator worked, the last one failed by: {last}")


def mat_config(*overrides):
    """CONFIG whose replay table is where the mat is."""
    mat = CONFIG.scene.statics["mat"].geoms[0]
    top = mat.position_m[2] + mat.size_m[2] - CONFIG.robot.base_position_m[2]
    return load_config(overrides=["task.name=cube_in_box", f"teleop.replay.table_height_m={top}", *overrides])


def write_csv(path, demo, units="radians", decimals=9):
    """A demo as another program would record it."""
    scale = np.array([180 / np.pi] * 5 + [1.0]) if units == "degrees" else np.ones(6)
    header = [f"{kind}.{joint}" for kind in ("action", "state") for joint in JOINTS]
    rows = np.hstack([demo.q_target * scale, demo.q * scale])
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, rows, delimiter=",", header=",".join(header), comments="", fmt=f"%.{decimals}f")
    return path


# --- grasps in jaw signals -------------------------------------------------------------------------------------------


def test_leader_grasp_is_where_the_jaw_stands_above_its_command():
    command = jaw_signal((0, 0.0), (50, 0.0), (60, 0.6), (100, 0.6), (110, 0.0), (160, 0.0), (170, 0.5), (185, 0.5))
    command = np.append(command, jaw_signal((0, 0.5), (8, 0.0), (40, 0.0)))
    measured = np.maximum(np.roll(command, 3), 0.0)
    measured[100:165] = np.maximum(measured[100:165], 0.2)  # it stops on something
    grasp = find_grasp(measured, command, True, 30.0, CONFIG)
    assert 100 <= grasp.start < grasp.close <= 111
    assert 163 <= grasp.open <= 168
    assert 180 < grasp.end < 195  # cut where the jaw shuts again, not at the end
    assert grasp.begin == 0


def test_hand_moved_grasp_needs_no_command():
    jaw = jaw_signal((0, 0.4), (80, 0.4), (86, -0.05), (200, -0.05), (208, 0.4), (300, 0.4))
    grasp = find_grasp(jaw, jaw, False, 30.0, CONFIG)
    assert (grasp.begin, grasp.end) == (0, 301)
    assert 78 <= grasp.start <= 82 and 85 <= grasp.close <= 87 and 199 <= grasp.open <= 201


def test_of_two_carries_the_last_counts_and_the_first_is_cut_off():
    jaw = jaw_signal(
        (0, 0.4), (40, 0.4), (46, -0.1), (80, -0.1), (86, 0.4), (130, 0.4), (136, 0.0), (200, 0.0), (208, 0.4)
    )
    grasp = find_grasp(np.append(jaw, np.full(40, 0.4)), np.append(jaw, np.full(40, 0.4)), False, 30.0, CONFIG)
    assert 80 <= grasp.begin <= 86 and 134 <= grasp.close <= 137


def test_a_jaw_opened_wide_once_does_not_hide_the_grasp():
    jaw = jaw_signal((0, 1.7), (60, 1.7), (70, 0.4), (120, 0.4), (126, -0.1), (200, -0.1), (206, 0.4), (240, 0.4))
    grasp = find_grasp(jaw, jaw, False, 30.0, CONFIG)
    assert 118 <= grasp.start <= 121 and 125 <= grasp.close <= 127 and 199 <= grasp.open <= 201


@pytest.mark.parametrize(
    ("jaw", "cause"),
    [
        (np.full(200, 0.3), "no grasp found"),
        (jaw_signal((0, 0.3), (200, 0.4)), "no grasp found"),
        (jaw_signal((0, 0.4), (80, 0.4), (86, -0.05), (200, -0.05)), "jaw never opens"),
        (jaw_signal((0, 0.0), (80, 0.0), (86, 0.4), (200, 0.4)), "no grasp found"),
    ],
)
def test_signals_without_a_carry_are_named(jaw, cause):
    with pytest.raises(NotUsable, match=cause):
        find_grasp(jaw, jaw, False, 30.0, CONFIG)


# --- geometry --------------------------------------------------------------------------------------------------------


def test_height_correction_reaches_the_height_with_the_least_change(kinematics):
    spread = offset_spread((None,) * 6, CONFIG)
    before = kinematics.fk(Q_PICK)[2, 3]
    for gap in (-0.02, 0.0, 0.015):
        change = correct_height(kinematics, Q_PICK, before + gap, spread)
        assert kinematics.fk(Q_PICK + change)[2, 3] == pytest.approx(before + gap, abs=1e-6)
        assert not change[[0, 4, 5]].any()
    lift_only = np.zeros(6)
    lift_only[1] = 0.015 / kinematics.jacobian(Q_PICK)[2, 1]
    assert np.linalg.norm(change[1:4] / spread[1:4]) < abs(lift_only[1]) / spread[1]


def test_fitted_offsets_bring_all_pinches_to_one_height_within_bounds(kinematics):
    """Pinches on a table, recorded by an arm whose zeros are off: the fit puts them back on it."""
    rng, s = np.random.default_rng(0), CONFIG.teleop.replay
    spread = offset_spread((None,) * 6, CONFIG)
    height = s.table_height_m + s.pinch_height_m
    q = []
    for _ in range(40):
        start = Q_PICK + rng.uniform(-0.3, 0.3, 6) * [1, 1, 0, 1, 1, 0]
        q.append(start + correct_height(kinematics, start, height, np.array([0, 0.01, 1.0, 0.01, 0, 0]), 30))
    q = np.array(q)
    assert np.abs(kinematics.fk(q)[:, 2, 3] - height).max() < 1e-3
    recorded = q - np.array([0, 0.06, -0.05, 0.04, 0, 0])
    off_by = np.abs(kinematics.fk(recorded)[:, 2, 3] - height).mean()
    offsets = fit_offsets(kinematics, recorded, spread, CONFIG)
    fitted = np.abs(kinematics.fk(recorded + offsets)[:, 2, 3] - height).mean()
    assert fitted < 0.2 * off_by and fitted < 2e-3
    assert (np.abs(offsets) <= s.max_spreads * spread + 1e-12).all() and not offsets[[0, 4, 5]].any()


def test_joints_that_were_not_swept_may_be_off_by_half_of_what_is_missing():
    s = CONFIG.teleop.replay
    base = offset_spread((None,) * 6, CONFIG)
    np.testing.assert_array_equal(base, s.zero_spread_rad)
    spans = list(s.full_span_ticks)
    spans[3] -= 400
    assert offset_spread(spans, CONFIG)[3] - base[3] == pytest.approx(200 * 2 * np.pi / 4096)
    spans[3] = 4095  # wider than any: nothing is missing
    assert offset_spread(spans, CONFIG)[3] == base[3]


def test_props_stand_on_the_table():
    cube, vial = CONFIG.scene.props["cube"], CONFIG.scene.props["vial"]
    assert bottom_m(cube) == pytest.approx(-0.0125) and footprint_m(cube) == pytest.approx(0.0125)
    assert bottom_m(vial) == pytest.approx(-0.01725, abs=1e-5) and footprint_m(vial) == pytest.approx(0.0177)


def test_object_lies_between_the_fingers_and_moves_with_the_arm(kinematics):
    s, fingers = CONFIG.teleop.replay, Fingers(CONFIG)
    q = Q_PICK + correct_height(
        kinematics, Q_PICK, s.table_height_m + s.pinch_height_m, np.array([0, 0.1, 0.1, 0.1, 0, 0])
    )
    T_open = kinematics.fk(q + [0.5, 0, 0, 0, 0, 0])
    placed = place_objects(CONFIG, kinematics, fingers, q[None], T_open)
    cube = pose_from_pos_quat(placed["cube"])
    assert cube[2, 3] == pytest.approx(s.table_height_m + 0.0125)
    np.testing.assert_allclose(placed["box"][:2], T_open[:2, 3])
    for points in fingers.points(q):  # neither jaw inside the cube
        inside = np.abs((points - cube[:3, 3]) @ cube[:3, :3]).max(axis=1) < 0.0125 - 1e-3
        assert not inside.any()
    turned = place_objects(CONFIG, kinematics, fingers, (q + [0.3, 0, 0, 0, 0, 0])[None], T_open)
    radius = np.linalg.norm(cube[:2, 3] - PAN_AXIS)
    assert np.linalg.norm(turned["cube"][:2] - PAN_AXIS) == pytest.approx(radius, abs=2e-4)


PAN_AXIS = np.array([0.0388353, 0.0])  # of the stock model


def test_servo_commands_make_the_arm_follow():
    """Free space: the joints stay within 0.4 degrees of a path that plain targets miss by several."""
    simulator = seeding._simulator(CONFIG.model_dump_json())
    t = np.arange(120) / 30
    q = Q_PICK - [0, 0.6, 0, 0.6, 0, 0] + np.sin(2 * t)[:, None] * [0.4, 0.3, -0.3, -0.4, 0.4, 0.0]
    objects = {"cube": np.array([0.4, 0.25, 0.2, 1, 0, 0, 0.0]), "box": np.array([0.4, -0.25, 0.05, 1, 0, 0, 0.0])}

    def worst(targets):
        simulator.reset(0, q[0], objects)
        errors = []
        for row, target in enumerate(targets):
            errors.append(np.abs(simulator.joint_positions(0) - q[row])[:5].max())
            simulator.step(0, target)
        return np.degrees(max(errors[15:]))

    assert worst(seeding.servo_commands(q, CONFIG)) < 0.4
    assert worst(q) > 3.0


# --- the stage -------------------------------------------------------------------------------------------------------


def test_a_demo_of_the_twin_comes_back_as_a_seed(tmp_path, operator_demo):
    """Recorded to CSV in radians, read back without object poses: the cube is found where it was, and it works."""
    config = mat_config("teleop.recordings.units=radians", "teleop.replay.max_tries=6")
    source = write_csv(tmp_path / "take/one.csv", operator_demo).parent
    run = RunFolder(tmp_path / "run")
    result = seeding.make_seeds(config, run, SilentReporter(), 1, source)
    assert result.produced == 1 and (result.summary["kept"], result.summary["of"]) == (1, 1)
    (seed,) = read_seeds(run.seeds, config)
    found, true = seed.objects["cube"][0, :3, 3], operator_demo.objects["cube"][0, :3, 3]
    assert np.linalg.norm(found[:2] - true[:2]) < 0.012 and abs(found[2] - true[2]) < 1e-3
    assert seed.source == "take/one" and seed.signals["grasped"].any()
    report = json.loads(run.seeds_report.read_text())
    assert report["kept"] == report["of"] == 1 and report["candidates"][0]["kept"]
    assert report["unit"] == "radians" and any("table top" in line for line in report["assumptions"])

    again = RunFolder(tmp_path / "again")
    seeding.make_seeds(config, again, SilentReporter(), 2, source)
    assert again.seeds.read_bytes() == run.seeds.read_bytes()
    assert again.seeds_report.read_bytes() == run.seeds_report.read_bytes()
    before = run.seeds.stat().st_mtime_ns
    assert seeding.make_seeds(config, run, SilentReporter(), 1, source).produced == 1
    assert run.seeds.stat().st_mtime_ns == before  # a finished stage is left alone


def test_hdf5_sources_are_checked_and_copied(tmp_path, operator_demo):
    given = tmp_path / "mine.h5"
    write_seeds(given, [operator_demo], CONFIG, lambda q: np.repeat(np.eye(4)[None], len(q), axis=0))
    run = RunFolder(tmp_path / "run")
    assert seeding.make_seeds(CONFIG, run, SilentReporter(), 1, given).produced == 1
    np.testing.assert_array_equal(read_seeds(run.seeds, CONFIG)[0].q, operator_demo.q)
    with pytest.raises(DataError, match="no such seed file"):
        seeding.make_seeds(CONFIG, RunFolder(tmp_path / "other"), SilentReporter(), 1, tmp_path / "absent.hdf5")


def test_when_nothing_is_usable_the_report_says_why(tmp_path, operator_demo):
    demo = operator_demo
    shut = demo.q.copy()
    shut[:, 5] = 0.3 + 0.001 * np.arange(len(shut)) / len(shut)
    source = write_csv(tmp_path / "take.csv", type(demo)(**{**vars(demo), "q": shut, "q_target": shut}))
    run = RunFolder(tmp_path / "run")
    config = load_config(overrides=["task.name=cube_in_box", "teleop.recordings.units=radians"])
    with pytest.raises(InsufficientDemosError, match="0 of 1 became usable seeds; the others: no grasp found 1"):
        seeding.make_seeds(config, run, SilentReporter(), 1, source)
    assert not run.seeds.exists()
    assert json.loads(run.seeds_report.read_text())["causes"] == {"no grasp found": 1}


def test_a_lying_tube_needs_its_pose_from_the_file(tmp_path, operator_demo):
    config = load_config(overrides=["task.name=vial_to_rack", "teleop.recordings.units=radians"])
    source = write_csv(tmp_path / "take.csv", operator_demo)
    with pytest.raises(InsufficientDemosError, match="start poses of vial, rack not in the file"):
        seeding.make_seeds(config, RunFolder(tmp_path / "run"), SilentReporter(), 1, source)


def test_an_unknown_table_is_refused():
    config = load_config(overrides=["task.name=cube_in_box", "teleop.replay.table=desk"])
    with pytest.raises(DataError, match="replay.table is 'desk'; scene.yaml has the statics floor, mat"):
        seeding.replay_config(config)


@needs_real_data
@pytest.mark.parametrize(
    ("folder", "part", "chosen"),
    [("so101_record_test_4ep", slice(0, 4), (1, 3)), ("so101_pickplace_100ep", slice(66, 78), (3, 4))],
)
def test_real_recordings_work_in_the_twin(folder, part, chosen):
    recordings = read_recording(REAL / folder, CONFIG)[part]
    decisions = detect_recording_units(recordings, CONFIG)
    candidates, failures, (calibration,) = seeding.prepare(CONFIG, recordings, decisions)
    assert not failures and len(candidates) == len(recordings)
    height, spread = calibration["pinch_height_mm"]
    assert abs(height - 18) < 3 and spread < 12  # a real arm stands on the table it picks from
    for index in chosen:
        entry, seed = seeding.search(candidates[index], CONFIG)
        assert entry["kept"], entry
        assert seed.objects["cube"][-1, 2, 3] > 0.015  # on the floor of the box, not on the table
