"""A camera of the twin: draws the newest state of a (virtual) rig."""

from __future__ import annotations

import math
import time

from so101.cameras.base import CameraError, Frame, NoFrameYet, Picture, stamped
from so101.cameras.scene_state import SceneState, StateSource
from so101.config import Config

_LOOK_AGAIN_S = 0.005  # for a state that is not there yet
_EARLY = 0.9  # of a period: a state may follow the one before by so little, since rigs that tell them are not exact


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
        self._rate_hz = config.cameras.fps_hz
        self.mode = f"{Picture.of(config)}, {config.render.setting}"
        self._renderer = None

    def open(self) -> None:
        from so101.rendering.renderer import StateRenderer  # MuJoCo, and an OpenGL context of this thread

        self._renderer = StateRenderer(self._config)
        self._drawn_s, self._index = -math.inf, 0
        self._scene: tuple = ({}, {})

    def read(self, timeout_s: float) -> Frame:
        state = self._next_state(timeout_s)
        if (state.randomisation, state.looks) != self._scene:
            self._renderer.set_scene(state.randomisation, state.looks)
            self._scene = (state.randomisation, state.looks)
        self._renderer.set_state(state.q, state.objects)
        periods = (state.stamp_s - self._drawn_s) * self._rate_hz
        self._index += max(1, round(periods)) if math.isfinite(periods) else 0  # what passed while drawing was lost
        self._drawn_s = state.stamp_s
        return stamped(self._renderer.render_state(self.name), state.stamp_s, self._index, self.name)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _next_state(self, timeout_s: float) -> SceneState:
        """The newest state, once it is about a period later than the one drawn last; or earlier: a new rig."""
        deadline = time.monotonic() + timeout_s
        while True:
            state = self._state()
            if state is not None and not 0 <= (state.stamp_s - self._drawn_s) * self._rate_hz < _EARLY:
                return state
            if time.monotonic() >= deadline:
                what = "no state" if state is None else "no new state"
                raise NoFrameYet(f"{what} of the rig within {timeout_s:g} s; is one running (`./twin serve rig`)?")
            time.sleep(_LOOK_AGAIN_S)
