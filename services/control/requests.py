"""What may be asked of the control plane, checked: names, settings, recordings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.control.errors import Invalid
from so101.cli.options import Common
from so101.cli.run import SEEDED_PRESET
from so101.config import Config

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


def check_name(name: str) -> str:
    """A name for a new run: one folder, nothing hidden.

    Raises:
        Invalid: says what is allowed.
    """
    if not re.fullmatch(NAME, name):
        raise Invalid(
            f"name {name[:80]!r}: use 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit"
        )
    return name


def common_of(request: Mapping[str, Any]) -> Common:
    """The options of `./twin run` that a request stands for."""
    common = Common(
        preset=request["preset"],
        task=request["task"],
        demos=request["demos"],
        set_=list(request["overrides"]),
        workers=request["workers"],
    )
    seeded = request["seeds"] is not None and common.preset is None
    if seeded and SEEDED_PRESET in common.load().skillgen.presets:
        return Common(**{**common.__dict__, "preset": SEEDED_PRESET})
    return common


def check_settings(request: Mapping[str, Any]) -> Config:
    """The configuration that a request asks for.

    Raises:
        ConfigError: all faults, in the words of the command line.
    """
    return common_of(request).load()


def find_recording(text: str, folders: Sequence[str]) -> Path:
    """The recording at `text`, a path as `./twin run --seeds` takes it; it must lie below one of `folders`.

    Raises:
        Invalid: it does not, or is not there.
    """
    path = Path(text).resolve() if "\0" not in text else None
    if path is None or not any(path.is_relative_to(Path(folder).resolve()) for folder in folders):
        below = ", ".join(f"{folder}/" for folder in folders) or "no folder (deploy.control_plane.runs.recordings)"
        raise Invalid(f"seeds {text!r}: recordings are taken from below {below}; put it there")
    try:
        found = path.exists()
    except OSError:  # a name too long
        found = False
    if not found:
        raise Invalid(f"seeds {text!r}: there is no such file or folder")
    return path
