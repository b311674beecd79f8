"""run.json: the settings a run was made with. A run folder never mixes two settings that decide the same files."""

from __future__ import annotations

import json
from typing import Any

from so101.config import Config
from so101.errors import RunFolderError
from so101.files import write_json
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.stages import FREE_SETTINGS, STAGES

GENERATION_SECTIONS = ("robot", "scene", "task", "teleop", "skillgen", "ik")
SOURCE_KEY = "--seeds"  # where the seeds came from; a setting of the seeds stage that no YAML file holds
_VERSION = 1
_SHOWN = 12  # differences printed


def settings_of(config: Config, source: str | None) -> dict[str, Any]:
    """All settings as dotted key -> value. Of the tasks only the active one and that of its seeds count."""
    values = config.model_dump(mode="json")
    names = (config.task.name, config.of_seeds.task.name)
    values["task"]["tasks"] = {name: values["task"]["tasks"][name] for name in dict.fromkeys(names)}
    return {**_flatten(values), SOURCE_KEY: source}


def _flatten(node: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(node, dict):
        items = [(str(key), value) for key, value in node.items()]
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        items = [(str(index), value) for index, value in enumerate(node)]
    else:
        return {prefix: node}
    flat: dict[str, Any] = {}
    for key, value in items:
        flat.update(_flatten(value, f"{prefix}.{key}" if prefix else key))
    return flat


def stage_of_setting(key: str) -> str | None:
    """The first stage whose files the setting `key` decides; None for settings that decide no file of a run."""
    if key == SOURCE_KEY:
        return "seeds"
    owners = [(prefix, None) for prefix in FREE_SETTINGS]
    owners += [(prefix, stage.name) for stage in STAGES.values() for prefix in stage.settings]
    matching = [owner for owner in owners if key == owner[0] or key.startswith(owner[0] + ".")]
    return max(matching, key=lambda owner: len(owner[0]))[1] if matching else None


def read_record(run: RunFolder) -> dict[str, Any] | None:
    """The content of run.json; None when there is none.

    Raises:
        RunFolderError: it is not one of ours.
    """
    try:
        record = json.loads(run.record.read_text(encoding="utf-8"))
        if record["version"] != _VERSION:
            raise ValueError(f"version {record['version']}, this program reads {_VERSION}")
        record["settings"].items()
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(
            f"{run.record}: not a record of a run of this program ({error}); choose another folder with --run, or move "
            "this one away"
        ) from None
    return record


def write_record(run: RunFolder, config: Config, source: str | None) -> None:
    """Write run.json."""
    write_json(
        run.record,
        {
            "version": _VERSION,
            "digest": config.digest(*GENERATION_SECTIONS),
            "settings": settings_of(config, source),
        },
    )


def check_same_settings(run: RunFolder, record: dict[str, Any], config: Config, source: str | None) -> None:
    """Compare the settings that decide files which are on disk.

    Raises:
        RunFolderError: names each differing key with both values and the ways out.
    """
    then, now = record["settings"], settings_of(config, source)
    present = _decided_stages(run)
    differing = [
        key
        for key in sorted(then.keys() | now.keys())
        if then.get(key) != now.get(key) and stage_of_setting(key) in present
    ]
    if not differing:
        return
    if "task.name" in differing:  # the definitions of two tasks differ in every key: the name says it
        differing = [key for key in differing if not key.startswith("task.tasks.")]
    lines = [f"  {key}: {_show(then, key)} in the folder, {_show(now, key)} now" for key in differing[:_SHOWN]]
    if len(differing) > _SHOWN:
        lines.append(f"  and {len(differing) - _SHOWN} more")
    first = next(name for name in STAGES if name in {stage_of_setting(key) for key in differing})
    raise RunFolderError(
        f"{run.root} was made with other settings:\n"
        + "\n".join(lines)
        + "\nUse another folder (--run FOLDER), or remake what depends on them with these settings: "
        f"`./twin {first} --run {run.root} --fresh`, or `./twin run --run {run.root} --fresh` for everything"
    )


def _decided_stages(run: RunFolder) -> list[str]:
    """The stages up to the last one with files: what a stage made depends on the settings of all before it. The report
    is written anew each time and binds nothing."""
    bound = [name for name, stage in STAGES.items() if name != "report" and stage.has_files(run)]
    names = list(STAGES)
    return names[: names.index(bound[-1]) + 1] if bound else []


def _show(settings: dict[str, Any], key: str) -> str:
    return json.dumps(settings[key]) if key in settings else "absent"
