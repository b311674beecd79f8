"""FK, Jacobian and the IK backends. `make_ik(config)` picks the backend of ik.yaml."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from so101.config import Config
from so101.errors import ConfigError
from so101.kinematics.arm import ArmKinematics
from so101.kinematics.jacobian_ik import IkResult, JacobianIk

__all__ = ["ArmKinematics", "IkBackend", "IkResult", "JacobianIk", "make_ik"]


class IkBackend(Protocol):
    """Inverse kinematics in the base frame."""

    def solve(self, q: np.ndarray, T_base_target: np.ndarray, iterations: int | None = None) -> IkResult:
        """Joints (5,) rad near q that bring the end effector to T_base_target (4, 4)."""


def make_ik(config: Config, kinematics: ArmKinematics | None = None) -> IkBackend:
    """The backend named in ik.yaml.

    Raises:
        ConfigError: the backend is not built yet.
    """
    if config.ik.backend == "jacobian":
        return JacobianIk(config, kinematics)
    raise ConfigError(f"ik.yaml: backend {config.ik.backend!r} is not available in this version; use backend: jacobian")
