"""Still images from the videos of a run, as JPEG data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from PIL import Image

from so101.errors import DataError


def frames_at(path: Path, fractions: Sequence[float]) -> tuple[list[np.ndarray], list[float]]:
    """Frames of a video at `fractions` of it (0 first frame, 1 last).

    The video is decoded from the start, as its videos are short and every frame must be exact.

    Returns:
        RGB images (H, W, 3) uint8 and their times in s.

    Raises:
        DataError: not a readable video, or without frames.
    """
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            total = stream.frames or sum(1 for _ in container.decode(stream))
            if not stream.frames:
                container.seek(0)
            wanted = [round(fraction * (total - 1)) for fraction in fractions]
            images, times = {}, {}
            for number, frame in enumerate(container.decode(stream)):
                if number in wanted:
                    images[number] = frame.to_ndarray(format="rgb24")
                    times[number] = float(frame.time or 0.0)
                if number >= max(wanted):
                    break
            return [images[number] for number in wanted], [times[number] for number in wanted]
    except (av.error.FFmpegError, OSError, IndexError, KeyError) as error:
        raise DataError(f"{path}: cannot be decoded ({error}); delete it and run the render stage again") from None


def jpeg_data_uri(image: np.ndarray, width_px: int, quality: int) -> str:
    """RGB (H, W, 3) uint8 as a data URI, scaled to `width_px` (never enlarged)."""
    picture = Image.fromarray(image)
    if picture.width > width_px:
        height = max(1, round(picture.height * width_px / picture.width))
        picture = picture.resize((width_px, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
