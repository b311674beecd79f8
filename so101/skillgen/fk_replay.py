"""Joint recordings to end-effector paths by forward kinematics. What gravity and friction take off the commands is left
out: it is not the same where the path goes next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from so101.datasets.seeds import SeedDemo
from so101.kinematics.arm import ArmKinematics
from so101.kinematics.servo_lead import ServoLead


class EePath(NamedTuple):
    """End-effector path of a seed in base: T_base_target (T, 4, 4) where the leader's targets would bring the arm at
    rest, T_base_ee (T, 4, 4) as measured."""

    T_base_target: np.ndarray
    T_base_ee: np.ndarray


def fk_replay(seed: SeedDemo, kinematics: ArmKinematics, lead: ServoLead) -> EePath:
    """SE(3) paths of the joints a seed's commands mean, and of its measured joints."""
    return EePath(kinematics.fk(lead.wanted_path(seed.q_target, seed.q[0])), kinematics.fk(seed.q))
