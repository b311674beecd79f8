"""What an arm does, look by look: follows, holds, goes home, lets go, or says why it cannot. No thread, no waiting."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from so101.config import Config
from so101.robot.arm import FeetechArm, Reading
from so101.robot.base import BusError, CommandRefused, Mode, NotArmed, RobotError, RobotState
from so101.robot.feetech_bus import PortLost
from so101.robot.safety import CommandLimiter, Health, HealthMonitor, Limited, WayHome, checked

log = logging.getLogger(__name__)

_ENERGISED: tuple[Mode, ...] = ("holding", "following", "returning", "stopped", "stuck")
_LIMP = "no torque on"
_PROTECTED = "protected: "


class ArmGuard:
    """Everything that keeps an arm safe. `ArmDriver` owns one, and calls it from one thread at a time.

    Args:
        arm: the servos.
        may_arm: whether it may ever be energised.
        lowest_m: lowest point of the hand over joints, for the floor; None: no floor.
        clock: monotonic, s.

    Attributes:
        mode, reason: what the arm does, and why.
        state: the newest one.
    """

    def __init__(
        self,
        config: Config,
        arm: FeetechArm,
        *,
        may_arm: bool,
        lowest_m: Callable[[np.ndarray], float] | None,
        clock: Callable[[], float],
    ) -> None:
        self.may_arm = may_arm
        self._arm, self._lowest_m, self._clock = arm, lowest_m, clock
        self._joints = config.robot.joints
        self._names = config.robot.joint_names
        self._bus_settings, self._settings = config.robot.bus, config.robot.safety
        self.mode: Mode = "released"
        self.reason = "not connected"
        self.state: RobotState | None = None
        self._before_lost: Mode = "released"
        self._home_because: str | None = None  # the arm is to go home as soon as it can
        self._miss = ""  # why the last look failed

    def connect(self) -> None:
        """Find the arm; writes nothing. Raises as `FeetechArm.connect`."""
        self._arm.connect()
        self._limiter = self._make_limiter()
        self._monitor = HealthMonitor(self._settings, self._names, self._bus_settings.supply_v)
        self._health = Health("ok", "", ())
        self._last_read_s = self._reopened_s = self._commanded_s = self._sent_s = self._clock()
        self._missed = 0
        self._calm_s = float("-inf")  # no command is carried out before
        reading = self._arm.read()
        self._goal = reading.q_rad
        if reading.torque.any():
            self._enter("stopped", "torque was on when the driver connected")
        else:
            self._enter("released", "connected")
        self._keep(reading)
        for note in self._arm.notes:
            log.warning("%s", note)

    @property
    def has_torque(self) -> bool:
        """As far as known."""
        return (self._before_lost if self.mode == "lost" else self.mode) in _ENERGISED

    @property
    def is_going_home(self) -> bool:
        """On the way, or as soon as the bus answers again."""
        return self.mode == "returning" or (self.mode == "lost" and self._home_because is not None)

    def energise(self) -> None:
        """As `Robot.arm`."""
        if not self.may_arm:
            raise NotArmed("not armed: start with --arm (then the arm moves: keep its workspace clear)")
        if self.mode == "lost":
            raise BusError(f"the arm cannot be armed: {self.reason}")
        if self._health.level in ("hold", "home"):
            raise CommandRefused(f"the arm is not armed: {self._health.reason}; let it cool down, or free it")
        try:
            self._goal = self._arm.torque_on()
        except RobotError as error:
            if self.mode == "released":
                self._let_go_again(error)
            raise
        self._sent_s = self._commanded_s = self._clock()
        self._home_because = None
        self._enter("holding", "armed")
        self._tell_out_of_range()
        self._keep(self._arm.read())

    def command(self, q_rad: np.ndarray) -> Limited:
        """As `Robot.command`, and by which limits it was changed."""
        wanted = checked(q_rad)
        if self.mode in ("released", "lost"):
            hint = "arm it first" if self.may_arm else "not armed: start with --arm"
            raise NotArmed(f"no command is taken ({self.mode}: {self.reason}); {hint}")
        if self.mode in ("returning", "stopped", "stuck"):
            raise CommandRefused(f"no command is taken while the arm is {self.mode}: {self.reason}; arm it again")
        now = self._commanded_s = self._clock()
        if now < self._calm_s:
            return Limited(self._goal, (self.reason,))
        if self._missed:
            return Limited(self._goal, ("the last look at the arm failed",))
        limited = self._limiter.limit(wanted, self._goal, self.state.q_rad, now - self._sent_s)
        self._send(limited.goal, now)
        if self.mode != "following":
            self._enter("following", "commanded")
        return Limited(self._goal, limited.by)

    def hold(self) -> None:
        """As `Robot.hold`."""
        if self.mode in ("released", "lost"):
            raise NotArmed(f"the arm has no torque to hold with ({self.mode}: {self.reason})")
        self._commanded_s = self._clock()
        if self.mode == "following":
            self._enter("holding", "told to hold")

    def stop(self) -> None:
        """As `Robot.stop`."""
        self._home_because = None
        if self.mode in _ENERGISED:
            if self.mode != "stopped":  # each new goal at the present pose would let the arm sink by another sag
                self._freeze()
            self._enter("stopped", "emergency stop")
        elif self.has_torque:
            self._before_lost = "stopped"  # what it comes back to

    def go_home(self, why: str) -> None:
        """Begin the way home, at the end of which the arm is released; nothing to do without torque. An arm whose pose
        is not known stays where it is, stuck.

        Raises:
            NotArmed: it may not move.
        """
        if not self.has_torque or self.mode == "returning":
            return
        if not self.may_arm:
            raise NotArmed("the arm does not go home: start with --arm")
        self._home_because = why
        if self.mode == "lost":
            return
        if self._arm.calibration_fault:
            self._stuck(self._arm.calibration_fault)
        else:
            self._begin_way_home(why)

    def step(self) -> None:
        """Look at the arm once and act on it. Raises nothing."""
        now = self._clock()
        try:
            self._on_reading(self._look(now), now)
        except Exception as error:  # whatever it is, the arm must go on being watched
            if not isinstance(error, RobotError):
                log.error("a look at the arm failed by a programming error", exc_info=True)
            self._on_missed(error, now)

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
        if gone_s >= self._settings.lost_after_s and (self.mode != "lost" or news):
            if self.mode != "lost":
                self._before_lost = self.mode
            left = "; the torque is LEFT ON where servos have power" if self.has_torque else ""
            self._enter("lost", f"no look at the arm for {gone_s:.1f} s ({error}){left}", logging.ERROR)
        self.state = replace(self.state, missed_reads=self._missed)

    def _on_reading(self, reading: Reading, now: float) -> None:
        self._missed, self._last_read_s = 0, now
        self._health = self._monitor.update(
            reading.temperature_c, reading.load_pct, reading.voltage_v, reading.error_bits, now
        )
        if self._health.level in ("hold", "home"):
            self._calm_s = now + self._settings.calm_s
        self._keep(reading)
        if self.mode == "lost":
            self._recover(reading, now)
        if self.mode in _ENERGISED and not reading.torque.all():
            self._on_limp(reading)
        elif self.mode in ("holding", "following"):
            self._watchdog(now)
        if self.mode == "returning":
            self._carry_home(reading, now)
        self._keep(reading)

    def _recover(self, reading: Reading, now: float) -> None:
        """The bus answers again."""
        self._commanded_s = now
        self._goal = reading.q_rad
        if not reading.torque.any():
            self._enter("released", "the bus answers again; no servo has torque", logging.WARNING)
        elif self._home_because is not None:
            self._begin_way_home(self._home_because)
        elif self._before_lost in ("holding", "following"):
            self._freeze()
            self._enter("holding", "the bus answers again", logging.WARNING)
        else:
            self._enter("stopped", "the bus answers again and servos have torque", logging.WARNING)

    def _on_limp(self, reading: Reading) -> None:
        limp = [name for name, on in zip(self._names, reading.torque, strict=True) if not on]
        if self.mode == "stuck" or self.reason.startswith(_LIMP):
            return
        if len(limp) == len(self._names):
            self._enter("released", "all servos lost their torque (power?)", logging.ERROR)
            return
        self._freeze()
        self._enter("stopped", f"{_LIMP} {', '.join(limp)}; the others hold. Arm or disarm", logging.ERROR)

    def _watchdog(self, now: float) -> None:
        quiet_s = now - self._commanded_s
        if self._health.level == "home":
            self._begin_way_home(self._health.reason)
        elif quiet_s >= self._settings.home_after_s:
            self._begin_way_home(f"nothing was commanded for {quiet_s:.1f} s")
        elif self._health.level == "hold":
            if not self.reason.startswith(_PROTECTED):
                self._freeze()
                self._enter("holding", f"{_PROTECTED}{self._health.reason}", logging.WARNING)
        elif self.mode == "following" and quiet_s * 1000 >= self._settings.max_stale_ms:
            self._enter("holding", f"no command for {quiet_s * 1000:.0f} ms")

    def _begin_way_home(self, why: str) -> None:
        home, release = np.array([joint.home_rad for joint in self._joints]), self._settings.release_pose_rad
        waypoints = [home] if release is None else [home, np.array(release)]
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
            speed = np.abs(reading.qd_rad_s[:-1]).max()
            if off_ticks.max() <= self._settings.arrival_ticks and speed <= self._settings.arrival_speed_rad_s:
                self._arm.torque_off()
                self._home_because = None
                self._enter("released", f"home ({self.reason})")
            elif overdue:
                self._freeze()
                worst = int(off_ticks.argmax())
                self._stuck(f"{self._names[worst]} is {off_ticks[worst]:.0f} ticks away from it")
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

    def _let_go_again(self, why: RobotError) -> None:
        try:
            self._arm.torque_off()
        except BusError as error:
            self._enter("stopped", f"arming failed ({why}), and so did letting go ({error})", logging.ERROR)

    def _freeze(self) -> None:
        """Goal = where the arm is now."""
        if not self.may_arm or self._arm.calibration_fault:  # with the wrong numbers a goal is another pose
            return
        try:
            self._send(self.state.q_rad, self._clock())
        except BusError as error:
            log.error("the goal could not be set to the present pose: %s", error)

    def _send(self, goal: np.ndarray, now: float) -> None:
        self._goal = self._arm.write_goal(goal)
        self._sent_s = now
        self.state = replace(self.state, goal_rad=self._goal)

    def _enter(self, mode: Mode, reason: str, level: int = logging.INFO) -> None:
        log.log(level, "arm %s: %s", mode, reason)
        self.mode, self.reason = mode, reason
        if self.state is not None:
            self.state = replace(self.state, mode=mode, reason=reason, armed=self.has_torque)

    def _keep(self, reading: Reading) -> None:
        energised = self.has_torque
        self.state = RobotState(
            stamp_s=reading.stamp_s,
            q_rad=reading.q_rad,
            qd_rad_s=reading.qd_rad_s,
            load_pct=reading.load_pct,
            temperature_c=reading.temperature_c,
            voltage_v=reading.voltage_v,
            error_bits=reading.error_bits,
            goal_rad=self._goal if energised else reading.q_rad,
            mode=self.mode,
            reason=self.reason,
            armed=energised,
            warnings=self._health.warnings,
        )

    def _make_limiter(self) -> CommandLimiter:
        """Within the limits of robot.yaml and the calibrated range."""
        lower, upper = self._arm.range_rad()
        lower = np.maximum(lower, [joint.lower_rad for joint in self._joints])
        upper = np.minimum(upper, [joint.upper_rad for joint in self._joints])
        return CommandLimiter(self._settings, lower, upper, self._lowest_m)

    def _tell_out_of_range(self) -> None:
        outside = (self._goal < self._limiter.lower) | (self._goal > self._limiter.upper)
        for name, angle in zip(np.array(self._names)[outside], self._goal[outside], strict=True):
            log.warning("%s is at %.2f rad, outside of its limits; the first command brings it back in", name, angle)
