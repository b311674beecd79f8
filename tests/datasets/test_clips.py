"""Clips: packets move only where that is exact, and whatever the way, the n-th frame stays the n-th."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.clips import Clip, ClipFiles, Encoding, can_copy, clip_faults, copy_clip, decode_clip, encode_clip
from so101.datasets.videos import probe_video
from so101.errors import DataError

from .synthetic import encode_video, make_frames

LENGTHS = (24, 17, 31)
FPS = 30
CONFIG = load_config()


def all_frames(clip: Clip) -> np.ndarray:
    return np.stack(list(decode_clip(clip)))


@pytest.fixture(scope="module", params=[{"bf": "0"}, {"bf": "2", "g": "8"}], ids=["no B-frames", "B-frames"])
def joined(request, tmp_path_factory):
    """Three videos, and the clips that they are in one file."""
    folder = tmp_path_factory.mktemp("clips")
    files = ClipFiles(lambda number: folder / f"joined_{number}.mp4", FPS, max_bytes=10**9)
    parts, clips = [], []
    for i, length in enumerate(LENGTHS):
        path = folder / f"{i}.mp4"
        encode_video(path, make_frames(length, (48, 64), seed=i), FPS, **request.param)
        parts.append(Clip(path, 0, length, FPS))
        number, first = files.append(path, length)
        clips.append(Clip(folder / f"joined_{number}.mp4", first, length, FPS))
    files.close()
    return parts, clips


def test_a_file_of_clips_holds_their_frames_one_after_another_without_gap(joined):
    parts, clips = joined
    assert [clip.first for clip in clips] == [0, 24, 41]
    facts = probe_video(clips[0].path)
    np.testing.assert_allclose(facts.timestamps_s, np.arange(sum(LENGTHS)) / FPS, atol=1e-6)
    for part, clip in zip(parts, clips, strict=True):
        assert clip_faults(clip, facts) == []
        np.testing.assert_array_equal(all_frames(clip), all_frames(part))


def test_a_clip_that_begins_at_a_key_frame_is_cut_without_loss(joined, tmp_path):
    for i, (part, clip) in enumerate(zip(*joined, strict=True)):
        assert can_copy(clip, probe_video(clip.path))
        copy_clip(clip, tmp_path / f"{i}.mp4")
        cut = Clip(tmp_path / f"{i}.mp4", 0, clip.length, FPS)
        np.testing.assert_array_equal(all_frames(cut), all_frames(part))
        assert probe_video(cut.path).feature() == probe_video(part.path).feature()
        assert clip_faults(cut, probe_video(cut.path)) == []


def test_a_clip_that_begins_elsewhere_is_encoded_again_frame_by_frame(joined, tmp_path):
    parts, clips = joined
    clip = replace(clips[1], first=clips[1].first + 1, length=9)
    facts = probe_video(clip.path)
    facts = replace(facts, keyframe=facts.keyframe & (facts.decode_order != clip.first))
    assert not can_copy(clip, facts)
    encoding = Encoding(64, 48, FPS, CONFIG)
    encode_clip(clip, tmp_path / "x.mp4", encoding)
    assert probe_video(tmp_path / "x.mp4").feature() == encoding.feature
    wanted, got = all_frames(parts[1])[1:10], all_frames(Clip(tmp_path / "x.mp4", 0, 9, FPS))
    for t in range(9):
        errors = [np.abs(got[t].astype(int) - frame).mean() for frame in wanted]
        assert np.argmin(errors) == t and errors[t] < 6


def test_packets_out_of_order_at_the_ends_are_not_copied(joined):
    """What open groups of pictures look like: a frame of the clip before comes after the clip's key frame."""
    clip = replace(joined[1][1], first=4, length=3)
    facts = probe_video(clip.path)
    order = np.arange(sum(LENGTHS))
    order[[3, 4]] = 4, 3
    assert not can_copy(clip, replace(facts, decode_order=order, keyframe=np.ones(len(order), bool)))


def test_other_codec_parameters_and_full_files_begin_a_new_file(tmp_path):
    encode_video(tmp_path / "a.mp4", make_frames(6, (48, 64), 0), FPS)
    encode_video(tmp_path / "b.mp4", make_frames(6, (64, 64), 1), FPS)
    files = ClipFiles(lambda number: tmp_path / f"f{number}.mp4", FPS, max_bytes=10**9)
    assert [files.append(tmp_path / f"{name}.mp4", 6) for name in "aabba"] == [(0, 0), (0, 6), (1, 0), (1, 6), (2, 0)]
    files.close()
    size = (tmp_path / "a.mp4").stat().st_size
    files = ClipFiles(lambda number: tmp_path / f"g{number}.mp4", FPS, max_bytes=2 * size)
    assert [files.append(tmp_path / "a.mp4", 6) for _ in range(3)] == [(0, 0), (0, 6), (1, 0)]
    files.close()


def test_another_shape_gets_bars_and_nothing_is_stretched(tmp_path):
    picture = np.full((4, 48, 64, 3), 200, np.uint8)
    encode_video(tmp_path / "a.mp4", picture, FPS)
    encode_clip(Clip(tmp_path / "a.mp4", 0, 4, FPS), tmp_path / "b.mp4", Encoding(64, 64, FPS, CONFIG))
    bright = all_frames(Clip(tmp_path / "b.mp4", 0, 4, FPS))[0].mean((1, 2)) > 100
    np.testing.assert_array_equal(np.flatnonzero(bright), np.arange(8, 56))


def test_picks_repeat_and_skip_frames(tmp_path):
    encode_video(tmp_path / "a.mp4", make_frames(6, (48, 64), 0), FPS)
    whole = all_frames(Clip(tmp_path / "a.mp4", 0, 6, FPS))
    np.testing.assert_array_equal(all_frames(Clip(tmp_path / "a.mp4", 1, 5, FPS, (0, 0, 2, 4))), whole[[1, 1, 3, 5]])


def test_what_is_wrong_is_said(tmp_path):
    encode_video(tmp_path / "a.mp4", make_frames(6, (48, 64), 0), FPS)
    clip, facts = Clip(tmp_path / "a.mp4", 2, 5, FPS), probe_video(tmp_path / "a.mp4")
    assert clip_faults(clip, facts) == ["6 frames, the episode is frames 2 to 6"]
    assert clip_faults(Clip(clip.path, 0, 6, 25), facts) == ["frame 5 is not at frame / fps with 25 fps"]
    with pytest.raises(DataError, match="4 of the episode's 5 frames could be decoded"):
        encode_clip(clip, tmp_path / "b.mp4", Encoding(64, 48, FPS, CONFIG))
    assert not (tmp_path / "b.mp4").exists()
