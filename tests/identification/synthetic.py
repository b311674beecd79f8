"""Recordings whose servos are known: the twin itself made them."""

from __future__ import annotations

import numpy as np

from so101.config import Config, load_config
from so101.identification import Piece, ServoReplay, servos_of

TRUE = {
    "stiffness_nm_per_rad": 14.0,
    "velocity_gain_nm_s_per_rad": 0.9,
    "friction_nm": 0.15,
    "delay_s": 0.06,
}


def quick(*overrides: str) -> Config:
    """Few steps: tests need the way, not the last digit."""
    few = ["robot.identification.scan_candidates=8", "robot.identification.iterations=[7, 1]"]
    return load_config(overrides=["scene.physics.substeps=8", *few, *overrides])


def made_by_twin(config: Config, servos: list[dict[str, float]], frames: int = 90, seed: int = 0) -> Piece:
    """A piece of quick moves and rests, followed by the twin with `servos`."""
    rng = np.random.default_rng(seed)
    home = np.array([joint.home_rad for joint in config.robot.joints])
    knots = home + rng.uniform(-0.35, 0.35, (frames // 12 + 2, 6))
    knots[:, 5] += 0.5
    knots[0] = home
    command = np.repeat(knots, 12, axis=0)[:frames]
    kernel = np.ones(6) / 6  # moves of 0.2 s
    padded = np.concatenate([np.repeat(command[:1], 5, 0), command])
    command = np.stack([np.convolve(column, kernel, "valid") for column in padded.T], axis=-1)
    counts = np.ones(command.shape, bool)
    piece = Piece("made", 30.0, command, np.tile(home, (frames, 1)), counts, home[None], np.zeros(6))
    (track,) = ServoReplay(config, 1).run(servos, [piece])
    return Piece("made", 30.0, command, track, counts, home[None], np.zeros(6))


def true_servos(config: Config) -> list[dict[str, float]]:
    return [{**servo, **TRUE} for servo in servos_of(config)]
