"""A show in MuJoCo's own window."""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from so101.errors import SimulationError
from so101.families.render import Orbit, add_marks
from so101.families.scene import compiled
from so101.families.viewer import SPEEDS, Frame, Show, Status, Wish

HELP = "space pause, . one step, backspace again, n next seed, - = slower, faster"
_SPACE, _BACKSPACE, _PERIOD, _MINUS, _EQUAL = 32, 259, 46, 45, 61
_MAX_FPS = 60.0


def display_present() -> bool:
    """Whether a window could be opened: elsewhere than on Linux always, there with X11 or Wayland."""
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class Window:
    """MuJoCo's passive viewer: mouse, cameras and sliders are its own; the sliders of the right panel drive the joints
    of a show that lets them.

    Raises:
        SimulationError: it cannot be opened.
    """

    def __init__(self, show: Show) -> None:
        self._show, self._wishes = show, []
        self._model = copy.copy(compiled(show.task.family, looks=True))
        self._model.light_castshadow[:] = False  # flat ground would be full of them here
        self._data = mujoco.MjData(self._model)
        self._sent: np.ndarray | None = None
        self._last = -1.0
        self._seed: int | None = None
        self._status = Status(False, 1.0, False)
        try:
            from mujoco import viewer

            self._viewer: Any = viewer.launch_passive(
                self._model, self._data, key_callback=self._key, show_left_ui=False, show_right_ui=show.drivable
            )
        except Exception as error:  # of GLFW and of the window system
            mac = "; on macOS start it with mjpython" if sys.platform == "darwin" else ""
            raise SimulationError(
                f"no window could be opened ({type(error).__name__}: {error}); --page shows it in a browser{mac}"
            ) from error
        orbit, camera = Orbit(), self._viewer.cam
        camera.azimuth, camera.elevation = orbit.azimuth_deg, orbit.elevation_deg
        camera.distance, camera.lookat[:] = orbit.distance_m, orbit.lookat_m

    def wishes(self) -> list[Wish]:
        wishes, self._wishes = self._wishes, []
        if not self._viewer.is_running():
            return [Wish("quit")]
        if self._show.drivable and self._sent is not None and (self._data.ctrl[:6] != self._sent).any():
            self._sent = self._data.ctrl[:6].copy()
            wishes.append(Wish("drive", self._sent))
        return wishes

    def show(self, frame: Callable[[], Frame], status: Status) -> None:
        now = time.monotonic()
        if now - self._last < 1 / _MAX_FPS or not self._viewer.is_running():
            return
        self._last = now
        seen, self._status = frame(), status
        self._seed = seen.seed
        with self._viewer.lock():
            self._data.qpos[:] = seen.qpos
            if self._sent is None:
                self._data.ctrl[:6] = self._sent = np.array(seen.command_rad)
            mujoco.mj_forward(self._model, self._data)
            scene = self._viewer.user_scn
            scene.ngeom = 0
            add_marks(scene, seen.marks)
        lines = [(line.label, line.value) for line in seen.readouts] + [("speed", f"{status.speed:g}x")]
        lines += [(key, what) for key, what in self._show.keys.items()]
        lines += [("", seen.note)] if seen.note else []
        self._viewer.set_texts(
            (
                mujoco.mjtFontScale.mjFONTSCALE_150,
                mujoco.mjtGridPos.mjGRID_TOPLEFT,
                "\n".join(label for label, _ in lines),
                "\n".join(value for _, value in lines),
            )
        )
        self._viewer.sync()

    def close(self) -> None:
        self._viewer.close()

    def _key(self, code: int) -> None:
        letter = chr(code).lower() if 0 < code < 256 else ""
        if letter in self._show.keys:
            self._wishes.append(Wish("key", letter))
        elif code == _SPACE:
            self._wishes.append(Wish("pause"))
        elif code == _PERIOD:
            self._wishes.append(Wish("step"))
        elif code == _BACKSPACE:
            self._sent = None
            self._wishes.append(Wish("restart", None))
        elif letter == "n" and self._seed is not None:
            self._sent = None
            self._wishes.append(Wish("restart", self._seed + 1))
        elif code in (_MINUS, _EQUAL):
            at = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - self._status.speed))
            at = min(max(at + (1 if code == _EQUAL else -1), 0), len(SPEEDS) - 1)
            self._wishes.append(Wish("speed", SPEEDS[at]))
