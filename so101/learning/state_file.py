"""What the saved state of a training says of itself: JSON in the metadata of a safetensors file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from so101.errors import DataError


def state_facts(path: Path, *needed: str) -> dict[str, Any]:
    """The facts of a saved state, with the keys `needed`; {} when there is none.

    Raises:
        DataError: it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()["training"])
        for key in needed:
            facts[key]
    except Exception as error:
        raise DataError(f"{path}: not the state of a training ({error}); begin anew with --fresh") from None
    return facts
