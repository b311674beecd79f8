"""cameras.yaml: the cameras of the twin, as pinholes."""

from __future__ import annotations

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.robot import Quat, Vec3


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


class CamerasConfig(Section):
    """All cameras share one picture size (x264 with 4:2:0 colour needs even numbers) and one rate."""

    width_px: int = Field(ge=16, le=4096, multiple_of=2)
    height_px: int = Field(ge=16, le=4096, multiple_of=2)
    fps_hz: float = Field(gt=0)
    cameras: dict[str, CameraConfig] = Field(min_length=1)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cameras)

    @model_validator(mode="after")
    def _principal_points_inside(self) -> CamerasConfig:
        for name, camera in self.cameras.items():
            if not (0 <= camera.cx_px <= self.width_px and 0 <= camera.cy_px <= self.height_px):
                raise ValueError(
                    f"cameras.{name}: principal point ({camera.cx_px}, {camera.cy_px}) px lies outside the "
                    f"{self.width_px} x {self.height_px} picture"
                )
        return self
