"""`ArmDriver`: an arm on this machine, watched on a thread of its own, with everything that keeps it safe."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from so101.config import Config
from so101.robot.arm import FeetechArm, Reading
from so101.robot.base import (
    BusError,
    CommandRefused,
    Mode,
    NotArmed,
    RobotError,
    RobotState,
    TorqueLeftOn,
)
from so101.robot.feetech_bus import PortLost
from so101.robot.safety import CommandLimiter, Health, HealthMonitor, Limited, WayHome, checked

log = logging.getLogger(__name__)

_ENERGISED: tuple[Mode, ...] = ("holding", "following", "returning", "stopped", "stuck")
_ASKED = "asked to"
_LIMP = "no torque on"
_PROTECTED = "protected: "
_YIELD_S = 0.001  # others get the lock even when every look takes longer than its period
_POLL_S = 0.02


class ArmDriver:
    """A `so101.robot.base.Robot` on a servo bus.

    Commands are limited and sent at once, in the caller's thread; `step`, called at `robot.bus.rate_hz` by a thread
    that `connect` starts, looks at the arm and decides when it must hold or go home. One lock makes them take turns.

    Args:
        arm: the servos.
        may_arm: whether it may ever be energised.
        lowest_m: lowest point of the hand over joints, for the floor; None: no floor.
        clock: monotonic, s.
        threaded: False: `step` is called by the owner.
    """

    def __init__(
        self,
        config: Config,
        arm: FeetechArm,
        *,
        may_arm: bool,
        lowest_m: Callable[[np.ndarray], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
    ) -> None:
        self.joint_names = config.robot.joint_names
        self.may_arm = may_arm
        self._arm, self._lowest_m = arm, lowest_m
        self._bus_settings, self._settings = config.robot.bus, config.robot.safety
        self._home = np.array([joint.home_rad for joint in config.robot.joints])
        self._joint_limits = (
            np.array([joint.lower_rad for joint in config.robot.joints]),
            np.array([joint.upper_rad for joint in config.robot.joints]),
        )
        self._clock, self._threaded = clock, threaded
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._watchers: list[Callable[[RobotState], None]] = []
        self._mode: Mode = "released"
        self._reason = "not connected"
        self._home_because: str | None = None  # the arm is to go home as soon as it can
        self._lost_with_torque = False
        self._miss = ""  # why the last look failed
        self._state: RobotState | None = None

    # -- the Robot interface ---------------------------------------------------------------------------------------

    def connect(self) -> None:
        self._arm.connect()
        with self._lock:
            self._setup_limits()
            self._monitor = HealthMonitor(self._settings, self.joint_names, self._bus_settings.supply_v)
            self._health = Health("ok", "", ())
            self._last_read_s = self._reopened_s = self._commanded_s = self._clock()
            self._missed = 0
            self._calm_s = float("-inf")  # no command is carried out before
            reading = self._arm.read()
            self._goal, self._sent_s = reading.q_rad, self._clock()
            if reading.torque.any():
                self._enter("stopped", "torque was on when the driver connected")
            else:
                self._enter("released", "connected")
            self._keep(reading)
        for note in self._arm.notes:
            log.warning("%s", note)
        if self._threaded:
            atexit.register(self.close)
            self._thread = threading.Thread(target=self._run, name="arm", daemon=True)
            self._thread.start()

    def read(self) -> RobotState:
        state = self._state
        if state is None:
            raise BusError("the arm is not connected; call connect first")
        return state

    def arm(self) -> None:
        if not self.may_arm:
            raise NotArmed("not armed: start with --arm (then the arm moves: keep its workspace clear)")
        with self._lock:
            if self._mode == "lost":
                raise BusError(f"the arm cannot be armed: {self._reason}")
            if self._health.level in ("hold", "home"):
                raise CommandRefused(f"the arm is not armed: {self._health.reason}; let it cool down, or free it")
            self._goal = self._energise()
            self._sent_s = self._commanded_s = self._clock()
            self._home_because = None
            self._enter("holding", "armed")
            self._tell_out_of_range()
            self._keep(self._arm.read())

    def command(self, q_rad: np.ndarray) -> np.ndarray:
        return self.command_limited(q_rad).goal

    def command_limited(self, q_rad: np.ndarray) -> Limited:
        """As `command`, and by which limits it was changed."""
        wanted = checked(q_rad)
        with self._lock:
            if self._mode in ("released", "lost"):
                hint = "arm it first" if self.may_arm else "not armed: start with --arm"
                raise NotArmed(f"no command is taken ({self._mode}: {self._reason}); {hint}")
            if self._mode in ("returning", "stopped", "stuck"):
                raise CommandRefused(f"no command is taken while the arm is {self._mode}: {self._reason}; arm it again")
            now = self._commanded_s = self._clock()
            if now < self._calm_s:
                return Limited(self._goal, (self._reason,))
            if self._missed:
                return Limited(self._goal, ("the last look at the arm failed",))
            limited = self._limiter.limit(wanted, self._goal, self._state.q_rad, now - self._sent_s)
            self._send(limited.goal, now)
            if self._mode != "following":
                self._enter("following", "commanded")
            return Limited(self._goal, limited.by)

    def hold(self) -> None:
        with self._lock:
            if self._mode in ("released", "lost"):
                raise NotArmed(f"the arm has no torque to hold with ({self._mode}: {self._reason})")
            self._commanded_s = self._clock()
            if self._mode == "following":
                self._enter("holding", "told to hold")

    def stop(self) -> None:
        with self._lock:
            if self._mode in _ENERGISED:
                self._freeze()
                self._home_because = None
                self._enter("stopped", "emergency stop")

    def disarm(self, wait: bool = True) -> None:
        with self._lock:
            if not self.may_arm and self._mode in _ENERGISED:
                raise NotArmed("the arm does not go home: start with --arm")
            if self._mode == "lost" and self._lost_with_torque:
                self._home_because = _ASKED
            elif self._mode in _ENERGISED and self._mode != "returning":
                self._go_home(_ASKED)
        if wait:
            self._until_home()

    def close(self) -> None:
        """Return home and release what is armed, end the thread, close the port. What goes wrong on the way leaves the
        torque on, and raises `TorqueLeftOn`. An arm that may not be armed is left as it is."""
        atexit.unregister(self.close)
        try:
            if self._state is not None and self.may_arm:
                self.disarm()
        finally:
            self._end.set()
            if self._thread is not None:
                self._thread.join()
            self._thread = self._state = None
            self._arm.close()

    def __enter__(self) -> ArmDriver:
        self.connect()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for the service -------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[RobotState], None]) -> None:
        """`watcher(state)` is called after every step, in its thread; it must return soon."""
        self._watchers.append(watcher)

    def step(self) -> None:
        """Look at the arm once and act on it."""
        with self._lock:
            now = self._clock()
            try:
                self._on_reading(self._look(now), now)
            except Exception as error:  # whatever it is, the arm must go on being watched
                if not isinstance(error, RobotError):
                    log.error("a look at the arm failed by a programming error", exc_info=True)
                self._on_missed(error, now)
        for watcher in self._watchers:
            watcher(self._state)

    # -- inside, with the lock held --------------------------------------------------------------------------------

    def _look(self, now: float) -> Reading:
        if not self._arm.bus.is_open:
            if now - self._reopened_s < self._bus_settings.reopen_s:
                raise PortLost(self._miss)
            self._reopened_s = now
            self._arm.connect()
            if self._arm.calibration_fault:
                self._arm.close()
                raise BusError(self._arm.calibration_fault)
        return self._arm.read()

    def _on_missed(self, error: Exception, now: float) -> None:
        self._missed += 1
        gone_s = now - self._last_read_s
        news = not self._arm.bus.is_open and str(error) != self._miss  # what came to the port is another arm, say
        self._miss = str(error)
        if gone_s >= self._settings.lost_after_s and (self._mode != "lost" or news):
            if self._mode != "lost":
                self._lost_with_torque = self._mode in _ENERGISED
            left = "; the torque is LEFT ON where servos have power" if self._lost_with_torque else ""
            self._enter("lost", f"no look at the arm for {gone_s:.1f} s ({error}){left}", logging.ERROR)
        self._state = replace(self._state, missed_reads=self._missed)

    def _on_reading(self, reading: Reading, now: float) -> None:
        self._missed, self._last_read_s = 0, now
        self._health = self._monitor.update(
            reading.temperature_c, reading.load_pct, reading.voltage_v, reading.error_bits, now
        )
        if self._health.level in ("hold", "home"):
            self._calm_s = now + self._settings.calm_s
        self._keep(reading)
        if self._mode == "lost":
            self._recover(reading, now)
        if self._mode in _ENERGISED and not reading.torque.all():
            self._on_limp(reading)
        elif self._mode in ("holding", "following"):
            self._watchdog(now)
        if self._mode == "returning":
            self._carry_home(reading, now)
        self._keep(reading)

    def _recover(self, reading: Reading, now: float) -> None:
        """The bus answers again."""
        self._commanded_s = now
        self._goal = reading.q_rad
        if not reading.torque.any():
            self._enter("released", "the bus answers again; no servo has torque", logging.WARNING)
        elif self._home_because is not None:
            self._go_home(self._home_because)
        elif self._lost_with_torque:
            self._freeze()
            self._enter("holding", "the bus answers again", logging.WARNING)
        else:
            self._enter("stopped", "the bus answers again and servos have torque", logging.WARNING)

    def _on_limp(self, reading: Reading) -> None:
        limp = [name for name, on in zip(self.joint_names, reading.torque, strict=True) if not on]
        if self._mode == "stuck" or self._reason.startswith(_LIMP):
            return
        if len(limp) == len(self.joint_names):
            self._enter("released", "all servos lost their torque (power?)", logging.ERROR)
            return
        self._freeze()
        self._enter("stopped", f"{_LIMP} {', '.join(limp)}; the others hold. Arm or disarm", logging.ERROR)

    def _watchdog(self, now: float) -> None:
        quiet_s = now - self._commanded_s
        if self._health.level == "home":
            self._go_home(self._health.reason)
        elif quiet_s >= self._settings.home_after_s:
            self._go_home(f"nothing was commanded for {quiet_s:.1f} s")
        elif self._health.level == "hold":
            if not self._reason.startswith(_PROTECTED):
                self._freeze()
                self._enter("holding", f"{_PROTECTED}{self._health.reason}", logging.WARNING)
        elif self._mode == "following" and quiet_s * 1000 >= self._settings.max_stale_ms:
            self._enter("holding", f"no command for {quiet_s * 1000:.0f} ms")

    def _go_home(self, why: str) -> None:
        release = self._settings.release_pose_rad
        waypoints = [self._home] if release is None else [self._home, np.array(release)]
        waypoints = [np.clip(point, self._limiter.lower, self._limiter.upper) for point in waypoints]
        self._way = WayHome(self._goal, waypoints, self._settings.return_speed_rad_s, self._settings.return_min_s)
        self._way_s, self._stepped_s = 0.0, self._clock()
        self._home_because = why
        self._enter("returning", why)

    def _carry_home(self, reading: Reading, now: float) -> None:
        """One step of the way. Time stands still where looks at the arm fail, so that the goal never runs ahead."""
        self._way_s += min(now - self._stepped_s, 2 / self._bus_settings.rate_hz)
        self._stepped_s = now
        goal = self._way.at(self._way_s)
        lead = np.array(self._settings.max_lead_rad)
        overdue = self._way_s > self._way.duration_s + self._settings.arrival_timeout_s
        try:
            self._send(np.clip(goal, reading.q_rad - lead, reading.q_rad + lead), now)
            if self._way_s < self._way.duration_s:
                return
            off_ticks = np.abs(reading.q_rad - goal) / self._arm.rad_per_tick()
            off_ticks[-1] = 0.0  # a jaw that holds something stays open, and nothing falls because of it
            if off_ticks.max() <= self._settings.arrival_ticks:
                self._arm.torque_off()
                self._home_because = None
                self._enter("released", f"home ({self._reason})")
            elif overdue:
                self._freeze()
                worst = int(off_ticks.argmax())
                self._stuck(f"{self.joint_names[worst]} is {off_ticks[worst]:.0f} ticks away from it")
        except BusError as error:
            if overdue:
                self._stuck(str(error))

    def _stuck(self, what: str) -> None:
        why, self._home_because = self._home_because, None
        self._enter(
            "stuck",
            f"TORQUE LEFT ON, home was not reached: {what} (on the way because: {why}). Hold the arm before its power "
            "is cut, or free it and disarm again",
            logging.CRITICAL,
        )

    def _energise(self) -> np.ndarray:
        try:
            return self._arm.torque_on()
        except RobotError as error:
            if self._mode == "released":
                try:
                    self._arm.torque_off()
                except BusError as second:
                    self._enter("stopped", f"arming failed ({error}), and so did letting go ({second})", logging.ERROR)
            raise

    def _freeze(self) -> None:
        """Goal = where the arm is now."""
        try:
            self._send(self._state.q_rad, self._clock())
        except BusError as error:
            log.error("the goal could not be set to the present pose: %s", error)

    def _send(self, goal: np.ndarray, now: float) -> None:
        self._goal = self._arm.write_goal(goal)
        self._sent_s = now
        self._state = replace(self._state, goal_rad=self._goal)

    def _enter(self, mode: Mode, reason: str, level: int = logging.INFO) -> None:
        log.log(level, "arm %s: %s", mode, reason)
        self._mode, self._reason = mode, reason
        if self._state is not None:
            self._state = replace(self._state, mode=mode, reason=reason, armed=self._has_torque)

    @property
    def _has_torque(self) -> bool:
        return self._mode in _ENERGISED or (self._mode == "lost" and self._lost_with_torque)

    def _keep(self, reading: Reading) -> None:
        energised = self._has_torque
        self._state = RobotState(
            stamp_s=reading.stamp_s,
            q_rad=reading.q_rad,
            qd_rad_s=reading.qd_rad_s,
            load_pct=reading.load_pct,
            temperature_c=reading.temperature_c,
            voltage_v=reading.voltage_v,
            error_bits=reading.error_bits,
            goal_rad=self._goal if energised else reading.q_rad,
            mode=self._mode,
            reason=self._reason,
            armed=energised,
            warnings=self._health.warnings,
        )

    def _setup_limits(self) -> None:
        lower, upper = self._arm.range_rad()
        lower, upper = np.maximum(lower, self._joint_limits[0]), np.minimum(upper, self._joint_limits[1])
        self._limiter = CommandLimiter(self._settings, lower, upper, self._lowest_m)

    def _tell_out_of_range(self) -> None:
        outside = (self._goal < self._limiter.lower) | (self._goal > self._limiter.upper)
        for name, angle in zip(np.array(self.joint_names)[outside], self._goal[outside], strict=True):
            log.warning("%s is at %.2f rad, outside of its limits; the first command brings it back in", name, angle)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        period_s = 1.0 / self._bus_settings.rate_hz
        due_s = self._clock()
        while not self._end.is_set():
            self.step()
            due_s = max(due_s + period_s, self._clock() + _YIELD_S)  # late looks are not caught up
            self._end.wait(due_s - self._clock())

    def _until_home(self) -> None:
        """Wait for the way home to end, whoever steps. A bus that stays away is given up."""
        answered_s = self._clock()
        while self._mode == "returning" or (self._mode == "lost" and self._home_because is not None):
            if self._mode == "returning":
                answered_s = self._clock()
            if self._clock() - answered_s > self._settings.arrival_timeout_s:
                break
            if self._thread is None:
                self.step()
            else:
                self._thread.join(_POLL_S)
                if not self._thread.is_alive():
                    raise TorqueLeftOn("the arm's thread is gone; torque is as it was")
        if self._has_torque:
            raise TorqueLeftOn(self._reason)
