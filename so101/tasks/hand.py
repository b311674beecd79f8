"""Directions of the hand at an object, and whether the jaws hold it."""

from __future__ import annotations

import numpy as np

from so101.sim.mujoco_sim import MujocoSimulator

UP = np.array([0.0, 0.0, 1.0])


def hand_rotation(approach: np.ndarray, pinch: np.ndarray) -> np.ndarray:
    """R_base_ee (3, 3) with x along `approach` (3,) and z as near `pinch` (3,) as it can be."""
    x = approach / np.linalg.norm(approach)
    z = pinch - x * (x @ pinch)
    z /= np.linalg.norm(z)
    return np.column_stack([x, np.cross(z, x), z])


def dipped(heading: np.ndarray, dip_rad: float) -> np.ndarray:
    """Unit vector (3,) along a horizontal unit heading, dipped below the horizontal."""
    return np.cos(dip_rad) * heading - np.sin(dip_rad) * UP


def horizontal(vector: np.ndarray) -> np.ndarray:
    """Unit vector (3,) along the horizontal part of `vector`."""
    flat = np.array([vector[0], vector[1], 0.0])
    return flat / np.linalg.norm(flat)


def jaw_touching(simulator: MujocoSimulator, env: int, name: str) -> bool:
    """Both jaws touch the object now."""
    return simulator.jaw_bodies <= simulator.touching_bodies(env, name)
