"""Checks of what the numbers mean: joints, units, movement, copies. Suspicious things are warnings."""

from __future__ import annotations

import hashlib

import numpy as np

from so101.config import Config
from so101.config.training import DatasetCheckConfig
from so101.datasets.checks.base import MARKER, VECTORS, Dataset, Findings, listed
from so101.datasets.unit_detection import Unit, detect_units
from so101.errors import DataError

_UNITS: dict[str, Unit] = {"degrees": "degrees", "normalized": "normalised"}  # of dataset.yaml -> of the detection
_RADIANS_BELOW = np.pi * 1.001  # an arm whose five joints all stay below 3.2 degrees does nothing
_DETECTION_ROWS = 20_000  # looked at; more say nothing new
_COURSE_POINTS = 64  # of an episode, when two courses are compared
_CONVERT_RADIANS = "./twin merge FOLDER:1:a --units a=radians --to-units degrees --out OTHER"
_PERCENT_SLACK = 1.0  # that rounding may leave beyond 100


def check_motion(data: Dataset, findings: Findings, config: Config, marker: dict | None, sources: dict | None) -> None:
    """All of this module. `marker`, `sources`: what ./twin dataset and ./twin merge wrote in meta/, when they did."""
    in_order = _joints(data, findings, config.robot.joint_names)
    if not (data.complete and in_order) or any(
        not np.isfinite(c[k]).all() for c in data.columns for k in VECTORS.values()
    ):
        return
    written = _written_units(findings, config, marker)
    for key in VECTORS.values():
        _units(data, findings, config, key, written)
    _movement(data, findings, config.training.dataset_check)
    _duplicates(data, findings, config.training.dataset_check, sources)


def _joints(data: Dataset, findings: Findings, joints: list[str]) -> bool:
    """Names as LeRobot writes them, JOINT.pos; `main_` in front is that of its first SO-100 datasets."""
    findings.looked("joints")
    right = True
    for key in VECTORS.values():
        names = data.features[key]["names"]
        names = names.get("motors") if isinstance(names, dict) else names
        listed_names = names if isinstance(names, list) else []
        plain = [str(name).removeprefix("main_").removesuffix(".pos") for name in listed_names]
        if data.features[key]["shape"] != [len(joints)]:
            findings.error(
                "joints", f"meta/info.json: {key} has {data.features[key]['shape']} values, the arm has {len(joints)}"
            )
            right = False
        elif plain != list(joints):
            findings.error("joints", f"meta/info.json: {key} is {names}, the order is {', '.join(joints)}")
    return right


def _units(data: Dataset, findings: Findings, config: Config, key: str, written: str | None) -> None:
    """Radians, which fit every range; ranges of the joints; then, of foreign data, what else the numbers show.

    A dataset of ours says its unit (`written`), and its joints are no encoder's: only ranges can contradict it.
    """
    findings.looked("units")
    body, joints = config.dataset.units.body, config.robot.joints
    values = np.concatenate([columns[key] for columns in data.columns]).astype(float)
    arm, jaw = values[:, :-1], values[:, -1]
    says = f"dataset.units.body says {body}"
    if np.abs(arm).max() <= _RADIANS_BELOW:
        text = f"no joint leaves {np.abs(arm).max():.3g}, which looks like radians; {says}"
        findings.error("units", f"{key}: {text}", _CONVERT_RADIANS)
        return
    if jaw.min() < -_PERCENT_SLACK or jaw.max() > 100 + _PERCENT_SLACK:
        text = f"the jaw reaches {jaw.min():.4g} .. {jaw.max():.4g}; LeRobot has it from 0 (closed) to 100 (open)"
        findings.error("units", f"{key}: {text}")
    limits = np.full(len(joints) - 1, 100 + _PERCENT_SLACK)
    if body == "degrees":
        unswept, margin_rad = config.teleop.unit_detection.unswept_joint, config.teleop.unit_detection.range_margin_rad
        limits = np.degrees([max(-joint.lower_rad, joint.upper_rad) + margin_rad for joint in joints[:-1]])
        limits[[joint.name == unswept for joint in joints[:-1]]] = 181.0  # a whole turn
    beyond = np.abs(arm).max(0) - limits
    if (beyond > 0).any():
        joint = int(np.argmax(beyond))
        text = f"{joints[joint].name} reaches {np.abs(arm[:, joint]).max():.4g}, the arm {limits[joint]:.4g}; {says}"
        findings.error("units", f"{key}: {text}")
    elif written is None:
        found = _detected(arm, config)
        if found not in (None, _UNITS[body]):
            findings.error("units", f"{key}: the joints look like {found}; {says}")


def _detected(arm: np.ndarray, config: Config) -> Unit | None:
    """The unit of (T, 5) body joints when the numbers decide it.

    The jaw is alike in both units of a dataset, and a joint that ends at 100 degrees looks clamped at 100 percent: both
    are left out.
    """
    ends = [max(-joint.lower_rad, joint.upper_rad) for joint in config.robot.joints[:-1]]
    told = [column for column, end in enumerate(ends) if abs(np.degrees(end) - 100) > _PERCENT_SLACK]
    rows = arm[:: max(1, len(arm) // _DETECTION_ROWS)][:, told]
    try:
        return detect_units(rows, [config.robot.joint_names[column] for column in told], config).unit
    except DataError:
        return None


def _written_units(findings: Findings, config: Config, marker: dict | None) -> str | None:
    """The unit that a dataset of ours says it is in; another than the configuration's is a fault."""
    units = (marker or {}).get("units")
    written = units.get("body") if isinstance(units, dict) else None
    if written is not None and written != config.dataset.units.body:
        text = f"written in {written}; dataset.units.body says {config.dataset.units.body}"
        findings.error("units", f"meta/{MARKER}: {text}")
    return written


def _movement(data: Dataset, findings: Findings, settings: DatasetCheckConfig) -> None:
    findings.looked("motion", "gripper", "action_copies_state")
    copies, stuck, still, unused = [], [], [], []
    for index, columns in enumerate(data.columns):
        state, action = columns["observation.state"], columns["action"]
        follows, commanded = (np.ptp(x[:, :-1], axis=0).max() for x in (state, action))
        if np.array_equal(state, action):
            copies.append(index)
        if commanded < settings.arm_min_travel:
            still.append(index)
        elif follows < settings.arm_min_travel:
            stuck.append(index)
        if np.ptp(action[:, -1]) < settings.gripper_min_travel:
            unused.append(index)
    if copies:
        findings.error("action_copies_state", f"action equals observation.state in every row of {listed(copies)}")
    if stuck:
        findings.error("motion", f"observation.state stands still while the arm is commanded in {listed(stuck)}")
    if still:
        findings.warn("motion", f"the arm is not commanded to move in {listed(still)}")
    if unused:
        findings.warn(
            "gripper", f"the gripper's command moves by less than {settings.gripper_min_travel:g} in {listed(unused)}"
        )


def _duplicates(data: Dataset, findings: Findings, settings: DatasetCheckConfig, sources: dict | None) -> None:
    """Equal bytes are copies; courses that nearly agree when stretched to one length are probably.

    ./twin merge repeats the episodes of a source on purpose, for weights that GR00T does not know, and refuses others.
    """
    findings.looked("duplicates")
    source = _source_of(sources)
    seen: dict[bytes, int] = {}
    fresh = []
    for index, columns in enumerate(data.columns):
        digest = hashlib.blake2b(b"".join(np.ascontiguousarray(columns[key]) for key in VECTORS.values())).digest()
        if digest in seen and index in source and source[index] == source.get(seen[digest]):
            continue
        if digest in seen:
            findings.error("duplicates", f"episode {index} has the states and actions of episode {seen[digest]}")
        else:
            seen[digest] = index
            fresh.append(index)
    courses = np.array([_course(data.columns[index]["action"]) for index in fresh])
    near = []
    for row in range(1, len(courses)):
        rms = np.sqrt(np.mean((courses[:row] - courses[row]) ** 2, axis=1))
        other = int(np.argmin(rms))
        if rms[other] < settings.duplicate_rms:
            near.append((fresh[row], fresh[other], float(rms[other])))
    if near:
        pairs = ", ".join(f"{a} and {b} ({rms:.2g})" for a, b, rms in near[:4])
        text = f"{len(near)} episodes differ from another by less than {settings.duplicate_rms:g} RMS: {pairs}"
        findings.warn("duplicates", text)


def _source_of(sources: dict | None) -> dict[int, str]:
    """Episode -> name of its source, of a merged dataset."""
    try:
        return {index: row["name"] for row in (sources or {})["sources"] for index in row["episodes"]}
    except (KeyError, TypeError):
        return {}


def _course(action: np.ndarray) -> np.ndarray:
    """(T, J) commands at _COURSE_POINTS evenly spread moments, flat."""
    at = np.linspace(0, len(action) - 1, _COURSE_POINTS)
    return np.concatenate([np.interp(at, np.arange(len(action)), joint) for joint in action.T.astype(float)])
