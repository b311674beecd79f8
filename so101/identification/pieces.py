"""Recordings cut into what the twin's servos can be asked to repeat: commands and the joints that followed them, rad.

The twin moves the arm alone. Where the real jaw holds something, it stands still above its command and says nothing
about its servo; those frames of the jaw are left out, and the twin starts anew from the recorded joints when the jaw
lets go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from so101.config import Config
from so101.datasets.recordings import Recording, read_recording
from so101.datasets.unit_detection import UnitDecision, detect_recording_units, to_radians
from so101.errors import DataError


@dataclass(frozen=True)
class Piece:
    """A stretch of one episode, T frames of J = 6 joints, rad.

    Attributes:
        name: of the episode.
        fps: Hz.
        command: (T, J) targets; row t was sent right after row t of `measured` was read.
        measured: (T, J) joints.
        counts: (T, J) bool, frames that are compared.
        past: (P, J) commands before the first row, oldest first.
        velocity: (J,) rad/s at the first row.
    """

    name: str
    fps: float
    command: np.ndarray
    measured: np.ndarray
    counts: np.ndarray
    past: np.ndarray
    velocity: np.ndarray


def read_pieces(path: Path | str, config: Config) -> list[list[Piece]]:
    """The pieces of every episode of a recording.

    Raises:
        DataError: not readable, units unknown, or without commands.
    """
    recordings = read_recording(path, config)
    silent = [recording.name for recording in recordings if not recording.has_action]
    if silent:
        raise DataError(
            f"{path}: {silent[0]} has no commands apart from the measured joints ({len(silent)} of {len(recordings)} "
            "episodes); how a servo follows can only be seen with both. Record with a leader arm or from a program"
        )
    decisions = detect_recording_units(recordings, config)
    return [cut(recording, decision, config) for recording, decision in zip(recordings, decisions, strict=True)]


def cut(recording: Recording, decision: UnitDecision, config: Config) -> list[Piece]:
    """One episode as pieces that begin where the jaw lets go. LeRobot sends commands in the follower's units, so both
    are converted with the follower's ranges."""
    command = to_radians(recording.action, decision, config)
    measured = to_radians(recording.state, decision, config)
    counts = np.ones(measured.shape, bool)
    counts[: math.ceil(config.robot.identification.skip_s * recording.fps)] = False
    held = held_frames(measured[:, -1], command[:, -1], recording.fps, config)
    for first, last in held:
        counts[first:last, -1] = False
    starts = [0, *(last for _, last in held if last < len(measured) - 1)]
    ends = [*starts[1:], len(measured)]
    velocity = np.gradient(measured, axis=0) * recording.fps
    return [
        Piece(
            recording.name,
            recording.fps,
            command[a:b],
            measured[a:b],
            counts[a:b],
            command[:a] if a else command[:1],
            velocity[a],
        )
        for a, b in zip(starts, ends, strict=True)
    ]


def held_frames(jaw: np.ndarray, command: np.ndarray, fps: float, config: Config) -> list[tuple[int, int]]:
    """[first, last) of every time the jaw stood still above its command, from the frame it came to that level to the
    one it left it; thresholds as for seeds (teleop.replay).

    Args:
        jaw, command: (T,) rad.
    """
    s = config.teleop.replay
    still = (np.abs(np.gradient(jaw)) * fps < s.jaw_still_rad_s) & (jaw - command > s.held_gap_rad)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], still.astype(int), [0]]))).reshape(-1, 2)
    spans: list[tuple[int, int]] = []
    for first, last in edges:
        if last - first < s.min_held_frames:
            continue
        level = np.abs(jaw - np.median(jaw[first:last])) <= s.jaw_level_rad
        while first > 0 and level[first - 1]:
            first -= 1
        while last < len(jaw) and level[last]:
            last += 1
        if spans and first <= spans[-1][1]:
            first = spans.pop()[0]
        spans.append((int(first), int(last)))
    return spans


def choose(episodes: Sequence[list[Piece]], indices: Sequence[int], what: str) -> list[Piece]:
    """The pieces of the episodes `indices`.

    Raises:
        DataError: there is no such episode, or nothing of them counts.
    """
    wrong = [index for index in indices if not 0 <= index < len(episodes)]
    if wrong:
        raise DataError(f"{what}: no episode {wrong[0]}; the recording has 0 to {len(episodes) - 1}")
    pieces = [piece for index in indices for piece in episodes[index]]
    if pieces and not any(piece.counts[:, :-1].any() for piece in pieces):
        raise DataError(
            f"{what}: nothing to compare in {', '.join(dict.fromkeys(piece.name for piece in pieces))}: the first "
            "robot.identification.skip_s of an episode do not count; name longer episodes"
        )
    return pieces
