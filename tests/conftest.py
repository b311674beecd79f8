"""What tests of several folders share. Seeds cost seconds, so they are made once a session."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import settings

from so101.config import Config, load_config

NUM_SEEDS = 2

settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def vial_config() -> Config:
    """The configuration as shipped, vial task."""
    return load_config(overrides=["task.name=vial_to_rack"])


@pytest.fixture(scope="session")
def vial_seeds(vial_config):
    """Two takes of the scripted operator."""
    from so101.tasks.operator import ScriptedOperator, TakeFailed

    operator, seeds = ScriptedOperator(vial_config), []
    for take in count():
        try:
            seeds.append(operator.demo(take))
        except TakeFailed:
            assert take < 20, "the scripted operator does not get the task done"
        if len(seeds) == NUM_SEEDS:
            return seeds


@pytest.fixture(scope="session")
def vial_runner(vial_config, vial_seeds):
    """Attempts of the shipped configuration from the two seeds."""
    from so101.skillgen.ik_rollout import AttemptRunner

    return AttemptRunner(vial_config, vial_seeds)
