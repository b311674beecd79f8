"""Videos of episodes: all cameras side by side, with time, stage and outcome over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from so101.config import Config
from so101.evaluation.closed_loop.record import Episode
from so101.evaluation.closed_loop.stages import furthest
from so101.rendering.looks import draw_looks
from so101.rendering.renderer import StateRenderer
from so101.rendering.video import encode_video

_BANNER_PX = 28
_TEXT_PX = 15
_INK, _GOOD, _BAD = (235, 235, 235), (120, 180, 255), (255, 150, 100)


def chosen(config: Config, episodes: Sequence[Episode]) -> list[Episode]:
    """Those that get a video: the first failures and the first successes, by seed."""
    settings = config.deploy.evaluation.videos
    ordered = sorted(episodes, key=lambda episode: episode.seed)
    failures = [episode for episode in ordered if not episode.strict][: settings.failures]
    return failures + [episode for episode in ordered if episode.strict][: settings.successes]


def video_path(folder: Path, episode: Episode) -> Path:
    """Failures and successes tell themselves apart by name."""
    return folder / f"{'success' if episode.strict else 'failure'}_episode_{episode.seed:07d}.mp4"


def write_video(path: Path | str, config: Config, episode: Episode, renderer: StateRenderer) -> None:
    """Draw the episode again from its joints and poses; H.264, at the speed it happened.

    Raises:
        DataError: it cannot be encoded.
    """
    settings, cameras = config.deploy.evaluation.videos, config.cameras
    width = 2 * round(settings.height_px * cameras.width_px / cameras.height_px / 2)
    size = {
        "width_px": width * len(cameras.names),
        "height_px": settings.height_px + _BANNER_PX,
        "fps_hz": episode.fps / settings.stride_frames,
    }
    wide = config.model_copy(update={"cameras": cameras.model_copy(update=size)})
    encode_video(path, _pictures(config, episode, renderer, width), wide)


def _pictures(config: Config, episode: Episode, renderer: StateRenderer, width: int) -> Iterator[np.ndarray]:
    from PIL import Image, ImageDraw, ImageFont  # a part of matplotlib's installation

    settings, names = config.deploy.evaluation.videos, config.cameras.names
    font = ImageFont.load_default(_TEXT_PX)
    looks = episode.meta.get("looks")  # of worlds with cameras and lights of their own
    looks = draw_looks(config, episode.seed) if looks is None else looks
    renderer.set_scene(episode.meta.get("randomisation", {}), looks)
    last = episode.num_frames - 1
    for frame in [*range(0, last, settings.stride_frames), last]:
        renderer.set_state(episode.q[frame], {name: poses[frame] for name, poses in episode.objects.items()})
        canvas = Image.new("RGB", (width * len(names), settings.height_px + _BANNER_PX))
        for i, name in enumerate(names):
            picture = Image.fromarray(renderer.render_state(name))
            canvas.paste(
                picture.resize((width, settings.height_px), Image.Resampling.BILINEAR), (i * width, _BANNER_PX)
            )
        stage = furthest({name: at if at is not None and at <= frame else None for name, at in episode.stages.items()})
        words, colour = f"seed {episode.seed}   {frame / episode.fps:5.1f} s   {stage}", _INK
        done = episode.success_frame is not None and frame >= episode.success_frame
        if done or frame == last:
            outcome, colour = ("strict success", _GOOD) if episode.strict else (f"failure ({episode.ended})", _BAD)
            words += f"   {outcome}"
        ImageDraw.Draw(canvas).text((8, 5), words, font=font, fill=colour)
        yield np.asarray(canvas)
