"""Checks of the videos: there, complete, in step with the rows, readable by GR00T, and not frozen."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from so101.config.training import DatasetCheckConfig
from so101.datasets.checks.base import TIMESTAMP_TOLERANCE_S, Dataset, Findings, listed
from so101.datasets.videos import VideoFacts, probe_video, sample_frames
from so101.errors import DataError


def probe_videos(data: Dataset, findings: Findings) -> None:
    """What the files say of themselves; nothing is decoded."""
    findings.looked("videos", "video_frames", "video_times", "video_format")
    for key in data.video_keys:
        data.videos[key] = []
        for episode in data.episodes:
            path = data.video_file(key, episode["episode_index"])
            try:
                video = probe_video(path)
            except DataError as error:
                findings.error("videos", str(error))
                video = None
            data.videos[key].append(video)
            if video is not None:
                _in_step(data, findings, path, video, key, episode["length"])


def _in_step(data: Dataset, findings: Findings, path: Path, video: VideoFacts, key: str, length: int) -> None:
    name = data.name(path)
    if video.num_frames != length:
        findings.error("video_frames", f"{name}: {video.num_frames} frames, the episode has {length}")
    elif np.max(np.abs(video.timestamps_s - np.arange(length) / data.fps)) > TIMESTAMP_TOLERANCE_S:
        text = f"{name}: frame times are not frame_index / fps at {data.fps} fps"
        if abs(video.fps - data.fps) > 0.01:
            findings.error("fps", f"{text}; the video runs at {video.fps:.4g}")
        else:
            findings.error("video_times", text)
    found, declared = video.feature(), data.features[key]
    for entry in ("shape", "names", "info"):
        if declared.get(entry) != found[entry]:
            findings.error("video_format", f"{name}: {entry} is {found[entry]}, info.json says {declared.get(entry)}")


def check_codecs(data: Dataset, findings: Findings, settings: DatasetCheckConfig) -> None:
    """A codec that some decoder misreads is suspicious, one that none is known to read is unusable."""
    findings.looked("codec")
    for key, videos in data.videos.items():
        for codec in sorted({(v.codec, v.pix_fmt) for v in videos if v is not None}):
            name, pixels = codec
            which = [i for i, v in enumerate(videos) if v is not None and (v.codec, v.pix_fmt) == codec]
            text = f"{key}: {listed(which)} {'is' if len(which) == 1 else 'are'} {name} {pixels}"
            if name not in settings.codecs or pixels != "yuv420p":
                findings.error(
                    "codec", f"{text}; {' and '.join(settings.codecs)} in yuv420p are known to be read right"
                )
            elif name != settings.codecs[0]:
                findings.warn("codec", f"{text}: torchcodec reads it, decord and torchvision do not")


def check_frozen(data: Dataset, findings: Findings, settings: DatasetCheckConfig) -> None:
    """A few frames of every video against each other. Decodes those frames only."""
    findings.looked("frozen_camera")
    for key, videos in data.videos.items():
        frozen = []
        for index, video in enumerate(videos):
            findings.reporter.advance(note="do pictures change")
            if video is None or video.num_frames < settings.frozen_samples:
                continue
            path = data.video_file(key, index)
            try:
                frames = sample_frames(path, settings.frozen_samples)
            except DataError as error:
                findings.error("videos", str(error))
                continue
            if len(frames) < settings.frozen_samples:
                text = f"{data.name(path)}: {len(frames)} of {settings.frozen_samples} sampled frames can be decoded"
                findings.error("video_frames", text)
            elif np.mean(np.ptp(frames, axis=0) > settings.frozen_levels) < settings.frozen_share:
                frozen.append(index)
        if frozen:
            text = f"{key}: all frames look the same in {listed(frozen)}"
            findings.error("frozen_camera", text)
