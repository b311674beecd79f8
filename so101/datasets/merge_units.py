"""The joints of a source in the units of a merge, as LeRobot means them: degrees count from the middle of a joint's
calibrated range, whatever arm it was. Every way goes over radians, except that the jaw, 0 closed to 100 open in all of
LeRobot's units, stays the share of its span that it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from so101.config import Config
from so101.datasets.recordings import Recording
from so101.datasets.unit_detection import UNITS, Unit, UnitDecision, detect_recording_units
from so101.datasets.units import (
    RAD_PER_TICK,
    TICKS_PER_TURN,
    Calibration,
    LeRobotUnits,
    lerobot_to_rad,
    load_calibration,
    make_units,
    rad_to_lerobot,
)
from so101.errors import DataError

_BODY = {"degrees": "degrees", "normalized": "normalised"}  # of dataset.yaml and markers -> of the detection
_KINDS = {unit: "normalized" if unit == "normalised" else unit for unit in UNITS}  # of the detection -> of make_units
_SPANNED = ("normalised", "pseudo_radians")  # a share of a calibrated range: which angle it is, depends on the arm


@dataclass(frozen=True)
class JointUnits:
    """The unit of a source, and what is known of its arm: the map of our own marker, or the spans seen in the numbers
    (`decisions`, one an episode)."""

    unit: Unit
    marked: LeRobotUnits | None = None
    decisions: tuple[UnitDecision, ...] = ()


def find_units(
    marker: dict, recordings: Sequence[Recording], config: Config, declared: Unit | None = None
) -> JointUnits:
    """The unit of a source: as declared, as its marker says, or as its numbers say.

    Raises:
        DataError: undecidable, or against what is declared.
    """
    marked = _marked(marker, config)
    if declared is None and marked is not None:
        return JointUnits(_BODY[marked.kind], marked)
    if declared is not None:
        recorded = config.teleop.recordings.model_copy(update={"units": declared})
        config = config.model_copy(update={"teleop": config.teleop.model_copy(update={"recordings": recorded})})
    decisions = tuple(detect_recording_units(recordings, config))
    return JointUnits(decisions[0].unit, None, decisions)


def _marked(marker: dict, config: Config) -> LeRobotUnits | None:
    """The map in a marker of ours; None where there is none that can be used."""
    try:
        written = marker["units"]
        scale, offset = np.array(written["scale_per_rad"], float), np.array(written["offset"], float)
        plain = make_units(written["body"], config.robot)
    except (KeyError, TypeError, ValueError):
        return None
    if plain.kind not in _BODY or not scale.shape == offset.shape == plain.scale.shape or not np.all(scale):
        return None
    return LeRobotUnits(plain.kind, scale, offset, plain.lower, plain.upper)


def to_rad(
    units: JointUnits, config: Config, calibration: Path | None = None, *, nominal: bool = False
) -> Callable[[int, np.ndarray], np.ndarray]:
    """(number of the episode in its source, (T, 6) values) -> (T, 6) rad.

    Args:
        units: of the source.
        calibration: LeRobot calibration file of the arm.
        nominal: where neither calibration nor numbers say the range of a joint, take the nominal one.

    Raises:
        DataError: the unit is a share of a range that is not known; the calibration is not usable.
    """
    if units.marked is not None:
        return lambda _, values: lerobot_to_rad(values, units.marked)
    if units.unit not in _SPANNED or calibration is not None:
        arm = load_calibration(calibration, config.robot) if calibration is not None else None
        known = make_units(_KINDS[units.unit], config.robot, arm)
        return lambda _, values: lerobot_to_rad(values, known)
    names = config.robot.joint_names[:-1]  # the jaw is the share itself
    spans = [decision.spans_ticks for decision in units.decisions]
    unknown = [name for place, name in enumerate(names) if any(span[place] is None for span in spans)]
    if unknown and not nominal:
        raise DataError(
            f"values are a share of each joint's calibrated range ({units.unit}), and the range of "
            f"{', '.join(unknown)} is not known: its values show too few servo steps"
        )
    seen = [make_units(_KINDS[units.unit], config.robot, _seen(decision, config)) for decision in units.decisions]
    return lambda number, values: lerobot_to_rad(values, seen[number])


def _seen(decision: UnitDecision, config: Config) -> Calibration:
    """The ranges that an episode shows, about the middle of a turn; nominal ones elsewhere."""
    nominal = [
        np.radians(joint.nominal_upper_deg - joint.nominal_lower_deg) / RAD_PER_TICK for joint in config.robot.joints
    ]
    ticks = np.array([span or own for span, own in zip(decision.spans_ticks, nominal, strict=True)])
    middle = TICKS_PER_TURN / 2
    return Calibration(middle - ticks / 2, middle + ticks / 2, np.ones(len(ticks)), "seen")


def converter(
    units: JointUnits, target: str, config: Config, calibration: Path | None = None
) -> Callable[[int, np.ndarray], np.ndarray] | None:
    """(number of the episode in its source, (T, 6) values) -> (T, 6) values in `target`; None: they are already.

    Raises:
        DataError: nobody says how to get there.
    """
    if _BODY[target] == units.unit:
        return None
    if target == "normalized" and units.marked is None and calibration is None:
        raise DataError(
            "normalized values are a share of each joint's calibrated range, which only the arm's calibration says"
        )
    arm = load_calibration(calibration, config.robot) if calibration is not None else None
    goal, radians = make_units(target, config.robot, arm), to_rad(units, config, calibration)
    share = {"degrees": 1.0, "normalised": 1.0, "pseudo_radians": 100 / config.teleop.unit_detection.pseudo_gripper_rad}

    def convert(number: int, values: np.ndarray) -> np.ndarray:
        result = rad_to_lerobot(radians(number, values), goal)
        if units.unit in share:
            result[:, -1] = values[:, -1] * share[units.unit]
        return goal.clip(result)

    return convert
