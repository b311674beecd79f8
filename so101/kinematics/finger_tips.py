"""How low the hand is: the pinch point and the boxes of the finger tips, jaw angle included."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np

from so101.config import Config
from so101.errors import ConfigError
from so101.sim.bake import EE_SITE, baked_model

_CORNERS = np.array(list(itertools.product((-1, 1), repeat=3)), float)


class FingerTips:
    """Lowest point of the hand over joints. Not thread-safe: it owns one MjData.

    Args:
        boxes: names in robot.yaml: jaw_boxes.

    Raises:
        ConfigError: no such box.
    """

    def __init__(self, config: Config, boxes: list[str]) -> None:
        known = {box.name: box for box in config.robot.jaw_boxes}
        unknown = [name for name in boxes if name not in known]
        if unknown:
            raise ConfigError(f"robot.yaml: no jaw box is called {unknown}; jaw_boxes has {', '.join(known)}")
        self._model = baked_model(config, looks=False, props=False)
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(EE_SITE).id
        self._bodies = [self._model.body(known[name].body).id for name in boxes]
        self._corners = [np.array(known[name].center_m) + _CORNERS * known[name].half_size_m for name in boxes]

    def lowest_m(self, q: np.ndarray) -> float:
        """z in base, m, of the lowest of the pinch point and the corners of the boxes at joints (6,) rad."""
        self._data.qpos[: len(q)] = q
        mujoco.mj_kinematics(self._model, self._data)
        lowest = self._data.site_xpos[self._site, 2]
        for body, corners in zip(self._bodies, self._corners, strict=True):
            up = self._data.xmat[body, 6:9]  # row z of the body's rotation
            lowest = min(lowest, self._data.xpos[body, 2] + (corners @ up).min())
        return float(lowest)
