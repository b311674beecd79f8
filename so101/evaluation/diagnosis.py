"""Known failures of a rollout, in words: what happened, with the numbers, and where to look next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from so101.config import Config
from so101.config.evaluation import DiagnosisConfig
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import rad_to_lerobot
from so101.evaluation.closed_loop.stages import gaps, stage_frames
from so101.evaluation.frame import Nearness
from so101.evaluation.joint_errors import JointErrors
from so101.evaluation.tracks import Track
from so101.identification.pieces import held_frames


class Diagnosis(NamedTuple):
    """One known failure. `sentence`: what was seen, with its numbers. `look_at`: what to check next."""

    name: str
    sentence: str
    look_at: str


@dataclass(frozen=True)
class _Case:
    """What the rules look at: the rollout, its (T, 4, 4) hand in base, errors of joints, nearest demo, stages."""

    config: Config
    track: Track
    T_base_ee: np.ndarray
    errors: JointErrors
    near: Nearness | None
    stages: dict[str, int | None]

    @property
    def settings(self) -> DiagnosisConfig:
        return self.config.deploy.evaluation.diagnosis

    @property
    def positions(self) -> np.ndarray:
        """(T, 3) m."""
        return self.T_base_ee[:, :3, 3]

    @property
    def gaps(self) -> np.ndarray | None:
        """(T,) m from the pinch point to the nearest object of the task; None where nobody knows."""
        names = self.config.task.active.success.objects
        if not self.stages or not set(names) <= set(self.track.objects):
            return None
        return np.min([gaps(self.config, name, self.T_base_ee, self.track.objects[name]) for name in names], axis=0)

    @property
    def grasped(self) -> bool:
        """Whether the jaw held something: it stood still short of its command, or an object went up with the hand."""
        track = self.track
        held = held_frames(track.q[:, -1], track.sent[:, -1], track.fps, self.config)
        return bool(held) or self.stages.get("lifted") is not None


def diagnose(
    config: Config,
    track: Track,
    fk: Callable[[np.ndarray], np.ndarray],
    errors: JointErrors,
    near: Nearness | None = None,
) -> list[Diagnosis]:
    """All known failures that `track` shows, thresholds in deploy.evaluation.diagnosis; none for a good one. What a
    file does not tell is not diagnosed: without objects nobody knows what was approached, without demos what is off.

    Args:
        fk: (T, 6) rad to (T, 4, 4) T_base_ee.
        errors: of the joints of `track`.
        near: how near it comes to demos of the same task.
    """
    T_base_ee = fk(track.q)
    stages = track.stages
    if not stages and set(config.task.active.objects) <= set(track.objects):
        stages = stage_frames(config, T_base_ee, track.q, track.sent, track.objects)
    case = _Case(config, track, T_base_ee, errors, near, stages)
    return [found for rule in _RULES if (found := rule(case)) is not None]


def summarise(diagnoses: Sequence[Sequence[Diagnosis]]) -> list[tuple[str, int]]:
    """Names over many rollouts with their counts, most frequent first, then by name."""
    counts = Counter(found.name for one in diagnoses for found in one)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _gripper(case: _Case) -> Diagnosis | None:
    """The jaw: not commanded, not following, or closed on nothing. One cause hides the next."""
    s, errors = case.settings, case.errors
    commanded, observed = errors.range_commanded[-1], errors.range_observed[-1]
    if commanded < s.jaw_range:
        return Diagnosis(
            "gripper never commanded",
            f"the commands of the jaw span {commanded:.1f} of 100 (least {s.jaw_range:g}); its MSE of "
            f"{errors.mse[-1]:.1f} is low because nothing was asked, not because it followed",
            "the gripper column of the training data: its units, its normalisation, whether action and state are mixed "
            "up; then whether the demos close the jaw at the pictures that the policy sees",
        )
    if case.grasped:
        return None
    if observed < s.jaw_follow_share * commanded:
        return Diagnosis(
            "gripper does not follow",
            f"the jaw was commanded over {commanded:.1f} of 100 and moved {observed:.1f}",
            "the servo of the jaw: torque, its limits, a cable; and its calibration (./real calibrate)",
        )
    if case.stages and case.stages.get("approached") is None:
        return None  # the hand was not there
    closed_to = rad_to_lerobot(case.track.q, dataset_units(case.config))[:, -1].min()
    return Diagnosis(
        "nothing held",
        f"the jaw closed to {closed_to:.0f} of 100 and was never stopped by an object "
        f"(commands span {commanded:.1f}, it followed over {observed:.1f}){_where_it_closed(case)}",
        "where the hand was when it closed: the wrist camera at that moment, the lag of the arm, and whether the jaw "
        "closes before the hand has arrived",
    )


def _where_it_closed(case: _Case) -> str:
    """Of all times the jaw closed, the one nearest to an object."""
    away, jaw = case.gaps, case.track.q[:, -1]
    shut = jaw < (jaw.min() + jaw.max()) / 2
    closings = 1 + np.flatnonzero(shut[1:] & ~shut[:-1])
    if away is None or not closings.size:
        return ""
    frame = closings[away[closings].argmin()]
    return (
        f"; nearest to an object it closed at {frame / case.track.fps:.1f} s, {1000 * away[frame]:.0f} mm away from it"
    )


def _never_approached(case: _Case) -> Diagnosis | None:
    if not case.stages or case.stages.get("approached") is not None:
        return None
    near, away = 100 * case.config.deploy.evaluation.stages.near_m, case.gaps
    least = "" if away is None else f"; it came to {100 * away.min():.1f} cm"
    return Diagnosis(
        "never approached",
        f"the hand came to no object of the task by {near:.0f} cm in {case.track.num_frames / case.track.fps:.1f} s"
        f"{least}",
        "whether the policy sees the object: camera names and order, exposure, the crop; then whether placements like "
        "this one are in the training data",
    )


def _trajectory_off(case: _Case) -> Diagnosis | None:
    s, near = case.settings, case.near
    if near is None or (near.distance_m <= s.off_path_m and near.end_m <= s.off_end_m):
        return None
    return Diagnosis(
        "trajectory off",
        f"the path is {100 * near.distance_m:.1f} cm a frame from that of the nearest demo, {near.reference}, and ends "
        f"{100 * near.end_m:.1f} cm from its end (at most {100 * s.off_path_m:g} and {100 * s.off_end_m:g} cm)",
        "if it is off from the start: camera poses and joint zeros; if it leaves later: compounding errors, which more "
        "demos with perturbed starts cure",
    )


def _tracking_lag(case: _Case) -> Diagnosis | None:
    lag, limit = case.errors.lag_frames, case.settings.lag_frames
    late = [j for j in np.argsort(-np.nan_to_num(lag), kind="stable") if lag[j] > limit]
    if not late:
        return None
    told = ", ".join(f"{case.errors.names[j]} {lag[j]:.1f} frames ({case.errors.lag_ms[j]:.0f} ms)" for j in late)
    return Diagnosis(
        "tracking lag",
        f"joints run behind their commands: {told}; {limit:g} frames are allowed",
        "the rate of the loop and of the bus, the servos' P gain and speed limit, smoothing "
        "(deploy.control.ema_alpha); ./twin identify fits the twin to this arm",
    )


def _stuck(case: _Case) -> Diagnosis | None:
    s, track = case.settings, case.track
    window = round(s.stuck_s * track.fps)
    steps = np.linalg.norm(np.diff(case.positions, axis=0), axis=1)
    gone = np.concatenate([[0.0], np.cumsum(steps)])
    if track.num_frames <= window or track.success:
        return None
    within = gone[window:] - gone[:-window]
    first = int(within.argmin())
    if within[first] > s.stuck_m:
        return None
    return Diagnosis(
        "stuck",
        f"from {first / track.fps:.1f} s on the hand moved {1000 * within[first]:.0f} mm in {s.stuck_s:g} s",
        "whether the policy commands a pause of the demos for ever (cut pauses from them), waits for something it does "
        "not see, or the arm is held by an obstacle or by its limits",
    )


def _dithering(case: _Case) -> Diagnosis | None:
    s, track = case.settings, case.track
    window = round(s.dither_s * track.fps)
    turns = turning_frames(case.positions, s.dither_step_m)
    for i in range(len(turns) - s.dither_turns + 1):
        first, last = turns[i], turns[i + s.dither_turns - 1]
        end = min(first + window, track.num_frames - 1)
        net = float(np.linalg.norm(case.positions[end] - case.positions[first]))
        if last - first <= window and net <= s.dither_net_m:
            count = int(((turns >= first) & (turns <= end)).sum())
            return Diagnosis(
                "dithering",
                f"from {first / track.fps:.1f} s on the hand turned back {count} times in {s.dither_s:g} s and got "
                f"{1000 * net:.0f} mm away",
                "whether chunks contradict each other at their seams: execute more of each (deploy.control."
                "execute_steps), smooth less or more (ema_alpha); then whether two ways to do it are in the demos",
            )
    return None


def turning_frames(positions: np.ndarray, step_m: float) -> np.ndarray:
    """Frames of (T, 3) m at which a path turns by more than a right angle, seen in steps of at least `step_m`."""
    kept = [0]
    for frame in range(1, len(positions)):
        if np.linalg.norm(positions[frame] - positions[kept[-1]]) >= step_m:
            kept.append(frame)
    steps = np.diff(positions[kept], axis=0)
    return np.array(kept[1:-1], int)[(steps[1:] * steps[:-1]).sum(1) < 0] if len(kept) > 2 else np.zeros(0, int)


def _clamped(case: _Case) -> Diagnosis | None:
    s, track = case.settings, case.track
    beyond = np.abs(track.sent - track.q_target) > s.clamped_rad
    share = float(beyond.any(1).mean())
    if share <= s.clamped_share:
        return None
    often = np.argsort(-beyond.mean(0), kind="stable")[:2]
    told = ", ".join(f"{case.errors.names[j]} {beyond[:, j].mean():.0%}" for j in often if beyond[:, j].any())
    return Diagnosis(
        "clamped by safety",
        f"what was wanted was not sent in {share:.1%} of the frames ({told}); {s.clamped_share:.0%} are allowed",
        "robot.safety: joint limits and the largest step a tick; a policy far outside of them has wrong units or zeros",
    )


def _missed(case: _Case) -> Diagnosis | None:
    track, allowed = case.track, case.settings.missed_share
    share = len(track.misses) / track.num_frames
    if share <= allowed:
        return None
    reasons = ", ".join(f"{reason} {count}" for reason, count in Counter(track.misses.values()).most_common())
    return Diagnosis(
        "missed ticks",
        f"{len(track.misses)} of {track.num_frames} frames had no fresh action in time ({reasons}); "
        f"{allowed:.0%} are allowed",
        "the latency of the policy against execute_steps; deploy.control.overlap lets the old chunk run on meanwhile; "
        "cameras that stall, a busy machine",
    )


_RULES: tuple[Callable[[_Case], Diagnosis | None], ...] = (
    _never_approached,
    _gripper,
    _trajectory_off,
    _tracking_lag,
    _stuck,
    _dithering,
    _clamped,
    _missed,
)
