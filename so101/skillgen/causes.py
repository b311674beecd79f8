"""What can go wrong in an attempt: names, "" is success, and the exception that stops it."""

from __future__ import annotations

IK_DIVERGENCE = "ik_divergence"  # commanded joints stopped following the target
UNREACHABLE = "unreachable"  # a key pose has no solution within tolerance
BLOCKED = "blocked"  # what stands around leaves no room for the hand, or no opening is free
GRASP_MISSED = "grasp_missed"  # the object was not lifted by the end of the grasp
SLIPPED = "slipped"  # lost from the jaw while lifting
DROPPED = "dropped"  # lost from the jaw on the way
RACK_COLLISION = "rack_collision"  # the container was pushed, or no free transit was found
NOT_INSERTED = "not_inserted"  # let go, but not where it belongs
TIMEOUT = "timeout"  # more frames than max_frames_per_subtask allows

CAUSES = (
    IK_DIVERGENCE, UNREACHABLE, BLOCKED, GRASP_MISSED, SLIPPED, DROPPED, RACK_COLLISION, NOT_INSERTED, TIMEOUT,
)  # fmt: skip


def cause_at_end(container_moved_m: float, container_push_m: float) -> str:
    """Name of a failure that only the judged end shows: the container was moved farther than allowed, or not."""
    return RACK_COLLISION if container_moved_m > container_push_m else NOT_INSERTED


class AttemptFailed(Exception):
    """Stops an attempt with a named cause."""

    def __init__(self, cause: str, **figures: float) -> None:
        super().__init__(cause)
        self.cause = cause
        self.figures = {key: round(float(value), 5) for key, value in figures.items()}
