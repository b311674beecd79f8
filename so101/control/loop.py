"""The control loop: thirty times a second look, decide, send. It keeps its own time whatever the pilot does.

A rollout eases to its start pose, hands the arm to a pilot, is judged, and eases home. Every tick is logged; those the
pilot wants are recorded. While there is no fresh target the last one is sent again: the arm holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from so101.cameras.base import CameraError
from so101.config import Config
from so101.control.inputs import Cameras, Keys, NoKeys
from so101.control.keep_alive import KeepAlive
from so101.control.pacing import Clock, Grid, MonotonicClock, Tick
from so101.control.pilot import Choice, EpisodeEnd, Look, Pilot
from so101.control.rollout_log import TickLog, TickRow
from so101.control.stats import LoopStats
from so101.datasets.rollouts import EpisodeRecorder, Outcome
from so101.robot.base import MODES, CommandRefused, NotArmed, Robot, RobotError, RobotState

_PATIENCE = 0.75  # of the deadline, for an answer; the rest is for sending the command
_OBEYING_MODES = ("released", "holding", "following")  # others mean that the arm does something of its own


@dataclass(frozen=True)
class EpisodeResult:
    """How a rollout ended, and why in words; `info` is what the pilot says about it."""

    outcome: Outcome
    reason: str
    stats: LoopStats
    info: dict[str, Any] = field(default_factory=dict)


class ControlLoop:
    """Runs rollouts. Everything it needs is handed in; it opens and closes nothing.

    Args:
        moves: False for a dry run: nothing is commanded, targets are logged and recorded all the same.
        judge: called when the pilot has finished or time is up and nobody said how it went: an outcome.
        say: takes one line for the person at the terminal.
        stopped: why the program is to end; None while it is not.
    """

    def __init__(
        self,
        config: Config,
        robot: Robot,
        cameras: Cameras,
        pilot: Pilot,
        *,
        moves: bool,
        judge: Callable[[], Outcome] = lambda: "unknown",
        keys: Keys | None = None,
        clock: Clock | None = None,
        say: Callable[[str], None] = lambda text: None,
        stopped: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._settings = config.deploy.control
        self._robot, self._cameras, self._pilot = robot, cameras, pilot
        self._moves, self._judge, self._say, self._stopped = moves, judge, say, stopped
        self._keys, self._clock = keys or NoKeys(), clock or MonotonicClock()
        self._home = np.array([joint.home_rad for joint in config.robot.joints])
        self._deadline_s = self._settings.deadline_ms / 1000
        self._left = False  # to the driver, which brings the arm home

    def holding(self) -> KeepAlive:
        """A context in which the arm stays where it is, for what takes time between rollouts."""
        return KeepAlive(self._robot, active=self._moves and not self._left)

    def run_episode(self, start: np.ndarray | None, log: TickLog, recorder: EpisodeRecorder | None) -> EpisodeResult:
        """One rollout.

        Args:
            start: (6,) rad where it starts; where the arm is when None.
            log, recorder: take every tick, and those the pilot wants recorded. The caller finishes them.
        """
        self._log, self._recorder, self._stats = log, recorder, LoopStats()
        self._frames, self._failed_reads, self._busy = {}, 0, ""
        self._state: RobotState | None = None
        info: dict[str, Any] = {}
        try:
            self._first_frames()
            self._last = self._first_target()
            self._grid = Grid(self._settings.control_hz, self._clock)
            self._began_s = self._clock.now()
            if start is not None:
                self._ease(np.asarray(start, float), "start")
            self._pilot.begin(self._last, self._stats)
            try:
                self._fly()
            finally:
                info = self._pilot.end()
        except EpisodeEnd as end:
            ended = end
        outcome = self._judge() if ended.outcome == "unknown" else ended.outcome
        reason = ended.reason
        if ended.can_move:
            self._say(f"{reason}; going home" if self._moves else reason)
            try:
                self._ease(self._home, "home")
            except EpisodeEnd as end:
                reason = f"{reason}; on the way home: {end.reason}"
        elif self._moves and (self._state is None or self._state.mode != "stopped"):  # stopped: until somebody says so
            self._say(f"{reason}; the driver brings the arm home")
            self._leave()
        return EpisodeResult(outcome, reason, self._stats, info)

    # --- phases ------------------------------------------------------------------------------------------------------

    def _ease(self, goal: np.ndarray, phase: str) -> None:
        """To `goal` with a cosine profile of start_ease_s."""
        begin = self._last
        ticks = max(1, round(self._settings.start_ease_s * self._settings.control_hz))
        for k in range(1, ticks + 1):
            share = (1 - math.cos(math.pi * k / ticks)) / 2
            target = begin + share * (goal - begin)
            self._tick(lambda look, target=target: Choice(target, phase))

    def _fly(self) -> None:
        """The pilot has the arm, until something raises `EpisodeEnd`."""
        self._paused = False
        ends_s = self._clock.now() + self._settings.max_episode_s
        while True:
            self._tick(self._piloted)
            if self._clock.now() > ends_s:
                raise EpisodeEnd("unknown", f"time is up ({self._settings.max_episode_s:g} s)")

    def _piloted(self, look: Look) -> Choice:
        if "pause" in self._pressed:
            self._paused = not self._paused
            self._say("paused: the arm holds; the same key goes on" if self._paused else "going on")
            self._pilot.pause()
        return Choice(None, "paused") if self._paused else self._pilot.choose(look)

    # --- one tick ----------------------------------------------------------------------------------------------------

    def _tick(self, choose: Callable[[Look], Choice]) -> None:
        """Wait for the grid, look, let the phase choose, send, log."""
        now = self._clock.now
        tick = self._grid.wait()
        self._stats.skipped += tick.skipped
        if (why := self._stopped()) is not None:
            raise EpisodeEnd("aborted", why, can_move=False)
        self._read_keys()
        state, missed = self._read()
        read_s = now()
        missed = self._look_around() or missed
        seen_s = now()
        patience_s = max(0.0, tick.due_s + _PATIENCE * self._deadline_s - seen_s)
        choice = choose(Look(tick, state, self._frames, self._oldest_frame_s(), patience_s))
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

    def _read_keys(self) -> None:
        self._pressed = self._keys.poll()
        if "help" in self._pressed:
            meanings = self._settings.keys.model_dump()
            self._say("keys: " + "; ".join(f"{' or '.join(names)}: {meaning}" for meaning, names in meanings.items()))
        for outcome in ("success", "failure"):
            if outcome in self._pressed:
                raise EpisodeEnd(outcome, f"marked as a {outcome}")
        if "abort" in self._pressed:
            raise EpisodeEnd("aborted", "aborted by a key")

    def _read(self) -> tuple[RobotState, str]:
        """The newest state, and "bus" when it is an old one."""
        trouble = ""
        try:
            self._state = self._robot.read()
            fresh = self._state.missed_reads == 0
        except RobotError as error:
            fresh, trouble = False, f": {error}"
        self._failed_reads = 0 if fresh else self._failed_reads + 1
        if self._failed_reads >= self._settings.max_failed_reads:
            what = f"{self._failed_reads} reads of the joints failed in a row{trouble}"
            raise EpisodeEnd("aborted", what, can_move=False)
        if self._moves and self._state.mode not in _OBEYING_MODES:
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
        age_s = self._oldest_frame_s()
        if age_s > self._settings.camera_lost_s:
            raise EpisodeEnd("aborted", f"a camera gave nothing new for {age_s:.1f} s. {trouble}".rstrip())
        return "camera" if trouble else ""

    def _leave(self) -> None:
        """Let the driver bring the arm home, now and not after files were written. It will do so anyway when we end."""
        self._left = True
        try:
            self._robot.disarm(wait=False)
        except RobotError as error:
            self._say(f"the driver cannot be asked to bring the arm home: {error}")

    def _first_frames(self) -> None:
        with self.holding():
            try:
                self._frames = self._cameras.latest(self._settings.camera_lost_s)
            except CameraError as error:
                raise EpisodeEnd("aborted", f"cameras: {error}", can_move=False) from error

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
