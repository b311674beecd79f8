"""The twin as a world for policies: physics step by step, pictures when somebody looks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from so101.config import Config
from so101.rendering.looks import draw_looks
from so101.rendering.renderer import StateRenderer
from so101.sim.mujoco_sim import MujocoSimulator
from so101.tasks.start import draw_start


class TwinWorld:
    """`so101.evaluation.closed_loop.world.World`. Pictures are drawn as those of a dataset are, from joints and poses.

    Args:
        cameras: those that `look` shows; all of cameras.yaml when None.
    """

    def __init__(self, config: Config, cameras: Collection[str] | None = None) -> None:
        self._config = config
        self._cameras = tuple(config.cameras.names if cameras is None else cameras)
        self._simulator = MujocoSimulator(config)
        self._lower, self._upper = self._simulator.kinematics.lower, self._simulator.kinematics.upper
        self._renderer: StateRenderer | None = None  # made by the first look
        self.physics_state = np.zeros(0)
        self.meta: dict[str, Any] = {}

    def reset(self, seed: int) -> None:
        start = draw_start(self._config, np.random.default_rng(seed))
        self._simulator.reset(0, start.q, start.objects, start.randomisation)
        self.physics_state = self._simulator.get_physics_state(0)
        self.meta = {"randomisation": {"placements": start.draws, **start.randomisation}}
        self._scene = start.randomisation, draw_looks(self._config, seed)
        if self._renderer is not None:
            self._renderer.set_scene(*self._scene)

    def look(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if self._renderer is None:
            self._renderer = StateRenderer(self._config)
            self._renderer.set_scene(*self._scene)
        q = self.measured()
        self._renderer.set_state(q, self.objects())
        return q, {name: self._renderer.render_state(name) for name in self._cameras}

    def measured(self) -> np.ndarray:
        return self._simulator.joint_positions(0)

    def act(self, q_target: np.ndarray) -> np.ndarray:
        sent = np.clip(q_target, self._lower, self._upper)
        self._simulator.step(0, sent)
        return sent

    def objects(self) -> dict[str, np.ndarray]:
        return {name: self._simulator.object_pose(0, name) for name in self._simulator.object_names}

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._simulator.close()
