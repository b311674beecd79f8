"""Single keys from the terminal, without waiting and without Enter. The terminal is put back on every way out."""

from __future__ import annotations

import atexit
import os
import select
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from typing import TextIO

from so101.config.deploy import NAMED_KEYS, KeysConfig


class TerminalKeys:
    """Meanings of keys pressed: meaning -> its keys, as in `deploy.control.keys`. Where `stream` is no terminal, or
    that of another job, there are none.

    Use it as a context: inside, the terminal hands over keys one by one without echo. Ctrl-C still interrupts.
    """

    def __init__(self, settings: KeysConfig | Mapping[str, Sequence[str]], stream: TextIO | None = None) -> None:
        stream = sys.stdin if stream is None else stream
        meanings = settings.model_dump() if isinstance(settings, KeysConfig) else settings
        self._meanings = {NAMED_KEYS.get(key, key): meaning for meaning, keys in meanings.items() for key in keys}
        self._before: list | None = None
        try:
            self._file = stream.fileno() if stream is not None and stream.isatty() else None
        except (OSError, ValueError):  # closed, or not a file at all
            self._file = None
        if self._file is not None and _in_background(self._file):
            self._file = None  # changing the terminal would stop us (SIGTTOU)

    @property
    def present(self) -> bool:
        """Whether somebody can press keys."""
        return self._file is not None

    def __enter__(self) -> TerminalKeys:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            atexit.register(self._restore)  # also when the interpreter ends by an exception elsewhere
            tty.setcbreak(self._file)
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def poll(self) -> list[str]:
        """Meanings of the keys pressed since the last call; others are ignored, arrows and the like too."""
        if self._before is None:
            return []
        pressed = b""
        while select.select([self._file], [], [], 0)[0]:
            read = os.read(self._file, 1024)
            if not read:  # the terminal is gone
                self._file, self._before = None, None
                break
            pressed += read
        return [self._meanings[key] for key in _keys(pressed.decode(errors="ignore")) if key in self._meanings]

    def _restore(self) -> None:
        if self._before is not None and self._file is not None:
            try:
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)
            except termios.error:  # the terminal is gone
                pass
        self._before = None
        atexit.unregister(self._restore)


def _in_background(file: int) -> bool:
    """Whether the terminal belongs to another job of the shell (`./real ... &`)."""
    try:
        return os.tcgetpgrp(file) != os.getpgrp()
    except OSError:  # not the terminal we were started from: nobody minds
        return False


def _keys(text: str) -> list[str]:
    """Single keys. An escape that begins a longer sequence (arrows, function keys) is not the escape key."""
    keys, i = [], 0
    while i < len(text):
        if text[i] == "\x1b" and text[i + 1 : i + 2] in ("[", "O"):
            i += 2
            while i < len(text) and not text[i].isalpha() and text[i] != "~":
                i += 1
        else:
            keys.append("\n" if text[i] == "\r" else text[i])
        i += 1
    return keys
