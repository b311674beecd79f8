"""Videos: same frames, same bytes; whole or not there; what goes in comes out."""

from __future__ import annotations

import av
import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.videos import probe_video
from so101.errors import ConfigError, DataError
from so101.rendering.video import VideoWriter, encode_video


@pytest.fixture(scope="module")
def config():
    return load_config()


def frames(count, size=(480, 640)):
    """A smooth picture with a square that moves 8 px a frame."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    for i in range(count):
        picture = np.stack([rows / size[0] * 200, columns / size[1] * 200, np.full(size, 90)], -1).astype(np.uint8)
        picture[100:140, 50 + 8 * i : 90 + 8 * i] = (250, 250, 250)
        yield picture


def test_equal_frames_give_equal_bytes(config, tmp_path):
    for name in ("a.mp4", "b.mp4"):
        assert encode_video(tmp_path / name, frames(9), config) == 9
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_the_file_says_what_the_configuration_says(config, tmp_path):
    encode_video(tmp_path / "a.mp4", frames(7), config)
    facts = probe_video(tmp_path / "a.mp4")
    assert (facts.width, facts.height, facts.codec, facts.pix_fmt) == (640, 480, "h264", "yuv420p")
    assert facts.num_frames == 7 and facts.fps == config.cameras.fps_hz and not facts.has_audio
    assert np.allclose(facts.timestamps_s, np.arange(7) / config.cameras.fps_hz, atol=1e-6)
    with av.open(str(tmp_path / "a.mp4")) as container:
        keys = [frame.key_frame for frame in container.decode(video=0)]
    assert keys == [i % config.render.codec.gop_frames == 0 for i in range(7)]


def test_decoded_frames_are_those_written_in_order(config, tmp_path):
    encode_video(tmp_path / "a.mp4", frames(6), config)
    with av.open(str(tmp_path / "a.mp4")) as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    for picture, original in zip(decoded, frames(6), strict=True):
        assert np.sqrt(np.mean((picture.astype(float) - original) ** 2)) < 5


def test_larger_frames_are_averaged_down(config, tmp_path):
    encode_video(tmp_path / "a.mp4", frames(2, (720, 960)), config)
    assert (probe_video(tmp_path / "a.mp4").width, probe_video(tmp_path / "a.mp4").height) == (640, 480)


def test_a_failure_half_way_leaves_the_old_file_and_nothing_else(config, tmp_path):
    path = tmp_path / "a.mp4"
    encode_video(path, frames(2), config)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), VideoWriter(path, config) as writer:
        writer.write(next(frames(1)))
        raise KeyboardInterrupt
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mp4"]


def test_no_frame_and_an_unknown_encoder_are_explained(config, tmp_path):
    with pytest.raises(DataError, match=r"cannot write .*a\.mp4: a video needs at least one frame"):
        encode_video(tmp_path / "a.mp4", [], config)
    wrong = load_config(overrides=["render.codec.encoder=libx999"])
    with pytest.raises(DataError, match=r"render\.codec\.encoder is 'libx999'.*libx264 is in the av wheel"):
        encode_video(tmp_path / "a.mp4", frames(1), wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("render.setting=nice", r"setting is 'nice'; settings: fast, shadows"),
        ("render.znear_m=9", r"znear_m 9\.0 must be below zfar_m"),
        ("render.codec.crf=60", r"codec\.crf is 60"),
        ("render.headlight.ambient=[0.5, 0.5, 1.5]", r"headlight\.ambient\.2 is 1\.5"),
        ("render.lights.0.target_m=[0.05, 0.45, 1.4]", r"light 'ceiling': target_m equals position_m"),
    ],
)
def test_impossible_settings_are_refused(override, text):
    with pytest.raises(ConfigError, match=text):
        load_config(overrides=[override])


def test_a_preset_the_encoder_does_not_know_is_named(tmp_path):
    config = load_config(overrides=["render.codec.preset=banana"])
    with pytest.raises(DataError, match="banana.*see encoder, preset and crf under codec in render.yaml"):
        encode_video(tmp_path / "a.mp4", [np.zeros((480, 640, 3), np.uint8)], config)
    assert list(tmp_path.iterdir()) == []
