"""FK, Jacobian and the IK backends. `make_ik(config)` picks the backend of ik.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from so101.config import Config
from so101.kinematics.arm import ArmKinematics
from so101.kinematics.jacobian_ik import IkResult, JacobianIk

__all__ = ["ArmKinematics", "IkBackend", "IkResult", "JacobianIk", "make_ik"]


class IkBackend(Protocol):
    """Inverse kinematics in the base frame. What is returned depends on the arguments alone."""

    def solve(self, q: np.ndarray, T_base_target: np.ndarray, iterations: int | None = None) -> IkResult:
        """Joints (5,) rad near q that bring the end effector to T_base_target (4, 4)."""

    def solve_from(
        self, starts: np.ndarray, T_base_target: np.ndarray, iterations: int | None = None
    ) -> Iterator[IkResult]:
        """Solutions worth a look for a goal, found from joints (n, 5) rad of which the first is where the arm is; at
        least one. Lazy: whoever takes the first that will do pays for no other."""


def make_ik(config: Config, kinematics: ArmKinematics | None = None) -> IkBackend:
    """The backend named in ik.yaml.

    Raises:
        ConfigError: curobo is named and cannot be used.
    """
    if config.ik.backend == "jacobian":
        return JacobianIk(config, kinematics)
    from so101.kinematics.curobo_ik import CuroboIk  # cuRobo costs seconds to import and is optional

    return CuroboIk(config, kinematics)
