"""The eleven YAML files of `configs/` as one validated, frozen `Config`.

``load_config(overrides=["skillgen.nn_k=5"])`` reads ``configs/*.yaml``, applies a preset and overrides, validates.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from so101.config.base import Section, apply_override, read_yaml, validate
from so101.config.cameras import CamerasConfig, apply_scale
from so101.config.dataset import DatasetConfig
from so101.config.deploy import DeployConfig
from so101.config.ik import IkConfig
from so101.config.render import RenderConfig
from so101.config.rig import apply_rig
from so101.config.robot import RobotConfig
from so101.config.scene import RackedConfig, SceneConfig
from so101.config.skillgen import SkillgenConfig
from so101.config.task import PlacementConfig, TaskConfig
from so101.config.teleop import TeleopConfig
from so101.config.training import TrainingConfig
from so101.errors import ConfigError, did_you_mean

__all__ = ["CONFIGS_DIR", "Config", "load_config"]

CONFIGS_DIR = Path(__file__).resolve().parents[2] / "configs"


class Config(Section):
    """All configuration. One field per YAML file, same name."""

    robot: RobotConfig
    scene: SceneConfig
    cameras: CamerasConfig
    task: TaskConfig
    teleop: TeleopConfig
    skillgen: SkillgenConfig
    ik: IkConfig
    render: RenderConfig
    dataset: DatasetConfig
    training: TrainingConfig
    deploy: DeployConfig

    @property
    def racked(self) -> RackedConfig | None:
        """The object that may stand in the container at the start, when it is on and an opening is to spare."""
        drawn, task = self.scene.randomisation, self.task.active
        if not (drawn.enabled and drawn.racked):
            return None
        alike = sum(placement.prop == drawn.racked.prop for placement in task.objects.values())
        return drawn.racked if 0 < alike < len(task.success.openings_m) else None

    @property
    def distractors(self) -> dict[str, PlacementConfig]:
        """Bodies that may stand around, at their parking places; empty when they are off."""
        drawn = self.scene.randomisation
        if not (drawn.enabled and drawn.distractors):
            return {}
        props = drawn.distractors.props
        return {
            f"distractor_{i}": drawn.parked(props[i % len(props)], i + 1) for i in range(drawn.distractors.max_count)
        }

    @property
    def objects(self) -> dict[str, PlacementConfig]:
        """All objects of the model: those of the task in use, then optional bodies of scene.randomisation."""
        racked = self.racked
        extra = {racked.object: self.scene.randomisation.parked(racked.prop, 0)} if racked else {}
        return {**self.task.active.objects, **extra, **self.distractors}

    @property
    def without_randomisation(self) -> Config:
        """The same with the physics that is written in the files: for seeds and checks of the task itself."""
        if not self.scene.randomisation.enabled:
            return self
        nominal = self.scene.randomisation.model_copy(update={"enabled": False})
        return self.model_copy(update={"scene": self.scene.model_copy(update={"randomisation": nominal})})

    @property
    def of_seeds(self) -> Config:
        """The configuration that seeds are made with: the task that they demonstrate in use, physics as in the
        files."""
        task = self.task.model_copy(update={"name": self.task.active.seed_task or self.task.name})
        return self.without_randomisation.model_copy(update={"task": task})

    def digest(self, *sections: str) -> str:
        """Hex digest of the named sections (all when none is named); equal settings give equal digests."""
        values = self.model_dump(mode="json", include=set(sections) or None)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def load_config(
    configs_dir: Path | str | None = None,
    *,
    preset: str | None = None,
    rig: Path | str | None = None,
    overrides: Sequence[str] = (),
) -> Config:
    """Read, override and validate the configuration.

    Args:
        configs_dir: folder with the eleven YAML files; the repository's own when None.
        preset: name of a preset in skillgen.yaml (`presets`), applied before `overrides`.
        rig: a rig file, see `so101.config.rig`, applied before `overrides`.
        overrides: ``section.key=value`` assignments, later ones win.

    Raises:
        ConfigError: all faults of all files, one a line.
    """
    folder = Path(configs_dir) if configs_dir is not None else CONFIGS_DIR
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such configuration folder; pass --configs FOLDER with the eleven YAML files")
    values: dict[str, dict[str, Any]] = {name: read_yaml(folder / f"{name}.yaml") for name in Config.model_fields}
    written = copy.deepcopy(values)
    if preset is not None:
        presets = values["skillgen"].get("presets") or {}
        if preset not in presets:
            known = ", ".join(sorted(presets)) or "none"
            raise ConfigError(f"unknown preset {preset!r}; skillgen.yaml has: {known}{did_you_mean(preset, presets)}")
        for key, value in presets[preset].items():
            apply_override(values, f"{key}={json.dumps(value)}")
    if rig is not None:
        apply_rig(values, rig)
    for assignment in overrides:
        apply_override(values, assignment)
    apply_scale(values["cameras"])
    sections, faults = _validated(values)
    if not faults:
        faults = _preset_faults(written) + _unknown_props(sections["task"], sections["scene"])
        faults += _taken_names(sections["task"], sections["scene"])
        faults += _unknown_cameras(sections["render"], sections["cameras"])
    if faults:
        raise ConfigError("\n".join(faults))
    return Config(**sections)


def _validated(values: dict[str, dict[str, Any]]) -> tuple[dict[str, Section], list[str]]:
    """Models by section, and the faults of those that are not valid."""
    sections, faults = {}, []
    for name, field in Config.model_fields.items():
        if name not in values:
            continue
        try:
            sections[name] = validate(field.annotation, values[name], f"{name}.yaml")
        except ConfigError as error:
            faults.append(str(error))
    return sections, faults


def _unknown_props(task: TaskConfig, scene: SceneConfig) -> list[str]:
    """Objects of tasks that scene.yaml does not describe."""
    return [
        f"task.yaml: tasks.{name}.objects.{label}.prop is {placement.prop!r}; scene.yaml has the props "
        f"{', '.join(sorted(scene.props))}{did_you_mean(placement.prop, scene.props)}"
        for name, definition in task.tasks.items()
        for label, placement in definition.objects.items()
        if placement.prop not in scene.props
    ]


def _taken_names(task: TaskConfig, scene: SceneConfig) -> list[str]:
    """The pre-racked object must not be called like an object of a task."""
    racked = scene.randomisation.racked
    return [
        f"scene.yaml: randomisation.racked.object is {racked.object!r}, the name of an object of task {name!r}; "
        "choose another"
        for name, definition in task.tasks.items()
        if racked and racked.object in definition.objects
    ]


def _unknown_cameras(render: RenderConfig, cameras: CamerasConfig) -> list[str]:
    """Cameras that are to be randomised and do not exist."""
    if not render.randomisation.enabled:
        return []
    return [
        f"render.yaml: randomisation.cameras names {name!r}; cameras.yaml has {', '.join(cameras.names)}"
        f"{did_you_mean(name, cameras.names)}"
        for name in render.randomisation.cameras or ()
        if name not in cameras.names
    ]


def _preset_faults(values: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong with presets, also with those not in use: found today, not when they are needed."""
    faults = []
    for preset, assignments in values["skillgen"].get("presets", {}).items():
        changed = copy.deepcopy(values)
        try:
            for key, value in assignments.items():
                apply_override(changed, f"{key}={json.dumps(value)}")
            apply_scale(changed["cameras"])
            changed = {name: section for name, section in changed.items() if section != values[name]}
            wrong = _validated(changed)[1]
        except ConfigError as error:
            wrong = [str(error)]
        faults += [f"skillgen.yaml: presets.{preset}: {fault}" for fault in wrong]
    return faults
