"""What a twin camera needs to know of the world it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


class SceneState(NamedTuple):
    """The world at one moment.

    Attributes:
        stamp_s: of that moment, on the monotonic clock.
        q: (6,) rad, joints in the order of robot.yaml.
        objects: name -> (7,) T_base_obj, m and w x y z.
        looks: as drawn by `so101.rendering.looks.draw_looks`; empty: as configured.
        randomisation: drawn physics whose sizes and places show; empty: as configured.
    """

    stamp_s: float
    q: np.ndarray
    objects: Mapping[str, np.ndarray]
    looks: Mapping[str, Any] = {}
    randomisation: Mapping[str, Any] = {}


StateSource = Callable[[], "SceneState | None"]  # the newest state; None when there is none so far
