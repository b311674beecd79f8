"""The rig file that `--rig` reads (`so101.config.rig`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from so101.config import Config
from so101.files import write_text
from so101.identification.fit import Fit

_HEAD = """\
# Rig file: servos of one arm, written by ./twin identify. Use it with --rig {name} on any command.
# `told` are the values the recording decides; the others are those of robot.yaml, as the fit used them.
"""


def write_rig(
    path: Path | str,
    config: Config,
    fit: Fit,
    *,
    recording: str,
    episodes: Sequence[int],
    held_out: Sequence[int],
    rmse_deg: Mapping[str, Mapping[str, float]],
) -> None:
    """Write the servos of `fit` with where they come from. Equal inputs give equal bytes: no date, no path."""
    names = config.robot.joint_names
    content = {
        "source": {
            "recording": recording,
            "episodes": list(episodes),
            "held_out": list(held_out),
            "told": dict(zip(names, fit.told, strict=True)),
            "rmse_deg": {name: dict(figures) for name, figures in rmse_deg.items()},
        },
        "joints": {
            joint.name: {**servo, "damping_nm_s_per_rad": joint.damping_nm_s_per_rad}
            for joint, servo in zip(config.robot.joints, fit.servos, strict=True)
        },
    }
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=200)
    write_text(path, _HEAD.format(name=Path(path).name) + text)
