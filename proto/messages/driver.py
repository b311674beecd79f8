"""The driver service: joint state out, joint targets in. Joints are six numbers in the order of robot.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from proto.messages.base import Message
from proto.messages.common import Name, Text

Joints = tuple[float, float, float, float, float, float]
ErrorBits = tuple[int, int, int, int, int, int]
Session = Annotated[str, Meta(min_length=8, max_length=64)]
STATE_TOPIC = "state"


class GetState(Message):
    """The newest `DriverState`. Asking does not keep a session alive."""


class Arm(Message):
    """Become the one who commands, torque on. `name` is shown to others who try."""

    session: Session
    name: Name


class Command(Message):
    """Joint targets, rad. `stamp_s`: wall clock, s, when they were made; commands older than the driver allows are
    refused."""

    session: Session
    q_rad: Joints
    stamp_s: float


class Commanded(Message):
    """What was really sent after all limits, rad; `limited` says which of them took something off."""

    q_rad: Joints
    limited: list[Text]


class Hold(Message):
    """Stay, and keep the session."""

    session: Session


class Disarm(Message):
    """Return home, then release. From the one who commands; from anyone when nobody does (session empty)."""

    session: Annotated[str, Meta(max_length=64)] = ""


class Stop(Message):
    """Emergency stop, from anyone: stay, no commands until the next `Arm` or `Disarm`. Ends the session."""


class DriverState(Message):
    """Answer to all requests but `Command`, and published under `STATE_TOPIC`. See `so101.robot.base.RobotState`."""

    stamp_s: float
    q_rad: Joints
    qd_rad_s: Joints
    load_pct: Joints
    temperature_c: Joints
    voltage_v: Joints
    error_bits: ErrorBits
    goal_rad: Joints
    mode: Literal["released", "holding", "following", "returning", "stopped", "stuck", "lost"]
    reason: Text
    armed: bool
    may_arm: bool  # the service was started with --arm
    port: Text  # where the servos are, links followed
    commander: Name  # who commands; empty: nobody
    warnings: list[Text]
    missed_reads: Annotated[int, Meta(ge=0)]
