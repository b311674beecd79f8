"""Inverse kinematics: time of a Jacobian step, and what is left of the error along retargeted paths.

    .venv/bin/python benchmarks/ik.py            # about 30 s

Tracking is kinematic: a retargeted segment of attempt seeds from `--base-seed` is followed frame by frame as
generation does it, and FK of the joints is compared with the target. "servable rotation" leaves out the direction the
arm has no joint for.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from so101.config import load_config
from so101.datasets.seeding import make_seeds
from so101.datasets.seeds_hdf5 import read_seeds
from so101.geometry import pose_from_pos_quat, rotation_vector
from so101.kinematics import ArmKinematics, JacobianIk
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.skillgen.causes import AttemptFailed
from so101.skillgen.ik_rollout import AttemptRunner
from so101.tasks.placement import draw_placements

VARIANTS = {
    "position first": [],
    "position first, adaptive off": ["ik.jacobian.adaptive_rotation.enabled=false"],
    "weighted": ["ik.jacobian.formulation=weighted"],
    "weighted, adaptive off": ["ik.jacobian.formulation=weighted", "ik.jacobian.adaptive_rotation.enabled=false"],
}


def step_time_us(overrides: list[str], repeats: int = 5, steps: int = 2000) -> float:
    """Best of `repeats` mean times [us of CPU] of one Jacobian, DLS and clamp."""
    config = load_config(overrides=overrides)
    ik = JacobianIk(config)
    home = np.array([joint.home_rad for joint in config.robot.joints])
    T_base_target = ArmKinematics(config).fk(home)
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(steps):
            ik.step(home[:5] + 0.02, T_base_target)
        best = min(best, (time.process_time() - start) / steps)
    return best * 1e6


def unservable(kinematics: ArmKinematics, q: np.ndarray) -> np.ndarray:
    """(3,) unit rotation axis, in base, for which the arm has no joint freedom while the hand's position is held."""
    J = kinematics.jacobian(q)
    N = np.eye(5) - np.linalg.pinv(J[:3]) @ J[:3]
    return np.linalg.svd(J[3:] @ N)[0][:, 2]


def track(overrides: list[str], seeds_path: Path, base: list[str], attempts: int, base_seed: int) -> dict[str, float]:
    """Errors over all frames of the retargeted grasp segments of `attempts` placements."""
    config = load_config(overrides=[*base, *overrides])
    runner = AttemptRunner(config, read_seeds(seeds_path, config.of_seeds))
    kinematics, subtask = runner.simulator.kinematics, config.task.active.subtasks[0]
    home = np.array([joint.home_rad for joint in config.robot.joints])
    position, rotation, servable, iterations, unreachable = [], [], [], [], 0
    for seed in range(base_seed, base_seed + attempts):
        objects, _ = draw_placements(config, np.random.default_rng(seed))
        T_base_obj = pose_from_pos_quat(objects[subtask.object])
        for demo in runner._usable:
            segment = runner._segment(demo, 0, subtask.end_offset_frames[0])
            T_target, _ = runner._retargeted(segment, T_base_obj, runner._symmetry[subtask.object], None)
            try:
                q = runner.transits.goal(home[:5], T_target[0])
            except AttemptFailed:
                unreachable += 1
                continue
            for T in T_target:
                result = runner.ik.solve(q, T)
                q = result.q
                error = rotation_vector(T[:3, :3] @ kinematics.fk(q)[:3, :3].T)
                missing = unservable(kinematics, q)
                position.append(result.position_error_m * 1e3)
                rotation.append(np.rad2deg(result.rotation_error_rad))
                servable.append(np.rad2deg(np.linalg.norm(error - missing * (missing @ error))))
                iterations.append(result.iterations)
    return {
        "paths_unreachable": unreachable,
        "frames": len(position),
        "position_mm_mean": round(float(np.mean(position)), 3),
        "position_mm_p95": round(float(np.percentile(position, 95)), 3),
        "position_mm_max": round(float(np.max(position)), 2),
        "rotation_deg_mean": round(float(np.mean(rotation)), 2),
        "servable_rotation_deg_mean": round(float(np.mean(servable)), 2),
        "servable_rotation_deg_p95": round(float(np.percentile(servable, 95)), 2),
        "iterations_mean": round(float(np.mean(iterations)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--base-seed", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        make_seeds(load_config(), run, SilentReporter(), 1)
        for name, overrides in VARIANTS.items():
            figures = track(overrides, run.seeds, [], options.attempts, options.base_seed)
            report[name] = {"step_us": round(step_time_us(overrides), 1), **figures}
    table = Table("variant", *next(iter(report.values())))
    for name, row in report.items():
        table.add_row(name, *(str(value) for value in row.values()))
    Console(width=200).print(table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
