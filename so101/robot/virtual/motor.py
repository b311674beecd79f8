"""What the firmware of a servo does between its registers and the shaft: the ramp to the goal, torque, protections.

Ticks are those of the encoder, continuous over turns; registers speak of them less the homing offset, within a turn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from so101.config.virtual import VirtualServoConfig
from so101.robot.virtual.memory import Memory
from so101.robot.virtual.registers import (
    SET_MIDDLE,
    TICKS,
    TICKS_PER_ACCELERATION_UNIT,
    TICKS_PER_SPEED_UNIT,
    ErrorBit,
)

_AMPERE_PER_UNIT = 0.0065
_PROTECTION_UNIT_S = 0.01
_MIDDLE = 2048


class Drive(NamedTuple):
    """What the motor asks of the shaft: `target` ticks, with at most `strength` of the stall torque (0: limp), and
    `stiffness` times the identified one."""

    target: float
    strength: float
    stiffness: float


class Motor:
    """One motor. `command` gives what it does for the next `dt`, `feel` tells it what came of it.

    Attributes:
        ticks, speed: of the shaft, ticks and ticks/s.
        load: share of the stall torque, -1 to 1.
        temperature_c, voltage_v: what it measures.
        heating_c_per_s: extra heat, for faults.
    """

    def __init__(self, memory: Memory, settings: VirtualServoConfig, ticks: float) -> None:
        self._memory, self._settings = memory, settings
        self.ticks, self.speed, self.load = ticks, 0.0, 0.0
        self.temperature_c, self.voltage_v = settings.ambient_c, settings.supply_v
        self.heating_c_per_s = 0.0
        self._errors = 0
        self._over_torque_s = self._over_current_s = 0.0
        self._overload_side = 0.0
        self._ramp = self._goal = ticks
        self._ramp_speed = 0.0

    @property
    def errors(self) -> int:
        """Error bits now."""
        volt = round(self.voltage_v * 10)
        outside = not self._memory["min_voltage"] <= volt <= self._memory["max_voltage"]
        return self._errors | (ErrorBit.VOLTAGE if outside else 0)

    @property
    def current_a(self) -> float:
        return abs(self.load) * self._settings.stall_current_a

    def restart(self) -> None:
        """Power came: limp, the goal is where it stands, nothing remembered but the heat."""
        self._errors = 0
        self._over_torque_s = self._over_current_s = 0.0
        self._memory["goal_position"] = self._reported(self.ticks)
        self._rest()

    def written(self, registers: dict[str, int]) -> None:
        """The host wrote these."""
        if "torque_enable" in registers:
            self._errors &= ErrorBit.OVERHEAT  # asking for torque again is how the other faults are acknowledged
            self._over_torque_s = self._over_current_s = 0.0
            if registers["torque_enable"] == SET_MIDDLE:
                self._set_middle()
            if self._errors & ErrorBit.OVERHEAT:
                self._memory["torque_enable"] = 0
            self._rest()
            self._aim()
        if "goal_position" in registers:
            self._aim()
            if (self._goal - self.ticks) * self._overload_side < 0:  # away from what it pushed against
                self._errors &= ~ErrorBit.OVERLOAD
                self._over_torque_s = 0.0

    def command(self, dt: float) -> Drive:
        """Go on along the ramp for `dt` s."""
        memory = self._memory
        if not memory["torque_enable"]:
            self._rest()
            return Drive(self.ticks, 0.0, 1.0)
        if memory["operating_mode"] == 0:
            self._go_on(dt)
        strength = memory["torque_limit"] / 1000
        if self._errors & ErrorBit.OVERLOAD:
            strength = min(strength, memory["protective_torque"] / 100)
        return Drive(self._ramp, strength, memory["p_coefficient"] / self._settings.identified_p_coefficient)

    def feel(self, ticks: float, speed: float, load: float, dt: float) -> None:
        """The shaft is at `ticks` now. Heat, overload and overcurrent follow."""
        self.ticks, self.speed, self.load = ticks, speed, load
        settings = self._settings
        warmer = settings.ambient_c + settings.heating_c * load**2 - self.temperature_c
        self.temperature_c += dt * (warmer / settings.heating_s + self.heating_c_per_s)
        memory = self._memory
        if self.temperature_c > memory["max_temperature"]:
            self._fail(ErrorBit.OVERHEAT)
        elif self.temperature_c < memory["max_temperature"] - settings.cooled_c:
            self._errors &= ~ErrorBit.OVERHEAT
        over_torque = abs(load) * 100 > memory["overload_torque"]
        self._over_torque_s = self._over_torque_s + dt if over_torque else 0.0
        if self._over_torque_s > memory["protection_time"] * _PROTECTION_UNIT_S:
            self.overload()
        over_current = self.current_a > memory["protection_current"] * _AMPERE_PER_UNIT
        self._over_current_s = self._over_current_s + dt if over_current else 0.0
        if self._over_current_s > memory["over_current_time"] * _PROTECTION_UNIT_S:
            self._fail(ErrorBit.CURRENT)

    def overload(self) -> None:
        """Overload protection sets in: protective torque only, until asked for torque again or sent the other way."""
        if self._memory["unloading_condition"] & ErrorBit.OVERLOAD and not self._errors & ErrorBit.OVERLOAD:
            self._errors |= ErrorBit.OVERLOAD
            self._overload_side = math.copysign(1.0, self._goal - self.ticks)

    def report(self) -> None:
        """Bring the feedback registers up to date."""
        memory = self._memory
        memory["present_position"] = self._reported(self.ticks)
        memory["present_speed"] = round(self.speed)
        memory["present_load"] = round(self.load * 1000)
        memory["present_voltage"] = min(255, max(0, round(self.voltage_v * 10)))
        memory["present_temperature"] = min(255, max(0, round(self.temperature_c)))
        memory["present_current"] = round(math.copysign(self.current_a, self.load) / _AMPERE_PER_UNIT)
        memory["moving"] = int(abs(self.speed) > max(1, memory["moving_threshold"]) * TICKS_PER_SPEED_UNIT)
        memory["status"] = self.errors

    def _fail(self, bit: int) -> None:
        self._errors |= bit
        if self._memory["unloading_condition"] & bit:
            self._memory["torque_enable"] = 0

    def _rest(self) -> None:
        self._ramp, self._ramp_speed = self.ticks, 0.0

    def _aim(self) -> None:
        """Where the goal register is on the encoder, within the limits: never across the ends of the turn."""
        memory = self._memory
        goal = memory["goal_position"]
        if memory["max_position"]:
            goal = min(max(goal, memory["min_position"]), memory["max_position"])
        self._goal = self._ramp + goal - (self._ramp - memory["homing_offset"]) % TICKS

    def _go_on(self, dt: float) -> None:
        memory, way = self._memory, self._goal - self._ramp
        highest = memory["max_speed"] * TICKS_PER_SPEED_UNIT
        wanted = abs(memory["goal_speed"])
        top = min(wanted, highest) if wanted else highest
        acceleration = memory["acceleration"]
        if not 0 < acceleration < self._settings.identified_acceleration:
            self._ramp += math.copysign(min(abs(way), top * dt), way)
            self._ramp_speed = 0.0
            return
        change = acceleration * TICKS_PER_ACCELERATION_UNIT * dt
        top = min(top, math.sqrt(2 * (change / dt) * abs(way)))  # it can still stop
        top = math.copysign(top, way)
        self._ramp_speed += min(max(top - self._ramp_speed, -change), change)
        move = self._ramp_speed * dt
        if abs(way) <= abs(move) or abs(way) < 1e-3:
            self._ramp, self._ramp_speed = self._goal, 0.0
        else:
            self._ramp += move

    def _reported(self, ticks: float) -> int:
        return (round(ticks) - self._memory["homing_offset"]) % TICKS

    def _set_middle(self) -> None:
        """The present position becomes the middle of the turn."""
        offset = (round(self.ticks) - _MIDDLE) % TICKS
        if offset > TICKS // 2 - 1:
            offset -= TICKS
        self._memory.save("homing_offset", max(offset, 1 - TICKS // 2))
        self._memory["torque_enable"] = 0
        self._memory["goal_position"] = self._reported(self.ticks)
