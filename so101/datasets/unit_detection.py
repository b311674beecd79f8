"""Which unit the joints of a recording are in, from the numbers alone, and their angles in rad.

Files of the SO-101 world carry no unit. Four are met in practice (docs/seeds.md tells how each came about):

* degrees: LeRobot's `use_degrees`; the jaw still 0..100;
* normalised: -100..100 over each joint's calibrated range, the jaw 0..100;
* radians;
* pseudo_radians: normalised values / 100 * pi, the jaw / 100 * 1.7. Look like radians, are not.

The strongest witness is the encoder. Angles are whole servo ticks, so the values of a joint lie on a lattice. In
degrees and radians its spacing is one tick for every joint; in the other two it is the inverse of that joint's
calibrated range, which therefore can be read off the file, exactly. Ranges and clamps decide most of the rest; what
they leave open is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from so101.config import Config
from so101.datasets.recordings import Recording
from so101.errors import DataError

Unit = Literal["degrees", "normalised", "radians", "pseudo_radians"]
UNITS: tuple[Unit, ...] = ("degrees", "normalised", "radians", "pseudo_radians")
TICKS_PER_TURN = 4096  # of the STS3215 encoder
_LEROBOT_TICKS_PER_TURN = 4095  # what LeRobot divides by


@dataclass(frozen=True)
class UnitDecision:
    """The unit, why, and the calibrated range of each joint in ticks where the file shows it (None elsewhere)."""

    unit: Unit
    evidence: tuple[str, ...]
    spans_ticks: tuple[int | None, ...]


def detect_units(
    values: np.ndarray,
    joint_names: Sequence[str],
    config: Config,
    *,
    declared: Unit | None = None,
    where: str = "recording",
) -> UnitDecision:
    """Decide the unit of joint values.

    Args:
        values: (T, N) one column per joint, as recorded.
        joint_names: (N,) which joints of robot.yaml the columns are.
        config: thresholds in teleop.unit_detection.
        declared: what the user says; checked against the numbers and otherwise trusted.
        where: for error texts.

    Raises:
        DataError: the values fit several units equally well (the text asks the question to answer), fit none, or
            contradict `declared`.
    """
    values = np.asarray(values, np.float64)
    witness = _Witness(config)
    for column, name in enumerate(joint_names):
        witness.hear(values[:, column], name)
    witness.weigh()
    if declared is not None:
        if witness.against[declared]:
            raise DataError(
                f"{where}: declared as {declared} (teleop.recordings.units), but "
                f"{'; '.join(witness.against[declared][:3])}. "
                f"The numbers fit: {', '.join(witness.possible) or 'no known unit'}"
            )
        return UnitDecision(declared, ("declared by teleop.recordings.units",), witness.spans(declared, joint_names))
    evidence = _evidence(witness)
    if not witness.possible:
        raise DataError(
            f"{where}: the joint values fit no unit this program knows ({', '.join(UNITS)}): {'; '.join(evidence)}"
        )
    supported = [unit for unit in witness.possible if witness.support[unit]]
    chosen = supported if len(supported) == 1 else witness.possible
    if len(chosen) > 1:
        raise DataError(
            f"{where}: cannot tell whether the joints are in {' or '.join(chosen)}; which is it? Answer with "
            f"--set teleop.recordings.units={'|'.join(chosen)}. What the numbers say: "
            f"{'; '.join(evidence) or 'nothing decisive'}"
        )
    return UnitDecision(chosen[0], tuple(evidence), witness.spans(chosen[0], joint_names))


def detect_recording_units(recordings: Sequence[Recording], config: Config) -> list[UnitDecision]:
    """One decision a recording, of one common unit; `spans_ticks` are those of the measured joints (the follower).

    Episodes that are silent by themselves follow the others of the same source. Episodes with equal ranges in all
    joints that both show are taken as one calibration, and lend each other the ranges a resting joint did not show.

    Raises:
        DataError: undecidable or contradictory, with the question to answer.
    """
    names = config.robot.joint_names
    declared = None if config.teleop.recordings.units == "auto" else config.teleop.recordings.units
    decisions: list[UnitDecision | None] = []
    doubt: DataError | None = None
    for recording in recordings:
        try:
            decisions.append(_detect_one(recording, names, config, declared))
        except _Undecided as error:
            decisions.append(None)
            doubt = doubt or error
    units = {decision.unit for decision in decisions if decision is not None}
    if len(units) > 1:
        found = {
            unit: next(r.name for r, d in zip(recordings, decisions, strict=True) if d and d.unit == unit)
            for unit in units
        }
        raise DataError(
            "episodes of one source look like different units ("
            + ", ".join(f"{name}: {unit}" for unit, name in sorted(found.items()))
            + "); split the source, or declare one with --set teleop.recordings.units="
            + "|".join(sorted(units))
        )
    if not units:
        raise DataError(str(doubt)) from None
    unit = units.pop()
    filled = [
        decision or UnitDecision(unit, ("as the other episodes of this source",), (None,) * len(names))
        for decision in decisions
    ]
    return _share_spans(filled)


class _Undecided(DataError):
    """Not decidable from this episode alone."""


def _detect_one(recording: Recording, names: Sequence[str], config: Config, declared: Unit | None) -> UnitDecision:
    """State and command together: what either shows is evidence for both."""
    arrays = [("state", recording.state)] + ([("action", recording.action)] if recording.has_action else [])
    decisions, doubt = {}, None
    for label, values in arrays:
        try:
            decisions[label] = detect_units(
                values, names, config, declared=declared, where=f"{recording.name} ({label})"
            )
        except DataError as error:
            if "fit no unit" in str(error) or declared is not None:
                raise
            doubt = error
    units = {decision.unit for decision in decisions.values()}
    if len(units) > 1:
        raise DataError(
            f"{recording.name}: the measured joints look like {decisions['state'].unit}, the commands like "
            f"{decisions['action'].unit}; "
            "declare the unit with --set teleop.recordings.units=... after checking the recorder"
        )
    if not units:
        raise _Undecided(str(doubt))
    decision = decisions.get("state")
    if decision is not None:
        return decision
    unit = units.pop()
    witness = _Witness(config)
    for column, name in enumerate(names):
        witness.hear(recording.state[:, column], name)
    return UnitDecision(unit, decisions["action"].evidence, witness.spans(unit, names))


def _share_spans(decisions: Sequence[UnitDecision]) -> list[UnitDecision]:
    """Fill unknown spans from episodes of the same calibration."""
    groups: list[list[int | None]] = []
    member: list[int] = []
    for decision in decisions:
        for number, known in enumerate(groups):
            pairs = [
                (a, b) for a, b in zip(known, decision.spans_ticks, strict=True) if a is not None and b is not None
            ]
            if all(a == b for a, b in pairs) and (pairs or not any(decision.spans_ticks)):
                groups[number] = [a if a is not None else b for a, b in zip(known, decision.spans_ticks, strict=True)]
                member.append(number)
                break
        else:
            groups.append(list(decision.spans_ticks))
            member.append(len(groups) - 1)
    return [
        UnitDecision(decision.unit, decision.evidence, tuple(groups[number]))
        for decision, number in zip(decisions, member, strict=True)
    ]


def to_radians(
    values: np.ndarray, decision: UnitDecision, config: Config, offsets_rad: np.ndarray | None = None
) -> np.ndarray:
    """(T, 6) recorded values to joint angles in rad.

    A joint whose calibrated range is known covers that many ticks around the middle of its nominal range in
    robot.yaml; otherwise the nominal range is assumed. The jaw starts at its nominal lower end, where it is closed.

    Args:
        values: (T, 6) as recorded.
        decision: unit and ranges.
        config: nominal ranges.
        offsets_rad: (6,) added to the angles: where this arm's zero differs from the twin's.
    """
    joints = config.robot.joints
    values = np.asarray(values, np.float64)
    lower = np.radians([joint.nominal_lower_deg for joint in joints])
    upper = np.radians([joint.nominal_upper_deg for joint in joints])
    spans = np.array([np.nan if s is None else s * 2 * np.pi / TICKS_PER_TURN for s in decision.spans_ticks])
    span = np.where(np.isnan(spans), upper - lower, spans)
    start = np.concatenate([(0.5 * (lower + upper) - 0.5 * span)[:-1], lower[-1:]])
    if decision.unit == "radians":
        angles = values.copy()
    elif decision.unit == "degrees":
        jaw_fraction = values[:, -1:] / 100.0  # LeRobot keeps the jaw at 0..100 in its degrees mode
        angles = np.concatenate([np.radians(values[:, :-1]), start[-1] + jaw_fraction * span[-1]], axis=1)
    else:
        scale = np.full(len(joints), 100.0)
        if decision.unit == "pseudo_radians":
            scale[:-1], scale[-1] = np.pi, config.teleop.unit_detection.pseudo_gripper_rad
        fraction = values / scale
        fraction[:, :-1] = (fraction[:, :-1] + 1.0) / 2.0
        angles = start + fraction * span
    return angles if offsets_rad is None else angles + offsets_rad


def clamped(values: np.ndarray, decision: UnitDecision) -> np.ndarray:
    """(T, 6) bool: a body joint sits at the end of its calibrated range, where LeRobot clamps: the true angle lies
    beyond."""
    limit = {"normalised": 100.0, "pseudo_radians": np.pi}.get(decision.unit)
    result = np.zeros(np.shape(values), bool)
    if limit is not None:
        result[:, :-1] = np.abs(values[:, :-1]) >= limit * (1 - 1e-5)
    return result


def _evidence(witness: _Witness) -> list[str]:
    lines = [f"not {unit}: {reasons[0]}" for unit, reasons in witness.against.items() if reasons]
    return [f"{unit}: {reason}" for unit in witness.possible for reason in witness.support[unit]] + lines


class _Witness:
    """Collects what speaks for and against each unit, joint by joint."""

    def __init__(self, config: Config) -> None:
        self.settings = config.teleop.unit_detection
        self.jaw = config.robot.joint_names[-1]
        self.roll = self.settings.unswept_joint
        self.limits = {joint.name: max(-joint.lower_rad, joint.upper_rad) for joint in config.robot.joints}
        self.against: dict[Unit, list[str]] = {unit: [] for unit in UNITS}
        self.support: dict[Unit, list[str]] = {unit: [] for unit in UNITS}
        self.tick_joints: dict[str, list[str]] = {"degrees": [], "radians": []}  # body joints on that tick lattice
        self.span_fits: dict[tuple[str, str], list[int]] = {}  # (unit, joint) -> possible ranges in ticks

    @property
    def possible(self) -> list[Unit]:
        return [unit for unit in UNITS if not self.against[unit]]

    def spans(self, unit: Unit, joint_names: Sequence[str]) -> tuple[int | None, ...]:
        """The calibrated range per joint: the smallest that explains all levels; None where too few levels show it."""
        key = "normalised" if unit in ("degrees", "radians") else unit
        names = [
            name if unit in ("normalised", "pseudo_radians") or (unit == "degrees" and name == self.jaw) else None
            for name in joint_names
        ]
        return tuple((self.span_fits.get((key, name)) or [None])[0] if name else None for name in names)

    def hear(self, values: np.ndarray, joint: str) -> None:
        """Take in one joint (T,)."""
        self._ranges(values, joint)
        self._clamps(values, joint)
        self._lattice(values, joint)

    def _ranges(self, values: np.ndarray, joint: str) -> None:
        settings, low, high = self.settings, float(values.min()), float(values.max())
        size = max(-low, high)
        text = f"{joint} reaches {low:.4g} .. {high:.4g}"
        tiny = 1e-4
        if joint == self.jaw:
            jaw_limit = self.limits[joint] + settings.range_margin_rad
            if low < -tiny * 100 or high > 100 * (1 + tiny):
                self.against["normalised"].append(f"{text}, outside 0..100")
            if high > max(100.0, np.degrees(jaw_limit)) or low < -np.degrees(jaw_limit):
                self.against["degrees"].append(f"{text}, beyond the jaw")
            if size > jaw_limit:
                self.against["radians"].append(f"{text}, beyond the jaw's {self.limits[joint]:.2f} rad")
            if low < -tiny or high > settings.pseudo_gripper_rad * (1 + tiny):
                self.against["pseudo_radians"].append(f"{text}, outside 0..{settings.pseudo_gripper_rad}")
            return
        limit = np.pi * (1 + tiny) if joint == self.roll else self.limits[joint] + settings.range_margin_rad
        if size > 100 * (1 + tiny):
            self.against["normalised"].append(f"{text}, outside -100..100")
        if size > np.degrees(limit):
            self.against["degrees"].append(f"{text}, the joint turns {np.degrees(self.limits[joint]):.0f} degrees")
        if size > limit:
            self.against["radians"].append(f"{text}, the joint turns {self.limits[joint]:.2f} rad")
        if size > np.pi * (1 + tiny):
            self.against["pseudo_radians"].append(f"{text}, outside -pi..pi")

    def _clamps(self, values: np.ndarray, joint: str) -> None:
        ends = {"normalised": 100.0, "pseudo_radians": self.settings.pseudo_gripper_rad if joint == self.jaw else np.pi}
        if joint == self.roll:
            del ends["pseudo_radians"]  # a roll joint never swept by hand ends at pi in true radians too
        for unit, end in ends.items():
            count = int((np.abs(np.abs(values) - end) <= 1e-5 * end).sum())
            if count >= self.settings.min_clamp_frames and np.abs(values).max() <= end * (1 + 1e-5):
                self.support[unit].append(
                    f"{joint} sits at exactly {end:.5g} in {count} frames, the clamp of this unit"
                )

    def _lattice(self, values: np.ndarray, joint: str) -> None:
        settings = self.settings
        levels = np.unique(values.astype(np.float32)).astype(np.float64)
        if len(levels) < settings.min_levels:
            return
        rounding = _rounding(levels)
        fits: dict[Unit, bool | None] = {}  # None: fits, but moves too little to say so
        for unit, turn in (("degrees", 360.0), ("radians", 2 * np.pi)):
            if joint == self.jaw and unit == "degrees":
                continue  # the jaw is 0..100 in LeRobot's degrees mode
            fit = any(
                self._on_lattice((levels - levels[0]) * (ticks / turn), rounding * ticks / turn)
                for ticks in (TICKS_PER_TURN, _LEROBOT_TICKS_PER_TURN)
            )
            fits[unit] = fit and (self._travels(levels, turn / TICKS_PER_TURN) or None)
        low, high = settings.gripper_span_ticks if joint == self.jaw else settings.span_ticks
        for unit, end in (
            ("normalised", 100.0),
            ("pseudo_radians", settings.pseudo_gripper_rad if joint == self.jaw else np.pi),
        ):
            fraction = levels / end if joint == self.jaw else (levels / end + 1) / 2
            scale = (1.0 if joint == self.jaw else 0.5) / end
            spans = self._fitting_spans(fraction, rounding * scale, int(low), int(high))
            fits[unit] = bool(spans) and (self._travels(fraction, 1.0 / spans[0]) or None)
            if fits[unit]:
                self.span_fits[unit, joint] = spans
        if joint == self.jaw:
            fits["degrees"] = fits["normalised"]
        if not any(fits.values()):
            return  # filtered, interpolated or simulated: no lattice, no witness
        for unit, fit in fits.items():
            if fit is False:
                step = float(np.diff(levels).min())
                self.against[unit].append(f"{joint} moves in steps of {step:.4g}, which is no servo tick in this unit")
            elif fit and unit in self.tick_joints and joint != self.jaw:
                self.tick_joints[unit].append(joint)

    def _on_lattice(self, positions: np.ndarray, rounding: float) -> bool:
        tolerance = self.settings.lattice_tolerance_ticks + rounding
        if tolerance > self.settings.max_tolerance_ticks:
            return False
        return bool((np.abs(positions - np.round(positions)) <= tolerance).mean() >= self.settings.lattice_share)

    def _travels(self, levels: np.ndarray, tick: float) -> bool:
        return levels[-1] - levels[0] >= self.settings.min_travel_ticks * tick

    def _fitting_spans(self, fraction: np.ndarray, rounding: float, low: int, high: int) -> list[int]:
        """Whole ranges S in ticks for which `fraction` * S are whole ticks."""
        inner = fraction[(fraction > 1e-6) & (fraction < 1 - 1e-6)]  # the clamped ends fit every range
        if len(inner) < self.settings.min_levels:
            return []
        candidates = np.arange(low, high + 1, dtype=np.float64)
        probe = inner[
            np.linspace(0, len(inner) - 1, min(len(inner), 40)).astype(int)
        ]  # a quick look leaves few candidates
        tolerance = self.settings.lattice_tolerance_ticks + rounding * candidates
        positions = probe[None] * candidates[:, None]
        near = (np.abs(positions - np.round(positions)) <= tolerance[:, None]).mean(
            axis=1
        ) >= self.settings.lattice_share - 0.05
        return [int(span) for span in candidates[near] if self._on_lattice(inner * span, rounding * span)]

    def weigh(self) -> None:
        """What the joints say together: one tick size in all of them speaks for a true angle."""
        settings = self.settings
        turn_span = round(200 * _LEROBOT_TICKS_PER_TURN / 360)  # a joint with this range moves alike in both units
        same = [joint for joint in self.tick_joints["degrees"] if not self.against["degrees"]]
        if len(same) >= settings.min_degree_joints:
            self.support["degrees"].append(
                f"{', '.join(same)} all move in steps of {360 / TICKS_PER_TURN:.4f}, one servo tick"
            )
            self.against["normalised"].append(
                f"{len(same)} joints would need the same calibrated range of {turn_span} ticks"
            )
        rolling = [joint for joint in self.tick_joints["radians"] if joint != self.roll and not self.against["radians"]]
        if rolling:
            self.support["radians"].append(
                f"{', '.join(rolling)} move in steps of {2 * np.pi / TICKS_PER_TURN:.6f}, one servo tick"
            )
            if all(
                min(self.span_fits.get(("pseudo_radians", joint), [0])) >= settings.unswept_span_ticks
                for joint in rolling
            ):
                self.against["pseudo_radians"].append(
                    f"{', '.join(rolling)} would have a calibrated range of a whole turn"
                )


def _rounding(levels: np.ndarray) -> float:
    """Half the last digit when the values were written with few decimals, else 0."""
    for decimals in range(1, 6):
        scaled = levels * 10.0**decimals
        if np.abs(scaled - np.round(scaled)).max() < 1e-2:
            return 0.5 * 10.0**-decimals
    return 0.0
