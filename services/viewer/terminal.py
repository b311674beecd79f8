"""Keys of the terminal beside those of a window or page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from services.real.keys import TerminalKeys
from so101.families.viewer import Frame, Front, Status, Wish


class WithTerminal:
    """A `Front` that also listens to the terminal. Use it in a `with`.

    Args:
        letters: keys that are passed on as they are; space pauses.
    """

    def __init__(self, front: Front, letters: Iterable[str]) -> None:
        self._front = front
        self._keys = TerminalKeys({letter: [letter] for letter in letters} | {"pause": ["space"]})

    def wishes(self) -> list[Wish]:
        pressed = [Wish("pause") if key == "pause" else Wish("key", key) for key in self._keys.poll()]
        return [*self._front.wishes(), *pressed]

    def show(self, frame: Callable[[], Frame], status: Status) -> None:
        self._front.show(frame, status)

    def close(self) -> None:
        self._front.close()

    def __enter__(self) -> WithTerminal:
        self._keys.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._keys.__exit__(*exception)
        self.close()
