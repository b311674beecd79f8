"""A thread that looks at something again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Poller:
    """Calls `look` every `period_s` on a thread of its own until closed; an exception is logged once in a row."""

    def __init__(self, name: str, look: Callable[[], None], period_s: float) -> None:
        self._name, self._look, self._period_s = name, look, period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        said = ""
        while not self._ended.is_set():
            try:
                self._look()
                said = ""
            except Exception as error:  # one bad look must not end all further ones
                if repr(error) != said:
                    log.exception("%s: %s", self._name, error)
                said = repr(error)
            self._ended.wait(self._period_s)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
