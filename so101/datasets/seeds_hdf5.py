"""Seed demonstrations on disk: HDF5 in the robomimic / Isaac Lab Mimic layout (docs/seeds.md has the table).

Writing gives equal bytes for equal seeds. Reading also takes files of other programs in that layout, or in MimicGen's
flat variant, and tells all that is missing or wrong at once.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from so101.config import Config
from so101.datasets.seeds import SeedDemo
from so101.errors import DataError
from so101.files import write_atomic
from so101.geometry import invert_pose, pose_from_pos_quat, pose_to_pos_quat

ForwardKinematics = Callable[[np.ndarray], np.ndarray]  # (T, 6) rad to (T, 4, 4) T_base_ee

EEF_NAME = "so101"
LAYOUT_VERSION = 1

# Where each array may lie in a demo group, best first. {name} is an object or a signal.
_COMMANDS = ("actions", "processed_actions", "obs/joint_pos_target")
_JOINTS = ("states/articulation/robot/joint_position", "obs/joint_pos")
_OBJECT_POSES = (
    "obs/datagen_info/object_pose/{name}",
    "states/rigid_object/{name}/root_pose",
    "datagen_info/object_poses/{name}",
)
_SIGNALS = ("obs/datagen_info/subtask_term_signals/{name}", "datagen_info/subtask_term_signals/{name}")
_BASE_POSES = ("states/articulation/robot/root_pose", "initial_state/articulation/robot/root_pose")
_EEF_TARGETS = (
    "obs/datagen_info/target_eef_pose",
    "obs/datagen_info/eef_pose",
    "datagen_info/target_pose",
    "datagen_info/eef_pose",
)

_RATE_TOLERANCE = 1e-3  # 29.97 Hz is 30 Hz
_RIGID_TOLERANCE = 1e-3  # of R^T R - 1 and of the length of a quaternion: float32 files pass, scaled matrices do not


def write_seeds(
    path: Path | str,
    seeds: Sequence[SeedDemo],
    config: Config,
    fk: ForwardKinematics,
    beside: Sequence[Mapping[str, np.ndarray]] = (),
) -> None:
    """Write `seeds` to `path`, atomically; equal seeds give equal bytes.

    Args:
        path: the HDF5 file.
        seeds: at least one, in order; they become data/demo_0, data/demo_1, ...
        config: gives task, joint names and control rate for `env_args`.
        fk: (T, 6) rad to (T, 4, 4) T_base_ee, e.g. `make_simulator(config).fk`, for the eef poses that other readers
            use.
        beside: of each seed, place in its group -> array to keep with it; none when empty.

    Raises:
        DataError: no seeds.
        OSError: the file cannot be written.
    """
    if not seeds:
        raise DataError(f"{path}: there is no seed demonstration to write; see seeds.json for why none was usable")
    # Built in memory: HDF5 takes the process down with it when the disk is full while it writes.
    with h5py.File(Path(path).name, "w", driver="core", backing_store=False, libver=("v108", "v108")) as file:
        data = _group(file, "data")
        data.attrs["total"] = sum(seed.num_frames for seed in seeds)
        data.attrs["env_args"] = json.dumps(
            {
                "env_name": seeds[0].task,
                "type": 2,
                "layout_version": LAYOUT_VERSION,
                "joint_names": list(config.robot.joint_names),
                "eef_name": EEF_NAME,
                "actions": "joint targets of the leader, rad",
                "poses": "in the robot base, quaternions w x y z",
            },
            sort_keys=True,
        )
        for index, seed in enumerate(seeds):
            group = _group(data, f"demo_{index}")
            _write_demo(group, seed, fk)
            for place, values in beside[index].items() if beside else ():
                _put(group, place, values)
        file.flush()
        content = file.id.get_file_image()
    write_atomic(path, lambda target: target.write(content))


def read_seeds(path: Path | str, config: Config) -> list[SeedDemo]:
    """Read and check seed demonstrations for the active task.

    Args:
        path: an HDF5 file of ours or of another program.
        config: its active task says which objects and signals are needed.

    Returns:
        one or more seeds, sorted by number (demo_2 before demo_10).

    Raises:
        DataError: not HDF5, truncated, no demos, or any demo with a missing or wrong field; all faults, one a line.
    """
    if Path(path).is_dir():
        raise DataError(f"{path}: a folder, not an HDF5 file of seeds; pass the file in it")
    try:
        with h5py.File(path, "r") as file:
            if not isinstance(file.get("data"), h5py.Group):
                raise DataError(
                    f"{path}: no group 'data' (top level: {', '.join(file) or 'empty'}); seeds are expected in "
                    f"data/demo_0, ..."
                )
            data = file["data"]
            names = sorted((name for name in data if isinstance(data[name], h5py.Group)), key=natural_order)
            if not names:
                raise DataError(
                    f"{path}: group 'data' holds no demonstration; record at least one, it becomes data/demo_0"
                )
            faults: list[str] = []
            _check_joint_order(data, f"{path}: data", config)
            seeds = [_read_demo(data[name], f"{path}: data/{name}", config, faults) for name in names]
    except FileNotFoundError:
        raise DataError(f"{path}: no such seed file; make one with the seeds stage or pass an existing .hdf5") from None
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(
            f"{path}: not an HDF5 file, or truncated ({' '.join(str(error).split())}); copy it again from where it was "
            f"recorded"
        ) from None
    faults += _double_names(seeds, str(path))
    if faults:
        raise DataError("\n".join(faults))
    return seeds


def _check_joint_order(data: h5py.Group, where: str, config: Config) -> None:
    """A file that says which joints its columns are must mean this robot's, in this order."""
    stored = _json_attribute(data.attrs.get("env_args")).get("joint_names")
    if stored is not None and stored != list(config.robot.joint_names):
        raise DataError(
            f"{where}: env_args says the joints are {stored}; needed are {', '.join(config.robot.joint_names)} in this "
            "order: reorder the columns, or correct robot.yaml"
        )


def _double_names(seeds: Sequence[SeedDemo | None], where: str) -> list[str]:
    """A demo of the result says by name which seed it comes from."""
    names = Counter(seed.name for seed in seeds if seed is not None)
    return [
        f"{where}: {count} demonstrations have the attribute name {name!r}; give each its own, or remove the attribute"
        for name, count in names.items()
        if count > 1
    ]


def check_seed(seed: SeedDemo, where: str, config: Config) -> list[str]:
    """Everything wrong with a seed for the active task, as sentences that start with `where`; none when it can be
    used."""
    joint_names, task = config.robot.joint_names, config.task.active
    faults = []
    for label, values in (("actions", seed.q_target), ("joint positions", seed.q)):
        if values.ndim != 2 or values.shape[1] != len(joint_names):
            faults.append(
                f"{where}: {label} have shape {values.shape}; needed are (T, {len(joint_names)}) joint angles in rad, "
                f"order {', '.join(joint_names)}"
            )
        elif not np.isfinite(values).all():
            frame, joint = np.argwhere(~np.isfinite(values))[0]
            faults.append(
                f"{where}: {label} hold {values[frame, joint]} at frame {frame}, joint {joint_names[joint]}; "
                "cut the frame out or drop the demonstration"
            )
        else:
            faults.extend(f"{where}: {label} {fault}" for fault in _range_faults(values, config))
    lengths = {"actions": len(seed.q_target), "joint positions": len(seed.q)}
    lengths |= {f"object {name}": len(poses) for name, poses in seed.objects.items()}
    lengths |= {f"signal {name}": len(signal) for name, signal in seed.signals.items()}
    if len(set(lengths.values())) > 1:
        faults.append(f"{where}: arrays differ in length ({', '.join(f'{k} {v}' for k, v in lengths.items())} frames)")
    elif seed.num_frames < 2:
        faults.append(f"{where}: {seed.num_frames} frames; a demonstration needs at least 2")
    for name, poses in seed.objects.items():
        faults.extend(f"{where}: object {name}: {fault}" for fault in _pose_faults(poses))
    faults.extend(f"{where}: {fault}" for fault in _signal_faults(seed, [s.signal for s in task.subtasks if s.signal]))
    return faults


def _range_faults(values: np.ndarray, config: Config) -> list[str]:
    """Angles no joint of this arm reaches: mostly degrees."""
    margin = config.teleop.unit_detection.range_margin_rad
    lower, upper = (
        np.array([getattr(joint, key) for joint in config.robot.joints]) for key in ("lower_rad", "upper_rad")
    )
    beyond = np.argwhere((values < lower - margin) | (values > upper + margin))
    if not beyond.size:
        return []
    frame, joint = beyond[0]
    return [
        f"hold {values[frame, joint]:g} at frame {frame}, joint {config.robot.joint_names[joint]}, whose range is "
        f"{lower[joint]:g} to {upper[joint]:g} rad ({len(beyond)} such values); seeds in HDF5 are in rad, degrees go "
        "through a CSV or LeRobot folder"
    ]


def _pose_faults(poses: np.ndarray) -> list[str]:
    if poses.ndim != 3 or poses.shape[1:] != (4, 4):
        return [
            f"poses have shape {poses.shape}; needed are (T, 4, 4) matrices or (T, 7) position and quaternion w x y z"
        ]
    if not np.isfinite(poses).all():
        return [f"pose at frame {np.argwhere(~np.isfinite(poses))[0][0]} is not finite"]
    R = poses[:, :3, :3]
    error = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max(axis=(1, 2))
    error = np.maximum(error, np.abs(poses[:, 3] - [0, 0, 0, 1]).max(axis=1))
    error = np.where(np.linalg.det(R) < 0, np.inf, error)
    bad = np.flatnonzero(error > _RIGID_TOLERANCE)
    if bad.size:
        return [
            f"pose at frame {bad[0]} is no rigid transform ({bad.size} such frames); rotation must be orthonormal, "
            f"det +1"
        ]
    return []


def _signal_faults(seed: SeedDemo, needed: Sequence[str]) -> list[str]:
    faults, ends = [], {}
    for name in needed:
        if name not in seed.signals:
            continue  # reported as missing by the reader
        signal = np.asarray(seed.signals[name])
        if signal.size == 0:
            continue  # the length is reported already
        if not np.isin(signal, (0, 1)).all():
            faults.append(f"signal {name} holds values other than 0 and 1")
        elif signal[0]:
            faults.append(f"signal {name} is 1 at frame 0 already; it must rise when its subtask ends")
        elif not signal.any():
            faults.append(
                f"signal {name} never rises from 0 to 1, so its subtask never ends; annotate the demonstration again"
            )
        else:
            ends[name] = int(np.argmax(signal))
    order = [name for name in needed if name in ends]
    for before, after in zip(order, order[1:], strict=False):
        if ends[after] <= ends[before]:
            faults.append(
                f"signal {after} rises at frame {ends[after]}, not after {before} (frame {ends[before]}); "
                f"the task's order is {', '.join(needed)}"
            )
    return faults


def natural_order(name: str) -> tuple[str, int, str]:
    """Sort key of demo names: demo_2 before demo_10."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits else -1, name


def _group(parent: h5py.Group, name: str) -> h5py.Group:
    return parent.require_group(name)


def _put(group: h5py.Group, path: str, values: np.ndarray) -> None:
    group.create_dataset(path, data=values, track_times=False)


def _write_demo(group: h5py.Group, seed: SeedDemo, fk: ForwardKinematics) -> None:
    q, q_target = np.asarray(seed.q, np.float64), np.asarray(seed.q_target, np.float64)
    group.attrs["num_samples"] = seed.num_frames
    group.attrs["success"] = True
    for key in ("name", "task", "source", "fps"):
        group.attrs[key] = getattr(seed, key)
    group.attrs["attrs"] = json.dumps(seed.attrs, sort_keys=True)
    base = np.array([[0.0, 0, 0, 1, 0, 0, 0]])
    _put(group, "actions", q_target)
    _put(group, "initial_state/articulation/robot/joint_position", q[:1])
    _put(group, "initial_state/articulation/robot/joint_velocity", np.zeros_like(q[:1]))
    _put(group, "initial_state/articulation/robot/root_pose", base)
    _put(group, "states/articulation/robot/joint_position", q)
    _put(group, "states/articulation/robot/root_pose", np.repeat(base, len(q), axis=0))
    for name, poses in seed.objects.items():
        pos_quat = pose_to_pos_quat(np.asarray(poses, np.float64))
        _put(group, f"initial_state/rigid_object/{name}/root_pose", pos_quat[:1])
        _put(group, f"initial_state/rigid_object/{name}/root_velocity", np.zeros((1, 6)))
        _put(group, f"states/rigid_object/{name}/root_pose", pos_quat)
        _put(group, f"obs/datagen_info/object_pose/{name}", np.asarray(poses, np.float64))
    _put(group, "obs/joint_pos", q)
    _put(group, f"obs/datagen_info/eef_pose/{EEF_NAME}", fk(q))
    _put(group, f"obs/datagen_info/target_eef_pose/{EEF_NAME}", fk(q_target))
    for name, signal in seed.signals.items():
        _put(group, f"obs/datagen_info/subtask_term_signals/{name}", np.asarray(signal, bool))


def _find(group: h5py.Group, candidates: Sequence[str]) -> h5py.Dataset | None:
    return next((group[path] for path in candidates if isinstance(group.get(path), h5py.Dataset)), None)


def _numbers(dataset: h5py.Dataset, where: str) -> np.ndarray:
    if dataset.dtype.kind not in "fiub":
        raise DataError(f"{where}: {dataset.name} holds {dataset.dtype}, not numbers")
    if dataset.ndim == 0:
        raise DataError(f"{where}: {dataset.name} is a single number; needed is one row a frame")
    return np.asarray(dataset[()], np.float64)


def _known(group: h5py.Group, templates: Sequence[str]) -> list[str]:
    """Names present under the folders of `templates`, for 'this file has ...' texts."""
    found: set[str] = set()
    for template in templates:
        folder = group.get(template.partition("/{name}")[0])
        found.update(folder if isinstance(folder, h5py.Group) else ())
    return sorted(found)


def _looked_for(paths: Sequence[str], **names: str) -> str:
    return " or ".join(path.format(**names) for path in paths)


def _read_demo(group: h5py.Group, where: str, config: Config, faults: list[str]) -> SeedDemo | None:
    """One demo; what is missing or wrong is appended to `faults` and None returned."""
    task = config.task.active
    missing: list[str] = []
    q_target, q = _find(group, _COMMANDS), _find(group, _JOINTS)
    if q_target is None:
        missing.append(f"joint targets ({_looked_for(_COMMANDS)})")
    if q is None:
        only_eef = any(path in group for path in _EEF_TARGETS)
        missing.append(
            f"measured joints ({_looked_for(_JOINTS)})"
            + (
                "; it has end-effector poses only, and joints cannot be had from them on a 5-joint arm"
                if only_eef
                else ""
            )
        )
    objects, signals = {}, {}
    for name in task.objects:
        objects[name] = _find(group, [path.format(name=name) for path in _OBJECT_POSES])
        if objects[name] is None:
            known = ", ".join(_known(group, _OBJECT_POSES)) or "none"
            missing.append(f"poses of object {name} ({_looked_for(_OBJECT_POSES, name=name)}; objects here: {known})")
    for name in (subtask.signal for subtask in task.subtasks if subtask.signal):
        signals[name] = _find(group, [path.format(name=name) for path in _SIGNALS])
        if signals[name] is None:
            known = ", ".join(_known(group, _SIGNALS)) or "none"
            missing.append(f"signal {name} ({_looked_for(_SIGNALS, name=name)}; signals here: {known})")
    attrs = dict(group.attrs)
    stored_task = str(attrs.get("task", config.task.name))
    if stored_task != config.task.name:
        faults.append(
            f"{where}: recorded for task {stored_task!r}, the active one is {config.task.name!r}; --set "
            f"task.name={stored_task}"
        )
        return None
    if "success" in attrs and not attrs["success"]:
        faults.append(
            f"{where}: marked as failed (attribute success is false); remove it from the file, a failure is no seed"
        )
    if missing:
        faults.append(f"{where} lacks " + "; ".join(missing))
        return None
    try:
        seed = SeedDemo(
            name=str(attrs.get("name", group.name.rpartition("/")[2])),
            task=config.task.name,
            source=str(attrs.get("source", f"{Path(group.file.filename).name}{group.name}")),
            fps=_rate(attrs, where, config),
            q_target=_numbers(q_target, where),
            q=_numbers(q, where),
            objects=_objects_in_base(group, {name: _numbers(d, where) for name, d in objects.items()}, where),
            signals={name: _numbers(d, where).reshape(len(d), -1)[:, 0] for name, d in signals.items()},
            attrs=_json_attribute(attrs.get("attrs")),
        )
    except DataError as error:
        faults.append(str(error))
        return None
    new = check_seed(seed, where, config)
    faults.extend(new)
    if new:
        return None
    return _with_bool_signals(seed)


def _rate(attrs: dict[str, Any], where: str, config: Config) -> float:
    """Hz. A row is sent every control period, so this must be the control rate; it is where the attribute is absent."""
    control_hz = config.scene.physics.control_hz
    stored = attrs.get("fps", control_hz)
    try:
        fps = float(stored)
    except (TypeError, ValueError):
        fps = math.nan
    if not math.isclose(fps, control_hz, rel_tol=_RATE_TOLERANCE):
        raise DataError(
            f"{where}: attribute fps is {stored}, the twin is controlled at {control_hz:g} Hz "
            "(scene.physics.control_hz); resample the demonstration to that rate"
        )
    return fps


def _with_bool_signals(seed: SeedDemo) -> SeedDemo:
    return SeedDemo(**{**vars(seed), "signals": {name: signal.astype(bool) for name, signal in seed.signals.items()}})


def _objects_in_base(group: h5py.Group, objects: dict[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Poses (T, 7) or (T, 4, 4) as T_base_obj (T, 4, 4). Isaac Lab stores poses of objects and of the robot's root in
    the frame of the environment; a file without a root pose has poses in the base already."""
    stored = _find(group, _BASE_POSES)
    T_env_base = None if stored is None else _as_matrices(_numbers(stored, where), "robot root pose", where)[0]
    result = {}
    for name, poses in objects.items():
        T_env_obj = _as_matrices(poses, f"object {name}", where)
        identity = T_env_base is None or np.array_equal(T_env_base, np.eye(4))
        result[name] = T_env_obj if identity else invert_pose(T_env_base) @ T_env_obj
    return result


def _as_matrices(poses: np.ndarray, label: str, where: str) -> np.ndarray:
    if poses.ndim == 2 and poses.shape[1] == 7:
        length_error = np.abs(np.linalg.norm(poses[:, 3:], axis=1) - 1)
        if not (length_error < _RIGID_TOLERANCE).all():  # also catches nan
            frame = int(np.argmax(~(length_error < _RIGID_TOLERANCE)))
            raise DataError(
                f"{where}: {label}: pose at frame {frame} is no rigid transform (quaternion {poses[frame, 3:]} not "
                f"of length 1)"
            )
        return pose_from_pos_quat(poses)
    if poses.ndim == 3 and poses.shape[1:] == (4, 4):
        return poses
    raise DataError(
        f"{where}: {label}: poses have shape {poses.shape}; needed are (T, 4, 4) matrices or (T, 7) position and "
        f"quaternion w x y z"
    )


def _json_attribute(text: Any) -> dict[str, Any]:
    if not isinstance(text, (str, bytes)):
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
