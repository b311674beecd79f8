"""A show as a video: all cameras of the family and one from the side, with its numbers in the corner."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from so101.config import Config
from so101.errors import DataError
from so101.families.render import FamilyRenderer, Orbit
from so101.families.viewer import Show
from so101.files import check_writable
from so101.pipeline.progress import Reporter
from so101.rendering.video import VideoWriter

SUFFIX = ".mp4"
_MAX_FPS = 50.0


def write_show(
    path: Path | str, show: Show, num_frames: int, config: Config, reporter: Reporter, *, speed: float = 1.0
) -> int:
    """Write `num_frames` moments of a show; returns how many frames that gave.

    Args:
        speed: times as fast; moments are left out beyond 50 pictures a second.

    Raises:
        DataError: it cannot be encoded or written, or is not called .mp4.
        SimulationError: no OpenGL context.
    """
    if Path(path).suffix.lower() != SUFFIX:
        raise DataError(f"{path}: a video is written as {SUFFIX}; give it a name that ends so")
    check_writable(path)
    viewer = config.deploy.viewer
    rate = speed / show.period_s
    stride = max(1, int(np.ceil(rate / _MAX_FPS)))
    width, height = viewer.width_px // 2 * 2, viewer.height_px // 2 * 2
    with FamilyRenderer(show.task.family, width, height) as renderer:
        cameras = [Orbit(), *renderer.cameras]
        size = {"width_px": width * len(cameras), "height_px": height, "fps_hz": rate / stride}
        wide = config.model_copy(update={"cameras": config.cameras.model_copy(update=size)})
        reporter.start("video", num_frames, unit="moments")
        with VideoWriter(path, wide) as video:
            for number in range(num_frames):
                if number % stride == 0:
                    frame = show.frame()
                    text = tuple(
                        "\n".join(column) for column in zip(*[line[:2] for line in frame.readouts], strict=True)
                    )
                    side = renderer.draw(frame.qpos, cameras[0], marks=frame.marks, text=text)
                    pictures = [side, *(renderer.draw(frame.qpos, camera) for camera in cameras[1:])]
                    video.write(np.concatenate(pictures, axis=1))
                show.advance()
                reporter.advance()
            return video.num_frames
