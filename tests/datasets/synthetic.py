"""A small run folder without simulation: demos that move smoothly, and noise videos of the right length."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from so101.config import Config
from so101.datasets.demo import Demo, save_demo
from so101.pipeline.run_folder import RunFolder


def make_demo(config: Config, index: int, length: int) -> Demo:
    """Joints swing within their limits; the measured ones lag the targets by four frames, as on a real arm."""
    rng = np.random.default_rng(index)
    lower, upper = (np.array([getattr(j, k) for j in config.robot.joints]) for k in ("lower_rad", "upper_rad"))
    t = np.arange(-4, length)[:, None] / 30.0
    phase, rate = rng.uniform(0, 6.28, 6), rng.uniform(0.5, 1.5, 6)
    path = (lower + upper) / 2 + 0.45 * (upper - lower) * np.sin(rate * t + phase)
    return Demo(
        index=index,
        seed=10_000 + index,
        task=config.task.name,
        fps=config.scene.physics.control_hz,
        q_target=path[4:],
        q=path[:-4],
        objects={},
        physics_state=np.zeros(1),
        strict=True,
    )


def make_frames(length: int, size: tuple[int, int], seed: int) -> np.ndarray:
    """(T, H, W, 3) uint8: blocks of colour that change every frame, so that frames are told apart after h264."""
    height, width = size
    blocks = np.random.default_rng(seed).integers(0, 256, (length, height // 16, width // 16, 3), dtype=np.uint8)
    return blocks.repeat(16, axis=1).repeat(16, axis=2)


def encode_video(path: Path, frames: np.ndarray, fps: int, **options: str) -> None:
    """h264, yuv420p, GOP 2."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"g": "2", "crf": "23", "bf": "0", **options})
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv420p"
        stream.codec_context.thread_count = 1
        stream.time_base = stream.codec_context.time_base = Fraction(1, fps)
        for i, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def encode_av1(path: Path, frames: np.ndarray, **options: str) -> None:
    """AV1 as LeRobot records, in a process of its own: SVT-AV1 makes the thread that calls it a real-time one when it
    may, and with that every process started later from there, which then starve the machine."""
    process = multiprocessing.get_context("spawn").Process(target=_encode_av1, args=(str(path), frames, options))
    process.start()
    process.join()
    assert process.exitcode == 0


def _encode_av1(path: str, frames: np.ndarray, options: dict[str, str]) -> None:
    with av.open(path, "w") as container:
        stream = container.add_stream("libsvtav1", rate=30, options=options)
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv420p"
        for number, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def video_seed(index: int, camera: str) -> int:
    return 1000 * index + sum(camera.encode())


def make_run(
    root: Path,
    config: Config,
    lengths: Sequence[int],
    size: tuple[int, int] = (48, 64),
    encode: Callable[[Path, np.ndarray, int], object] = encode_video,
    first: int = 2,
) -> RunFolder:
    """Verified demos and videos of `lengths` frames. Attempt numbers have gaps, as real ones do, and begin at `first`;
    another one gives another run."""
    run = RunFolder(Path(root))
    for i, length in enumerate(lengths):
        index = 3 * i + first
        save_demo(run.verified, make_demo(config, index, length))
        for camera in config.dataset.cameras:
            frames = make_frames(length, size, video_seed(index, camera))
            encode(run.video(index, camera), frames, round(config.scene.physics.control_hz))
    return run
