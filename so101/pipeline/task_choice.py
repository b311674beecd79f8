"""Which task a command works on when nobody named one."""

from __future__ import annotations

from pathlib import Path

from so101.config import Config
from so101.datasets.recordings import task_texts
from so101.pipeline.record import SOURCE_KEY, read_record
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.session import explain_disk_errors


def choose_task(
    config: Config, run: RunFolder, *, source: Path | None, makes_seeds: bool, fresh: bool
) -> tuple[str, str]:
    """Name of the task and a sentence for the screen, "" when there is nothing to say.

    A run folder keeps its task. New seeds from a recording take the task whose `language` is the recording's task text.
    Otherwise it is the task of task.yaml.

    Args:
        config: without a task chosen on the command line.
        source: where seeds come from; None for the scripted operator or for commands that make none.
        makes_seeds: whether the command would make seeds.
        fresh: whether the command first removes what it made before.

    Raises:
        DataError: the recording's list of episodes cannot be read.
        RunFolderError: run.json is not ours, or cannot be read.
    """
    default = config.task.name
    with explain_disk_errors(run):
        record = read_record(run)
    if record is not None and (name := record["settings"].get("task.name")) in config.task.tasks:
        same_source = source is not None and record["settings"].get(SOURCE_KEY) == str(source.resolve())
        if not makes_seeds or (same_source and not fresh):
            return name, f"task {name}, as in {run.root}" if name != default else ""
    texts = task_texts(source) if source is not None else []
    if not texts:
        return default, ""
    by_text: dict[str, str] = {}
    for name, task in config.task.tasks.items():  # of tasks with one text the first counts
        by_text.setdefault(_plain(task.language), name)
    found = {by_text.get(_plain(text)) for text in texts}
    said = " and ".join(repr(text) for text in texts[:3])
    if len(found) == 1 and (name := found.pop()) is not None:
        return name, f"task {name}: {source} says {said}"
    names = ", ".join(config.task.tasks)
    return default, f"task {default}, as in task.yaml: {source} says {said}, the text of no task; --task takes {names}"


def _plain(text: str) -> str:
    """Case and space around do not count."""
    return " ".join(text.split()).casefold()
