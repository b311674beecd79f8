"""A camera of the twin: draws the newest state of a (virtual) rig."""

from __future__ import annotations

import time

from so101.cameras.base import CameraError, Frame, NoFrameYet, Picture, stamped
from so101.cameras.scene_state import SceneState, StateSource
from so101.cameras.timing import Pacer
from so101.config import Config

_LOOK_AGAIN_S = 0.005  # for a state that is not there yet


class TwinCamera:
    """Renders at cameras.fps_hz what `state` tells, with the looks it tells. A frame carries the stamp of its state; a
    rig that stands still in time gives no frames."""

    kind = "twin"

    def __init__(self, name: str, config: Config, state: StateSource | None) -> None:
        if state is None:
            raise CameraError(
                f"camera {name} is of kind twin and needs a rig that tells its state; start one (`./twin serve rig`, "
                f"`./real --sim`), or set cameras.sources.{name} to another kind (docs/cameras.md)"
            )
        self.name, self._config, self._state = name, config, state
        self.mode = f"rendered {Picture.of(config)}, {config.render.setting}"
        self._renderer = None

    def open(self) -> None:
        from so101.rendering.renderer import StateRenderer  # MuJoCo, and an OpenGL context of this thread

        self._renderer = StateRenderer(self._config)
        self._pacer = Pacer(self._config.cameras.fps_hz)
        self._drawn_s = -1.0
        self._scene: tuple = ({}, {})

    def read(self, timeout_s: float) -> Frame:
        deadline = time.monotonic() + timeout_s
        index, _ = self._pacer.wait()
        state = self._newer_state(deadline, timeout_s)
        if (state.randomisation, state.looks) != self._scene:
            self._renderer.set_scene(state.randomisation, state.looks)
            self._scene = (state.randomisation, state.looks)
        self._renderer.set_state(state.q, state.objects)
        self._drawn_s = state.stamp_s
        return stamped(self._renderer.render_state(self.name), state.stamp_s, index, self.name)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _newer_state(self, deadline: float, timeout_s: float) -> SceneState:
        while True:
            state = self._state()
            if state is not None and state.stamp_s != self._drawn_s:
                return state
            if time.monotonic() >= deadline:
                what = "no state" if state is None else "no new state"
                raise NoFrameYet(f"{what} of the rig within {timeout_s:g} s; is one running (`./twin serve rig`)?")
            time.sleep(_LOOK_AGAIN_S)
