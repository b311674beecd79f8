import json
import threading

import av
import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import load_demo
from so101.datasets.recordings import read_recording
from so101.datasets.rollouts import EpisodeRecorder, SessionFolder, export_dataset
from so101.datasets.validate import validate_dataset
from so101.errors import DataError, InsufficientDemosError
from so101.pipeline.progress import SilentReporter
from so101.rendering.video import VideoWriter

CAMERAS = ("ego", "side", "top")
CONFIG = load_config(
    overrides=[
        "cameras.width_px=64",
        "cameras.height_px=64",
        *(
            f"cameras.cameras.{name}.{key}={value}"
            for name in CAMERAS
            for key, value in {"cx_px": 32, "cy_px": 32}.items()
        ),
        "render.codec.preset=ultrafast",
        "render.codec.crf=12",
    ]
)
META = {"policy": "test"}


def picture(grey: int) -> np.ndarray:
    return np.full((64, 64, 3), grey, np.uint8)


def record(folder: SessionFolder, index: int, ticks: int = 12, outcome: str = "success", every: int = 1, meta=META):
    """An episode whose pictures get lighter with every new frame; a camera gives a new one every `every` ticks."""
    recorder = EpisodeRecorder(CONFIG, folder, index, CAMERAS)
    q = 0.01 * np.arange(ticks)[:, None] + np.arange(6) / 100
    for t in range(ticks):
        number = t // every
        recorder.add(q[t] + 0.005, q[t], {name: (number, picture(4 * number)) for name in CAMERAS})
    return recorder, q, recorder.finish(task="vial_to_rack", seed=7, outcome=outcome, meta=meta)


def greys(path) -> list[int]:
    with av.open(str(path)) as video:
        return [round(frame.to_ndarray(format="rgb24").mean()) for frame in video.decode(video=0)]


def test_what_was_added_is_in_the_demo_and_in_the_videos(tmp_path):
    folder = SessionFolder(tmp_path)
    recorder, q, path = record(folder, 3)
    demo = load_demo(path)
    np.testing.assert_array_equal(demo.q, q)
    np.testing.assert_array_equal(demo.q_target, q + 0.005)
    assert (demo.index, demo.task, demo.seed, demo.fps, demo.strict) == (3, "vial_to_rack", 7, 30.0, True)
    assert demo.meta == {"policy": "test", "outcome": "success"}
    for camera in CAMERAS:
        np.testing.assert_allclose(greys(folder.run.video(3, camera)), 4 * np.arange(12), atol=2)
    assert recorder.late_frames == 0


def test_a_slow_camera_repeats_its_last_frame_so_that_every_row_has_one(tmp_path):
    folder = SessionFolder(tmp_path)
    record(folder, 0, ticks=9, every=3)
    np.testing.assert_allclose(greys(folder.run.video(0, "ego")), [0, 0, 0, 4, 4, 4, 8, 8, 8], atol=2)


def test_an_encoder_that_is_behind_costs_frames_but_never_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("so101.datasets.rollouts._QUEUED_FRAMES", 3)
    folder = SessionFolder(tmp_path)
    recorder, _, path = record(folder, 0, ticks=60)
    assert recorder.late_frames > 0
    shown = greys(folder.run.video(0, "side"))
    assert len(shown) == 60 == load_demo(path).num_frames
    assert all(np.diff(shown[:25]) >= -2), "never a later picture before an earlier one"


def test_an_encoder_that_stays_behind_still_gets_new_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr("so101.datasets.rollouts._QUEUED_FRAMES", 24)
    may_write, written, write = threading.Semaphore(0), threading.Semaphore(0), VideoWriter.write

    def gated(writer, image):
        may_write.acquire()
        write(writer, image)
        written.release()

    monkeypatch.setattr(VideoWriter, "write", gated)
    folder, behind, ticks = SessionFolder(tmp_path), 20, 80
    recorder = EpisodeRecorder(CONFIG, folder, 0, CAMERAS)
    for t in range(ticks):
        recorder.add(np.zeros(6), np.zeros(6), {name: (t, picture(3 * t)) for name in CAMERAS})
        if t >= behind:  # from here on it is as quick as rows come, but never catches up
            for _ in CAMERAS:
                may_write.release()
            for _ in CAMERAS:
                written.acquire()
    for _ in range(len(CAMERAS) * behind):
        may_write.release()
    recorder.finish(task="vial_to_rack", seed=0, outcome="success", meta={})
    shown = greys(folder.run.video(0, "ego"))
    assert len(shown) == ticks and recorder.late_frames > 0
    still = np.diff(np.flatnonzero(np.abs(np.diff(shown)) > 1))  # rows between two changes
    assert len(still) > 5 and still.max() <= 12, "the video does not stand still"


def test_a_recorder_that_may_wait_leaves_no_picture_out(tmp_path, monkeypatch):
    monkeypatch.setattr("so101.datasets.rollouts._QUEUED_FRAMES", 3)
    folder = SessionFolder(tmp_path)
    recorder = EpisodeRecorder(CONFIG, folder, 0, CAMERAS, patient=True)
    for t in range(40):
        recorder.add(np.zeros(6), np.zeros(6), {name: (t, picture(6 * t)) for name in CAMERAS})
    recorder.finish(task="vial_to_rack", seed=0, outcome="success", meta={})
    assert recorder.late_frames == 0
    assert np.abs(np.diff(greys(folder.run.video(0, "side"))) - 6).max() <= 3, "each row has its own"


def test_a_missing_camera_is_named(tmp_path):
    recorder = EpisodeRecorder(CONFIG, SessionFolder(tmp_path), 0, CAMERAS)
    with pytest.raises(DataError, match="no frame of camera side, top"):
        recorder.add(np.zeros(6), np.zeros(6), {"ego": (0, picture(0))})
    recorder.discard()


def test_nothing_is_left_of_an_episode_without_rows_or_discarded(tmp_path):
    folder = SessionFolder(tmp_path)
    empty = EpisodeRecorder(CONFIG, folder, 0, CAMERAS)
    with pytest.raises(DataError, match="episode 0 is not kept"):
        empty.finish(task="vial_to_rack", seed=0, outcome="success", meta={})
    recorder = EpisodeRecorder(CONFIG, folder, 1, CAMERAS)
    recorder.add(np.zeros(6), np.zeros(6), {name: (0, picture(0)) for name in CAMERAS})
    recorder.discard()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_video_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path):
    config = load_config(overrides=["render.codec.encoder=no_such_encoder"])
    folder = SessionFolder(tmp_path)
    recorder = EpisodeRecorder(config, folder, 0, ("ego",))
    recorder._thread.join()
    with pytest.raises(DataError, match="episode 0: a video cannot be written.*no_such_encoder"):
        recorder.add(np.zeros(6), np.zeros(6), {"ego": (0, picture(0))})
    with pytest.raises(DataError, match="is not kept"):
        recorder.finish(task="vial_to_rack", seed=0, outcome="success", meta={})
    assert not list(tmp_path.rglob("*.npz"))


def test_numbers_go_on_and_the_rest_of_a_killed_program_is_removed(tmp_path):
    folder = SessionFolder(tmp_path)
    assert folder.next_index() == 0
    record(folder, 0)
    (folder.run.video(1, "ego").parent).mkdir(parents=True)
    (folder.run.video(1, "ego").with_name(".ego.123.tmp.mp4")).write_bytes(b"half")
    folder.log(1).parent.mkdir()
    folder.log(1).write_text("tick\n")
    folder.clean_up()
    assert folder.next_index() == 2, "episode 1 was begun: its log stays"
    assert folder.log(1).exists() and not folder.run.video(1, "ego").parent.exists()
    assert folder.run.video(0, "ego").exists()
    (tmp_path / "videos" / "demo_000007").mkdir()
    folder.clean_up()
    assert (tmp_path / "videos" / "demo_000007").exists(), "not begun here: not ours to remove"


def test_the_dataset_holds_the_episodes_of_the_outcomes_asked_for(tmp_path):
    folder = SessionFolder(tmp_path)
    _, q, _ = record(folder, 0)
    record(folder, 1, outcome="failure")
    record(folder, 2, ticks=20)
    with pytest.raises(InsufficientDemosError, match="no episode ended with aborted .*1 failure, 2 success"):
        export_dataset(CONFIG, folder, SilentReporter(), outcomes=("aborted",))
    assert export_dataset(CONFIG, folder, SilentReporter()).produced == 2
    dataset = folder.run.dataset
    assert validate_dataset(dataset) == []
    episodes = read_recording(dataset, CONFIG)
    assert [episode.num_frames for episode in episodes] == [12, 20]
    np.testing.assert_allclose(episodes[0].state[:, :5], np.degrees(q[:, :5]), atol=1e-4)
    assert json.loads((dataset / "meta" / "info.json").read_text())["total_videos"] == 6
    export_dataset(CONFIG, folder, SilentReporter(), outcomes=("success", "failure"))
    assert [episode.num_frames for episode in read_recording(dataset, CONFIG)] == [12, 12, 20]


def test_where_the_objects_stood_goes_with_the_dataset_when_it_is_known(tmp_path):
    folder, pose = SessionFolder(tmp_path), [0.2, -0.1, 0.05, 1.0, 0.0, 0.0, 0.0]
    record(folder, 0)
    record(folder, 1, meta={"start_objects": {"vial": pose}})
    export_dataset(CONFIG, folder, SilentReporter())
    first, second = read_recording(folder.run.dataset, CONFIG)
    assert first.objects == {} and list(second.objects) == ["vial"]
    np.testing.assert_array_equal(second.objects["vial"], pose)
    assert validate_dataset(folder.run.dataset) == []
    (folder.run.dataset / "meta" / "so101_objects.jsonl").write_text('{"episode_index": 0, "objects": {"vial": [1]}}\n')
    with pytest.raises(DataError, match="so101_objects.jsonl.*needed is name -> x, y, z, qw"):
        read_recording(folder.run.dataset, CONFIG)
