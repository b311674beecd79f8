"""Recorded commands through the twin's servos: the arm alone, with gravity, without table or objects."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import mujoco
import numpy as np

from so101.config import Config
from so101.config.rig import RigJoint
from so101.identification.pieces import Piece
from so101.sim.bake import baked_model
from so101.sim.servo import set_past_commands, set_servo

Servos = Sequence[Mapping[str, float]]  # one mapping a joint, keys as in robot.yaml


class ServoReplay:
    """Repeats pieces with servos that differ from those of `config`.

    Args:
        workers: threads; MuJoCo computes outside Python's lock.
    """

    def __init__(self, config: Config, workers: int) -> None:
        model = baked_model(config, looks=False, props=False)
        keys = set(RigJoint.model_fields)
        self._own = [joint.model_dump(include=keys) for joint in config.robot.joints]
        self._workers = workers
        self._models: SimpleQueue[mujoco.MjModel] = SimpleQueue()  # one a thread: meshes make a copy cost a replay
        for _ in range(workers):
            self._models.put(copy.copy(model))

    def run(self, servos: Servos, pieces: Sequence[Piece]) -> list[np.ndarray]:
        """(T, 6) rad of each piece with one set of servos."""
        return self.run_many([servos], pieces)[0]

    def run_many(self, candidates: Sequence[Servos], pieces: Sequence[Piece]) -> list[list[np.ndarray]]:
        """For each candidate (T, 6) rad of each piece."""
        jobs = [(servos, piece) for servos in candidates for piece in pieces]
        with ThreadPoolExecutor(self._workers) as pool:
            tracks = list(pool.map(lambda job: self._follow(*job), jobs))
        return [tracks[i : i + len(pieces)] for i in range(0, len(tracks), len(pieces))]

    def _follow(self, servos: Servos, piece: Piece) -> np.ndarray:
        model = self._models.get()
        try:
            for joint, (own, values) in enumerate(zip(self._own, servos, strict=True)):
                set_servo(model, joint, {**own, **values})
            return follow(model, piece)
        finally:
            self._models.put(model)


def follow(model: mujoco.MjModel, piece: Piece) -> np.ndarray:
    """(T, 6) rad: joints of the twin at the times of the frames, from the recorded start."""
    data = mujoco.MjData(model)
    step_of_frame = np.round(np.arange(len(piece.command)) / piece.fps / model.opt.timestep).astype(int)
    before = len(piece.past) / piece.fps
    past_steps = np.arange(-int(before / model.opt.timestep), 0)
    rows = len(piece.past) + np.floor(past_steps * model.opt.timestep * piece.fps).astype(int)
    set_past_commands(model, data, piece.past[np.clip(rows, 0, None)])
    data.qpos[:] = piece.measured[0]
    data.qvel[:] = piece.velocity
    track = np.empty_like(piece.measured)
    for frame, steps in enumerate(np.diff(step_of_frame)):
        track[frame] = data.qpos
        data.ctrl[:] = piece.command[frame]
        mujoco.mj_step(model, data, nstep=int(steps))
    track[-1] = data.qpos
    return track
