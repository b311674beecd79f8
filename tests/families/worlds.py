"""What the tests of the families share: features written down by hand, folders of changed configuration."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import yaml

from so101.config import CONFIGS_DIR
from so101.families.goals import Features

TASKS = (
    "so101_tower_reach_clear",
    "so101_tower_lift_brick",
    "so101_tower_cube_in_bowl",
    "so101_tower_teleop_lift_brick",
    "so101_tower_teleop_cube_in_bowl",
    "so101_reach_clear",
    "so101_reach_brick",
    "so101_lift_brick",
    "so101_settle_brick",
    "so101_gather_bricks",
    "so101_reach",
    "so101_vial_to_rack",
)


def features(
    *,
    bodies: Mapping[str, object] = {},
    sites: Mapping[str, object] = {},
    grasped: Mapping[str, object] = {},
    qpos: object = (0.0,) * 6,
    qvel: object = (0.0,) * 6,
    target: object = (0.0, 0.0, 0.0),
    action: object = (0.0,) * 6,
    previous_action: object = (0.0,) * 6,
    rotations: Mapping[str, object] = {},
) -> Features:
    """Of as many lanes as the widest argument has; others are repeated."""

    def rows(value: object) -> np.ndarray:
        return np.atleast_2d(np.asarray(value, float))

    given = {"qpos": qpos, "qvel": qvel, "target": target, "action": action, "previous_action": previous_action}
    alone = {name: rows(value) for name, value in given.items()}
    named = {
        kind: {name: rows(value) for name, value in {**values}.items()}
        for kind, values in {"bodies": bodies, "sites": {"grip": (0, 0, 0), **sites}, "rotations": rotations}.items()
    }
    lanes = max(len(value) for group in (alone, *named.values()) for value in group.values())
    lanes = max([lanes, *(np.size(value) for value in grasped.values())])

    def wide(value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(value, (lanes, value.shape[1]))

    return Features(
        **{name: wide(value) for name, value in alone.items()},
        **{kind: {name: wide(value) for name, value in values.items()} for kind, values in named.items()},
        grasped={name: np.broadcast_to(np.asarray(value, bool), (lanes,)) for name, value in grasped.items()},
        gripper_site="grip",
    )


def copied_configs(folder: Path) -> Path:
    """The stock configuration in `folder`, to be changed."""
    return Path(shutil.copytree(CONFIGS_DIR, folder / "configs"))


def edit(configs: Path, family: str, change: object) -> None:
    """Load a family's file, let `change` work on it, write it back."""
    path = configs / "families" / f"{family}.yaml"
    data = yaml.safe_load(path.read_text())
    change(data)
    path.write_text(yaml.safe_dump(data, sort_keys=False))
