"""How an episode begins: where things stand, where the arm is, which physics holds; all drawn from one generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from so101.config import Config
from so101.sim.randomisation import draw_randomisation, extra_placements
from so101.tasks.placement import Draws, draw_placements


class Start(NamedTuple):
    """The beginning of an attempt, a test of a policy, or anything else that is told by a seed.

    Attributes:
        q: (6,) rad: home, each arm joint up to skillgen.start_noise_rad off.
        objects: name -> (7,) pose in base: the task's objects and the optional bodies that were drawn.
        draws: as `draw_placements` gives them.
        randomisation: as `so101.sim.randomisation.draw_randomisation` gives it.
    """

    q: np.ndarray
    objects: dict[str, np.ndarray]
    draws: Draws
    randomisation: Mapping[str, Any]


def draw_start(config: Config, rng: np.random.Generator) -> Start:
    """Draw placements, then noise on the start pose, then physics."""
    objects, draws = draw_placements(config, rng)
    q = np.array([joint.home_rad for joint in config.robot.joints])
    q[:-1] += rng.uniform(-1, 1, len(q) - 1) * config.skillgen.start_noise_rad
    randomisation = draw_randomisation(config, rng)
    extra = extra_placements(config, randomisation, objects)
    return Start(q, {**objects, **extra}, draws, randomisation)
