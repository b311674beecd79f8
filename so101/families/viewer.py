"""Something to watch, whoever draws it: `Show` is what happens, `Front` a window or a page, `run_show` brings them
together in real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from so101.families.declaration import FamilyTask
from so101.families.render import Mark

_BEHIND_S = 0.25  # a show that is later than this does not catch up
_PAUSED_S = 0.02  # between two looks for wishes
SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

Tone = Literal["", "good", "bad"]


class Readout(NamedTuple):
    """One line beside the picture."""

    label: str
    value: str
    tone: Tone = ""


@dataclass(frozen=True)
class Frame:
    """What is to be seen now.

    Attributes:
        qpos: (nq,) of the family's model.
        readouts: numbers and words.
        marks: drawn into the picture.
        command_rad: (6,) joint targets.
        seed: of the episode, None when it has none.
        note: one sentence for the person.
    """

    qpos: np.ndarray
    readouts: tuple[Readout, ...] = ()
    marks: tuple[Mark, ...] = ()
    command_rad: np.ndarray = field(default_factory=lambda: np.zeros(6))
    seed: int | None = None
    note: str = ""


class Show(Protocol):
    """What happens. `period_s` of simulated time pass in an `advance`.

    Attributes:
        task: whose family's model is drawn.
        title: one line.
        keys: letter -> what pressing it does.
        drivable: whether `drive` does something.
    """

    task: FamilyTask
    title: str
    period_s: float
    keys: Mapping[str, str]
    drivable: bool

    def frame(self) -> Frame:
        """How things are."""

    def advance(self) -> bool:
        """One control period; False when it is over."""

    def restart(self, seed: int | None) -> None:
        """Begin again, with the episode of this seed when given."""

    def press(self, key: str) -> None:
        """A key of `keys`."""

    def drive(self, q: np.ndarray) -> None:
        """The person wants the joints (6,) rad there."""


class Wish(NamedTuple):
    """What the person wants: pause, step, restart (seed or None), speed (factor), key (letter), drive ((6,) rad),
    quit."""

    kind: str
    value: Any = None


class Status(NamedTuple):
    """How the show is run."""

    paused: bool
    speed: float
    over: bool


class Front(Protocol):
    """Where it is seen."""

    def wishes(self) -> list[Wish]:
        """Those since the last call."""

    def show(self, frame: Callable[[], Frame], status: Status) -> None:
        """Draw `frame()`, unless nobody looks or it is too early for another picture."""

    def close(self) -> None:
        """Free what it has."""


class Blind:
    """Nobody watches; the show runs as fast as its clock lets it."""

    def wishes(self) -> list[Wish]:
        return []

    def show(self, frame: Callable[[], Frame], status: Status) -> None:
        pass

    def close(self) -> None:
        pass


def run_show(
    show: Show,
    front: Front,
    *,
    speed: float = 1.0,
    stays: bool = True,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run it until the person ends it, or it is over and `stays` is False (else its last moment stays to be seen).

    Args:
        speed: times as fast as in reality.
    """
    paused, over, steps = False, False, 0
    due = clock()
    while True:
        for wish in front.wishes():
            if wish.kind == "quit":
                return
            if wish.kind == "pause":
                paused = not paused
            elif wish.kind == "step":
                paused, steps = True, steps + 1
            elif wish.kind == "speed":
                speed = float(wish.value)
            elif wish.kind == "restart":
                show.restart(wish.value)
                over = False
            elif wish.kind == "key":
                show.press(wish.value)
            elif wish.kind == "drive":
                show.drive(np.asarray(wish.value, float))
        if over and not stays:
            return
        moves = not over and (not paused or steps > 0)
        if moves:
            over = not show.advance()
            steps = max(0, steps - 1)
        front.show(show.frame, Status(paused, speed, over))
        now = clock()
        due = due + show.period_s / speed if moves else now + _PAUSED_S
        if now - due > _BEHIND_S:
            due = now
        if due > now:
            sleep(due - now)
