"""Recorded videos and episodes of datasets, frame by frame."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from so101.cameras import CameraError, NoFrameYet, make_camera
from so101.cameras.synthetic import SyntheticCamera, frame_number
from so101.rendering.video import encode_video

NUM_FRAMES = 8


@pytest.fixture(scope="module")
def pictures(configured):
    """Test patterns numbered 0, 1, 2 ..., without waiting for their time."""
    camera = SyntheticCamera("ego", configured(ego="{kind: synthetic}"))
    images = []
    for index in range(3 * NUM_FRAMES):
        image = camera._background.copy()
        camera._draw(image, index)
        images.append(image)
    return images


@pytest.fixture(scope="module")
def video(pictures, configured, tmp_path_factory):
    path = tmp_path_factory.mktemp("video") / "demo.mp4"
    encode_video(path, pictures[:NUM_FRAMES], configured())
    return path


def dataset_v2(root, pictures, config):
    """Two episodes, the second numbered from NUM_FRAMES on."""
    (root / "meta").mkdir(parents=True)
    info = {
        "codebase_version": "v2.1",
        "total_episodes": 2,
        "chunks_size": 1000,
        "features": {"observation.images.wrist": {"dtype": "video"}, "action": {"dtype": "float32"}},
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }
    (root / "meta" / "info.json").write_text(json.dumps(info))
    for episode in range(2):
        path = root / "videos" / "chunk-000" / "observation.images.wrist" / f"episode_{episode:06d}.mp4"
        encode_video(path, pictures[episode * NUM_FRAMES :][:NUM_FRAMES], config)


def dataset_v3(root, pictures, config):
    """The same two episodes in one file."""
    key = "observation.images.wrist"
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    info = {"codebase_version": "v3.0", "total_episodes": 2, "features": {key: {"dtype": "video"}}}
    (root / "meta" / "info.json").write_text(json.dumps(info))
    encode_video(root / "videos" / key / "chunk-000" / "file-000.mp4", pictures[: 2 * NUM_FRAMES], config)
    edges = [0.0, NUM_FRAMES / 30, 2 * NUM_FRAMES / 30]
    rows = {
        "episode_index": [0, 1],
        f"videos/{key}/chunk_index": [0, 0],
        f"videos/{key}/file_index": [0, 0],
        f"videos/{key}/from_timestamp": edges[:2],
        f"videos/{key}/to_timestamp": edges[1:],
    }
    pq.write_table(pa.table(rows), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")


def numbers(camera, count):
    """Frame numbers of the next `count` frames, with the index each came with."""
    camera.open()
    try:
        frames = [camera.read(1.0) for _ in range(count)]
        return [(frame_number(frame.image), frame.index) for frame in frames]
    finally:
        camera.close()


def test_every_frame_in_order_and_from_the_start_again(configured, video):
    camera = make_camera("ego", configured(ego=f"{{kind: playback, path: {video}}}"))
    assert all(number == index % NUM_FRAMES for number, index in numbers(camera, 2 * NUM_FRAMES + 3))
    assert numbers(camera, 2)[0][0] == 0  # opened again
    assert camera.mode == "640x480 at 30 Hz"


def test_frames_that_pass_unread_are_skipped_not_delayed(configured, video):
    camera = make_camera("ego", configured(ego=f"{{kind: playback, path: {video}}}"))
    camera.open()
    camera._pacer._start -= 5 / 30  # as if nobody had read for five frames
    frame = camera.read(1.0)
    camera.close()
    assert frame.index >= 5 and frame_number(frame.image) == frame.index % NUM_FRAMES


def test_without_loop_it_is_over_after_the_last_frame(configured, video):
    camera = make_camera("ego", configured(ego=f"{{kind: playback, path: {video}, loop: false}}"))
    camera.open()
    for _ in range(NUM_FRAMES):
        camera.read(1.0)
    with pytest.raises(NoFrameYet, match=r"demo\.mp4 is over \(cameras\.sources\.ego\.loop is False"):
        camera.read(1.0)
    camera.close()


@pytest.mark.parametrize("write", [dataset_v2, dataset_v3])
def test_an_episode_of_a_dataset(configured, pictures, tmp_path, write):
    write(tmp_path / "set", pictures, configured())
    for episode in range(2):
        config = configured(ego=f"{{kind: playback, path: {tmp_path}/set, episode: {episode}}}")
        got = numbers(make_camera("ego", config), NUM_FRAMES + 2)
        assert all(number == episode * NUM_FRAMES + index % NUM_FRAMES for number, index in got)
    faults = {
        "{kind: playback, path: PATH, episode: 2}": "no episode 2; it has 2, counted from 0",
        "{kind: playback, path: PATH, feature: observation.images.wirst}": (
            "no video feature 'observation.images.wirst'; it has observation.images.wrist; "
            "did you mean 'observation.images.wrist'"
        ),
    }
    for source, text in faults.items():
        with pytest.raises(CameraError, match=text):
            make_camera("ego", configured(ego=source.replace("PATH", f"{tmp_path}/set"))).open()


def test_another_size_is_scaled(configured, pictures, tmp_path):
    small = configured(overrides=("cameras.width_px=320", "cameras.height_px=240", "cameras.cameras.ego.cx_px=160"))
    encode_video(tmp_path / "small.mp4", pictures[:3], small)
    camera = make_camera("ego", configured(ego=f"{{kind: playback, path: {tmp_path}/small.mp4}}"))
    camera.open()
    image = camera.read(1.0).image
    camera.close()
    assert image.shape == (480, 640, 3) and abs(image[240, 40].astype(int) - pictures[0][240, 40]).max() < 20


def test_what_is_no_video_is_told(configured, tmp_path, pictures):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.mp4").write_text("no video")
    dataset_v2(tmp_path / "set", pictures, configured())
    (tmp_path / "set" / "videos/chunk-000/observation.images.wrist/episode_000001.mp4").unlink()
    (tmp_path / "broken" / "meta").mkdir(parents=True)
    (tmp_path / "broken" / "meta" / "info.json").write_text(
        '{"features": {"observation.images.wrist": {"dtype": "video"}}}'
    )
    for path, text in {
        "nowhere": "neither a video file nor a LeRobot dataset",
        "empty": "neither a video file nor a LeRobot dataset",
        "text.mp4": r"text\.mp4: not a readable video",
        "set": r"episode_000001\.mp4: missing, though the dataset's meta lists it",
        "broken": "its meta files are damaged",
    }.items():
        camera = make_camera("ego", configured(ego=f"{{kind: playback, path: {tmp_path}/{path}, episode: 1}}"))
        with pytest.raises(CameraError, match=text):
            camera.open()
        camera.close()


def test_frames_are_not_shared_with_the_decoder(configured, video):
    """A frame that is kept stays what it was."""
    camera = make_camera("ego", configured(ego=f"{{kind: playback, path: {video}}}"))
    camera.open()
    kept = [camera.read(1.0).image for _ in range(NUM_FRAMES)]
    camera.close()
    assert [frame_number(image) for image in kept] == list(range(NUM_FRAMES)) or len(
        set(map(frame_number, kept))
    ) == NUM_FRAMES
    assert all(not np.shares_memory(a, b) for a, b in zip(kept, kept[1:], strict=False))
