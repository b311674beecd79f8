"""Seed files: round trip, equal bytes, files of other programs, and every refusal's text."""

from __future__ import annotations

import dataclasses
import errno
import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.seeds import SeedDemo
from so101.datasets.seeds_hdf5 import EEF_NAME, read_seeds, write_seeds
from so101.errors import DataError
from so101.geometry import invert_pose, make_pose, pose_to_pos_quat, rotation_about_axis

CONFIG = load_config(overrides=["task.name=cube_in_box"])
ROOT = Path(__file__).resolve().parents[2]
T = 12
Z = np.array([0.0, 0.0, 1.0])


def fk(q):
    """A stand-in for the arm: the pan joint turns, the lift joint raises."""
    return make_pose(rotation_about_axis(Z, q[:, 0]), np.column_stack([0.2 + 0 * q[:, 0], 0 * q[:, 0], q[:, 1]]))


def a_seed(seed=0, name="demo_0", **changes):
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-1, 1, T)
    grasped = np.zeros(T, bool)
    grasped[5:9] = True
    demo = SeedDemo(
        name=name,
        task="cube_in_box",
        source="test/episode_000003",
        fps=30.0,
        q_target=rng.uniform(-0.4, 1.5, (T, 6)),
        q=rng.uniform(-0.4, 1.5, (T, 6)),
        objects={key: make_pose(rotation_about_axis(Z, angles), rng.normal(size=(T, 3))) for key in ("cube", "box")},
        signals={"grasped": grasped},
        attrs={"offsets_deg": [0.5, -1.25], "note": "assumed"},
    )
    return dataclasses.replace(demo, **changes)


def assert_equal(a: SeedDemo, b: SeedDemo):
    for key in ("name", "task", "source", "fps", "attrs"):
        assert getattr(a, key) == getattr(b, key)
    for key in ("q", "q_target"):
        np.testing.assert_array_equal(getattr(a, key), getattr(b, key))
    for key in ("objects", "signals"):
        assert set(getattr(a, key)) == set(getattr(b, key))
        for name, values in getattr(a, key).items():
            np.testing.assert_array_equal(values, getattr(b, key)[name])


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "seeds.hdf5"
    write_seeds(path, [a_seed()], CONFIG, fk)
    return path


def refusal(path, config=CONFIG) -> str:
    with pytest.raises(DataError) as error:
        read_seeds(path, config)
    return str(error.value)


def rewrite(path, change):
    """Apply `change` to the group of demo_0."""
    with h5py.File(path, "r+") as file:
        change(file["data/demo_0"])


def replace(path, dataset, values):
    def change(group):
        del group[dataset]
        group[dataset] = values

    rewrite(path, change)


def test_round_trip_is_exact_and_ordered_by_number(tmp_path):
    seeds = [a_seed(i, f"demo_{i}") for i in range(12)]
    write_seeds(tmp_path / "s.hdf5", seeds, CONFIG, fk)
    back = read_seeds(tmp_path / "s.hdf5", CONFIG)
    assert len(back) == 12
    for one, other in zip(seeds, back, strict=True):
        assert_equal(one, other)


def test_equal_seeds_are_equal_bytes_and_writing_again_too(tmp_path):
    for name in ("a", "b"):
        write_seeds(tmp_path / name, [a_seed()], CONFIG, fk)
    write_seeds(tmp_path / "c", read_seeds(tmp_path / "a", CONFIG), CONFIG, fk)
    contents = {(tmp_path / name).read_bytes() for name in "abc"}
    assert len(contents) == 1


def test_other_readers_find_their_fields(path):
    seed = a_seed()
    with h5py.File(path) as file:
        demo = file["data/demo_0"]
        assert demo.attrs["num_samples"] == T and demo.attrs["success"]
        assert "env_args" in file["data"].attrs
        np.testing.assert_array_equal(demo[f"obs/datagen_info/target_eef_pose/{EEF_NAME}"], fk(seed.q_target))
        np.testing.assert_array_equal(demo[f"obs/datagen_info/eef_pose/{EEF_NAME}"], fk(seed.q))
        np.testing.assert_allclose(demo["states/rigid_object/cube/root_pose"], pose_to_pos_quat(seed.objects["cube"]))
        np.testing.assert_array_equal(demo["initial_state/articulation/robot/joint_position"], seed.q[:1])


def test_isaac_lab_poses_are_moved_into_the_base(path):
    """States alone, in the frame of an environment where the robot stands turned and shifted."""
    seed, T_env_base = a_seed(), make_pose(rotation_about_axis(Z, 0.7), [1.0, -2.0, 0.3])

    def change(group):
        del group["obs"]
        base = np.repeat(pose_to_pos_quat(T_env_base)[None], T, axis=0)
        group["states/articulation/robot/root_pose"][...] = base
        for name, T_base_obj in seed.objects.items():
            group[f"states/rigid_object/{name}/root_pose"][...] = pose_to_pos_quat(T_env_base @ T_base_obj)
        signal = group.create_group("datagen_info/subtask_term_signals")
        signal["grasped"] = seed.signals["grasped"].astype(np.int64)[:, None]

    rewrite(path, change)
    (back,) = read_seeds(path, CONFIG)
    for name, T_base_obj in seed.objects.items():
        np.testing.assert_allclose(back.objects[name], T_base_obj, atol=1e-12)
    np.testing.assert_array_equal(back.signals["grasped"], seed.signals["grasped"])
    assert np.abs(invert_pose(T_env_base) - np.eye(4)).max() > 1  # the transform did something


def test_mimicgen_flat_layout_with_joints_is_read(path):
    seed = a_seed()

    def change(group):
        for name in ("obs", "states", "initial_state"):
            del group[name]
        group["obs/joint_pos"] = seed.q
        for name, poses in seed.objects.items():
            group[f"datagen_info/object_poses/{name}"] = poses
        group["datagen_info/subtask_term_signals/grasped"] = seed.signals["grasped"].astype(float)
        for key in list(group.attrs):
            del group.attrs[key]

    rewrite(path, change)
    (back,) = read_seeds(path, CONFIG)
    np.testing.assert_array_equal(back.objects["box"], seed.objects["box"])
    assert back.name == "demo_0" and back.fps == CONFIG.scene.physics.control_hz
    assert back.source.endswith("/data/demo_0")


def test_all_missing_fields_of_all_demos_are_named_at_once(tmp_path):
    path = tmp_path / "s.hdf5"
    write_seeds(path, [a_seed(0), a_seed(1, "demo_1")], CONFIG, fk)
    with h5py.File(path, "r+") as file:
        del file["data/demo_0/actions"], file["data/demo_0/obs/datagen_info/subtask_term_signals/grasped"]
        for name in ("obs/datagen_info/object_pose", "states/rigid_object"):
            file[f"data/demo_1/{name}"].move("cube", "block")
    lines = refusal(path).splitlines()
    assert len(lines) == 2
    assert "data/demo_0 lacks joint targets (actions or processed_actions" in lines[0]
    assert "signal grasped (obs/datagen_info/subtask_term_signals/grasped or datagen_info" in lines[0]
    assert "data/demo_1 lacks poses of object cube" in lines[1] and "objects here: block, box" in lines[1]


def test_end_effector_poses_alone_are_refused_with_the_reason(path):
    def change(group):
        for name in ("obs", "states", "initial_state"):
            del group[name]
        group["datagen_info/target_pose"] = np.repeat(np.eye(4)[None], T, axis=0)

    rewrite(path, change)
    assert "it has end-effector poses only, and joints cannot be had from them on a 5-joint arm" in refusal(path)


@pytest.mark.parametrize(
    ("dataset", "values", "text"),
    [
        ("actions", np.zeros((T, 7)), "actions have shape (12, 7); needed are (T, 6) joint angles in rad"),
        ("actions", np.zeros((T - 1, 6)), "arrays differ in length (actions 11, joint positions 12"),
        ("actions", np.array([b"x"] * T), "not numbers"),
        ("actions", np.array(3.0), "a single number"),
        ("obs/datagen_info/subtask_term_signals/grasped", np.array(True), "a single number"),
        ("actions", np.full((T, 6), 40.0), "whose range is -1.91986 to 1.91986 rad (72 such values); seeds in HDF5"),
        (
            "obs/datagen_info/object_pose/cube",
            np.repeat(2 * np.eye(4)[None], T, axis=0),
            "object cube: pose at frame 0 is no rigid transform (12 such frames)",
        ),
        (
            "obs/datagen_info/object_pose/cube",
            np.repeat(np.diag([1.0, 1, -1, 1])[None], T, axis=0),
            "no rigid transform",
        ),
        ("obs/datagen_info/object_pose/cube", np.zeros((T, 7)), "quaternion [0. 0. 0. 0.] not of length 1"),
        ("obs/datagen_info/object_pose/cube", np.zeros((T, 3)), "poses have shape (12, 3)"),
        ("obs/datagen_info/subtask_term_signals/grasped", np.zeros(T), "never rises from 0 to 1"),
        ("obs/datagen_info/subtask_term_signals/grasped", np.ones(T), "is 1 at frame 0 already"),
        ("obs/datagen_info/subtask_term_signals/grasped", np.linspace(0, 1, T), "values other than 0 and 1"),
    ],
)
def test_wrong_arrays_are_refused(path, dataset, values, text):
    replace(path, dataset, values)
    message = refusal(path)
    assert text in message and "data/demo_0" in message


@pytest.mark.parametrize("fps", ["fast", 0.0, -30.0, np.nan, 25.0])
def test_another_rate_than_the_control_rate_is_refused(path, fps):
    rewrite(path, lambda group: group.attrs.__setitem__("fps", fps))
    assert "the twin is controlled at 30 Hz" in refusal(path)
    rewrite(path, lambda group: group.attrs.__setitem__("fps", 29.98))
    assert read_seeds(path, CONFIG)[0].fps == 29.98


def test_equal_names_are_refused(tmp_path):
    path = tmp_path / "seeds.hdf5"
    write_seeds(path, [a_seed(0, "take"), a_seed(1, "take")], CONFIG, fk)
    assert "2 demonstrations have the attribute name 'take'" in refusal(path)


def test_another_joint_order_is_refused(path):
    with h5py.File(path, "r+") as file:
        file["data"].attrs["env_args"] = json.dumps({"joint_names": list(CONFIG.robot.joint_names)[::-1]})
    assert "reorder the columns" in refusal(path)


def test_nan_names_frame_and_joint(path):
    q = a_seed().q.copy()
    q[4, 2] = np.nan
    replace(path, "states/articulation/robot/joint_position", q)
    assert "joint positions hold nan at frame 4, joint elbow_flex" in refusal(path)


def test_signals_must_fire_in_the_order_of_the_task(tmp_path):
    task = CONFIG.task.active
    both = [task.subtasks[0], task.subtasks[1].model_copy(update={"signal": "placed"})]
    ordered = task.model_copy(update={"subtasks": both})
    config = CONFIG.model_copy(
        update={"task": CONFIG.task.model_copy(update={"tasks": {**CONFIG.task.tasks, "cube_in_box": ordered}})}
    )
    placed = np.arange(T) >= 3  # before grasped (5)
    seed = a_seed()
    write_seeds(tmp_path / "s", [dataclasses.replace(seed, signals={**seed.signals, "placed": placed})], config, fk)
    assert "signal placed rises at frame 3, not after grasped (frame 5)" in refusal(tmp_path / "s", config)


def test_failed_and_foreign_tasks_are_refused(path):
    rewrite(path, lambda group: group.attrs.__setitem__("success", False))
    assert "marked as failed" in refusal(path)
    assert "--set task.name=cube_in_box" in refusal(path, load_config())


def test_files_that_are_no_seed_files(tmp_path, path):
    assert "no such seed file" in refusal(tmp_path / "absent.hdf5")
    (tmp_path / "text.hdf5").write_text("not a file of this kind")
    assert "not an HDF5 file, or truncated" in refusal(tmp_path / "text.hdf5")
    content = path.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.99):
        (tmp_path / "cut.hdf5").write_bytes(content[: int(share * len(content))])
        assert "not an HDF5 file, or truncated" in refusal(tmp_path / "cut.hdf5")
    with h5py.File(tmp_path / "foreign.hdf5", "w") as file:
        file["weights"] = np.zeros(3)
    assert "no group 'data' (top level: weights)" in refusal(tmp_path / "foreign.hdf5")
    with h5py.File(tmp_path / "empty.hdf5", "w") as file:
        file.create_group("data")
    assert "holds no demonstration" in refusal(tmp_path / "empty.hdf5")


def test_nothing_to_write_is_an_error_and_a_failed_write_leaves_the_old_file(tmp_path, path):
    with pytest.raises(DataError, match="no seed demonstration to write"):
        write_seeds(tmp_path / "none.hdf5", [], CONFIG, fk)
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        write_seeds(path, [a_seed(5)], CONFIG, lambda q: 1 / 0)
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["seeds.hdf5"]


def test_a_full_disk_is_an_error_of_the_disk_and_not_a_crash(tmp_path):
    """In a process of its own: HDF5 used to end it with a segmentation fault."""
    script = (
        "import resource, signal\n"
        "from tests.datasets.test_seeds_hdf5 import CONFIG, a_seed, fk, write_seeds\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try:\n"
        f"    write_seeds({str(tmp_path / 'seeds.hdf5')!r}, [a_seed()], CONFIG, fk)\n"
        "except OSError as error:\n"
        "    print('errno', error.errno)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (ended.returncode, ended.stdout) == (0, f"errno {errno.EFBIG}\n"), ended.stderr
    assert list(tmp_path.iterdir()) == []
