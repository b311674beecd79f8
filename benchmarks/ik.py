"""Inverse kinematics: time of a Jacobian step and what is left of the error along retargeted paths; then goals, where
cuRobo's search from many start joints, one target at a time and in batches, stands beside Jacobian solves.

    .venv/bin/python benchmarks/ik.py            # about a minute of CPU, half of it cuRobo

Goals are first poses of retargeted grasp segments, from home. A goal is reached within the tolerances of
skillgen.transit. "raw" is cuRobo's own answer, without the Jacobian steps that finish it (ik.curobo.polish_iterations).

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
import torch
from rich.console import Console
from rich.table import Table

from so101.config import load_config
from so101.config.task import SubtaskConfig
from so101.datasets.seeding import make_seeds
from so101.datasets.seeds_hdf5 import read_seeds
from so101.errors import ConfigError
from so101.geometry import pose_from_pos_quat, rotation_vector
from so101.kinematics import ArmKinematics, IkBackend, IkResult, JacobianIk, make_ik
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.skillgen.causes import AttemptFailed
from so101.skillgen.ik_rollout import AttemptRunner
from so101.skillgen.subtasks import Segment
from so101.tasks.placement import draw_placements

VARIANTS = {
    "position first": [],
    "position first, adaptive off": ["ik.jacobian.adaptive_rotation.enabled=false"],
    "weighted": ["ik.jacobian.formulation=weighted"],
    "weighted, adaptive off": ["ik.jacobian.formulation=weighted", "ik.jacobian.adaptive_rotation.enabled=false"],
}
BATCHES = (8, 64)


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
        for segment in runner.pool.candidates(0, subtask.end_offset_frames[0]):
            T_target = runner.planner.retargeted(subtask, segment, T_base_obj, None)
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


def grasp_path(runner: AttemptRunner, subtask: SubtaskConfig, segment: Segment, T_base_obj: np.ndarray) -> np.ndarray:
    """(n, 4, 4) poses of a grasp as generation tries them first: retargeted, turned to what the arm serves."""
    return next(runner.planner._paths(subtask, segment, [T_base_obj], None))


def goal_targets(seeds_path: Path, count: int, base_seed: int) -> np.ndarray:
    """(count, 4, 4) first poses of grasp segments, the n-th of the placement of seed base_seed + n."""
    config = load_config()
    runner, subtask = AttemptRunner(config, read_seeds(seeds_path, config.of_seeds)), config.task.active.subtasks[0]
    segments = runner.pool.candidates(0, subtask.end_offset_frames[0])
    targets = []
    for n in range(count):
        objects, _ = draw_placements(config, np.random.default_rng(base_seed + n))
        T_base_obj = pose_from_pos_quat(objects[subtask.object])
        targets.append(grasp_path(runner, subtask, segments[n % len(segments)], T_base_obj)[0])
    return np.array(targets)


def solve_goals(targets: np.ndarray) -> dict[str, dict[str, float]]:
    """method -> CPU time a target, errors, share reached, of goals (n, 4, 4) from home."""
    config = load_config()
    transit = config.skillgen.transit
    home = np.array([joint.home_rad for joint in config.robot.joints[:5]])
    kinematics = ArmKinematics(config)
    jacobian = JacobianIk(config, kinematics)
    starts = np.array([home, *([0.0, *posture] for posture in transit.postures_rad)])

    def from_postures(T: np.ndarray) -> IkResult:
        azimuth = np.arctan2(*(T[:2, 3] - transit.pan_axis_m)[::-1])
        turned = np.column_stack([[home[0], *[-azimuth] * (len(starts) - 1)], starts[:, 1:]])
        results = list(jacobian.solve_from(turned, T, transit.goal_iterations))
        return min(results, key=lambda r: (r.position_error_m > transit.goal_tolerance_m, r.rotation_error_rad))

    def batched(ik: IkBackend, size: int) -> list[IkResult]:
        groups = [targets[i : i + size] for i in range(0, len(targets) - size + 1, size)]
        return [r for group in groups for r in ik.solve_batch(np.repeat(home[None], size, 0), group)]

    methods = {
        f"Jacobian, home, {transit.goal_iterations} iterations": lambda: [
            jacobian.solve(home, T, transit.goal_iterations) for T in targets
        ],
        f"Jacobian, {len(starts)} starts": lambda: [from_postures(T) for T in targets],
    }
    try:
        raw = make_ik(load_config(overrides=["ik.backend=curobo", "ik.curobo.polish_iterations=0"]), kinematics)
        finished = make_ik(load_config(overrides=["ik.backend=curobo"]), kinematics)
    except ConfigError as error:
        Console().print(f"without cuRobo: {error}")
    else:
        effort = f"{raw.settings.goal.seeds} x {raw.settings.goal.iterations}"
        single = targets[: len(targets) // 4]  # half a second each
        methods[f"cuRobo {effort}, raw, single"] = lambda: [next(raw.solve_from(home[None], T)) for T in single]
        for size in BATCHES:
            methods[f"cuRobo {effort}, raw, batch of {size}"] = lambda size=size: batched(raw, size)
        methods[f"cuRobo {effort}, finished, batch of {BATCHES[-1]}"] = lambda: batched(finished, BATCHES[-1])
        torch.set_num_threads(1)
        for ik, size in ((raw, 1), *((raw, size) for size in BATCHES), (finished, BATCHES[-1])):
            ik.solve_batch(np.repeat(home[None], size, 0), targets[:size])  # solvers are built on first use
    report = {}
    for name, method in methods.items():
        start = time.process_time()
        results = method()
        cpu = time.process_time() - start
        position = np.array([r.position_error_m for r in results]) * 1e3
        rotation = np.rad2deg([r.rotation_error_rad for r in results])
        reached = (position <= transit.goal_tolerance_m * 1e3) & (rotation <= np.rad2deg(transit.goal_tolerance_rad))
        report[name] = {
            "targets": len(results),
            "cpu_ms_per_target": round(cpu / len(results) * 1e3, 2),
            "position_mm_median": round(float(np.median(position)), 4),
            "position_mm_p95": round(float(np.percentile(position, 95)), 3),
            "rotation_deg_median": round(float(np.median(rotation)), 2),
            "rotation_deg_p95": round(float(np.percentile(rotation, 95)), 2),
            "reached": round(float(reached.mean()), 3),
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--base-seed", type=int, default=10_000)
    parser.add_argument("--targets", type=int, default=64, help="goals, a multiple of 64")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        make_seeds(load_config(), run, SilentReporter(), 1)
        for name, overrides in VARIANTS.items():
            figures = track(overrides, run.seeds, [], options.attempts, options.base_seed)
            report[name] = {"step_us": round(step_time_us(overrides), 1), **figures}
        goals = solve_goals(goal_targets(run.seeds, options.targets, options.base_seed))
    for title, rows in (("along paths", report), ("goals", goals)):
        table = Table("variant", *next(iter(rows.values())), title=title)
        for name, row in rows.items():
            table.add_row(name, *(str(value) for value in row.values()))
        Console(width=200).print(table)
    report = {"paths": report, "goals": goals}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
