"""One small run for all tests of whole processes: it costs a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.small_run import SMALL, twin


@pytest.fixture(scope="session")
def operator_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "from an operator"
    result = twin("run", "--run", str(folder), "--set", "teleop.operator.num_demos=2", *SMALL)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder
