"""What a fine-tuned GR00T checkpoint must hold to be served, looked at before gigabytes are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from so101.errors import DataError

# The launcher copies the last three into every checkpoint-N; the folder above may lack them.
_FILES = ("config.json", "processor_config.json", "statistics.json", "embodiment_id.json")


def check_checkpoint(path: Path, embodiment_tag: str) -> dict[str, Any]:
    """The modality config of `embodiment_tag` in a checkpoint folder: video, state, action, language.

    Raises:
        DataError: files are missing, or it was trained for other embodiments.
    """
    missing = [name for name in _FILES if not (path / name).is_file()]
    missing += [] if list(path.glob("*.safetensors")) else ["*.safetensors"]
    if missing:
        nearer = sorted(folder.name for folder in path.glob("checkpoint-*")) if path.is_dir() else []
        hint = f"name one of its {', '.join(nearer)}" if nearer else "name a folder checkpoint-N of a finished training"
        raise DataError(f"{path}: no GR00T checkpoint, {', '.join(missing)} missing; {hint}")
    tag = embodiment_tag.lower()  # the value of GR00T's enum
    try:
        modalities = json.loads((path / _FILES[1]).read_text(encoding="utf-8"))["processor_kwargs"]["modality_configs"]
        statistics = json.loads((path / _FILES[2]).read_text(encoding="utf-8"))
        known = sorted(set(modalities) & set(statistics))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: its processor_config.json or statistics.json cannot be read ({error!r})") from None
    if tag not in known:
        raise DataError(
            f"{path}: trained for {', '.join(known) or 'no embodiment'}, not for {tag} "
            "(deploy.server.groot.embodiment_tag); the base model itself cannot serve an arm, fine-tune it first: "
            "./twin train --policy groot"
        )
    return modalities[tag]
