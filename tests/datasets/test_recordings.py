"""Recordings of other programs: LeRobot v2.1 and v3.0 folders, CSV, columns in any order, and every refusal's text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from so101.config import load_config
from so101.datasets.recordings import read_recording
from so101.errors import DataError

CONFIG = load_config()
JOINTS = CONFIG.robot.joint_names
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
RNG = np.random.default_rng(0)


def episode(index, start=0, frames=20, order=range(6)):
    state = RNG.normal(size=(frames, 6)).astype(np.float32)
    action = RNG.normal(size=(frames, 6)).astype(np.float32)
    table = pa.table(
        {
            "action": action[:, list(order)].tolist(),
            "observation.state": state[:, list(order)].tolist(),
            "episode_index": np.full(frames, index),
            "index": np.arange(start, start + frames),
        }
    )
    return action, state, table


def info(version, names=None, **more):
    names = list(names or [f"{joint}.pos" for joint in JOINTS])
    feature = {"dtype": "float32", "shape": [6], "names": names}
    return {
        "codebase_version": version,
        "fps": 30,
        "features": {"action": feature, "observation.state": feature},
        **more,
    }


def write_v21(folder, names=None, order=range(6), count=3):
    (folder / "meta").mkdir(parents=True)
    template = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    (folder / "meta/info.json").write_text(json.dumps(info("v2.1", names, data_path=template, chunks_size=2)))
    rows, data = [], []
    for index in range(count):
        action, state, table = episode(index, order=order)
        path = folder / template.format(episode_chunk=index // 2, episode_index=index)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        rows.append(json.dumps({"episode_index": index, "tasks": ["pick"], "length": 20}))
        data.append((action, state))
    (folder / "meta/episodes.jsonl").write_text("\n".join(rows) + "\n")
    return data


def write_v3(folder, count=4, per_file=2):
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info("v3.0")))
    data, rows = [], []
    for file in range(count // per_file):
        tables = []
        for index in range(file * per_file, (file + 1) * per_file):
            action, state, table = episode(index, start=20 * index)
            tables.append(table)
            data.append((action, state))
            rows.append(
                {
                    "episode_index": index,
                    "tasks": ["place it"],
                    "length": 20,
                    "data/chunk_index": 0,
                    "data/file_index": file,
                }
            )
        path = folder / f"data/chunk-000/file-{file:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(tables), path)
    pq.write_table(pa.Table.from_pylist(rows), folder / "meta/episodes/chunk-000/file-000.parquet")
    return data


def write_csv(path, columns, rows):
    lines = [",".join(columns)] + [",".join(repr(float(v)) for v in row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def refusal(path, config=CONFIG) -> str:
    with pytest.raises(DataError) as error:
        read_recording(path, config)
    return str(error.value)


def test_v21_folder(tmp_path):
    data = write_v21(tmp_path / "set")
    recordings = read_recording(tmp_path / "set", CONFIG)
    assert [r.name for r in recordings] == [f"set/episode_{i:06d}" for i in range(3)]
    for recording, (action, state) in zip(recordings, data, strict=True):
        np.testing.assert_array_equal(recording.action, action)
        np.testing.assert_array_equal(recording.state, state)
        assert recording.task == "pick" and recording.fps == 30 and recording.has_action


def test_v3_folder_with_two_files(tmp_path):
    data = write_v3(tmp_path / "set")
    recordings = read_recording(tmp_path / "set", CONFIG)
    assert len(recordings) == 4
    for recording, (action, state) in zip(recordings, data, strict=True):
        np.testing.assert_array_equal(recording.action, action)
        np.testing.assert_array_equal(recording.state, state)
    assert recordings[3].task == "place it"


def test_columns_in_another_order_are_sorted_by_name(tmp_path):
    order = [5, 3, 0, 1, 4, 2]
    names = [f"main_{JOINTS[i]}" for i in order]
    data = write_v21(tmp_path / "set", names, order)
    (first, *_) = read_recording(tmp_path / "set", CONFIG)
    np.testing.assert_array_equal(first.state, data[0][1])
    assert first.columns == tuple(f"main_{joint}" for joint in JOINTS)


def test_aliases_and_missing_joints(tmp_path):
    write_v21(tmp_path / "usd", ["Rotation", "Pitch", "Elbow", "Wrist_Pitch", "Wrist_Roll", "Jaw"])
    assert read_recording(tmp_path / "usd", CONFIG)[0].columns[-1] == "Jaw"
    write_v21(tmp_path / "bad", ["Rotation", "Pitch", "Elbow", "Wrist_Pitch", "Wrist_Pitch", "claw"])
    text = refusal(tmp_path / "bad")
    assert "no column for wrist_roll, gripper and more than one column for wrist_flex" in text
    assert "teleop.recordings.joint_aliases" in text


def test_unnamed_columns_ask_for_names(tmp_path):
    write_v21(tmp_path / "set")
    path = tmp_path / "set/meta/info.json"
    content = json.loads(path.read_text())
    for feature in content["features"].values():
        feature["names"] = None
    path.write_text(json.dumps(content))
    assert "teleop.recordings.columns=[shoulder_pan, shoulder_lift" in refusal(tmp_path / "set")
    told = load_config(overrides=[f"teleop.recordings.columns=[{', '.join(JOINTS)}]"])
    assert len(read_recording(tmp_path / "set", told)) == 3


def test_hand_moved_arm_has_no_action_of_its_own(tmp_path):
    path = write_csv(tmp_path / "r.csv", JOINTS, RNG.normal(size=(9, 6)))
    (recording,) = read_recording(path, CONFIG)
    assert not recording.has_action
    np.testing.assert_array_equal(recording.action, recording.state)
    assert recording.fps == CONFIG.teleop.recordings.default_fps_hz


def test_csv_with_time_prefixes_and_object(tmp_path):
    rows = RNG.normal(size=(40, 12))
    time = np.arange(40)[:, None] / 50
    columns = ["t", *(f"action.{j}" for j in JOINTS), *(f"state.{j}.pos" for j in reversed(JOINTS))]
    pose = np.tile([0.2, -0.1, 0.0125], (40, 1))
    path = write_csv(
        tmp_path / "r.csv",
        [*columns, "object.cube.x", "object.cube.y", "object.cube.z"],
        np.hstack([time, rows, pose]),
    )
    (recording,) = read_recording(path, CONFIG)
    assert recording.fps == pytest.approx(50)
    np.testing.assert_array_equal(recording.action, rows[:, :6])
    np.testing.assert_array_equal(recording.state, rows[:, :5:-1])
    np.testing.assert_array_equal(recording.objects["cube"], [0.2, -0.1, 0.0125, 1, 0, 0, 0])
    assert len(read_recording(tmp_path, CONFIG)) == 1  # a folder of CSV files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n", "0 data rows"),
        (",".join(JOINTS) + "\n1,2,3,4,5,6\n1,2,3,4,5\n", "line 3 has 5 cells, the header has 6"),
        (",".join(JOINTS) + "\n1,2,3,4,5,six\n1,2,3,4,5,6\n", "line 2 holds something that is no number"),
        (",".join(JOINTS) + "\n1,2,3,4,5,6\n1,2,nan,4,5,6\n", "elbow_flex is nan at frame 1"),
        (",".join(JOINTS[:5]) + "\n1,2,3,4,5\n1,2,3,4,5\n", "no column for gripper"),
        ("t," + ",".join(JOINTS) + "\n" + "".join(f"{t},1,2,3,4,5,6\n" for t in (0, 1, 2, 9)), "not evenly spaced"),
        (",".join((*JOINTS, "object.cube.x")) + "\n" + "1,2,3,4,5,6,7\n" * 3, "object cube has columns x"),
    ],
)
def test_csv_refusals(tmp_path, text, expected):
    path = tmp_path / "r.csv"
    path.write_text(text)
    message = refusal(path)
    assert expected in message and str(path) in message


def test_folder_refusals(tmp_path):
    assert "no such recording" in refusal(tmp_path / "absent")
    assert "neither meta/info.json" in refusal(tmp_path)
    write_v3(tmp_path / "v3")
    (tmp_path / "v3/meta/info.json").write_text(json.dumps(info("v1.6")))
    assert "codebase_version is 'v1.6'" in refusal(tmp_path / "v3")
    (tmp_path / "v3/meta/info.json").write_text("{")
    assert "not valid JSON" in refusal(tmp_path / "v3")
    (tmp_path / "v3/meta/info.json").write_text(json.dumps({**info("v3.0"), "features": {"x": {}}}))
    assert "no feature 'observation.state' (features: x)" in refusal(tmp_path / "v3")


def rewrite_info(folder, **changes):
    path = folder / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"fps": 0}, "fps is 0; it must be the frame rate in Hz, 1 to 1000"),
        ({"fps": float("inf")}, "fps is inf"),
        ({"fps": 1e-6}, "fps is 1e-06"),
        ({"fps": "30"}, "fps is '30'"),
        ({"chunks_size": "x"}, "chunks_size is 'x'; it must be a whole number, 1 or more"),
        ({"chunks_size": 0}, "chunks_size is 0"),
        ({"data_path": 7}, "data_path 7 cannot be filled"),
        ({"features": {"observation.state": "oops"}}, "observation.state has no names of its columns"),
    ],
)
def test_nonsense_in_info_json(tmp_path, changes, text):
    write_v21(tmp_path / "set")
    rewrite_info(tmp_path / "set", **changes)
    assert text in refusal(tmp_path / "set")


@pytest.mark.parametrize("length", ["many", 1.5, None, -3])
def test_nonsense_in_the_list_of_episodes(tmp_path, length):
    write_v21(tmp_path / "v2")
    (tmp_path / "v2/meta/episodes.jsonl").write_text(json.dumps({"episode_index": 0, "length": length}) + "\n")
    assert f"length is {length!r}; it must be a whole number" in refusal(tmp_path / "v2")
    write_v3(tmp_path / "v3")
    path = next((tmp_path / "v3/meta/episodes").rglob("*.parquet"))
    table = pq.read_table(path)
    lengths = pa.array([length] * table.num_rows)
    pq.write_table(table.set_column(table.column_names.index("length"), "length", lengths), path)
    assert f"length is {length!r}; it must be a whole number" in refusal(tmp_path / "v3")


def test_a_single_frame_is_no_episode(tmp_path):
    write_v21(tmp_path / "set", count=1)
    pq.write_table(episode(0, frames=1)[2], next((tmp_path / "set/data").rglob("*.parquet")))
    (tmp_path / "set/meta/episodes.jsonl").write_text(json.dumps({"episode_index": 0, "length": 1}) + "\n")
    assert "has a single frame" in refusal(tmp_path / "set")


def test_a_time_column_in_milliseconds_is_refused(tmp_path):
    rows = [[33.3 * t, *[0.0] * 6] for t in range(5)]
    write_csv(tmp_path / "a.csv", ["time", *JOINTS], rows)
    text = refusal(tmp_path / "a.csv")
    assert "0.03003 Hz if it is in s" in text and "Convert the column to seconds" in text


def test_incomplete_copies(tmp_path):
    write_v3(tmp_path / "a")
    data = tmp_path / "a/data/chunk-000/file-001.parquet"
    content = data.read_bytes()
    data.write_bytes(content[: len(content) // 2])
    assert "not a parquet file, or truncated" in refusal(tmp_path / "a")
    data.unlink()
    assert "missing, though the dataset's meta lists it" in refusal(tmp_path / "a")
    write_v3(tmp_path / "b")
    path = tmp_path / "b/data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 33), path)
    assert "episode 1 has 13 frames, the episode list says 20" in refusal(tmp_path / "b")
    write_v21(tmp_path / "c")
    (tmp_path / "c/meta/episodes.jsonl").unlink()
    assert "episodes.jsonl: missing" in refusal(tmp_path / "c")


def test_nan_in_an_episode_is_named(tmp_path):
    write_v21(tmp_path / "set", count=1)
    path = next((tmp_path / "set/data").rglob("*.parquet"))
    table = pq.read_table(path)
    rows = table["action"].to_pylist()
    rows[7][3] = float("nan")
    pq.write_table(table.set_column(table.column_names.index("action"), "action", pa.array(rows)), path)
    assert "episode 0: action: wrist_flex.pos is nan at frame 7 (1 such values)" in refusal(tmp_path / "set")


@pytest.mark.skipif(not REAL.is_dir(), reason="the real recordings are not here")
def test_real_recordings_read():
    leader = read_recording(REAL / "so101_record_test_4ep", CONFIG)
    assert [r.num_frames for r in leader] == [373, 374, 372, 373]
    assert all(r.has_action and r.task == "Pick the orange cube and place it in the box" for r in leader)
    by_hand = read_recording(REAL / "so101_pickplace_100ep", CONFIG)
    assert len(by_hand) == 100 and sum(r.num_frames for r in by_hand) == 41631
    assert not any(r.has_action for r in by_hand)
    text = refusal(REAL / "so100_step_excerpt/shoulder_rotation_step_0p3rad.csv")
    assert "no column for shoulder_pan, shoulder_lift" in text and "columns: t, obj_Shoulder_Rotation" in text
