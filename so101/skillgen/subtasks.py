"""Cut seeds into the skill segments that are replayed relative to an object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from so101.config.skillgen import SegmentConfig
from so101.config.task import SubtaskConfig, TaskDefinition
from so101.datasets.seeds import SeedDemo
from so101.errors import DataError
from so101.geometry import invert_pose, make_pose
from so101.skillgen.fk_replay import EePath


@dataclass(frozen=True)
class Segment:
    """One subtask of one seed, ready to be retargeted.

    Attributes:
        seed_name: which demo it comes from.
        subtask: its definition.
        T_base_obj: (4, 4) pose of the reference object when the segment starts; when something is put into the
            container, of the opening that was used.
        T_base_target: (n, 4, 4) commanded end-effector poses.
        T_base_ee: (n, 4, 4) measured end-effector poses at the same frames.
        jaw_target: (n,) commanded jaw angle, rad.
        anchor: row at which the jaw begins its decisive change.
        release_end: row at which that change is complete.
        T_ee_held: (4, 4) pose of the held object in the hand when the segment starts, or None.
    """

    seed_name: str
    subtask: SubtaskConfig
    T_base_obj: np.ndarray
    T_base_target: np.ndarray
    T_base_ee: np.ndarray
    jaw_target: np.ndarray
    anchor: int
    release_end: int
    T_ee_held: np.ndarray | None


def opening_pose(T_base_cont: np.ndarray, opening_m: tuple[float, float]) -> np.ndarray:
    """(4, 4) frame of an opening: the container's, moved to the opening's xy."""
    return T_base_cont @ make_pose(np.eye(3), [*opening_m, 0.0])


def subtask_ends(seed: SeedDemo, task: TaskDefinition) -> list[int]:
    """End frame (exclusive) of each subtask: the first 0 -> 1 edge of its signal; the last one ends with the demo.

    Raises:
        DataError: a signal is absent, never rises, or ends do not increase.
    """
    ends: list[int] = []
    for i, subtask in enumerate(task.subtasks):
        if i == len(task.subtasks) - 1:
            ends.append(seed.num_frames)
            break
        if subtask.signal not in seed.signals:
            known = ", ".join(sorted(seed.signals)) or "none"
            raise DataError(
                f"seed {seed.name}: signal {subtask.signal!r} of subtask {subtask.name!r} is missing; it has: {known}"
            )
        signal = np.asarray(seed.signals[subtask.signal], bool)
        edges = np.flatnonzero(signal[1:] & ~signal[:-1]) + 1
        edges = edges[edges > (ends[-1] if ends else 0)]
        if not len(edges):
            raise DataError(
                f"seed {seed.name}: signal {subtask.signal!r} never rises from 0 to 1 after the subtask before"
            )
        ends.append(int(edges[0]))
    return ends


def jaw_changes(jaw_target: np.ndarray, threshold_rad: float) -> list[tuple[int, int]]:
    """Intervals [start, stop) in which the commanded jaw moves on by more than `threshold_rad` in one direction."""
    steps = np.diff(jaw_target, prepend=jaw_target[0])
    changes, start, total = [], None, 0.0
    for t, step in enumerate(steps):
        if start is not None and (step * total < 0 or not np.any(steps[t : t + 4])):
            if abs(total) > threshold_rad:
                changes.append((start, t))
            start, total = None, 0.0
        if step and start is None:
            start = t
        total += step
    if start is not None and abs(total) > threshold_rad:
        changes.append((start, len(jaw_target)))
    return changes


def _without_idling(path: np.ndarray, jaw: np.ndarray, settings: SegmentConfig, dt: float) -> np.ndarray:
    """Rows to keep: runs in which neither the hand nor the jaw moves are shortened to `keep_idle_frames`."""
    speed = np.linalg.norm(np.diff(path[:, :3, 3], axis=0, prepend=path[:1, :3, 3]), axis=-1) / dt
    speed = np.convolve(speed, np.full(3, 1 / 3), "same")
    idle = (speed < settings.idle_speed_m_s) & (np.diff(jaw, prepend=jaw[0]) == 0)
    keep, run = [], 0
    for t, is_idle in enumerate(idle):
        run = run + 1 if is_idle else 0
        if run <= settings.keep_idle_frames:
            keep.append(t)
    return np.array(keep)


def cut_segment(
    seed: SeedDemo,
    path: EePath,
    task: TaskDefinition,
    index: int,
    end_offset: int,
    settings: SegmentConfig,
    jaw_threshold_rad: float,
) -> Segment:
    """The segment of subtask `index`: from where the hand last comes within `approach_distance_m` of where the jaw
    acts, to the subtask's end plus `end_offset` frames; a last subtask ends once the hand is that far away again."""
    subtask = task.subtasks[index]
    ends = subtask_ends(seed, task)
    offset_before = task.subtasks[index - 1].end_offset_frames[1] if index else 0
    first = min((ends[index - 1] if index else 0) + offset_before, seed.num_frames - 2)
    last = min(ends[index] + end_offset, seed.num_frames)
    jaw = seed.q_target[first:last, -1]
    changes = jaw_changes(jaw, jaw_threshold_rad) if first < last else []
    if not changes:
        raise DataError(
            f"seed {seed.name}: the jaw does not move in subtask {subtask.name!r} (frames {first} to {last})"
        )
    anchor = first + changes[-1][0]
    distance = np.linalg.norm(path.T_base_target[:, :3, 3] - path.T_base_target[anchor, :3, 3], axis=-1)
    far_before = np.flatnonzero(distance[first:anchor] > settings.approach_distance_m)
    start = first + int(far_before[-1]) + 1 if len(far_before) else first
    if index == len(task.subtasks) - 1:
        far_after = np.flatnonzero(distance[anchor:last] > settings.approach_distance_m)
        last = anchor + int(far_after[0]) if len(far_after) else last
    keep = start + _without_idling(
        path.T_base_target[start:last], seed.q_target[start:last, -1], settings, 1.0 / seed.fps
    )
    keep = keep[np.round(np.arange(0, len(keep), settings.speed)).astype(int).clip(max=len(keep) - 1)]
    held, T_base_obj = None, seed.objects[subtask.object][start]
    if subtask.held is not None:
        held = invert_pose(path.T_base_ee[start]) @ seed.objects[subtask.held][start]
        if subtask.object == task.success.container:
            T_cont_obj = invert_pose(seed.objects[subtask.object][-1]) @ seed.objects[subtask.held][-1]
            to_openings = np.linalg.norm(np.array(task.success.openings_m) - T_cont_obj[:2, 3], axis=-1)
            T_base_obj = opening_pose(T_base_obj, task.success.openings_m[int(to_openings.argmin())])
    return Segment(
        seed_name=seed.name,
        subtask=subtask,
        T_base_obj=T_base_obj,
        T_base_target=path.T_base_target[keep],
        T_base_ee=path.T_base_ee[keep],
        jaw_target=seed.q_target[keep, -1],
        anchor=int(np.searchsorted(keep, anchor)),
        release_end=int(np.searchsorted(keep, first + changes[-1][1])),
        T_ee_held=held,
    )
