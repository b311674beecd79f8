"""The test pattern."""

from __future__ import annotations

import numpy as np
import pytest

from so101.cameras import make_camera
from so101.cameras.synthetic import frame_number
from so101.rendering.video import encode_video


@pytest.fixture
def camera(configured):
    camera = make_camera("ego", configured(ego="{kind: synthetic}"))
    camera.open()
    yield camera
    camera.close()


def test_frames_carry_their_number_and_move(camera):
    frames = [camera.read(1.0) for _ in range(5)]
    assert [frame_number(frame.image) for frame in frames] == [frame.index for frame in frames]
    assert frames[0].image.shape == (480, 640, 3) and frames[0].image.dtype == np.uint8
    assert not np.array_equal(frames[0].image[200:280], frames[4].image[200:280])
    assert all(b.stamp_s - a.stamp_s >= 1 / 30 - 1e-9 for a, b in zip(frames, frames[1:], strict=False))


def test_halves_of_two_frames_are_noticed(camera):
    first, second = camera.read(1.0).image, camera.read(1.0).image
    assert frame_number(np.concatenate([first[:240], second[240:]])) is None


def test_the_number_survives_compression(camera, configured, tmp_path):
    import av

    frames = [camera.read(1.0) for _ in range(3)]
    encode_video(tmp_path / "x.mp4", [frame.image for frame in frames], configured())
    with av.open(str(tmp_path / "x.mp4")) as video:
        numbers = [frame_number(picture.to_ndarray(format="rgb24")) for picture in video.decode(video=0)]
    assert numbers == [frame.index for frame in frames]
