"""An arm, a camera set and a policy's line in a time of their own, with the interfaces of the real ones."""

from __future__ import annotations

import time

import numpy as np

from so101.cameras.base import Frame
from so101.control.asking import Answer
from so101.robot.base import RobotState


class FakeClock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now(self) -> float:
        return self.time_s

    def sleep_until(self, time_s: float) -> None:
        self.time_s = max(self.time_s, time_s)


class FakeArm:
    """An arm that is where it was sent. `read_s`, `command_s`: how long those take."""

    joint_names = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")

    def __init__(self, clock: FakeClock, q: np.ndarray) -> None:
        self.clock, self.q, self.sent = clock, np.array(q, float), []
        self.mode, self.reason, self.missed_reads = "holding", "armed", 0
        self.left = False
        self.read_s = self.command_s = 0.0
        self.read_errors: list[Exception] = []
        self.command_error: Exception | None = None

    def read(self) -> RobotState:
        self.clock.time_s += self.read_s
        if self.read_errors:
            raise self.read_errors.pop(0)
        nothing = np.zeros(6)
        return RobotState(
            self.clock.time_s, self.q.copy(), nothing, nothing, nothing, nothing, nothing, self.q.copy(), self.mode,
            self.reason, armed=True, missed_reads=self.missed_reads,
        )  # fmt: skip

    def hold(self) -> None:
        assert not self.left

    def disarm(self, wait: bool = True) -> None:
        assert not wait, "the loop has files to write meanwhile"
        self.left = True

    def command(self, q_rad: np.ndarray) -> np.ndarray:
        self.clock.time_s += self.command_s
        if self.command_error is not None:
            raise self.command_error
        self.q = np.array(q_rad, float)
        self.sent.append(self.q)
        return self.q


class FakeCameras:
    """Pictures of one grey; `age_s` old, a new one every call."""

    def __init__(self, clock: FakeClock, names: tuple[str, ...]) -> None:
        self.clock, self.names, self.age_s, self.takes_s, self.count = clock, names, 0.01, 0.0, 0
        self.errors: dict[int, Exception] = {}  # raised by the n-th look
        self.stalls: dict[int, float] = {}  # how long the n-th look takes
        self.ages: dict[int, float] = {}  # of the frames of the n-th look

    def latest(self, timeout_s: float) -> dict[str, Frame]:
        assert timeout_s == 0.0 or self.count == 0, "the loop has no time to wait for cameras once it runs"
        self.clock.time_s += self.stalls.get(self.count, self.takes_s)
        if self.count in self.errors:
            raise self.errors.pop(self.count)
        self.count += 1
        image = np.full((4, 6, 3), self.count % 256, np.uint8)
        stamp = time.time() - self.ages.get(self.count, self.age_s)
        return {name: Frame(image, self.clock.time_s, stamp, self.count, name) for name in self.names}


class FakeAsker:
    """The policy answers `latency_s` after it was asked, in the fake time. `errors` are its next answers."""

    def __init__(self, clock: FakeClock, policy) -> None:
        self.clock, self.policy, self.latency_s, self.errors = clock, policy, 0.0, []
        self.questions = []
        self._answer, self._ready_s = None, 0.0

    @property
    def waiting(self) -> bool:
        return self._answer is not None

    def ask(self, observation) -> None:
        assert self._answer is None
        self.questions.append(observation)
        self._ready_s = self.clock.now() + self.latency_s
        error = self.errors.pop(0) if self.errors else None
        self._answer = Answer(error=error) if error else Answer(*self.policy.get_action(observation, None))

    def answer(self, timeout_s: float = 0.0) -> Answer | None:
        if self._answer is None:
            return None
        self.clock.sleep_until(min(self._ready_s, self.clock.now() + timeout_s))
        if self.clock.now() < self._ready_s:
            return None
        answer, self._answer = self._answer, None
        return answer

    def forget(self) -> None:
        self._answer = None


class ScriptedKeys:
    """Presses `at[n]` before the n-th look of the loop."""

    def __init__(self, at: dict[int, str]) -> None:
        self.at, self.looks = at, 0

    def poll(self) -> list[str]:
        self.looks += 1
        return [self.at[self.looks]] if self.looks in self.at else []


class Rows:
    """A recorder and a log that keep their rows in memory."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.log, self.targets, self.seen, self.frames = [], [], [], []
        self.clock, self.takes_s = clock, 0.0

    def write(self, row) -> None:
        self.log.append(row)

    def add(self, q_target, q, frames) -> None:
        if self.clock is not None:
            self.clock.time_s += self.takes_s
        self.targets.append(np.array(q_target))
        self.seen.append(np.array(q))
        self.frames.append(frames)
