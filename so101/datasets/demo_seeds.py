""".demo files to HDF5 of seeds and back (docs/demo_files.md lists what each keeps).

Written are the seeds that the pipeline reads, and beside them the rows as robomimic names them: rewards, dones, obs and
next_obs. Those come back bit for bit. Of HDF5 files without them the rows are computed again by the task's family.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from so101.config import Config
from so101.datasets.demo_episode import DemoHeader, Episode, episode_fault, header_fault
from so101.datasets.demo_file import DemoFile
from so101.datasets.demo_rebuild import RecordedStates
from so101.datasets.demo_states import Words, action_to_rad, find_words, in_base, in_world
from so101.datasets.seeds import SeedDemo
from so101.datasets.seeds_hdf5 import natural_order, read_seeds, write_seeds
from so101.errors import DataError
from so101.families import FamilyTask
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat
from so101.pipeline.progress import Reporter

_ROWS = {
    "obs": "obs/state",
    "action": "normalised_actions",
    "reward": "rewards",
    "next_obs": "next_obs/state",
    "done": "dones",
    "flags": "flags",
}
_ABOUT = "demo"  # in the JSON attributes of a seed: header, seed and meta of its episode


def to_seeds(file: DemoFile, task: FamilyTask, out: Path, reporter: Reporter) -> tuple[list[Episode], list[str]]:
    """Write the successful episodes; returns them, and what of the file is not in it, in sentences.

    Raises:
        DataError: no episode succeeded.
    """
    successes = [(number, episode) for number, episode in enumerate(file.episodes) if episode.success]
    if not successes:
        raise DataError(
            f"none of {len(file.episodes)} episodes of task {file.header.task} succeeded, and a failure is no seed"
        )
    config, words = _config(task), find_words(file.header, task.family.config.robot.joint_names)
    reporter.start("convert", len(successes), unit="episodes")
    seeds, rows = [], []
    for number, episode in successes:
        seeds.append(_seed(number, episode, file.header, words, task, config))
        rows.append({path: np.asarray(getattr(episode, key)) for key, path in _ROWS.items()})
        reporter.advance(note=f"episode {number}")
    write_seeds(out, seeds, config, _forward_kinematics(config), rows)
    failed = len(file.episodes) - len(successes)
    notes = [f"{failed} episodes that did not succeed: seeds are successes"] if failed else []
    if task.family.declaration.workshop_task is None:
        notes.append(
            f"signals of subtasks: task.yaml has no task {task.name}, so `./twin generate` cannot multiply these"
        )
    elif unsignalled := [s.name for s in seeds if not all(signal.any() for signal in s.signals.values())]:
        notes.append(f"a grasp in {', '.join(unsignalled)}: none was seen, and `./twin seeds` will refuse it")
    return [episode for _, episode in successes], notes


def from_seeds(
    path: Path, task: FamilyTask | None, reporter: Reporter
) -> tuple[DemoHeader | None, list[Episode], list[str]]:
    """Episodes of an HDF5 file, their header where the file has it, and what of the file they do not have.

    Args:
        task: as which the rows are computed when the file has none; a task over a scene of the pipeline.

    Raises:
        DataError: not such a file, or of another task; rows that are damaged; no rows, and no task to compute them for.
    """
    if found := _written_rows(path):
        header, episodes = found
        if task is not None and task.name != header.task:
            raise DataError(f"{path}: rows of task {header.task!r}, not of {task.name!r}; leave --task out")
        return header, episodes, []
    if task is None:
        raise DataError(f"{path}: no rows of a .demo file in it; --task TASK computes them from joints and objects")
    if task.family.declaration.workshop_task is None:
        raise DataError(
            f"{path}: no rows of a .demo file in it, and task {task.name} is not one of task.yaml, whose seeds could "
            "be read instead; name one over a scene of the pipeline, as so101_vial_to_rack"
        )
    states, episodes = RecordedStates(task), []
    seeds = read_seeds(path, _config(task))
    reporter.start("convert", len(seeds), unit="episodes")
    for seed in seeds:
        objects = {name: in_world(pose_to_pos_quat(poses), task) for name, poses in seed.objects.items()}
        action = states.env.ctrl_to_action(seed.q_target)
        meta = {"from": seed.name, "source": seed.source}
        episodes.append(states.episode(seed.q, objects, action[:-1], success=True, meta=meta))
        reporter.advance(note=seed.name)
    notes = ["the last row of each seed (it has no next observation)", "the signals of subtasks"]
    notes.append("measured speeds and rewards, which seeds lack: those here are computed for each state")
    return None, episodes, notes


def _config(task: FamilyTask) -> Config:
    """The configuration seeds of this task belong to."""
    from so101.families.scene import workshop

    return workshop(task.family) if task.family.declaration.workshop_task else task.family.config


def _seed(
    number: int, episode: Episode, header: DemoHeader, words: Words, task: FamilyTask, config: Config
) -> SeedDemo:
    obs, declared = np.asarray(episode.obs, float), task.family.declaration
    objects = {name: in_base(obs[:, words.objects[name]], task) for name in words.present(obs)}
    signals = {}
    if declared.workshop_task is not None:
        names = [subtask.signal for subtask in config.task.active.subtasks if subtask.signal]
        signals = dict.fromkeys(names, _grasped(episode, words, task, config)) if len(names) == 1 else {}
    return SeedDemo(
        name=f"demo_{number}",
        task=declared.workshop_task or header.task,
        source=str(episode.meta.get("source", "demo file")),
        fps=config.scene.physics.control_hz if declared.workshop_task else header.control_hz,
        q_target=action_to_rad(episode.action, task),
        q=obs[:, words.joints],
        objects={name: pose_from_pos_quat(poses) for name, poses in objects.items()},
        signals=signals,
        attrs={_ABOUT: {"header": asdict(header), "seed": int(episode.seed), "meta": episode.meta}},
    )


def _grasped(episode: Episode, words: Words, task: FamilyTask, config: Config) -> np.ndarray:
    """(T,) bool: both jaws touch the object and it is lifted, as the operator's signal has it."""
    obs = np.asarray(episode.obs, float)
    objects = {name: obs[:, words.objects[name]] for name in words.present(obs)}
    seen = RecordedStates(task).along(obs[:, words.joints], objects, episode.action[:-1])
    height = objects[config.task.active.subtasks[0].object][:, 2]
    return seen.grasped & (height >= height[0] + config.task.active.success.grasp_lift_m)


def _forward_kinematics(config: Config):
    from so101.kinematics.arm import ArmKinematics

    arm = ArmKinematics(config)

    def fk(q: np.ndarray) -> np.ndarray:
        found = [arm.update(row) for row in q]
        return np.array([make_pose(R.copy(), p.copy()) for p, R in found])

    return fk


def _written_rows(path: Path) -> tuple[DemoHeader, list[Episode]] | None:
    """Header and episodes that `to_seeds` wrote; None when the file has none."""
    header, episodes = None, []
    try:
        with h5py.File(path, "r") as file:
            data = file.get("data")
            if not isinstance(data, h5py.Group):
                return None
            for name in sorted(data, key=natural_order):
                about = _about(data[name])
                if about is None:
                    return None
                own = DemoHeader(**about["header"])
                header = header or own
                columns = {key: data[name][place][()] for key, place in _ROWS.items()}
                success = bool(data[name].attrs.get("success", True))
                episode = Episode(**columns, seed=int(about["seed"]), success=success, meta=dict(about["meta"]))
                fault = header_fault(own) or header.difference(own) or episode_fault(episode, own)
                if fault:
                    raise DataError(f"{path}: data/{name}: its rows of a .demo file cannot be used: {fault}")
                episodes.append(episode)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: cannot be read as HDF5 of seeds ({' '.join(str(error).split())})") from None
    return (header, episodes) if header is not None else None


def _about(group: Any) -> dict[str, Any] | None:
    text = group.attrs.get("attrs") if isinstance(group, h5py.Group) else None
    about = json.loads(text).get(_ABOUT) if isinstance(text, str) else None
    return about if isinstance(about, dict) and all(place in group for place in _ROWS.values()) else None
