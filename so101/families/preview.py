"""What a family's cameras see of an arm in given LeRobot joints, and that beside a real photo. Nothing is stepped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from so101.datasets.units import lerobot_to_rad, make_units, rad_to_lerobot
from so101.errors import ConfigError, DataError, did_you_mean
from so101.families.declaration import Family
from so101.families.render import FamilyRenderer
from so101.families.scene import compiled, slot_names
from so101.files import atomic_path

MOST_AWAY_M = 2.0  # what stands further is in no picture of the desk


class Clamped(NamedTuple):
    """A joint that the model cannot have: LeRobot units, as given and as drawn."""

    joint: str
    given: float
    drawn: float


def joints_of(family: Family, state: np.ndarray) -> tuple[np.ndarray, list[Clamped]]:
    """(6,) LeRobot values (degrees, jaw 0..100) to joints (6,) rad within the model's limits, and which had to be
    clamped. Spans are the nominal ones of robot.yaml.

    Raises:
        ConfigError: not six finite numbers.
    """
    robot = family.config.robot
    state = np.asarray(state, float)
    if state.shape != (len(robot.joints),) or not np.isfinite(state).all():
        raise ConfigError(
            f"a state is {len(robot.joints)} finite numbers ({', '.join(robot.joint_names)}; degrees, jaw 0..100), got "
            f"{np.array2string(state, separator=',')}"
        )
    units = make_units("degrees", robot)
    q = lerobot_to_rad(state, units)
    model = compiled(family)
    limits = np.array([model.joint(name).range for name in robot.joint_names])
    drawn = np.clip(q, *limits.T)
    shown = rad_to_lerobot(drawn, units)
    clamped = [
        Clamped(name, float(state[j]), float(shown[j]))
        for j, name in enumerate(robot.joint_names)
        if abs(shown[j] - state[j]) > 0.01  # a hundredth of a degree is how limits are rounded
    ]
    return drawn, clamped


def state_of(family: Family, q: np.ndarray, places: Mapping[str, tuple[float, float]]) -> np.ndarray:
    """(nq,) of joints q (6,) rad with slots standing at x, y (m, the family's world), others parked.

    Raises:
        ConfigError: a slot that the family does not have, or a place that is none.
    """
    declared = family.declaration
    model = compiled(family)
    qpos = model.qpos0.copy()
    qpos[: len(q)] = q
    for name, (x, y) in places.items():
        known = slot_names(family)
        if name not in known or name not in declared.slots:
            raise ConfigError(
                f"{family.name} has no object {name!r} to place; it has {', '.join(declared.slots) or 'none'}"
                f"{did_you_mean(name, known)}"
            )
        if not (abs(x) <= MOST_AWAY_M and abs(y) <= MOST_AWAY_M):  # nan, or centimetres
            raise ConfigError(f"{name} at {x:g}, {y:g}: metres from the arm's base, within {MOST_AWAY_M:g} each way")
        address = int(model.joint(name).qposadr[0])
        qpos[address : address + 7] = [x, y, surface_m(family) - declared.slots[name].bottom_m, 1.0, 0.0, 0.0, 0.0]
    return qpos


def surface_m(family: Family) -> float:
    """z of what objects stand on: that of the regions."""
    heights = {region.origin_m[2] for region in family.declaration.regions.values()}
    return max(heights) if heights else 0.0


def draw_views(family: Family, qpos: np.ndarray, width_px: int | None = None) -> dict[str, np.ndarray]:
    """Camera -> (H, W, 3) uint8 RGB, in the family's aspect.

    Raises:
        SimulationError: no OpenGL context.
    """
    picture = family.declaration.picture
    width = width_px or picture.width_px
    with FamilyRenderer(family, width, round(width * picture.height_px / picture.width_px), supersample=2) as renderer:
        return {camera: renderer.draw(qpos, camera) for camera in renderer.cameras}


def read_photo(path: Path | str, width_px: int, height_px: int) -> np.ndarray:
    """(height, width, 3) uint8 RGB of a picture file, scaled.

    Raises:
        DataError: it cannot be read, or has another aspect.
    """
    from PIL import Image, UnidentifiedImageError  # a part of matplotlib's installation

    try:
        with Image.open(path) as image:
            photo = image.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"{path}: cannot be read as a picture ({error}); give a PNG or JPEG file") from None
    if abs(photo.width * height_px - photo.height * width_px) > 0.02 * photo.height * width_px:
        raise DataError(
            f"{path}: {photo.width}x{photo.height}; the twin's camera has the aspect {width_px}:{height_px}. Crop the "
            "photo, or undistort it to that pinhole first"
        )
    return np.asarray(photo.resize((width_px, height_px), Image.Resampling.LANCZOS))


def beside(photo: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Photo left, twin right."""
    return np.concatenate([photo, drawn], axis=1)


def blended(photo: np.ndarray, drawn: np.ndarray, share: float) -> np.ndarray:
    """`share` of the twin over the photo: where both agree edges are sharp, elsewhere they are double."""
    mixed = (1.0 - share) * photo.astype(float) + share * drawn
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def write_png(path: Path | str, picture: np.ndarray) -> None:
    """(H, W, 3) uint8 RGB, atomically."""
    from PIL import Image

    with atomic_path(path) as temporary:
        Image.fromarray(picture).save(temporary, optimize=True)
