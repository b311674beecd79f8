"""The example of docs/families.md: a task in six lines, added to a copy of configs/, runs as it is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from so101.cli.app import main
from so101.config import CONFIGS_DIR
from so101.families import task_names

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "families.md").read_text(encoding="utf-8")
NAME = "so101_tower_cube_beside_bowl"


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs") / "configs"
    shutil.copytree(CONFIGS_DIR, folder)
    lines = re.search(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]
    assert len(lines.splitlines()) == 6
    family = folder / "families" / "so101_tower.yaml"
    family.write_text(family.read_text().replace("\ntasks:\n", f"\ntasks:\n{lines}", 1))
    return folder


def test_the_task_is_listed_with_its_goal(configs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["tasks", NAME, "--configs", str(configs)]) == 0
    out = capsys.readouterr().out
    assert "brick within 100 mm of bowl and not (brick within 70 mm of bowl)" in out
    assert NAME not in task_names(), "the stock families are as they were"


def test_the_python_of_the_page_runs_and_the_goal_is_the_one_meant(configs):
    code = re.search(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]
    names: dict = {}
    exec(code.replace(f'"{NAME}", 32', f'"{NAME}", 2, configs={str(configs)!r}'), names)
    env = names["env"]
    assert names["obs"].shape == (2, 49) and not names["info"]["success"].any()
    qpos = env.qpos[0].copy()
    for distance, holds in ((0.085, True), (0.02, False), (0.2, False)):
        qpos[13:16] = qpos[6:9] + [distance, 0, 0.0125]
        env.set_state(0, qpos)
        _, info = env.reset_lanes(np.zeros(2, bool), env.episode_seeds)
        assert info["success"][0] == holds, distance
    env.close()
