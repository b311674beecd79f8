"""The configuration and the arm, made once. The maps of the workspace take seconds: only their own tests draw them."""

from __future__ import annotations

import pytest

from so101.config import load_config
from so101.kinematics.arm import ArmKinematics


@pytest.fixture(scope="session")
def config():
    return load_config(overrides=["dataset.report.workspace.in_report=false"])


@pytest.fixture(scope="session")
def fk(config):
    return ArmKinematics(config).fk
