"""render.yaml: what the twin looks like, how it is drawn, how videos are encoded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.ranges import Interval, PositiveInterval
from so101.config.types import Vec3

Fraction = Annotated[float, Field(ge=0, le=1)]
Extent = Annotated[float, Field(ge=0)]
Rgb = tuple[Fraction, Fraction, Fraction]


class SettingConfig(Section):
    """How carefully frames are drawn. `supersample`: drawn this many times larger on each side, then averaged."""

    shadows: bool
    supersample: float = Field(ge=1, le=4)
    shadow_map_px: int = Field(ge=16, le=8192)


class LightConfig(Section):
    """A lamp in `world`; `casts_shadow` counts only in settings with shadows."""

    name: str
    type: Literal["directional", "point", "spot"]
    position_m: Vec3
    target_m: Vec3
    diffuse: Rgb
    ambient: Rgb = (0.0, 0.0, 0.0)
    specular: Rgb
    casts_shadow: bool

    @model_validator(mode="after")
    def _has_direction(self) -> LightConfig:
        if self.position_m == self.target_m:
            raise ValueError(f"light {self.name!r}: target_m equals position_m; they give the direction of the light")
        return self


class RoomConfig(Section):
    """Four walls and a ground around the scene, drawn only: what is behind everything."""

    center_m: Vec3
    half_width_m: float = Field(gt=0)
    height_m: float = Field(gt=0)
    wall_rgb: Rgb
    ground_rgb: Rgb


class HeadlightConfig(Section):
    """The light that moves with the camera."""

    diffuse: Rgb
    ambient: Rgb
    specular: Rgb


class MaterialConfig(Section):
    """Gloss of a surface, each 0 to 1."""

    specular: float = Field(ge=0, le=1)
    shininess: float = Field(ge=0, le=1)
    reflectance: float = Field(ge=0, le=1)


class MeshConfig(Section):
    """Decimation of the visual meshes: vertices within cells of `cluster_m` become one, then edges collapse until
    `keep_fraction` of the faces is left; a low `aggressiveness` (0 to 10) looks longer for the cheapest edge.
    `smooth_normals`: as MuJoCo's smoothnormal."""

    decimate: bool
    cluster_m: float = Field(gt=0, le=0.1)
    keep_fraction: float = Field(gt=0, le=1)
    aggressiveness: float = Field(gt=0, le=10)
    smooth_normals: bool


class CodecConfig(Section):
    """The video encoder, a name and options of FFmpeg. One thread: more would make the bytes depend on the machine."""

    encoder: str
    pixel_format: Literal["yuv420p"]
    gop_frames: int = Field(ge=1)
    crf: int = Field(ge=0, le=51)
    preset: str
    threads: int = Field(ge=1)
    scaler: Literal["FAST_BILINEAR", "BILINEAR", "BICUBIC", "AREA", "LANCZOS"]


class TemperatureRandomisation(Section):
    """Colour of the light: that of a black body, against daylight of `white_k`. `seen` is the share of it (in the
    exponent) that the camera's white balance leaves."""

    range_k: PositiveInterval
    white_k: float = Field(gt=0)
    seen: Fraction


class ColorRandomisation(Section):
    """Change of a colour: `hue_turn` is added to the hue (a turn is 1), saturation and value are multiplied."""

    hue_turn: Interval
    saturation: PositiveInterval
    value: PositiveInterval


class SurfaceRandomisation(Section):
    """One colour between two corners of the colour cube for all these geoms of the model."""

    geoms: list[str] = Field(min_length=1)
    low_rgb: Rgb
    high_rgb: Rgb

    @model_validator(mode="after")
    def _ordered(self) -> SurfaceRandomisation:
        if any(low > high for low, high in zip(self.low_rgb, self.high_rgb, strict=True)):
            raise ValueError(f"low_rgb {list(self.low_rgb)} must not exceed high_rgb {list(self.high_rgb)} anywhere")
        return self


class CameraRandomisation(Section):
    """How a camera differs from cameras.yaml: focal lengths times `focal`, moved by up to +-`shift_m` along the axes of
    the body it is on, turned by up to +-`turn_rad` about its own axes x, y, z."""

    focal: PositiveInterval
    shift_m: tuple[Extent, Extent, Extent]
    turn_rad: tuple[Extent, Extent, Extent]


class LooksRandomisation(Section):
    """How a demo looks, drawn from its seed. Null switches a group off; the draws of the others stay what they were.

    exposure_ev: all light is multiplied by two to the power of it. lamp_shift_m: each lamp is moved by up to this much
    along world axes, and points where it did. robot_rgb: one of these for the printed parts. objects, distractors:
    objects of one prop change alike.
    """

    enabled: bool
    exposure_ev: Interval | None
    temperature: TemperatureRandomisation | None
    lamp_shift_m: tuple[Extent, Extent, Extent] | None
    robot_rgb: Annotated[list[Rgb], Field(min_length=1)] | None
    objects: ColorRandomisation | None
    distractors: ColorRandomisation | None
    surfaces: dict[str, SurfaceRandomisation] | None
    cameras: dict[str, CameraRandomisation] | None


class RenderConfig(Section):
    """Rendering."""

    setting: str
    settings: dict[str, SettingConfig] = Field(min_length=1)
    extent_m: float = Field(gt=0)
    center_m: Vec3
    znear_m: float = Field(gt=0)
    zfar_m: float = Field(gt=0)
    shadow_half_width_m: float = Field(gt=0)
    room: RoomConfig
    no_shadow_from: list[str]
    primitive_quads: int = Field(ge=1, le=32)
    primitive_slices: int = Field(ge=4, le=128)
    primitive_stacks: int = Field(ge=2, le=128)
    headlight: HeadlightConfig
    lights: list[LightConfig]
    motor_mesh_prefix: str
    robot_material: MaterialConfig
    object_material: MaterialConfig
    meshes: MeshConfig
    codec: CodecConfig
    cache_dir: str
    randomisation: LooksRandomisation

    @property
    def active(self) -> SettingConfig:
        return self.settings[self.setting]

    @model_validator(mode="after")
    def _consistent(self) -> RenderConfig:
        if self.setting not in self.settings:
            raise ValueError(f"setting is {self.setting!r}; settings: {', '.join(sorted(self.settings))}")
        if self.znear_m >= self.zfar_m:
            raise ValueError(f"znear_m {self.znear_m} must be below zfar_m {self.zfar_m}")
        names = [light.name for light in self.lights]
        if len(set(names)) < len(names):
            raise ValueError(f"lights have equal names: {names}")
        return self
