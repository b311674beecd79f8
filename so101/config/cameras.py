"""cameras.yaml: the cameras of the twin, as pinholes, and where pictures come from when a robot is driven."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from so101.config.base import Section, validate
from so101.config.types import Quat, Vec3
from so101.errors import did_you_mean


class CameraConfig(Section):
    """One pinhole. The pose is that of the camera in `body` (`world` or a link of the arm), in the frame of MuJoCo and
    OpenGL: x right, y up in the picture, looking along -z. Pixel (0, 0) is the upper left corner of the picture."""

    body: str
    position_m: Vec3
    quat_wxyz: Quat
    fx_px: float = Field(gt=0)
    fy_px: float = Field(gt=0)
    cx_px: float
    cy_px: float


class TwinSource(Section):
    """Rendered from the state that the (virtual) rig publishes."""

    kind: Literal["twin"] = "twin"


class V4l2Source(Section):
    """A USB camera. `device`: a path, or the number of a camera where the system has no paths. `pixel_format`: how the
    device sends pictures; MJPG, as two cameras on one USB 2 bus are too much without compression. `backend`: v4l2
    (Linux) or any (whatever OpenCV finds, also on other systems)."""

    kind: Literal["v4l2"]
    device: str | int
    pixel_format: str = Field(default="MJPG", min_length=4, max_length=4)
    backend: Literal["v4l2", "any"] = "v4l2"


class RealsenseSource(Section):
    """The colour stream of a RealSense. `serial`: null when there is only one."""

    kind: Literal["realsense"]
    serial: str | None = None


class PlaybackSource(Section):
    """A video file, or `episode` of a LeRobot dataset (v2.1 or v3.0) at `path`. `feature`: its video feature, null for
    the one dataset.cameras gives this camera. `loop`: starts again at the end."""

    kind: Literal["playback"]
    path: str = Field(min_length=1)
    episode: int = Field(default=0, ge=0)
    feature: str | None = None
    loop: bool = True


class SyntheticSource(Section):
    """A moving test pattern that carries its frame number."""

    kind: Literal["synthetic"]


Source = Annotated[
    TwinSource | V4l2Source | RealsenseSource | PlaybackSource | SyntheticSource, Field(discriminator="kind")
]


class CaptureConfig(Section):
    """How cameras are read, and what becomes of frames nobody took."""

    open_timeout_s: float = Field(gt=0)
    read_timeout_s: float = Field(gt=0)
    reopen_min_s: float = Field(gt=0)
    reopen_max_s: float = Field(gt=0)
    pooled_frames: int = Field(ge=1)
    clock_drift: float = Field(ge=0, lt=0.1)
    status_s: float = Field(gt=0)
    high_water: int = Field(ge=1)
    max_age_s: float = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> CaptureConfig:
        if self.reopen_min_s > self.reopen_max_s:
            raise ValueError(f"reopen_min_s {self.reopen_min_s} must not exceed reopen_max_s {self.reopen_max_s}")
        return self


class CamerasConfig(Section):
    """All cameras share one picture size (x264 with 4:2:0 colour needs even numbers) and one rate."""

    width_px: int = Field(ge=16, le=4096, multiple_of=2)
    height_px: int = Field(ge=16, le=4096, multiple_of=2)
    fps_hz: float = Field(gt=0)
    cameras: dict[str, CameraConfig] = Field(min_length=1)
    sources: dict[str, Source]
    capture: CaptureConfig

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cameras)

    def source(self, name: str) -> Source:
        """Where the pictures of camera `name` come from."""
        return self.sources.get(name) or TwinSource()

    @model_validator(mode="after")
    def _sources_have_cameras(self) -> CamerasConfig:
        for name in self.sources:
            if name not in self.cameras:
                raise ValueError(
                    f"sources.{name}: no such camera; cameras has {', '.join(self.cameras)}"
                    f"{did_you_mean(name, self.cameras)}"
                )
        return self

    @model_validator(mode="after")
    def _principal_points_inside(self) -> CamerasConfig:
        for name, camera in self.cameras.items():
            if not (0 <= camera.cx_px <= self.width_px and 0 <= camera.cy_px <= self.height_px):
                raise ValueError(
                    f"cameras.{name}: principal point ({camera.cx_px}, {camera.cy_px}) px lies outside the "
                    f"{self.width_px} x {self.height_px} picture"
                )
        return self


_SCALED_PX = ("fx_px", "fy_px", "cx_px", "cy_px")


class _Scale(Section):
    scale: float = Field(default=1.0, gt=0, le=4)


def apply_scale(values: dict[str, Any]) -> None:
    """Replace the key `scale` of cameras.yaml by what it means: picture size, focal lengths and principal points times
    that factor, the same view with fewer or more pixels. In place; sides become the nearest even number.

    Raises:
        ConfigError: naming file, key, bad value and what is allowed.
    """
    if "scale" not in values:
        return
    scale = validate(_Scale, {"scale": values.pop("scale")}, "cameras.yaml").scale
    if scale == 1:
        return
    checked = validate(CamerasConfig, values, "cameras.yaml")
    width = max(2, 2 * round(checked.width_px * scale / 2))
    height = max(2, 2 * round(checked.height_px * scale / 2))
    factors = dict(zip(_SCALED_PX, (width / checked.width_px, height / checked.height_px) * 2, strict=True))
    values |= {"width_px": width, "height_px": height}
    for camera in values["cameras"].values():
        camera |= {key: camera[key] * factor for key, factor in factors.items()}
