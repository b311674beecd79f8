"""The fine-tune of GR00T: the exact command and files, what the launcher makes of them, and where it stops."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import so101.learning.groot as groot
from so101.config import load_config
from so101.datasets.lerobot_v21 import write_dataset
from so101.errors import ConfigError, DataError
from so101.learning.groot import GrootError, find_place, launch_files, train_groot
from so101.learning.groot_checkpoint import check_checkpoint
from so101.learning.groot_files import Paths, finetune_command, launcher_source, modality_source
from so101.pipeline.progress import SilentReporter
from tests.datasets.synthetic import make_run
from tests.learning.groot_stub import install

MODALITY = '''\
"""The SO-101 as GR00T N1.6 sees it. Written by `./twin train --policy groot` from dataset.yaml and training.yaml."""

from gr00t.configs.data.embodiment_configs import register_modality_config
from gr00t.data.embodiment_tags import EmbodimentTag
from gr00t.data.types import ActionConfig, ActionFormat, ActionRepresentation, ActionType, ModalityConfig

CAMERAS = ["wrist", "front", "top"]
GROUPS = {"single_arm": "RELATIVE", "gripper": "ABSOLUTE"}  # slice of state and action -> how its actions are learned
LANGUAGE = "annotation.human.task_description"
HORIZON = 16  # rows of an action chunk


def joints(representation):
    return ActionConfig(
        rep=ActionRepresentation[representation], type=ActionType.NON_EEF, format=ActionFormat.DEFAULT
    )


register_modality_config(
    {
        "video": ModalityConfig(delta_indices=[0], modality_keys=CAMERAS),
        "state": ModalityConfig(delta_indices=[0], modality_keys=list(GROUPS)),
        "action": ModalityConfig(
            delta_indices=list(range(HORIZON)),
            modality_keys=list(GROUPS),
            action_configs=[joints(representation) for representation in GROUPS.values()],
        ),
        "language": ModalityConfig(delta_indices=[0], modality_keys=[LANGUAGE]),
    },
    embodiment_tag=EmbodimentTag.NEW_EMBODIMENT,
)
'''

SCRIPT = """\
#!/bin/sh
# Written by ./twin train --policy groot, to be run in the container. Dataset: /data/vials
exec python /output/launch/so101_finetune.py \\
    --base_model_path nvidia/GR00T-N1.6-3B \\
    --dataset_path /dataset \\
    --modality_config_path /output/launch/so101_modality.py \\
    --output_dir /output \\
    --embodiment_tag NEW_EMBODIMENT \\
    --num_gpus 1 \\
    --global_batch_size 32 \\
    --gradient_accumulation_steps 2 \\
    --dataloader_num_workers 4 \\
    --learning_rate 0.0001 \\
    --warmup_ratio 0.05 \\
    --weight_decay 1e-05 \\
    --max_steps 20000 \\
    --save_steps 2000 \\
    --save_total_limit 5 \\
    --state_dropout_prob 0.0 \\
    --color_jitter_params brightness 0.3 contrast 0.4 saturation 0.5 hue 0.08 \\
    --shard_size 1024 \\
    --episode_sampling_rate 0.1 \\
    --num_shards_per_epoch 100000
"""

NO_ENGINE = (["docker", "compose"], "no working engine with compose (docker or podman)")


def make_config(*overrides: str):
    return load_config(overrides=["training.tracking.enabled=false", *overrides])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    config = make_config()
    run = make_run(tmp_path_factory.mktemp("run"), config, (44, 27))
    write_dataset(config, run, SilentReporter(), 1)
    return run.dataset


@pytest.fixture
def no_container(monkeypatch):
    monkeypatch.setattr(groot, "_compose", lambda: NO_ENGINE)


@pytest.fixture
def said():
    return []


@pytest.fixture
def installed(tmp_path, monkeypatch, no_container):
    """`installed()` puts the stub of Isaac-GR00T on the path of this process and of those it starts."""

    def put(**options) -> None:
        folder = install(tmp_path / "site", **options)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    yield put
    for name in [name for name in sys.modules if name.partition(".")[0] in ("gr00t", "bitsandbytes")]:
        del sys.modules[name]


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "outputs" / "groot"


def to(output: Path, *overrides: str):
    return make_config(f"training.groot.output_dir={output}", *overrides)


# command and files


def test_the_exact_command_and_files(monkeypatch):
    monkeypatch.setattr(groot, "_compose", lambda: (["docker", "compose"], None))
    config = make_config()
    place, missing = find_place(config, Path("/data/vials"), Path("/data/out"))
    files = launch_files(config, Path("/data/vials"), place)
    assert missing == []
    assert files["train.sh"] == SCRIPT
    assert files["so101_modality.py"] == MODALITY
    assert 'SETTINGS = {"optim": "paged_adamw_8bit", "lr_scheduler_type": "cosine"}' in files["so101_finetune.py"]
    assert list(files) == ["so101_modality.py", "so101_finetune.py", "train.sh", "settings.json"]


def test_the_command_goes_into_the_container_of_the_compose_file(monkeypatch):
    monkeypatch.setattr(groot, "_compose", lambda: (["docker", "compose"], None))
    monkeypatch.setenv("TWIN_USER", "7:8")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    place, _ = find_place(make_config(), Path("/data/vials"), Path("/data/out"))
    words = " ".join(place.prefix)
    assert words.startswith("docker compose -f ")
    assert words.endswith("compose.yaml --profile groot-train run --rm groot-train")
    expected = {"GROOT_DATASET": "/data/vials", "GROOT_OUTPUT": "/data/out", "GROOT_DEVICES": "0", "TWIN_USER": "7:8"}
    assert place.environment == expected


def test_a_base_model_in_a_folder_is_mounted(monkeypatch, tmp_path):
    monkeypatch.setattr(groot, "_compose", lambda: (["docker", "compose"], None))
    config = make_config(f"training.groot.base_model={tmp_path}")
    place, _ = find_place(config, Path("/d"), Path("/o"))
    assert place.prefix[-3:] == ["-v", f"{tmp_path}:/base_model:ro", "groot-train"]
    assert "--base_model_path /base_model" in " ".join(finetune_command(config, place.paths))


def test_several_gpus_are_torchruns(tmp_path, monkeypatch, no_container):
    config = make_config("training.groot.num_gpus=4")
    command = finetune_command(config, Paths("python", "base", "/d", "/o"))
    assert command[:5] == ["python", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=4"]
    assert command[5] == "/o/launch/so101_finetune.py"
    assert command[command.index("--num_gpus") + 1] == "4"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_place(config, tmp_path, tmp_path)[0].environment["GROOT_DEVICES"] == "0,1,2,3"


def test_parts_that_learn_are_switches_where_they_differ_from_the_launchers_defaults():
    config = make_config("training.groot.tune.llm=true", "training.groot.tune.projector=false")
    command = finetune_command(config, Paths("python", "base", "/d", "/o"))
    assert "--tune_llm" in command and "--no-tune-projector" in command
    assert not {"--tune_visual", "--no-tune-visual", "--tune_diffusion_model"} & set(command)


def test_modality_and_launcher_follow_the_configuration():
    config = make_config(
        "dataset.cameras={ego: wrist, side: front}", "training.action_horizon=8", "dataset.modality.relative=[]",
        "training.groot.optimizer.name=adamw_torch", "training.groot.optimizer.schedule=linear",
    )  # fmt: skip
    modality = modality_source(config)
    assert 'CAMERAS = ["wrist", "front"]' in modality and "HORIZON = 8" in modality
    assert '{"single_arm": "ABSOLUTE", "gripper": "ABSOLUTE"}' in modality
    assert '{"optim": "adamw_torch", "lr_scheduler_type": "linear"}' in launcher_source(config)


# against a package gr00t made from what is known of it


def test_the_modality_config_registers_what_gr00ts_own_example_does_with_our_cameras(installed):
    installed()
    exec(compile(modality_source(make_config()), "so101_modality.py", "exec"), {})
    from gr00t.configs.data.embodiment_configs import REGISTERED
    from gr00t.data.types import ActionFormat, ActionRepresentation, ActionType

    config = REGISTERED["new_embodiment"]
    assert config["video"].modality_keys == ["wrist", "front", "top"] and config["video"].delta_indices == [0]
    assert config["state"].modality_keys == config["action"].modality_keys == ["single_arm", "gripper"]
    assert config["action"].delta_indices == list(range(16)) and config["state"].delta_indices == [0]
    kinds = [(each.rep, each.type, each.format) for each in config["action"].action_configs]
    assert kinds == [
        (ActionRepresentation.RELATIVE, ActionType.NON_EEF, ActionFormat.DEFAULT),
        (ActionRepresentation.ABSOLUTE, ActionType.NON_EEF, ActionFormat.DEFAULT),
    ]
    assert config["language"].modality_keys == ["annotation.human.task_description"]


def test_the_schedule_of_the_launchers_reaches_the_training(installed, dataset, output, said, monkeypatch):
    """32 x 2, 1e-4 cosine with 5 % warm-up, 20,000 steps, paged 8 bit AdamW, LLM and vision frozen."""
    logged = []

    class Run:
        def artifact(self, path, folder=""):
            logged.append((Path(path).name, folder))

        def log(self, metrics, step=0):
            logged.append((metrics, step))

    @contextmanager
    def tracked(config, **given):
        assert given["kind"] == "train" and given["params"]["optim"] == "paged_adamw_8bit"
        yield Run()

    monkeypatch.setattr(groot, "tracked_run", tracked)
    installed()
    newest = train_groot(to(output), dataset, dry_run=False, say=said.append)
    assert newest == output / "checkpoint-20000"
    record = json.loads((output / "record.json").read_text())
    training = record["training"]
    assert (training["optim"], training["lr_scheduler_type"]) == ("paged_adamw_8bit", "cosine")
    assert (training["global_batch_size"], training["gradient_accumulation_steps"]) == (32, 2)
    assert (training["learning_rate"], training["warmup_ratio"], training["max_steps"]) == (1e-4, 0.05, 20_000)
    model = record["model"]
    assert [model[name] for name in ("tune_llm", "tune_visual", "tune_projector", "tune_diffusion_model")] == [
        False, False, True, True,
    ]  # fmt: skip
    assert model["color_jitter_params"] == {"brightness": 0.3, "contrast": 0.4, "saturation": 0.5, "hue": 0.08}
    assert record["registered"]["new_embodiment"]["video"] == ["wrist", "front", "top"]
    assert record["data"]["dataset_path"] == str(dataset.absolute())
    assert ({"loss": 0.5, "grad_norm": 1.5, "learning_rate": 1e-4}, 10) in logged and ("launch", "launch") in logged
    assert said[-1].endswith(f"serve it: ./policy --policy groot --model {newest}")


def test_an_optimiser_that_cannot_be_there_is_told_before_the_model_loads(installed, dataset, output, said, capfd):
    installed(bitsandbytes=False)
    with pytest.raises(GrootError, match="ended with exit code 1; its messages are above. There is no checkpoint yet"):
        train_groot(to(output), dataset, dry_run=False, say=said.append)
    assert "paged_adamw_8bit needs the package bitsandbytes beside gr00t" in capfd.readouterr().err
    assert not (output / "record.json").exists()


def test_a_training_that_fails_says_from_where_it_goes_on(installed, dataset, output, said, monkeypatch):
    installed()
    train_groot(to(output), dataset, dry_run=False, say=said.append)
    monkeypatch.setenv("STUB_FAILS", "1")
    with pytest.raises(GrootError, match="exit code 9; .* goes on from checkpoint-20000"):
        train_groot(to(output), dataset, dry_run=False, say=said.append)
    assert any("from checkpoint-20000 on" in line for line in said)


# where it stops


def test_without_gr00t_the_files_are_written_and_the_command_is_told(no_container, dataset, output, said):
    with pytest.raises(GrootError) as caught:
        train_groot(to(output), dataset, dry_run=False, say=said.append)
    text = str(caught.value)
    assert "container: no working engine with compose" in text and "local: no package gr00t in this environment" in text
    assert (output / "launch/train.sh").read_text() in text
    assert {path.name for path in (output / "launch").iterdir()} == {
        "so101_modality.py", "so101_finetune.py", "train.sh", "settings.json",
    }  # fmt: skip


def test_an_interpreter_without_gr00t_is_named(no_container, dataset, output, said):
    config = to(output, "training.groot.python=/nowhere/python")
    with pytest.raises(GrootError, match=r"no package gr00t in training.groot.python \(/nowhere/python\)"):
        train_groot(config, dataset, dry_run=False, say=said.append)


def test_a_dry_run_tells_all_and_writes_nothing(no_container, dataset, output, said):
    assert train_groot(to(output), dataset, dry_run=True, say=said.append) is None
    text = "\n".join(said)
    assert not output.exists()
    assert MODALITY in text and "--max_steps 20000" in text and "it cannot be started here" in text
    assert "  ok      fps " in text and "0 faults, 0 warnings" in text


def test_a_dataset_with_faults_is_not_trained_on(no_container, dataset, output, said, tmp_path):
    spoilt = Path(shutil.copytree(dataset, tmp_path / "spoilt"))
    info = json.loads((spoilt / "meta/info.json").read_text())
    (spoilt / "meta/info.json").write_text(json.dumps(info | {"fps": 25}))
    with pytest.raises(DataError, match=r"faults; what each is and its fix is said above"):
        train_groot(to(output), spoilt, dry_run=False, say=said.append)
    assert any("fault   fps" in line for line in said) and any("fix: set fps to the true rate" in line for line in said)
    assert not output.exists()


def test_checkpoints_of_another_training_are_never_continued(no_container, dataset, output, said):
    with pytest.raises(GrootError):
        train_groot(to(output), dataset, dry_run=False, say=said.append)
    (output / "checkpoint-2000").mkdir()
    with pytest.raises(GrootError):  # the same settings: goes on
        train_groot(to(output), dataset, dry_run=False, say=said.append)
    other = to(output, "training.groot.optimizer.learning_rate=0.001")
    with pytest.raises(DataError, match="checkpoint-2000 there is of a training with other options"):
        train_groot(other, dataset, dry_run=False, say=said.append)


def test_a_batch_that_the_gpus_cannot_share(dataset, said):
    config = make_config("training.groot.num_gpus=5")
    with pytest.raises(ConfigError, match="batch.size 32 cannot be shared by num_gpus 5"):
        train_groot(config, dataset, dry_run=True, say=said.append)


# a checkpoint that is to be served


def make_checkpoint(folder: Path, tag: str = "new_embodiment") -> Path:
    folder.mkdir(parents=True)
    modalities = {tag: {"video": {"modality_keys": ["wrist", "front", "top"]}}}
    (folder / "processor_config.json").write_text(json.dumps({"processor_kwargs": {"modality_configs": modalities}}))
    (folder / "statistics.json").write_text(json.dumps({tag: {}}))
    for name in ("config.json", "embodiment_id.json", "model-00001-of-00002.safetensors"):
        (folder / name).write_text("{}")
    return folder


def test_a_fine_tuned_checkpoint_can_be_served(tmp_path):
    found = check_checkpoint(make_checkpoint(tmp_path / "checkpoint-20000"), "NEW_EMBODIMENT")
    assert found["video"]["modality_keys"] == ["wrist", "front", "top"]


def test_what_cannot_be_served_is_told_before_it_is_loaded(tmp_path):
    base = make_checkpoint(tmp_path / "base", "gr1")
    with pytest.raises(DataError, match="trained for gr1, not for new_embodiment .*fine-tune it first"):
        check_checkpoint(base, "NEW_EMBODIMENT")
    make_checkpoint(tmp_path / "out" / "checkpoint-2000")
    with pytest.raises(DataError, match="config.json.* missing; name one of its checkpoint-2000"):
        check_checkpoint(tmp_path / "out", "NEW_EMBODIMENT")
    (base / "statistics.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        check_checkpoint(base, "NEW_EMBODIMENT")
