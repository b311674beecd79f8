"""A package `gr00t` made from what is known of Isaac-GR00T N1.6's fine-tune: names, options, defaults, order of calls.

Its training writes the configuration it was given to record.json and a checkpoint to the output folder.
"""

from __future__ import annotations

from pathlib import Path

_FILES = {
    "gr00t/data/embodiment_tags.py": """
from enum import Enum

class EmbodimentTag(Enum):
    GR1 = "gr1"
    NEW_EMBODIMENT = "new_embodiment"
""",
    "gr00t/data/types.py": """
from dataclasses import dataclass
from enum import Enum

class ActionRepresentation(Enum):
    RELATIVE = "relative"
    DELTA = "delta"
    ABSOLUTE = "absolute"

class ActionType(Enum):
    EEF = "eef"
    NON_EEF = "non_eef"

class ActionFormat(Enum):
    DEFAULT = "default"

@dataclass
class ActionConfig:
    rep: ActionRepresentation
    type: ActionType
    format: ActionFormat
    state_key: str | None = None

@dataclass
class ModalityConfig:
    delta_indices: list[int]
    modality_keys: list[str]
    sin_cos_embedding_keys: list[str] | None = None
    mean_std_embedding_keys: list[str] | None = None
    action_configs: list[ActionConfig] | None = None

    def __post_init__(self):
        assert isinstance(self.delta_indices, list) and isinstance(self.modality_keys, list) and self.modality_keys
        assert self.action_configs is None or len(self.action_configs) == len(self.modality_keys)
""",
    "gr00t/configs/data/embodiment_configs.py": """
REGISTERED = {}

def register_modality_config(config, embodiment_tag):
    assert embodiment_tag.value not in REGISTERED
    REGISTERED[embodiment_tag.value] = config
""",
    "gr00t/experiment/experiment.py": """
import json, os
from pathlib import Path
from gr00t.configs.data.embodiment_configs import REGISTERED

def run(config):
    output = Path(config.training.output_dir)
    record = {"training": vars(config.training), "model": vars(config.model), "data": vars(config.data)}
    record["registered"] = {
        tag: {kind: part.modality_keys for kind, part in each.items()} for tag, each in REGISTERED.items()
    }
    (output / "record.json").write_text(json.dumps(record))
    if os.environ.get("STUB_FAILS"):
        raise SystemExit(9)
    checkpoint = output / f"checkpoint-{config.training.max_steps}"
    checkpoint.mkdir(exist_ok=True)
    history = [{"loss": 0.5, "grad_norm": 1.5, "learning_rate": 1e-4, "step": 10}, {"loss": 0.25, "step": 20}]
    (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history}))
""",
    "gr00t/experiment/launch_finetune.py": """
import argparse, importlib, sys
from pathlib import Path
from types import SimpleNamespace
from gr00t.data.embodiment_tags import EmbodimentTag
from gr00t.experiment.experiment import run

DEFAULTS = dict(
    state_dropout_prob=0.0, global_batch_size=64, dataloader_num_workers=2, learning_rate=1e-4,
    gradient_accumulation_steps=1, save_steps=1000, save_total_limit=5, num_gpus=1, max_steps=10000,
    weight_decay=1e-5, warmup_ratio=0.05, shard_size=1024, episode_sampling_rate=0.1, num_shards_per_epoch=100000,
)
TUNE = dict(tune_llm=False, tune_visual=False, tune_projector=True, tune_diffusion_model=True)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("base_model_path", "dataset_path", "embodiment_tag"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--modality_config_path")
    parser.add_argument("--output_dir", default="./outputs")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    for name, value in TUNE.items():
        parser.add_argument(f"--{name}", dest=name, action="store_true", default=value)
        parser.add_argument(f"--no-{name.replace('_', '-')}", dest=name, action="store_false")
    parser.add_argument("--color_jitter_params", nargs="*")
    chosen = parser.parse_args()
    EmbodimentTag[chosen.embodiment_tag]  # the name, in upper case
    path = Path(chosen.modality_config_path)
    sys.path.append(str(path.parent))
    importlib.import_module(path.stem)
    training = SimpleNamespace(optim="adamw_torch_fused", lr_scheduler_type="linear")  # to be told from ours
    training.optim = "adamw_torch"  # hard-coded, no option for it
    training.output_dir, training.start_from_checkpoint = chosen.output_dir, chosen.base_model_path
    for name in ("global_batch_size", "gradient_accumulation_steps", "learning_rate", "warmup_ratio", "weight_decay",
                 "max_steps", "save_steps", "save_total_limit", "num_gpus", "dataloader_num_workers"):
        setattr(training, name, getattr(chosen, name))
    model = SimpleNamespace(**{name: getattr(chosen, name) for name in TUNE}, use_relative_action=True)
    model.color_jitter_params = dict(zip(chosen.color_jitter_params[::2], map(float, chosen.color_jitter_params[1::2])))
    data = SimpleNamespace(shard_size=chosen.shard_size, dataset_path=chosen.dataset_path)
    run(SimpleNamespace(training=training, model=model, data=data))
""",
}


def install(folder: Path, *, bitsandbytes: bool = True) -> Path:
    """Write the package under `folder`, which goes on the path of Python."""
    for name, content in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for package in {parent for name in _FILES for parent in (folder / name).parents if parent.is_relative_to(folder)}:
        if package != folder:
            (package / "__init__.py").touch()
    if bitsandbytes:
        (folder / "bitsandbytes.py").touch()
    return folder
