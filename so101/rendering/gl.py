"""Making an OpenGL context, and saying what to do when it cannot be made."""

from __future__ import annotations

import importlib
import os
from typing import Any

from so101.errors import SimulationError

VARIABLE = "MUJOCO_GL"
DEFAULT_BACKEND = "egl"  # needs neither a screen nor a GPU
PACKAGES = {
    "egl": "libegl1 libgl1 libgl1-mesa-dri",
    "osmesa": "libosmesa6 libgl1",
    "glfw": "libgl1 libglfw3",
}


_OFF = "disable"
_SET_ASIDE = "SO101_GL"


def set_aside() -> None:
    """Keep MUJOCO_GL from `import mujoco`, here and in processes started later: with an unknown value or without the
    libraries that fails, also for commands that draw nothing. `make_context` still obeys it."""
    os.environ[_SET_ASIDE], os.environ[VARIABLE] = backend(), _OFF


def backend() -> str:
    """The value of MUJOCO_GL, egl when it is unset."""
    name = os.environ.get(VARIABLE, "").strip().lower()
    if name == _OFF:
        name = os.environ.get(_SET_ASIDE, _OFF)
    return name or DEFAULT_BACKEND


def make_context(width_px: int, height_px: int) -> Any:
    """An OpenGL context of MuJoCo (`make_current`, `free`), already current.

    Works whatever MUJOCO_GL was when mujoco was imported. On a machine without a GPU, Mesa's llvmpipe draws with
    LP_NUM_THREADS threads; the worker pool sets one each.

    Raises:
        SimulationError: unknown MUJOCO_GL, or the libraries are missing or refuse; names the packages to install.
    """
    name = backend()
    if name not in PACKAGES:
        raise SimulationError(
            f"cannot render: {VARIABLE} is {name!r}; set it to egl (no screen needed), osmesa (no driver either) "
            "or glfw (a screen)"
        )
    try:
        context = importlib.import_module(f"mujoco.{name}").GLContext(width_px, height_px)
        context.make_current()
    except Exception as error:  # every layer below has its own: ImportError, AttributeError, OSError, GLError ...
        raise SimulationError(
            f"cannot render: no OpenGL context could be made with {VARIABLE}={name} ({type(error).__name__}: {error}). "
            f"On Debian or Ubuntu run `apt-get install {PACKAGES[name]}`, or try another {VARIABLE}: "
            f"{', '.join(other for other in PACKAGES if other != name)}"
        ) from error
    return context
