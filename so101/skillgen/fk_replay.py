"""Joint recordings to end-effector paths by forward kinematics. No physics: what was commanded, exactly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from so101.datasets.seeds import SeedDemo
from so101.kinematics.arm import ArmKinematics


class EePath(NamedTuple):
    """End-effector path of a seed in base: T_base_target (T, 4, 4) of the leader targets, T_base_ee (T, 4, 4) as
    measured."""

    T_base_target: np.ndarray
    T_base_ee: np.ndarray


def fk_replay(seed: SeedDemo, kinematics: ArmKinematics) -> EePath:
    """SE(3) paths of a seed's commanded and measured joints."""
    return EePath(kinematics.fk(seed.q_target), kinematics.fk(seed.q))
