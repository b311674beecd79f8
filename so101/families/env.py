"""One environment of a task, as `gymnasium.make` gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from so101.families.declaration import FamilyTask, find_task
from so101.families.vector_env import FamilyVectorEnv

if TYPE_CHECKING:
    from so101.families.render import FamilyRenderer


class FamilyEnv(gymnasium.Env):
    """Lane 0 of a `FamilyVectorEnv` of one lane.

    Args:
        task: full name of a stock task, or a task.
        render_mode: None or rgb_array, which draws `camera`.
        camera: of the family; its first one when None.
        options: as of `FamilyVectorEnv`.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(
        self, task: str | FamilyTask, *, render_mode: str | None = None, camera: str | None = None, **options: Any
    ) -> None:
        found = find_task(task) if isinstance(task, str) else task
        self._lanes = FamilyVectorEnv(found, 1, autoreset=False, **options)
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self._lanes.control_dt)}
        self.observation_space = self._lanes.single_observation_space
        self.action_space = self._lanes.single_action_space
        self.render_mode, self._camera = render_mode, camera
        self._renderer: FamilyRenderer | None = None

    @property
    def lanes(self) -> FamilyVectorEnv:
        """The vector environment behind it."""
        return self._lanes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: `seed`, or the next."""
        super().reset(seed=seed)
        observation, info = self._lanes.reset(seed=seed, options=options)
        return observation[0], _first(info)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control period."""
        observation, reward, terminated, truncated, info = self._lanes.step(np.asarray(action)[None])
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(info)

    def render(self) -> np.ndarray | None:
        """(H, W, 3) uint8 of the camera, when render_mode is rgb_array."""
        if self.render_mode != "rgb_array":
            return None
        if self._renderer is None:
            from so101.families.render import FamilyRenderer

            self._renderer = FamilyRenderer(self._lanes.family)
        return self._renderer.draw(self._lanes.qpos[0], self._camera or self._renderer.cameras[0])

    def close(self) -> None:
        """Free threads and renderer."""
        self._lanes.close()
        if self._renderer is not None:
            self._renderer.close()


def _first(info: dict[str, np.ndarray]) -> dict[str, Any]:
    # without numbers that are none: gymnasium's checker compares infos, and nan is unlike itself
    return {key: value[0] for key, value in info.items() if not np.isnan(value[0])}
