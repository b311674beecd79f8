"""What a merge is asked for: sources, and how they are made alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from so101.datasets.unit_detection import UNITS, Unit
from so101.errors import ConfigError

Format = Literal["v2.1", "v3.0"]
Kind = Literal["sim", "real"]
TargetUnits = Literal["degrees", "normalized"]
CAMERA_PREFIX = "observation.images."


@dataclass(frozen=True)
class SourceSpec:
    """A dataset to merge. `weight` None: as many frames as it has; `name` None: after its folder."""

    path: Path
    weight: float | None = None
    name: str | None = None


@dataclass(frozen=True)
class MergeOptions:
    """How sources are made alike. Names of cameras may go without `observation.images.`.

    Attributes:
        format: of the result.
        renames: (source or None for all, old camera, new camera).
        drops: (source or None for all, feature).
        to_units: what joints are converted to; None: they must agree.
        units: source -> its unit, where the numbers do not say.
        calibrations: source -> LeRobot calibration file of its arm.
        size: (width, height) px that pictures are brought to; None: they must agree.
        fps: Hz that sources are resampled to; None: they must agree.
        tasks: task text -> what it becomes.
        robot_type: of the result; None: they must agree.
        kinds: source -> "sim" or "real", where it is not what the files say.
        allow_duplicates: take an episode again that another source has too.
        encode: bring all videos to the codec of render.yaml, also where they are alike.
        materialise: repeat episodes until frames are in proportion to weights.
    """

    format: Format = "v2.1"
    renames: tuple[tuple[str | None, str, str], ...] = ()
    drops: tuple[tuple[str | None, str], ...] = ()
    to_units: TargetUnits | None = None
    units: Mapping[str, Unit] = field(default_factory=dict)
    calibrations: Mapping[str, Path] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    fps: float | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)
    robot_type: str | None = None
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    allow_duplicates: bool = False
    encode: bool = False
    materialise: bool = False


def parse_source(text: str) -> SourceSpec:
    """`FOLDER[:WEIGHT[:NAME]]`, the weight may be empty; a folder that exists is taken as it stands.

    Raises:
        ConfigError: the weight is no positive number.
    """
    if Path(text).is_dir():
        return SourceSpec(Path(text))
    parts = text.rsplit(":", 2)
    if len(parts) == 3 and not _is_weight(parts[1]) and _is_weight(parts[2]):
        parts = [":".join(parts[:2]), parts[2]]
    path, weight, name = (*parts, "", "")[:3]
    if not _is_weight(weight):
        raise ConfigError(
            f"source {text!r}: the weight is {weight!r}; a source is FOLDER, FOLDER:WEIGHT or FOLDER:WEIGHT:NAME "
            "with a weight above 0, or none as in FOLDER::NAME"
        )
    return SourceSpec(Path(path), float(weight) if weight else None, name or None)


def parse_options(
    *,
    rename: Iterable[str] = (),
    drop: Iterable[str] = (),
    units: Iterable[str] = (),
    calibration: Iterable[str] = (),
    task: Iterable[str] = (),
    kind: Iterable[str] = (),
    size: str | None = None,
    format: str = "v2.1",
    to_units: str | None = None,
    **rest,
) -> MergeOptions:
    """Options of the command line: `[SOURCE:]OLD=NEW`, `[SOURCE:]KEY`, `SOURCE=VALUE`, `WIDTHxHEIGHT`.

    Raises:
        ConfigError: a text of another form; which, and what is allowed.
    """
    _one_of("--format", format, get_args(Format))
    if to_units is not None:
        _one_of("--to-units", to_units, get_args(TargetUnits))
    unit_of, kind_of = _pairs("--units", units), _pairs("--kind", kind)
    for value in unit_of.values():
        _one_of("--units", value, UNITS)
    for value in kind_of.values():
        _one_of("--kind", value, get_args(Kind))
    renames = []
    for text in rename:
        old, new = _pair("--rename", text, "[SOURCE:]OLD=NEW")
        source, _, old = old.rpartition(":")
        renames.append((source or None, old, new))
    drops = [(source or None, key) for source, _, key in (text.rpartition(":") for text in drop)]
    return MergeOptions(
        format=format,
        renames=tuple(renames),
        drops=tuple(drops),
        to_units=to_units,
        units=unit_of,
        calibrations={source: Path(path) for source, path in _pairs("--calibration", calibration).items()},
        size=_size(size),
        tasks=dict(_pair("--task-text", text, "OLD=NEW") for text in task),
        kinds=kind_of,
        **rest,
    )


def _is_weight(text: str) -> bool:
    try:
        return text == "" or (math.isfinite(float(text)) and float(text) > 0)
    except ValueError:
        return False


def _one_of(option: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{option} is {value!r}; allowed are {', '.join(allowed)}")


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise ConfigError(f"{option} is {text!r}; needed is {form}")
    return old, new


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    return dict(_pair(option, text, "SOURCE=VALUE") for text in texts)


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    if (
        not (width.isdigit() and height.isdigit())
        or min(int(width), int(height)) < 16
        or int(width) % 2
        or int(height) % 2
    ):
        raise ConfigError(f"--size is {text!r}; needed is WIDTHxHEIGHT in px, even numbers from 16 on, as in 640x480")
    return int(width), int(height)
