"""Faults on demand: what goes wrong on the bus, with which servos, how often, for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from so101.errors import So101Error, did_you_mean


class FaultError(So101Error):
    """A fault that does not exist or cannot be."""


@dataclass(frozen=True)
class FaultKind:
    """`value`: default of a fault's value and what it means. A lasting fault has no count."""

    text: str
    value: float = 0.0
    unit: str = ""


REPLY_FAULTS = {
    "lost_reply": FaultKind("the servo does as told, its reply is lost"),
    "corrupt_reply": FaultKind("one bit of the reply is wrong"),
    "truncated_reply": FaultKind("the reply stops in the middle"),
    "slow_reply": FaultKind("the reply comes late", 0.02, "s"),
    "noise": FaultKind("random bytes before the reply", 4, "bytes"),
}
STATE_FAULTS = {
    "silent": FaultKind("the servo hears and says nothing, and holds what it held"),
    "no_power": FaultKind("the servo has no power: limp and silent"),
    "overheat": FaultKind("the servo warms up", 10.0, "degrees C/s"),
    "voltage_sag": FaultKind("the supply of all servos drops to this", 8.0, "V"),
    "stuck": FaultKind("something blocks the joint"),
}
EVENT_FAULTS = {
    "overload": FaultKind("the servo's overload protection sets in"),
    "eeprom_mismatch": FaultKind("the homing offset in the servo is another one", 100, "ticks"),
    "unplug": FaultKind("the serial port disappears; comes back after duration_s, or by `VirtualBus.replug`"),
}
KINDS = {**REPLY_FAULTS, **STATE_FAULTS, **EVENT_FAULTS}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: a key of KINDS.
        ids: servo ids; all when empty.
        probability: of each reply, for faults of replies.
        count: ends after so many replies; never when None.
        after_s: begins this long after it is added.
        duration_s: ends this long after it began; never when None.
        value: see KINDS; the kind's own when None.
    """

    kind: str
    ids: tuple[int, ...] = ()
    probability: float = 1.0
    count: int | None = None
    after_s: float = 0.0
    duration_s: float | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = f"there are {', '.join(KINDS)}{did_you_mean(self.kind, KINDS)}"
            raise FaultError(f"cannot make fault {self.kind!r}; {known}")
        if not 0 <= self.probability <= 1:
            raise FaultError(f"fault {self.kind}: probability is {self.probability:g}; it must be 0 to 1")
        for name in ("count", "after_s", "duration_s"):
            number = getattr(self, name)
            if number is not None and number < 0:
                raise FaultError(f"fault {self.kind}: {name} is {number:g}; it must not be negative")

    @property
    def amount(self) -> float:
        return KINDS[self.kind].value if self.value is None else self.value

    def concerns(self, id: int) -> bool:
        return not self.ids or id in self.ids


@dataclass
class ActiveFault:
    """A fault that was added. `fired`: replies it spoilt, or 1 once another kind began; `cancel` ends it."""

    fault: Fault
    added_s: float
    fired: int = 0
    over: bool = False

    def cancel(self) -> None:
        self.over = True

    def on_at(self, now: float) -> bool:
        """Whether it is going on; ends it when its time or count is up."""
        began = self.added_s + self.fault.after_s
        if self.fault.duration_s is not None and now >= began + self.fault.duration_s:
            self.over = True
        if self.fault.count is not None and self.fired >= self.fault.count and self.fault.kind in REPLY_FAULTS:
            self.over = True
        return not self.over and now >= began


@dataclass
class Faults:
    """All faults of a bus. Equal seeds and equal traffic give equal faults."""

    rng: np.random.Generator
    clock: Callable[[], float] = time.monotonic
    _active: list[ActiveFault] = field(default_factory=list)

    def add(self, fault: Fault) -> ActiveFault:
        added = ActiveFault(fault, self.clock())
        self._active = [*self._active, added]
        return added

    def clear(self) -> None:
        """End all of them. What they left behind (errors, limp joints, an unplugged port) stays as it would."""
        for active in self._active:
            active.cancel()
        self._active = []

    def going_on(self, kind: str) -> Iterator[ActiveFault]:
        """Those of a kind that are on now."""
        if not self._active:
            return
        now = self.clock()
        for active in self._active:
            if active.fault.kind == kind and active.on_at(now):
                yield active

    def holds(self, kind: str, id: int) -> ActiveFault | None:
        """The first of a kind that concerns a servo now."""
        if not self._active:  # asked thousands of times a second
            return None
        return next((active for active in self.going_on(kind) if active.fault.concerns(id)), None)

    def beginning(self, kind: str) -> Iterator[ActiveFault]:
        """Those of a kind that begin now; each comes once."""
        for active in self.going_on(kind):
            if not active.fired:
                active.fired = 1
                yield active

    def spoil(self, id: int, reply: bytes) -> tuple[bytes, float]:
        """What becomes of a reply of servo `id`: its bytes (none when lost) and how much later it comes, s."""
        late = 0.0
        for kind in REPLY_FAULTS if self._active else ():
            active = self.holds(kind, id)
            if active is None or self.rng.random() >= active.fault.probability:
                continue
            active.fired += 1
            if kind == "lost_reply":
                return b"", 0.0
            if kind == "corrupt_reply":
                place = int(self.rng.integers(2, len(reply)))
                flipped = reply[place] ^ (1 << int(self.rng.integers(8)))
                reply = reply[:place] + bytes([flipped]) + reply[place + 1 :]
            elif kind == "truncated_reply":
                reply = reply[: int(self.rng.integers(1, len(reply)))]
            elif kind == "slow_reply":
                late += active.fault.amount
            elif kind == "noise":
                reply = self.rng.bytes(int(active.fault.amount)) + reply
        return reply, late
