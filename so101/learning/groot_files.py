"""What Isaac-GR00T N1.6 is started with: its modality config, a launcher, and the command. Pure text (docs/groot.md).

N1.6's launcher sets the optimiser itself and has no option for it. Ours therefore runs theirs, and only changes the
finished configuration on its way into the training: name of the optimiser and schedule.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from so101.config import Config

MODALITY_FILE = "so101_modality.py"  # imported by its name, so it must be no module of anybody else
LAUNCHER_FILE = "so101_finetune.py"
SCRIPT_FILE = "train.sh"
SETTINGS_FILE = "settings.json"

_MODALITY = '''\
"""The SO-101 as GR00T N1.6 sees it. Written by `./twin train --policy groot` from dataset.yaml and training.yaml."""

from gr00t.configs.data.embodiment_configs import register_modality_config
from gr00t.data.embodiment_tags import EmbodimentTag
from gr00t.data.types import ActionConfig, ActionFormat, ActionRepresentation, ActionType, ModalityConfig

CAMERAS = {cameras}
GROUPS = {groups}  # slice of state and action -> how its actions are learned
LANGUAGE = {language}
HORIZON = {horizon}  # rows of an action chunk


def joints(representation):
    return ActionConfig(
        rep=ActionRepresentation[representation], type=ActionType.NON_EEF, format=ActionFormat.DEFAULT
    )


register_modality_config(
    {{
        "video": ModalityConfig(delta_indices=[0], modality_keys=CAMERAS),
        "state": ModalityConfig(delta_indices=[0], modality_keys=list(GROUPS)),
        "action": ModalityConfig(
            delta_indices=list(range(HORIZON)),
            modality_keys=list(GROUPS),
            action_configs=[joints(representation) for representation in GROUPS.values()],
        ),
        "language": ModalityConfig(delta_indices=[0], modality_keys=[LANGUAGE]),
    }},
    embodiment_tag=EmbodimentTag.{tag},
)
'''

_LAUNCHER = '''\
"""Isaac-GR00T's launch_finetune with settings it has no option for. Written by `./twin train --policy groot`."""

import importlib.util
import runpy

SETTINGS = {settings}  # of gr00t's TrainingConfig


def main():
    if "8bit" in SETTINGS["optim"] and importlib.util.find_spec("bitsandbytes") is None:
        raise SystemExit(
            f"{{SETTINGS['optim']}} needs the package bitsandbytes beside gr00t: pip install bitsandbytes there, "
            "or choose --set training.groot.optimizer.name=adamw_torch"
        )
    from gr00t.experiment import experiment

    train = experiment.run

    def train_with_settings(config):
        for name, value in SETTINGS.items():
            if not hasattr(config.training, name):
                raise SystemExit(f"this gr00t has no setting training.{{name}}; N1.6 is what this was written for")
            setattr(config.training, name, value)
        return train(config)

    experiment.run = train_with_settings  # launch_finetune takes it from there
    runpy.run_module("gr00t.experiment.launch_finetune", run_name="__main__")


if __name__ == "__main__":  # workers of the data loader import this file
    main()
'''


@dataclass(frozen=True)
class Paths:
    """Where things are for the process that trains: on this machine, or as a container sees them."""

    python: str
    base_model: str
    dataset: str
    output: str

    def launch_file(self, name: str) -> str:
        return f"{self.output}/launch/{name}"


def modality_source(config: Config) -> str:
    """The Python file that registers our cameras, joint groups, task text and horizon for the embodiment tag."""
    modality = config.dataset.modality
    groups = {name: "RELATIVE" if name in modality.relative else "ABSOLUTE" for name in modality.groups}
    return _MODALITY.format(
        cameras=json.dumps(list(config.dataset.cameras.values())),
        groups=json.dumps(groups),
        language=json.dumps(f"annotation.{modality.language_key}"),
        horizon=config.training.action_horizon,
        tag=config.training.groot.embodiment_tag,
    )


def launcher_source(config: Config) -> str:
    """The Python file that is started."""
    return _LAUNCHER.format(settings=json.dumps(hidden_settings(config)))


def hidden_settings(config: Config) -> dict[str, str]:
    """Settings of GR00T's TrainingConfig that its launcher has no option for."""
    optimizer = config.training.groot.optimizer
    return {"optim": optimizer.name, "lr_scheduler_type": optimizer.schedule}


def flags(config: Config) -> dict[str, Any]:
    """Options of GR00T's launcher but for paths. True and False are switches, given when they are not its default."""
    groot = config.training.groot
    jitter = {name: getattr(groot.augmentation, name) for name in ("brightness", "contrast", "saturation", "hue")}
    return {
        "embodiment_tag": groot.embodiment_tag,
        "tune_llm": groot.tune.llm,
        "tune_visual": groot.tune.visual,
        "tune_projector": groot.tune.projector,
        "tune_diffusion_model": groot.tune.diffusion_model,
        "num_gpus": groot.num_gpus,
        "global_batch_size": groot.batch.size,
        "gradient_accumulation_steps": groot.batch.gradient_accumulation_steps,
        "dataloader_num_workers": groot.batch.dataloader_workers,
        "learning_rate": groot.optimizer.learning_rate,
        "warmup_ratio": groot.optimizer.warmup_ratio,
        "weight_decay": groot.optimizer.weight_decay,
        "max_steps": groot.steps.max_steps,
        "save_steps": groot.steps.save_steps,
        "save_total_limit": groot.steps.save_total_limit,
        "state_dropout_prob": groot.augmentation.state_dropout_prob,
        "color_jitter_params": jitter,
        "shard_size": groot.sampling.shard_size,
        "episode_sampling_rate": groot.sampling.episode_sampling_rate,
        "num_shards_per_epoch": groot.sampling.num_shards_per_epoch,
    }


_ON_BY_DEFAULT = ("tune_projector", "tune_diffusion_model")


def finetune_command(config: Config, paths: Paths) -> list[str]:
    """The command that trains, as words; torchrun starts a process a GPU when there are several."""
    command = [paths.python]
    if config.training.groot.num_gpus > 1:  # torchrun by its module: the interpreter is certain then
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={config.training.groot.num_gpus}"]
    command += [paths.launch_file(LAUNCHER_FILE)]
    command += ["--base_model_path", paths.base_model]
    command += ["--dataset_path", paths.dataset]
    command += ["--modality_config_path", paths.launch_file(MODALITY_FILE)]
    command += ["--output_dir", paths.output]
    for name, value in flags(config).items():
        if isinstance(value, bool):
            if value != (name in _ON_BY_DEFAULT):
                command.append(f"--{name}" if value else f"--no-{name.replace('_', '-')}")
        elif isinstance(value, dict):
            command += [f"--{name}", *(word for pair in value.items() for word in map(str, pair))]
        else:
            command += [f"--{name}", str(value)]
    return command


def script_source(command: list[str], note: str) -> str:
    """The command as a shell script, an option a line."""
    lines, line = [], []
    for word in command:
        if word.startswith("--") and line:
            lines.append(" ".join(line))
            line = []
        line.append(shlex.quote(word))
    lines.append(" ".join(line))
    body = " \\\n    ".join(lines)
    return f"#!/bin/sh\n# {note}\nexec {body}\n"


def settings_source(config: Config, dataset: Path) -> str:
    """All that a training depends on, to see whether checkpoints are of another one."""
    digest = hashlib.blake2b(digest_size=16)
    for name in ("info.json", "episodes.jsonl", "stats.json"):  # what GR00T leaves as it is
        path = dataset / "meta" / name
        digest.update(path.read_bytes() if path.is_file() else b"")
    settings = {
        "base_model": config.training.groot.base_model,
        "dataset": {"path": str(dataset), "digest": digest.hexdigest()},
        "hidden": hidden_settings(config),
        "options": flags(config),
        "modality": modality_source(config),
    }
    return json.dumps(settings, indent=1) + "\n"
