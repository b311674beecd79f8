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
_JAW_SLACK = 1.0  # percent that LeRobot's rounding may leave beyond 0..100


def check_motion(data: Dataset, findings: Findings, config: Config, marker: dict | None, sources: dict | None) -> None:
    """All of this module. `marker`, `sources`: what ./twin dataset and ./twin merge wrote in meta/, when they did."""
    in_order = _joints(data, findings, config.robot.joint_names)
    if not (data.complete and in_order) or any(
        not np.isfinite(c[k]).all() for c in data.columns for k in VECTORS.values()
    ):
        return
    for key in VECTORS.values():
        _units(data, findings, config, key)
    _marker_units(findings, config, marker)
    _movement(data, findings, config.training.dataset_check)
    _duplicates(data, findings, config.training.dataset_check, sources)


def _joints(data: Dataset, findings: Findings, joints: list[str]) -> bool:
    """Names as LeRobot writes them, JOINT.pos; `main_` in front is that of its first SO-100 datasets."""
    findings.looked("joints")
    right = True
    for key in VECTORS.values():
        names = data.features[key]["names"]
        names = names.get("motors") if isinstance(names, dict) else names
        plain = [str(name).removeprefix("main_").removesuffix(".pos") for name in names or []]
        if data.features[key]["shape"] != [len(joints)]:
            findings.error(
                "joints", f"meta/info.json: {key} has {data.features[key]['shape']} values, the arm has {len(joints)}"
            )
            right = False
        elif plain != list(joints):
            findings.error("joints", f"meta/info.json: {key} is {names}, the order is {', '.join(joints)}")
    return right


def _units(data: Dataset, findings: Findings, config: Config, key: str) -> None:
    """Ranges of the joints, the encoder's steps, and radians, which fit every range."""
    findings.looked("units")
    body, declared = config.dataset.units.body, _UNITS[config.dataset.units.body]
    values = np.concatenate([columns[key] for columns in data.columns]).astype(float)
    arm, jaw = values[:, :-1], values[:, -1]
    says = f"dataset.units.body says {body}"
    if np.abs(arm).max() <= _RADIANS_BELOW:
        text = f"no joint leaves {np.abs(arm).max():.3g}, which looks like radians; {says}"
        findings.error("units", f"{key}: {text}", _CONVERT_RADIANS)
        return
    if jaw.min() < -_JAW_SLACK or jaw.max() > 100 + _JAW_SLACK:
        text = f"the jaw reaches {jaw.min():.4g} .. {jaw.max():.4g}; LeRobot has it from 0 (closed) to 100 (open)"
        findings.error("units", f"{key}: {text}")
    arm = arm[:: max(1, len(arm) // _DETECTION_ROWS)]  # the jaw is 0..100 in both units, so it says nothing
    try:
        found = detect_units(arm, config.robot.joint_names[:-1], config, where=key).unit
    except DataError:
        try:
            detect_units(arm, config.robot.joint_names[:-1], config, declared=declared, where=key)
        except DataError as error:
            findings.error("units", str(error).replace("(teleop.recordings.units)", "(dataset.units.body)"))
        return
    if found != declared:
        findings.error("units", f"{key}: the joints look like {found}; {says}")


def _marker_units(findings: Findings, config: Config, marker: dict | None) -> None:
    """A dataset of ours says its unit."""
    written = ((marker or {}).get("units") or {}).get("body")
    if written is not None and written != config.dataset.units.body:
        text = f"written in {written}; dataset.units.body says {config.dataset.units.body}"
        findings.error("units", f"meta/{MARKER}: {text}")


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
