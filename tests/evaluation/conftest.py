"""The configuration and the arm, made once."""

from __future__ import annotations

import pytest

from so101.config import load_config
from so101.kinematics.arm import ArmKinematics


@pytest.fixture(scope="session")
def config():
    return load_config()


@pytest.fixture(scope="session")
def fk(config):
    return ArmKinematics(config).fk
