"""The exception tree. Every message names what was attempted, the bad value, where it came from and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class So101Error(Exception):
    """Root of all errors a user, a device or a peer can cause. The CLI prints its text and exits with `exit_code`."""

    exit_code = 1


class ConfigError(So101Error):
    """A YAML file or an override is wrong."""

    exit_code = 2


class DataError(So101Error):
    """A recording, demo or dataset cannot be used."""

    exit_code = 3


class SimulationError(So101Error):
    """The twin could not be built or diverged."""

    exit_code = 4


class RunFolderError(So101Error):
    """A run folder is locked, read-only, full, or belongs to another configuration."""

    exit_code = 5


class InsufficientDemosError(So101Error):
    """A stage produced fewer demos than the next one needs."""

    exit_code = 6


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Text to append to 'unknown ...' messages: the closest of `known`, or nothing when none is close. A beginning is
    close."""
    known = list(known)
    begun = [name for name in known if len(word) > 1 and name.startswith(word)]
    close = begun if len(begun) == 1 else difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
