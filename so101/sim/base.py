"""What every simulator backend offers. Physics runs in the base frame; world poses are derived (design: Frames).

A batch has B environments that share one model. Environment b has its own `T_world_base[b]` (a translation and a turn
about gravity), which changes where things are in the world and never what happens in the base frame: same demos for
any B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Contact:
    """One touching pair. Names of bodies; force is the normal force in N; depth > 0 means penetration in m."""

    body_1: str
    body_2: str
    normal_force: float
    depth: float


class Simulator(Protocol):
    """B environments of one robot scene. `env` is the environment index; poses are in `base` unless said."""

    num_envs: int
    control_dt: float  # s between two calls of `step`
    joint_names: tuple[str, ...]  # J = 6, jaw last
    object_names: tuple[str, ...]
    T_world_base: np.ndarray  # (B, 4, 4)

    def reset(
        self,
        env: int,
        q: np.ndarray,
        objects: Mapping[str, np.ndarray],
        randomisation: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Zero velocities, joints q (6,) rad, objects at (7,) pose in base, targets = q; optional bodies not among the
        objects are away. No physics step. `randomisation`: a draw of `so101.sim.randomisation` that holds until the
        next reset; the nominal physics when empty."""

    def randomise(self, env: int, randomisation: Mapping[str, Any]) -> None:
        """The physics of a draw (nominal when empty) from now on: for `set_physics_state`; `reset` does it itself."""

    def step(self, env: int, q_target: np.ndarray) -> None:
        """Send joint targets (6,) rad and advance one control period."""

    def set_state(self, env: int, q: np.ndarray, objects: Mapping[str, np.ndarray]) -> None:
        """Place joints (6,) rad and objects (7,) without physics, for rendering and collision checks."""

    def joint_positions(self, env: int) -> np.ndarray:
        """(6,) measured joint angles, rad."""

    def joint_velocities(self, env: int) -> np.ndarray:
        """(6,) joint velocities, rad/s."""

    def object_pose(self, env: int, name: str) -> np.ndarray:
        """(7,) position m and quaternion w x y z in base."""

    def object_twist(self, env: int, name: str) -> np.ndarray:
        """(6,) linear m/s then angular rad/s, in base axes."""

    def ee_pose(self, env: int) -> np.ndarray:
        """(4, 4) T_base_ee of the measured joints."""

    def fk(self, q: np.ndarray) -> np.ndarray:
        """(B, 5 or 6) joint angles to (B, 4, 4) T_base_ee. No environment is touched."""

    def jacobian(self, q: np.ndarray) -> np.ndarray:
        """(5 or 6,) to (6, 5): rows [0:3] translation m/rad, [3:6] rotation, base axes, at the ee point."""

    def contacts(self, env: int) -> Sequence[Contact]:
        """What touches what now."""

    def get_physics_state(self, env: int) -> np.ndarray:
        """(nstate,) what a bit-exact replay needs, when taken right after `reset`. Later, objects that lie still may be
        asleep, which the state does not tell: they are awake after `set_physics_state` and settle anew."""

    def set_physics_state(self, env: int, state: np.ndarray) -> None:
        """Restore `get_physics_state`."""

    def render(self, env: int, camera: str) -> np.ndarray:
        """(H, W, 3) uint8 RGB of the current state."""

    def close(self) -> None:
        """Free renderers and threads."""
