"""The servo model in a compiled model: where its parameters stand, and the commands it still has to act on."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np


def set_servo(model: mujoco.MjModel, joint: int, values: Mapping[str, float]) -> None:
    """Change the servo of joint number `joint` in a model of one's own; keys as in a joint of robot.yaml."""
    for name, value in values.items():
        if name == "stiffness_nm_per_rad":
            model.actuator_gainprm[joint, 0] = value
            model.actuator_biasprm[joint, 1] = -value
        elif name == "velocity_gain_nm_s_per_rad":
            model.actuator_biasprm[joint, 2] = -value
        elif name == "force_limit_nm":
            model.actuator_forcerange[joint] = -value, value
        elif name == "delay_s":
            model.actuator_delay[joint] = value
        elif name == "friction_nm":
            model.dof_frictionloss[joint] = value
        elif name == "armature_kg_m2":
            model.dof_armature[joint] = value
        elif name == "damping_nm_s_per_rad":
            model.dof_damping[joint] = value
        else:
            raise KeyError(name)


def set_past_commands(model: mujoco.MjModel, data: mujoco.MjData, commands: np.ndarray) -> None:
    """What was commanded before now, for servos with a delay.

    Args:
        commands: (6,) rad, the same for all time, or (n, 6), one a physics step, the last row just before now; a row
            that is missing is the first one given.
    """
    commands = np.atleast_2d(commands)
    for joint in range(len(commands[0])):
        samples = int(model.actuator_history[joint, 0])
        if samples:
            rows = np.clip(np.arange(len(commands) - samples, len(commands)), 0, None)
            mujoco.mj_initCtrlHistory(model, data, joint, None, commands[rows, joint].copy())
