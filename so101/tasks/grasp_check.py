"""Does a closed jaw hold the object? A scripted take is replayed up to the top of its lift, then the arm stands still."""

from __future__ import annotations

from itertools import count, islice

import numpy as np

from so101.config import Config
from so101.datasets.seeds import SeedDemo
from so101.errors import SimulationError
from so101.geometry import invert_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_angle
from so101.pipeline.progress import StageResult
from so101.tasks.operator import ScriptedOperator, TakeFailed, jaw_touching


def check_grasp(config: Config) -> StageResult:
    """Grasp, lift, hold; `summary` has lift_m, hold_s, creep_m (largest shift in the hand) and creep_rad.

    Raises:
        SimulationError: no take lifts the object, it was lost, or it crept further than allowed.
    """
    settings = config.task.grasp_check
    operator = ScriptedOperator(config)
    simulator, name = operator.simulator, operator.object
    demo = _first_take(operator, settings.max_tries)
    heights = demo.objects[name][:, 2, 3]
    top = int(np.argmax(np.where(demo.signals[operator.signal], heights, -np.inf)))
    simulator.reset(0, demo.q[0], {key: pose_to_pos_quat(poses[0]) for key, poses in demo.objects.items()})
    for q_target in demo.q_target[: top + 1]:
        simulator.step(0, q_target)

    def pose_in_hand() -> np.ndarray:  # (4, 4) T_ee_obj
        return invert_pose(simulator.ee_pose(0)) @ pose_from_pos_quat(simulator.object_pose(0, name))

    def hold(seconds: float) -> list[np.ndarray]:
        poses = []
        for _ in range(round(seconds / simulator.control_dt)):
            simulator.step(0, demo.q_target[top])
            poses.append(pose_in_hand())
        return poses

    hold(settings.settle_s)
    T_start = pose_in_hand()
    poses = np.array(hold(settings.hold_s))
    creep_m = float(np.linalg.norm(poses[:, :3, 3] - T_start[:3, 3], axis=-1).max())
    creep_rad = float(rotation_angle(T_start[:3, :3], poses[:, :3, :3]).max())
    lift_m = float(simulator.object_pose(0, name)[2] - heights[0])
    figures = {"lift_m": lift_m, "hold_s": settings.hold_s, "creep_m": creep_m, "creep_rad": creep_rad}
    if not jaw_touching(simulator, 0, name) or lift_m < config.task.active.success.grasp_lift_m:
        raise SimulationError(
            f"The jaw lost the {name} within {settings.hold_s} s ({figures}); see the contacts in scene.yaml"
        )
    if creep_m > settings.max_creep_m:
        raise SimulationError(
            f"The {name} crept {creep_m * 1000:.2f} mm in the closed jaw within {settings.hold_s} s; allowed are "
            f"{settings.max_creep_m * 1000:.2f} mm (task.grasp_check.max_creep_m). See impratio and the contacts in "
            "scene.yaml"
        )
    return StageResult("grasp-check", 1, figures)


def _first_take(operator: ScriptedOperator, tries: int) -> SeedDemo:
    causes = []
    for seed in islice(count(), tries):
        try:
            return operator.demo(seed)
        except TakeFailed as failure:
            causes.append(str(failure))
    raise SimulationError(
        f"The scripted operator did not carry the {operator.object} to its place in {tries} takes: {', '.join(causes)}. "
        "See impratio and the contacts in scene.yaml"
    )
