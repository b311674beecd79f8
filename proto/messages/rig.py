"""The simulated rig: its state for cameras, resets, faults, and whether the task is done. Joints are six numbers in the
order of robot.yaml, poses position m and quaternion w x y z in base."""

from __future__ import annotations

import json
from typing import Annotated, Any

from msgspec import Meta

from proto.messages.base import Message
from proto.messages.common import Name, Text

Number = Annotated[float, Meta(ge=-100, le=100)]  # m or rad: of things on a table
Joints = tuple[Number, Number, Number, Number, Number, Number]
Pose = tuple[Number, Number, Number, Number, Number, Number, Number]
Objects = Annotated[dict[Name, Pose], Meta(max_length=64)]
Json = Annotated[str, Meta(max_length=1 << 16)]
Seconds = Annotated[float, Meta(ge=0, le=86400)]
STATE_TOPIC = "rig"


class RigState(Message):
    """What a camera would see at `stamp_s` (wall clock, s). Published under `STATE_TOPIC`; answer to `RigReset`."""

    stamp_s: float
    q_rad: Joints
    objects: Objects
    randomisation_json: Json  # physics of the reset, as so101.sim.randomisation draws it
    looks_json: Json  # of the rig, as so101.rendering.looks draws them
    port: Text  # where the servos are, links followed

    @property
    def randomisation(self) -> dict[str, Any]:
        return json.loads(self.randomisation_json)

    @property
    def looks(self) -> dict[str, Any]:
        return json.loads(self.looks_json)


class RigReset(Message):
    """Begin a new episode. Objects where `objects` says, else drawn with `seed`, else as in task.yaml. The arm stays
    where it is unless `q_rad` puts it elsewhere."""

    seed: Annotated[int, Meta(ge=0)] | None = None
    objects: Objects | None = None
    q_rad: Joints | None = None
    randomisation_json: Json = "{}"


class RigTruth(Message):
    """Is the task done? Answered by `RigVerdict`."""


class RigVerdict(Message):
    """As `so101.tasks.success` judges what happened since the last reset; `figures` as in a demo's record."""

    strict: bool
    geometric: bool
    figures: Annotated[dict[Name, float], Meta(max_length=64)]


class RigFault(Message):
    """Something goes wrong from now on: the fields of `so101.robot.virtual.Fault`. Answered by `Ok`."""

    kind: Name
    ids: Annotated[list[Annotated[int, Meta(ge=0, le=253)]], Meta(max_length=32)] = []
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    count: Annotated[int, Meta(ge=0)] | None = None
    after_s: Seconds = 0.0
    duration_s: Seconds | None = None
    value: float | None = None


class RigMend(Message):
    """End all faults, plug the port in. Answered by `Ok`."""

    power_cycle: bool = False  # and switch the servos' supply off and on
