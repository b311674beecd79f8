"""`./twin train --policy groot`: check the dataset, write what Isaac-GR00T needs, start its fine-tune."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from so101.config import Config
from so101.datasets.checks.table import report_lines
from so101.datasets.validate import check_dataset
from so101.errors import ConfigError, DataError, So101Error
from so101.files import write_text
from so101.learning.groot_files import (
    LAUNCHER_FILE,
    MODALITY_FILE,
    SCRIPT_FILE,
    SETTINGS_FILE,
    Paths,
    finetune_command,
    flags,
    hidden_settings,
    launcher_source,
    modality_source,
    script_source,
    settings_source,
)
from so101.tracking import NullRun, tracked_run

Say = Callable[[str], None]

_REPOSITORY = Path(__file__).resolve().parents[2]
_SERVICE = "groot-train"  # of compose.yaml, and its profile
_IN_CONTAINER = Paths("python", "/base_model", "/dataset", "/output")  # mounts of that service; the first when given


class GrootError(So101Error):
    """GR00T could not be started, or its training failed."""


@dataclass(frozen=True)
class Place:
    """Where GR00T is: paths as it sees them, what stands before the command, and how to start it."""

    name: str
    paths: Paths
    prefix: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


def train_groot(config: Config, dataset: Path, *, dry_run: bool, say: Say) -> Path | None:
    """Fine-tune GR00T on a dataset with the settings of `training.groot`.

    Every check of the dataset is told; then the files go to the folder `launch` of `training.groot.output_dir`, and the
    training is started in its container, or with the Isaac-GR00T that is installed. It continues from its newest
    checkpoint by itself.

    Args:
        dataset: LeRobot v2.1 folder. GR00T writes its meta/relative_stats.json anew.
        dry_run: tell command and files, write and start nothing.
        say: takes lines for the user.

    Returns:
        the newest checkpoint; None of a dry run.

    Raises:
        DataError: the dataset has faults, or the output folder checkpoints of another training.
        ConfigError: settings that GR00T would refuse.
        GrootError: there is no GR00T here (the files are written then), or the training ended with an error.
    """
    groot = config.training.groot
    if groot.batch.size % groot.num_gpus:
        raise ConfigError(
            f"training.groot.batch.size {groot.batch.size} cannot be shared by num_gpus {groot.num_gpus}; "
            "the size is that of all GPUs together, choose a multiple"
        )
    say(f"checking {dataset}")
    report = check_dataset(dataset, config, images=False)
    for line in report_lines(report):
        say(line)
    output = Path(groot.output_dir).absolute()
    place, missing = find_place(config, dataset.absolute(), output)
    files = launch_files(config, dataset.absolute(), place)
    command = [*place.prefix, *finetune_command(config, place.paths)]
    if dry_run:
        _tell(say, place, missing, output, files, command)
    if report.errors:
        raise DataError(f"{dataset}: {len(report.errors)} faults; what each is and its fix is said above")
    if dry_run:
        return None
    _refuse_other_training(output, files[SETTINGS_FILE])
    for name, content in files.items():
        write_text(output / "launch" / name, content)
    say(f"files: {output / 'launch'}")
    if missing:
        raise GrootError(
            f"GR00T cannot be started here: {'; '.join(missing)}. All files are in {output / 'launch'}; the "
            f"command, for where GR00T is, is {SCRIPT_FILE}:\n{files[SCRIPT_FILE]}"
        )
    return _train(config, dataset, output, place, command, say)


def launch_files(config: Config, dataset: Path, place: Place) -> dict[str, str]:
    """Name -> content of the files that GR00T is started with."""
    note = f"Written by ./twin train --policy groot, to be run {place.name}. Dataset: {dataset}"
    return {
        MODALITY_FILE: modality_source(config),
        LAUNCHER_FILE: launcher_source(config),
        SCRIPT_FILE: script_source(finetune_command(config, place.paths), note),
        SETTINGS_FILE: settings_source(config, dataset),
    }


def find_place(config: Config, dataset: Path, output: Path) -> tuple[Place, list[str]]:
    """Where to train, and what is missing for it: nothing when it can be started.

    The container comes first, then the interpreter that has gr00t. With neither, the place is the container.
    """
    compose, why_no_container = _compose()
    base = config.training.groot.base_model
    # One process that sees several GPUs would spread its batch over them in its own way.
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(config.training.groot.num_gpus))))
    mounts = ["-v", f"{Path(base).absolute()}:{_IN_CONTAINER.base_model}:ro"] if Path(base).is_dir() else []
    run = ["-f", str(_REPOSITORY / "compose.yaml"), "--profile", _SERVICE, "run", "--rm", *mounts, _SERVICE]
    container = Place(
        name="in the container",
        paths=_IN_CONTAINER if mounts else replace(_IN_CONTAINER, base_model=base),
        prefix=[*compose, *run],
        environment={
            "GROOT_DATASET": str(dataset),
            "GROOT_OUTPUT": str(output),
            "GROOT_DEVICES": devices,
            "TWIN_USER": os.environ.get("TWIN_USER", f"{os.getuid()}:{os.getgid()}"),
        },
    )
    if why_no_container is None:
        return container, []
    python = config.training.groot.python
    if has_groot(python):
        paths = Paths(python or sys.executable, base, str(dataset), str(output))
        return Place("as it is here", paths, environment={"CUDA_VISIBLE_DEVICES": devices}), []
    which = f"training.groot.python ({python})" if python else "this environment"
    return container, [f"container: {why_no_container}", f"local: no package gr00t in {which}"]


def _compose() -> tuple[list[str], str | None]:
    """Words of the compose command, and why it cannot be used (None: it can)."""
    default = ["docker", "compose"]
    script = _REPOSITORY / "containers/engine.sh"
    if not script.is_file():
        return default, "compose.yaml is not here, the program runs without its repository"
    shell = f'. "{script}"; printf "%s\\n" "$engine" ${{compose[@]+"${{compose[@]}}"}}'
    found = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False).stdout.splitlines()
    engine, compose = (found[0], found[1:]) if found else ("", [])
    if not engine or not compose:
        return default, f"no working engine with compose ({'engine ' + engine if engine else 'docker or podman'})"
    image = os.environ.get("GROOT_TRAIN_IMAGE", "so101-groot")
    if subprocess.run([engine, "image", "inspect", image], capture_output=True, check=False).returncode:
        return compose, f"no image {image}; `{' '.join(compose)} --profile {_SERVICE} build {_SERVICE}` makes it"
    return compose, None


def has_groot(python: str | None) -> bool:
    """Whether Isaac-GR00T is installed for an interpreter (None: this one)."""
    if python is None:
        return importlib.util.find_spec("gr00t") is not None
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('gr00t') is None)"
    try:
        return subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _tell(say: Say, place: Place, missing: list[str], output: Path, files: dict[str, str], command: list[str]) -> None:
    for name, content in files.items():
        say(f"\n--- {output / 'launch' / name}\n{content}")
    environment = [f"{name}={value}" for name, value in place.environment.items()]
    say("--- command\n" + " ".join([*environment, *command]))
    say("it could be started here" if not missing else f"it cannot be started here: {'; '.join(missing)}")


def _refuse_other_training(output: Path, settings: str) -> None:
    """GR00T continues from any checkpoint it finds; one of other settings would spoil the training silently."""
    written, newest = output / "launch" / SETTINGS_FILE, newest_checkpoint(output)
    if newest is None:
        return
    try:
        before = json.loads(written.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    now = json.loads(settings)
    differ = sorted(key for key in now if before.get(key) != now[key])
    if differ:
        raise DataError(
            f"{output}: {newest.name} there is of a training with other {', '.join(differ)}, and GR00T would continue "
            "from it; choose another --set training.groot.output_dir=FOLDER, or move the checkpoints away"
        )


def newest_checkpoint(output: Path) -> Path | None:
    """The `checkpoint-N` folder with the highest N."""
    found = [path for path in output.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return max(found, key=lambda path: int(path.name.partition("-")[2]), default=None)


def _train(config: Config, dataset: Path, output: Path, place: Place, command: list[str], say: Say) -> Path:
    before = newest_checkpoint(output)
    say(f"GR00T trains {place.name}" + (f", from {before.name} on" if before else ""))
    say(" ".join(command))
    params = {**hidden_settings(config), **flags(config), "base_model": config.training.groot.base_model}
    with tracked_run(config, kind="train", name=f"groot {output.name}", params=params) as run:
        run.artifact(output / "launch", "launch")
        code = subprocess.run(command, env=os.environ | place.environment, check=False).returncode
        newest = newest_checkpoint(output)
        _log_history(run, newest)
        if code:
            raise GrootError(
                f"GR00T's training on {dataset} ended with exit code {code}; its messages are above. "
                f"{f'The same command goes on from {newest.name}' if newest else 'There is no checkpoint yet'}"
            )
        if newest is None:
            raise GrootError(f"GR00T ended without a checkpoint in {output}; its messages are above")
    say(f"{newest}; serve it: ./policy --policy groot --model {newest}")
    return newest


def _log_history(run: NullRun, checkpoint: Path | None) -> None:
    """Loss, learning rate and gradient norm from the state of the trainer that a checkpoint carries."""
    try:
        history = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for entry in history:
        numbers = {k: float(v) for k, v in entry.items() if k != "step" and isinstance(v, int | float)}
        run.log(numbers, step=int(entry.get("step", 0)))
