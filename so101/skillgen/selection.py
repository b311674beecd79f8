"""Which seed serves a subtask: k nearest by the pose of its reference object, one of them drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from so101.config.skillgen import SelectionConfig
from so101.geometry import align_about_axis, rotation_angle


def align_symmetric(T_A_obj: np.ndarray, T_reference: np.ndarray, symmetry_axis: np.ndarray | None) -> np.ndarray:
    """T_A_obj (4, 4) turned about the object's symmetry axis to be as near T_reference (4, 4) as it can be."""
    if symmetry_axis is None:
        return T_A_obj
    aligned = T_A_obj.copy()
    aligned[:3, :3] = align_about_axis(T_A_obj[:3, :3], T_reference[:3, :3], np.asarray(symmetry_axis, float))
    return aligned


def pose_distance(
    T_A: np.ndarray, T_B: np.ndarray, settings: SelectionConfig, symmetry_axis: np.ndarray | None
) -> float:
    """Weighted metres plus radians between two object poses; turns about the symmetry axis do not count."""
    T_A = align_symmetric(T_A, T_B, symmetry_axis)
    shift = float(np.linalg.norm(T_A[:3, 3] - T_B[:3, 3]))
    turn = float(rotation_angle(T_A[:3, :3], T_B[:3, :3]))
    return settings.position_weight * shift + settings.rotation_weight * turn


def nearest_first(
    T_base_obj: np.ndarray,
    candidates: Sequence[np.ndarray],
    settings: SelectionConfig,
    symmetry_axis: np.ndarray | None,
) -> list[int]:
    """Indices of `candidates` (object poses of the seeds), nearest first."""
    distances = [pose_distance(T_base_obj, candidate, settings, symmetry_axis) for candidate in candidates]
    return np.argsort(distances, kind="stable").tolist()


def select_nearest(
    T_base_obj: np.ndarray,
    candidates: Sequence[np.ndarray],
    settings: SelectionConfig,
    symmetry_axis: np.ndarray | None,
    rng: np.random.Generator,
) -> int:
    """Index into `candidates`, drawn uniformly among the `nn_k` nearest."""
    nearest = nearest_first(T_base_obj, candidates, settings, symmetry_axis)[: settings.nn_k]
    return nearest[rng.integers(len(nearest))]
