"""A rig file: the servos of one real arm, laid over robot.yaml by `--rig FILE`. `./twin identify` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from so101.config.base import Section, read_yaml, validate
from so101.config.robot import RobotConfig
from so101.errors import ConfigError, did_you_mean


class RigJoint(Section):
    """Servo values of one joint that differ from robot.yaml; the others stay."""

    stiffness_nm_per_rad: float | None = Field(default=None, gt=0)
    velocity_gain_nm_s_per_rad: float | None = Field(default=None, ge=0)
    damping_nm_s_per_rad: float | None = Field(default=None, ge=0)
    friction_nm: float | None = Field(default=None, ge=0)
    armature_kg_m2: float | None = Field(default=None, ge=0)
    force_limit_nm: float | None = Field(default=None, gt=0)
    delay_s: float | None = Field(default=None, ge=0)


class RigSource(Section):
    """Where the values come from. Decides nothing; degrees and frames are for people."""

    recording: str
    episodes: list[int]
    held_out: list[int] = []
    told: dict[str, list[str]] = {}  # joint -> keys the recording decides
    rmse_deg: dict[str, dict[str, float]] = {}  # joint -> before, after, held_out_before, held_out_after


class Rig(Section):
    """The file."""

    source: RigSource | None = None
    joints: dict[str, RigJoint]


def apply_rig(values: dict[str, dict[str, Any]], path: Path | str) -> None:
    """Lay the rig file over the joints of robot.yaml in `values`, in place.

    Raises:
        ConfigError: naming file, key, bad value and what is allowed.
    """
    path = Path(path)
    try:
        content = read_yaml(path)
    except ConfigError as error:
        raise ConfigError(f"--rig {error}; `./twin identify RECORDING --out FILE` writes one") from None
    rig = validate(Rig, content, str(path))
    robot = validate(RobotConfig, values["robot"], "robot.yaml")
    unknown = [name for name in rig.joints if name not in robot.joint_names]
    if unknown:
        known = f"robot.yaml has {', '.join(robot.joint_names)}{did_you_mean(unknown[0], robot.joint_names)}"
        raise ConfigError(f"{path}: joints.{unknown[0]}: no such joint; {known}")
    for joint in values["robot"]["joints"]:
        if joint["name"] in rig.joints:
            joint.update(rig.joints[joint["name"]].model_dump(exclude_none=True))
    validate(RobotConfig, values["robot"], f"{path} over robot.yaml")  # rules that need both, as max_delay_s
