"""Synthetic run folders: plausible arrays without physics, for the report's tests and for looking at the page.

``python -m evaluation.factory FOLDER`` (from tests/) writes a demonstration page.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from so101.config import Config, load_config
from so101.datasets.demo import Demo, save_demo
from so101.datasets.seeds import SeedDemo
from so101.datasets.seeds_hdf5 import write_seeds
from so101.files import write_json
from so101.geometry import (
    invert_pose,
    make_pose,
    pose_from_pos_quat,
    pose_to_pos_quat,
    rotation_about_axis,
    rotation_from_quat,
)
from so101.pipeline.run_folder import RunFolder

FPS = 30.0
X, Z = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
CAUSES = ("grasp_missed", "slipped", "dropped", "rack_collision", "not_inserted", "unreachable")


def world_base(config: Config) -> np.ndarray:
    """T_world_base, written out once more so that the code under test is not its own judge."""
    return make_pose(rotation_about_axis(Z, config.robot.base_yaw_rad), np.array(config.robot.base_position_m))


def start_pose(config: Config, name: str, x=0.0, y=0.0, roll=0.0, yaw=0.0) -> np.ndarray:
    """(7,) pose in base of an object drawn with these offsets, as the placement of the task defines them."""
    placement = config.task.active.objects[name]
    R_nominal = rotation_from_quat(np.array(placement.quat_wxyz))
    pivot = np.array(placement.yaw_center_m)
    R = rotation_about_axis(Z, yaw) @ R_nominal @ rotation_about_axis(X, roll)
    position = np.array(placement.position_m) + [x, y, 0.0] + R_nominal @ pivot - R @ pivot
    return pose_to_pos_quat(invert_pose(world_base(config)) @ make_pose(R, position))


def joint_path(config: Config, frames: int, rng: np.random.Generator, roughness: float) -> np.ndarray:
    """(T, 6) rad: a smooth random path from home, rough commands, a jaw that closes and opens."""
    home = np.array([joint.home_rad for joint in config.robot.joints])
    time = np.linspace(0, 1, frames)[:, None]
    waves = np.sin(2 * np.pi * time * rng.uniform(0.3, 1.2, 6) + rng.uniform(0, 2, 6))
    q = home + 0.5 * np.sin(np.pi * time) ** 2 * waves + rng.normal(0, roughness, (frames, 6))
    q[:, 5] = np.where((time[:, 0] > 0.4) & (time[:, 0] < 0.85), 0.1, 1.0)
    limits = np.array([(joint.lower_rad, joint.upper_rad) for joint in config.robot.joints])
    return q.clip(*limits.T)


def make_demo(
    config: Config,
    index: int,
    *,
    cause: str = "",
    geometric: bool | None = None,
    frames: int | None = None,
    roughness: float = 2e-3,
    sources: tuple[str, ...] | None = None,
) -> Demo:
    """A demo whose objects start inside their ranges; a strict success unless `cause` is given."""
    rng = np.random.default_rng(index)
    frames = frames or int(rng.normal(270, 25))
    q_target = joint_path(config, frames, rng, roughness)
    objects = {}
    for name, placement in config.task.active.objects.items():
        draw = {key: rng.uniform(*getattr(placement, f"{key}_{unit}")) for key, unit in
                (("x", "m"), ("y", "m"), ("roll", "rad"), ("yaw", "rad"))}  # fmt: skip
        objects[name] = np.tile(start_pose(config, name, **draw), (frames, 1))
    names = [f"demo_{min(int(rng.exponential(1.6)), 4)}" for _ in config.task.active.subtasks]
    split = frames // 2
    return Demo(
        index=index,
        seed=10_000 + index,
        task=config.task.name,
        fps=FPS,
        q_target=q_target,
        q=np.concatenate([q_target[:1], 0.5 * (q_target[1:] + q_target[:-1])]),
        objects=objects,
        physics_state=np.zeros(4),
        cause=cause,
        strict=not cause,
        geometric=not cause if geometric is None else geometric,
        meta={
            "sources": list(sources or names),
            "subtasks": [["grasp", 0, split], ["place", split, frames]],
            "randomisation": {},
            "diagnostics": {},
        },
    )


def make_seed(config: Config, number: int, fk) -> SeedDemo:
    """A slower, longer demonstration."""
    rng = np.random.default_rng(1000 + number)
    frames = int(rng.uniform(420, 680))
    q_target = joint_path(config, frames, rng, 1e-3)
    starts = {name: pose_from_pos_quat(start_pose(config, name)) for name in config.task.active.objects}
    objects = {name: np.tile(pose, (frames, 1, 1)) for name, pose in starts.items()}
    signals = {s.signal: np.arange(frames) > frames // 2 for s in config.task.active.subtasks if s.signal}
    return SeedDemo(f"demo_{number}", config.task.name, "operator", FPS, q_target, q_target, objects, signals)


def write_video(path: Path, frames: int = 30, colour: int = 0, size: tuple[int, int] = (160, 120)) -> Path:
    """A short h264 video: a bar that wanders over a tinted ground; grey level of the ground = frame number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(int(FPS)))
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number in range(frames):
            image = np.full((size[1], size[0], 3), 4 * number, np.uint8)
            image[..., colour % 3] = 200
            left = int((size[0] - 20) * number / max(frames - 1, 1))
            image[size[1] // 3 : 2 * size[1] // 3, left : left + 20] = (250, 200, 60)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


def write_seeds_report(run: RunFolder, candidates: list[dict], source: str = "recordings") -> None:
    """seeds.json with what the report reads of it."""
    assumptions = ["units: degrees (ticks)", "object upright between the jaws where they closed"]
    write_json(run.seeds_report, {"source": source, "assumptions": assumptions, "candidates": candidates})


def make_run(
    config: Config,
    folder: Path,
    *,
    attempts: int = 40,
    success_rate: float = 0.8,
    videos: int = 2,
    seeds: int = 4,
    fk=None,
    video_size: tuple[int, int] = (160, 120),
) -> RunFolder:
    """A whole run. `fk` (T, 6) -> (T, 4, 4) is needed when there are seeds."""
    run, rng = RunFolder(folder), np.random.default_rng(7)
    if seeds:
        write_seeds(run.seeds, [make_seed(config, i, fk) for i in range(seeds)], config, fk)
    kept = {"kept": True, "cause": "", "frames": 500, "offsets_deg": [0.0, 1.5], "objects_given": []}
    entries = [{"name": f"demo_{i}", **kept} for i in range(seeds)]
    entries.append({"name": "demo_bad", "kept": False, "cause": "grasp_missed", "tries": 40})
    write_seeds_report(run, entries)
    strict, geometric = [], []
    for index in range(attempts):
        good = rng.random() < success_rate
        cause = "" if good else CAUSES[min(int(rng.exponential(1.5)), len(CAUSES) - 1)]
        demo = make_demo(config, index, cause=cause, geometric=good or cause == "not_inserted")
        save_demo(run.generated if demo.geometric else run.failed, demo)
        strict += [index] * good
        geometric += [index] * demo.geometric
    write_json(run.filter_report, {"geometric": geometric, "strict": strict, "kept": strict})
    verified = []
    for place, index in enumerate(strict):
        smooth = make_demo(config, index, roughness=2e-4)
        save_demo(run.smoothed, smooth)
        if place % 13 == 12:
            save_demo(run.rejected, smooth.replace(cause="slipped", strict=False, geometric=False))
        else:
            save_demo(run.verified, smooth)
            verified.append(index)
    for index in verified[:videos]:
        for number, camera in enumerate(("ego", "side", "top")):
            write_video(run.video(index, camera), colour=number, size=video_size)
    if videos:
        info = {"total_episodes": len(verified[:videos]), "total_frames": 270 * len(verified[:videos])}
        write_json(run.dataset / "meta" / "info.json", info)
    return run


if __name__ == "__main__":
    from so101.evaluation.report import write_report
    from so101.kinematics.arm import ArmKinematics
    from so101.pipeline.progress import SilentReporter

    config = load_config()
    target = Path(sys.argv[1])
    fk = ArmKinematics(config).fk
    made = make_run(config, target, attempts=400, success_rate=0.88, videos=8, seeds=5, fk=fk, video_size=(640, 480))
    write_report(config, made, SilentReporter(), 1)
    print(made.report / "index.html")
