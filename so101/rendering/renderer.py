"""Pictures of the twin: `FrameRenderer` draws an MjData, `StateRenderer` draws joint angles and object poses."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import av
import mujoco
import numpy as np

from so101.config import Config
from so101.errors import DataError, SimulationError
from so101.rendering.gl import make_context
from so101.rendering.looks import Dresser
from so101.sim.bake import baked_model
from so101.sim.look import frame_size
from so101.sim.randomised_model import ModelRandomiser

_FONT_SCALE = 100  # of the text overlays nobody draws; 100 loads the smallest font
_SCENE_GEOMS = 2000


class FrameRenderer:
    """One OpenGL context and one scene for all cameras of a model baked with `looks`.

    Use it from the process and thread that made it, and close it there (or use it in a `with`).

    Raises:
        SimulationError: no OpenGL context, or a model without these cameras.
    """

    def __init__(self, model: mujoco.MjModel, config: Config) -> None:
        self.model, self.config = model, config
        self.width_px, self.height_px = frame_size(config)
        self._cameras = {name: self._find_camera(name) for name in config.cameras.names}
        self._context = make_context(self.width_px, self.height_px)
        self._scene = mujoco.MjvScene(model, _SCENE_GEOMS)
        self._options = mujoco.MjvOption()
        self._options.sitegroup[:] = 0
        self._rect = mujoco.MjrRect(0, 0, self.width_px, self.height_px)
        self._drawing = mujoco.MjrContext(model, _FONT_SCALE)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawing)
        self._pixels = np.empty((self.height_px, self.width_px, 3), np.uint8)
        self._scaler = FrameScaler(config, "rgb24")
        self._casts_no_shadow = self._find_no_casters() if config.render.active.shadows else ()

    def draw(self, data: mujoco.MjData, camera: str) -> np.ndarray:
        """(H, W, 3) uint8 RGB at the supersampled size, top row first; a view that the next call overwrites.

        Of `data` it reads what mj_kinematics and mj_camlight compute.
        """
        mujoco.mjv_updateScene(
            self.model, data, self._options, None, self._camera(camera), mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        for i in self._casts_no_shadow:
            self._scene.geoms[i].category = mujoco.mjtCatBit.mjCAT_DECOR
        self._context.make_current()
        mujoco.mjr_render(self._rect, self._scene, self._drawing)
        mujoco.mjr_readPixels(self._pixels, None, self._rect, self._drawing)
        return self._pixels[::-1]

    def render(self, data: mujoco.MjData, camera: str) -> np.ndarray:
        """(height, width, 3) uint8 RGB at the size in cameras.yaml."""
        return self._scaler.scale(self.draw(data, camera)).to_ndarray()

    def close(self) -> None:
        """Free the OpenGL context; calling it twice is fine."""
        if self._context is None:
            return
        self._context.make_current()
        self._drawing.free()
        self._context.free()
        self._context = None

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _find_camera(self, name: str) -> mujoco.MjvCamera:
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_CAMERA, name)
        if camera.fixedcamid < 0:
            raise SimulationError(f"the model has no camera {name!r}: bake it with looks and the same cameras.yaml")
        return camera

    def _find_no_casters(self) -> tuple[int, ...]:
        """Places in the scene of the geoms of render.no_shadow_from. MuJoCo draws no shadow of what it takes for
        decoration; the places stay, as the geoms of a model are always drawn in the same order."""
        data = mujoco.MjData(self.model)
        mujoco.mj_kinematics(self.model, data)
        mujoco.mjv_updateScene(
            self.model, data, self._options, None, mujoco.MjvCamera(), mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        bodies = self.model.geom_bodyid
        return tuple(
            i
            for i, geom in enumerate(self._scene.geoms[: self._scene.ngeom])
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM
            and self.model.body(bodies[geom.objid]).name in self.config.render.no_shadow_from
        )

    def _camera(self, name: str) -> mujoco.MjvCamera:
        try:
            return self._cameras[name]
        except KeyError:
            raise SimulationError(f"no camera {name!r}; cameras.yaml has {', '.join(self._cameras)}") from None


class FrameScaler:
    """Converts RGB arrays of any size to frames of cameras.yaml's size, in one pass and with one copy."""

    def __init__(self, config: Config, pixel_format: str) -> None:
        self._size = (config.cameras.width_px, config.cameras.height_px)
        self._pixel_format = pixel_format
        self._scaler = av.video.reformatter.VideoReformatter()
        self._interpolation = config.render.codec.scaler
        self._source: av.VideoFrame | None = None

    def scale(self, rgb: np.ndarray) -> av.VideoFrame:
        """(h, w, 3) uint8 to a frame of the wanted size and format. Rows may lie in any order in memory."""
        height, width = rgb.shape[:2]
        if self._source is None or (self._source.width, self._source.height) != (width, height):
            self._source = av.VideoFrame(width, height, "rgb24")
        plane = self._source.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(height, plane.line_size)
        rows[:, : 3 * width].reshape(height, width, 3)[:] = rgb
        scaled = self._scaler.reformat(self._source, *self._size, self._pixel_format, interpolation=self._interpolation)
        if scaled is self._source:  # nothing to do, so it goes to the caller, and the next one gets another
            self._source = None
        return scaled


class StateRenderer(FrameRenderer):
    """Draws states without physics: joints and objects are placed, kinematics follows, nothing moves by itself."""

    def __init__(self, config: Config, model: mujoco.MjModel | None = None) -> None:
        nominal = baked_model(config, looks=True) if model is None else model
        model = copy.copy(nominal)
        model.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_SLEEP)  # what sleeps would stay where it was
        super().__init__(model, config)
        self._data = mujoco.MjData(self.model)
        self._joints = [self.model.joint(name).qposadr[0] for name in config.robot.joint_names]
        self._randomiser = ModelRandomiser(config, nominal)
        self._dresser = Dresser(config, model)
        self._objects = {name: self._find_object(name) for name in config.objects}

    def set_scene(self, randomisation: Mapping[str, Any], looks: Mapping[str, Any]) -> None:
        """Draw what follows with the sizes and places of a demo's randomised physics and with drawn looks
        (`so101.rendering.looks.draw_looks`); as configured where nothing was drawn."""
        self._randomiser.apply(self.model, randomisation.get("physics", {}))
        self._dresser.dress(looks)

    def set_state(self, q: np.ndarray, objects: Mapping[str, np.ndarray]) -> None:
        """Place the joints, q (6,) rad, and objects, each (7,) pose in `base`.

        Raises:
            DataError: an object that the task does not have.
        """
        self._data.qpos[self._joints] = q
        for name, pose in objects.items():
            if name not in self._objects:
                raise DataError(
                    f"cannot draw object {name!r}; task {self.config.task.name!r} has {', '.join(self._objects)}: "
                    "render with the task these demos were made for"
                )
            body, address = self._objects[name]
            if address is not None:
                self._data.qpos[address : address + 7] = pose
            else:  # fixed in the model
                self.model.body_pos[body], self.model.body_quat[body] = pose[:3], pose[3:]
        mujoco.mj_kinematics(self.model, self._data)
        mujoco.mj_camlight(self.model, self._data)

    def draw_state(self, camera: str) -> np.ndarray:
        """`draw` of the state that was set."""
        return self.draw(self._data, camera)

    def render_state(self, camera: str) -> np.ndarray:
        """`render` of the state that was set."""
        return self.render(self._data, camera)

    def _find_object(self, name: str) -> tuple[int, int | None]:
        body = self.model.body(name)
        if body.jntnum[0] == 0:
            return body.id, None
        return body.id, int(self.model.jnt_qposadr[body.jntadr[0]])
