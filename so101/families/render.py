"""Pictures of a family's states: its cameras or an orbiting one, with marks for distances."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import mujoco
import numpy as np

from so101.errors import SimulationError, did_you_mean
from so101.families.declaration import Family
from so101.families.scene import GROUND, compiled
from so101.rendering.gl import make_context

ORBIT = "orbit"  # the name under which the orbiting camera is chosen
_FONT_SCALE = 100
_SCENE_GEOMS = 2000
_LEAST_ELEVATION_DEG, _MOST_ELEVATION_DEG = -89.0, 20.0


@dataclass(frozen=True)
class Orbit:
    """A camera that looks at a point from around it. azimuth 180: from the front of the arm; elevation -90: from above.

    Attributes:
        azimuth_deg, elevation_deg: direction in which it looks.
        distance_m: from the point.
        lookat_m: the point, in the family's world.
    """

    azimuth_deg: float = 140.0
    elevation_deg: float = -28.0
    distance_m: float = 0.95
    lookat_m: tuple[float, float, float] = (0.18, 0.0, 0.10)

    def turned(self, azimuth_deg: float, elevation_deg: float) -> Orbit:
        """Moved around the point, not under the floor."""
        elevation = min(max(self.elevation_deg + elevation_deg, _LEAST_ELEVATION_DEG), _MOST_ELEVATION_DEG)
        return replace(self, azimuth_deg=(self.azimuth_deg + azimuth_deg) % 360.0, elevation_deg=elevation)

    def zoomed(self, factor: float) -> Orbit:
        """`factor` times as far away, between 10 cm and 5 m."""
        return replace(self, distance_m=min(max(self.distance_m * factor, 0.1), 5.0))

    def moved(self, right_m: float, up_m: float) -> Orbit:
        """Looking at another point, along the picture's right and along the vertical."""
        turn = math.radians(self.azimuth_deg)
        x, y, z = self.lookat_m
        return replace(self, lookat_m=(x + right_m * math.sin(turn), y - right_m * math.cos(turn), z + up_m))


class Mark(NamedTuple):
    """A sphere at `to_m`, or a line from `from_m` to it. Positions (3,) m in the family's world."""

    to_m: np.ndarray
    rgba: tuple[float, float, float, float]
    size_m: float = 0.006
    from_m: np.ndarray | None = None


class FamilyRenderer:
    """One OpenGL context for all views of a family. Use it from the thread that made it, and close it there.

    Args:
        width_px, height_px: of the pictures; the family's own when None.
        supersample: draw this many times larger and average, against jagged edges.

    Raises:
        SimulationError: no OpenGL context, or the family names parts that the model does not have.
    """

    def __init__(
        self, family: Family, width_px: int | None = None, height_px: int | None = None, *, supersample: int = 1
    ) -> None:
        picture = family.declaration.picture
        self.width_px, self.height_px = width_px or picture.width_px, height_px or picture.height_px
        self.model = copy.copy(compiled(family, looks=True))
        self.model.vis.quality.shadowsize *= supersample
        self.cameras = tuple(self.model.camera(i).name for i in range(self.model.ncam))
        self._data = mujoco.MjData(self.model)
        self._supersample = supersample
        width, height = self.width_px * supersample, self.height_px * supersample
        self._context: Any = make_context(width, height)
        self._scene = mujoco.MjvScene(self.model, _SCENE_GEOMS)
        self._options = mujoco.MjvOption()
        self._options.sitegroup[:] = 0
        self._drawing = mujoco.MjrContext(self.model, _FONT_SCALE)
        mujoco.mjr_resizeOffscreen(width, height, self._drawing)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawing)
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._flat = self._find_flat(family)

    def draw(
        self, qpos: np.ndarray, camera: str | Orbit, *, marks: Sequence[Mark] = (), text: tuple[str, str] = ("", "")
    ) -> np.ndarray:
        """(H, W, 3) uint8 RGB of qpos (nq,), a copy. `text`: two columns in the lower left corner, \\n between lines.

        Raises:
            SimulationError: no such camera.
        """
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, self._data)
        mujoco.mj_camlight(self.model, self._data)
        mujoco.mjv_updateScene(
            self.model, self._data, self._options, None, self._view(camera), mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        for number in self._flat:
            self._scene.geoms[number].category = mujoco.mjtCatBit.mjCAT_DECOR
        add_marks(self._scene, marks)
        self._context.make_current()
        mujoco.mjr_render(self._rect, self._scene, self._drawing)
        if any(text):
            mujoco.mjr_overlay(
                mujoco.mjtFont.mjFONT_NORMAL, mujoco.mjtGridPos.mjGRID_BOTTOMLEFT, self._rect, *text, self._drawing
            )
        mujoco.mjr_readPixels(self._pixels, None, self._rect, self._drawing)
        return _averaged(self._pixels[::-1], self._supersample)

    def close(self) -> None:
        """Free the OpenGL context; twice is fine."""
        if self._context is None:
            return
        self._context.make_current()
        self._drawing.free()
        self._context.free()
        self._context = None

    def __enter__(self) -> FamilyRenderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find_flat(self, family: Family) -> tuple[int, ...]:
        """Places in the scene of what casts no shadow: MuJoCo draws none of decoration. Places stay as they are."""
        borrowed = family.declaration.workshop_task is not None
        names = {
            *(family.config.render.no_shadow_from if borrowed else family.declaration.looks.no_shadow_from),
            GROUND,
        }
        mujoco.mj_kinematics(self.model, self._data)
        mujoco.mjv_updateScene(
            self.model, self._data, self._options, None, mujoco.MjvCamera(), mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        geoms = [self._scene.geoms[number] for number in range(self._scene.ngeom)]
        return tuple(
            number
            for number, geom in enumerate(geoms)
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM
            and names & {self.model.geom(geom.objid).name, self.model.body(self.model.geom_bodyid[geom.objid]).name}
        )

    def _view(self, camera: str | Orbit) -> mujoco.MjvCamera:
        view = mujoco.MjvCamera()
        if isinstance(camera, Orbit):
            view.type = mujoco.mjtCamera.mjCAMERA_FREE
            view.azimuth, view.elevation = camera.azimuth_deg, camera.elevation_deg
            view.distance, view.lookat[:] = camera.distance_m, camera.lookat_m
            return view
        if camera not in self.cameras:
            raise SimulationError(
                f"there is no camera {camera!r}; the model has {', '.join(self.cameras) or 'none'} and {ORBIT!r}"
                f"{did_you_mean(camera, self.cameras)}"
            )
        view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, self.cameras.index(camera)
        return view


def _averaged(pixels: np.ndarray, times: int) -> np.ndarray:
    """(times H, times W, 3) uint8 to (H, W, 3), a copy."""
    if times == 1:
        return pixels.copy()
    height, width = pixels.shape[0] // times, pixels.shape[1] // times
    blocks = pixels.reshape(height, times, width, times, 3).astype(np.uint16)
    return ((blocks.sum((1, 3)) + times**2 // 2) // times**2).astype(np.uint8)


def add_marks(scene: mujoco.MjvScene, marks: Sequence[Mark]) -> None:
    """Draw marks into a scene; those beyond its room are left out."""
    for mark in marks:
        if scene.ngeom >= scene.maxgeom:
            return
        geom = scene.geoms[scene.ngeom]
        kind = mujoco.mjtGeom.mjGEOM_SPHERE if mark.from_m is None else mujoco.mjtGeom.mjGEOM_CAPSULE
        mujoco.mjv_initGeom(
            geom, kind, np.full(3, mark.size_m), np.asarray(mark.to_m, float), np.eye(3).ravel(),
            np.array(mark.rgba, np.float32),
        )  # fmt: skip
        if mark.from_m is not None:
            mujoco.mjv_connector(geom, kind, mark.size_m, np.asarray(mark.from_m, float), np.asarray(mark.to_m, float))
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR
        scene.ngeom += 1
