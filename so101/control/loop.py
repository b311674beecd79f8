"""The control loop: thirty times a second look, decide, send. It keeps its own time whatever the policy does.

A rollout eases to its start pose, follows the policy, is judged, and eases home. Every tick is logged; those in which
the policy has the arm are recorded. While no fresh action is there, the last target is sent again: the arm holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from so101.cameras.base import CameraError, Frame
from so101.config import Config
from so101.control.asking import Answer, Asker
from so101.control.boundary import PolicyBoundary
from so101.control.chunks import ChunkPlan
from so101.control.pacing import Clock, Grid, MonotonicClock, Tick
from so101.control.rollout_log import TickLog, TickRow
from so101.control.stats import LoopStats
from so101.datasets.rollouts import EpisodeRecorder, Outcome
from so101.errors import So101Error
from so101.robot.base import MODES, CommandRefused, NotArmed, Robot, RobotError, RobotState

_MOVING_MODES = ("released", "holding", "following")  # others mean that the arm does something of its own


class Keys(Protocol):
    """What a person at the terminal wants."""

    def poll(self) -> list[str]:
        """Meanings of the keys pressed since the last call: pause, abort, success, failure, help."""


class NoKeys:
    """Nobody is there."""

    def poll(self) -> list[str]:
        return []


class Cameras(Protocol):
    """Newest frames."""

    def latest(self, timeout_s: float) -> Mapping[str, Frame]:
        """Camera name -> newest frame. Raises CameraError when a camera has none in time."""


class NoCameras:
    """For policies that do not look."""

    def latest(self, timeout_s: float) -> dict[str, Frame]:
        return {}


@dataclass(frozen=True)
class EpisodeResult:
    """How a rollout ended, and why in words."""

    outcome: Outcome
    reason: str
    stats: LoopStats
    info: dict[str, Any] = field(default_factory=dict)  # the policy's last


class EpisodeEnd(Exception):
    """The rollout is over. `can_move`: whether the arm may still be sent home by the loop."""

    def __init__(self, outcome: Outcome, reason: str, *, can_move: bool = True) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.can_move = outcome, reason, can_move


@dataclass(frozen=True)
class Choice:
    """What a phase wants this tick: a target (6,) rad or None for the last one, and where it is from."""

    target: np.ndarray | None
    phase: str
    chunk: int = -1
    row: int = -1
    miss: str = ""
    record: bool = False


@dataclass
class Look:
    """What a tick sees."""

    tick: Tick
    state: RobotState
    frames: Mapping[str, Frame]
    keys: list[str]


class ControlLoop:
    """Runs rollouts. Everything it needs is handed in; it opens and closes nothing but its thread for the policy.

    Args:
        moves: False for a dry run: nothing is commanded, targets are logged and recorded all the same.
        judge: called when the policy is done or time is up and nobody said how it went: an outcome.
        say: takes one line for the person at the terminal.
        stopped: why the program is to end; None while it is not.
    """

    def __init__(
        self,
        config: Config,
        robot: Robot,
        cameras: Cameras,
        policy_boundary: PolicyBoundary,
        asker: Asker,
        *,
        moves: bool,
        judge: Callable[[], Outcome] = lambda: "unknown",
        keys: Keys | None = None,
        clock: Clock | None = None,
        say: Callable[[str], None] = lambda text: None,
        stopped: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._config, self._settings = config, config.deploy.control
        self._robot, self._cameras, self._boundary, self._asker = robot, cameras, policy_boundary, asker
        self._moves, self._judge, self._say, self._stopped = moves, judge, say, stopped
        self._keys, self._clock = keys or NoKeys(), clock or MonotonicClock()
        self._home = np.array([joint.home_rad for joint in config.robot.joints])
        self._deadline_s = self._settings.deadline_ms / 1000

    def run_episode(
        self, start: np.ndarray | None, language: str, log: TickLog, recorder: EpisodeRecorder | None
    ) -> EpisodeResult:
        """One rollout.

        Args:
            start: (6,) rad where it starts; home when None.
            language: the task in words.
            log, recorder: take every tick, and those of the policy phase. The caller finishes them.
        """
        self._log, self._recorder, self._language = log, recorder, language
        self._stats, self._info = LoopStats(), {}
        self._frames, self._failed_reads, self._busy = {}, 0, ""
        try:
            self._last = self._first_target()
            self._grid = Grid(self._settings.control_hz, self._clock)
            self._began_s = self._clock.now()
            self._ease(self._home if start is None else np.asarray(start, float), "start")
            self._follow_policy()
        except EpisodeEnd as end:
            ended = end
        outcome = self._judge() if ended.outcome == "unknown" else ended.outcome
        self._asker.forget()
        if ended.can_move:
            self._say(f"{ended.reason}; going home")
            try:
                self._ease(self._home, "home")
            except EpisodeEnd as end:
                ended = EpisodeEnd(outcome, f"{ended.reason}; on the way home: {end.reason}")
        return EpisodeResult(outcome, ended.reason, self._stats, self._info)

    # --- phases ------------------------------------------------------------------------------------------------------

    def _ease(self, goal: np.ndarray, phase: str) -> None:
        """To `goal` with a cosine profile of start_ease_s."""
        begin = self._last
        ticks = max(1, round(self._settings.start_ease_s * self._settings.control_hz))
        for k in range(1, ticks + 1):
            share = (1 - math.cos(math.pi * k / ticks)) / 2
            target = begin + share * (goal - begin)
            self._tick(lambda look, target=target: Choice(target, phase))

    def _follow_policy(self) -> None:
        """Until something raises `EpisodeEnd`."""
        settings = self._settings
        self._plan = ChunkPlan(
            settings.execute_steps,
            run_on=settings.overlap,
            ema_alpha=settings.ema_alpha,
            max_stale_s=settings.max_stale_ms / 1000,
        )
        self._plan.start_from(self._last)
        self._paused, self._done, self._policy_errors_in_row = False, False, 0
        self._asked_at = 0
        ends_s = self._clock.now() + settings.max_episode_s
        while not (self._done and self._plan.wants_next):
            self._tick(self._policy_choice)
            if self._clock.now() > ends_s:
                raise EpisodeEnd("unknown", f"time is up ({settings.max_episode_s:g} s)")
        for _ in range(round(settings.settle_s * settings.control_hz)):
            self._tick(lambda look: Choice(None, "settle", record=True))
        raise EpisodeEnd("unknown", "the policy is done")

    def _policy_choice(self, look: Look) -> Choice:
        if "pause" in look.keys:
            self._paused = not self._paused
            self._say("paused: the arm holds; the same key goes on" if self._paused else "going on")
            self._plan.drop()
            self._asker.forget()
        if self._paused:
            return Choice(None, "paused")
        self._take_answer(self._asker.answer())
        if self._plan.wants_next and not self._asker.waiting and not self._done:
            self._ask(look)
        if self._plan.empty and self._asker.waiting:  # nothing to send this tick but the answer: wait for it a little
            left_s = look.tick.due_s + self._deadline_s / 2 - self._clock.now()
            self._take_answer(self._asker.answer(max(0.0, left_s)))
        target = self._plan.next(self._clock.now())
        if target is None:
            begun = self._plan.executed > 0
            return Choice(None, "policy", miss="inference" if begun and not self._done else "", record=begun)
        return Choice(target.q, "policy", target.chunk, target.row, record=True)

    def _ask(self, look: Look) -> None:
        self._asked_at = self._plan.executed
        self._asker.ask(self._boundary.observation(look.state.q_rad, look.frames, self._language))

    def _take_answer(self, answer: Answer | None) -> None:
        if answer is None:
            return
        self._stats.inference_ms.append(answer.took_s * 1000)
        error = answer.error
        if error is None:
            try:
                rows = self._boundary.joint_targets(answer.action)
            except So101Error as wrong:
                error = wrong
        if error is not None:
            self._policy_failed(error)
            return
        self._policy_errors_in_row = 0
        self._stats.chunks += 1
        self._info = answer.info
        self._plan.push(rows, elapsed=self._plan.executed - self._asked_at, now_s=self._clock.now())
        if answer.info.get("done"):
            self._done = True

    def _policy_failed(self, error: Exception) -> None:
        """Hold; ask again while retries are left, otherwise end."""
        self._stats.policy_errors += 1
        self._policy_errors_in_row += 1
        self._plan.drop()
        what = f"the policy failed: {error}"
        if self._policy_errors_in_row > self._settings.policy_retries:
            raise EpisodeEnd("aborted", what) from error
        self._say(f"{what}; the arm holds, asking again ({self._policy_errors_in_row})")

    # --- one tick ----------------------------------------------------------------------------------------------------

    def _tick(self, choose: Callable[[Look], Choice]) -> None:
        """Wait for the grid, look, let the phase choose, send, log."""
        now = self._clock.now
        tick = self._grid.wait()
        if (why := self._stopped()) is not None:
            raise EpisodeEnd("aborted", why, can_move=False)
        keys = self._read_keys()
        state, missed = self._read()
        read_s = now()
        missed = self._look_around() or missed
        seen_s = now()
        choice = choose(Look(tick, state, self._frames, keys))
        chosen_s = now()
        target = self._last if choice.target is None else choice.target
        sent = self._send(target)
        self._last = target
        sent_s = now()
        spent = {
            "scheduler": tick.woke_s - tick.due_s,
            "bus": read_s - tick.woke_s + sent_s - chosen_s,
            "camera": seen_s - read_s,
            "inference": chosen_s - seen_s,
        }
        late = sent_s - tick.due_s > self._deadline_s
        slowest = max(spent, key=spent.get)
        reason = self._busy if slowest == "scheduler" and self._busy else slowest
        miss = choice.miss or missed or (reason if late else "")
        self._count(tick, sent_s, miss)
        self._keep(tick, choice, state, target, sent, sent_s, miss)
        spent["recording"] = now() - sent_s
        over = now() > tick.due_s + self._grid.period_s  # then the next tick is late because of this one
        self._busy = max(spent, key=spent.get) if over else ""

    def _read_keys(self) -> list[str]:
        keys = self._keys.poll()
        if "help" in keys:
            meanings = self._settings.keys.model_dump()
            self._say("keys: " + "; ".join(f"{' or '.join(names)}: {meaning}" for meaning, names in meanings.items()))
        for outcome in ("success", "failure"):
            if outcome in keys:
                raise EpisodeEnd(outcome, f"marked as a {outcome}")
        if "abort" in keys:
            raise EpisodeEnd("aborted", "aborted by a key")
        return keys

    def _read(self) -> tuple[RobotState, str]:
        """The newest state, and "bus" when it is an old one."""
        try:
            self._state = self._robot.read()
            fresh = self._state.missed_reads == 0
        except RobotError as error:
            if self._failed_reads + 1 >= self._settings.max_failed_reads:
                raise EpisodeEnd("aborted", f"the arm does not answer: {error}", can_move=False) from error
            fresh = False
        self._failed_reads = 0 if fresh else self._failed_reads + 1
        if self._failed_reads >= self._settings.max_failed_reads:
            raise EpisodeEnd("aborted", f"{self._failed_reads} reads of the joints failed in a row", can_move=False)
        if self._moves and self._state.mode not in _MOVING_MODES:
            what = f"the arm is {self._state.mode} ({MODES[self._state.mode]}): {self._state.reason}"
            raise EpisodeEnd("aborted", what, can_move=False)
        return self._state, "" if fresh else "bus"

    def _look_around(self) -> str:
        """Take the newest frames; "camera" when there are only those from before."""
        trouble = ""
        try:
            self._frames = self._cameras.latest(0.0)
        except CameraError as error:
            trouble = str(error)
            if not self._frames:
                raise EpisodeEnd("aborted", f"cameras: {trouble}") from error
        age_s = self._oldest_frame_s()
        if age_s > self._settings.max_frame_age_ms / 1000:
            raise EpisodeEnd("aborted", f"a frame is {age_s:.1f} s old (control.max_frame_age_ms). {trouble}".rstrip())
        return "camera" if trouble else ""

    def _oldest_frame_s(self) -> float:
        return max((frame.age_s for frame in self._frames.values()), default=0.0)

    def _send(self, target: np.ndarray) -> np.ndarray:
        if not self._moves:
            return np.full(len(target), np.nan)
        try:
            return self._robot.command(target)
        except (NotArmed, CommandRefused) as error:
            raise EpisodeEnd("aborted", f"the driver refuses: {error}", can_move=False) from error
        except RobotError as error:
            self._say(f"command lost: {error}")
            return np.full(len(target), np.nan)

    def _first_target(self) -> np.ndarray:
        """Where the arm was sent last: its goal when it has torque, so that nothing jumps."""
        try:
            self._state = self._robot.read()
        except RobotError as error:
            raise EpisodeEnd("aborted", f"the arm does not answer: {error}", can_move=False) from error
        return np.array(self._state.goal_rad if self._state.armed else self._state.q_rad, float)

    def _count(self, tick: Tick, sent_s: float, miss: str) -> None:
        stats = self._stats
        stats.ticks += 1
        stats.skipped += tick.skipped
        stats.woke_ms.append(1000 * (tick.woke_s - tick.due_s))
        stats.sent_ms.append(1000 * (sent_s - tick.due_s))
        if miss:
            stats.misses[miss] += 1

    def _keep(
        self,
        tick: Tick,
        choice: Choice,
        state: RobotState,
        target: np.ndarray,
        sent: np.ndarray,
        sent_s: float,
        miss: str,
    ) -> None:
        self._log.write(
            TickRow(
                tick=tick.index,
                due_s=tick.due_s - self._began_s,
                woke_ms=1000 * (tick.woke_s - tick.due_s),
                sent_ms=1000 * (sent_s - tick.due_s),
                skipped=tick.skipped,
                phase=choice.phase,
                chunk=choice.chunk,
                row=choice.row,
                miss=miss,
                q=state.q_rad,
                target=target,
                sent=sent,
                frame_age_ms=1000 * self._oldest_frame_s() if self._frames else math.nan,
            )
        )
        if choice.record and self._recorder is not None:
            self._recorder.add(target, state.q_rad, {n: (f.index, f.image) for n, f in self._frames.items()})
