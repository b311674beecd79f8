"""A virtual arm and its driver on one hand-driven clock: seconds pass only in `run`."""

from __future__ import annotations

import numpy as np

from so101.config import Config
from so101.robot import ArmDriver, FeetechArm
from so101.robot.virtual import VirtualBus

RATE_HZ = 60.0


class Rig:
    """Use it in a `with`."""

    def __init__(self, config: Config, folder, *, may_arm: bool = True, lowest_m=None, bus: VirtualBus | None = None):
        self.now = 100.0
        self.bus = bus or VirtualBus(config, pacing=False, real_time=False, reply_delay_s=0.0)
        self.file = folder / "calibration" / "follower.json"
        self.bus.calibration.write(self.file)
        self.bus.start()
        self.arm = FeetechArm(config.robot, self.bus.port, self.file)
        self.driver = ArmDriver(
            config, self.arm, may_arm=may_arm, lowest_m=lowest_m, clock=lambda: self.now, threaded=False
        )

        self._look, self.driver.step = self.driver.step, self.tick  # also where the driver itself waits

    def __enter__(self) -> Rig:
        self.driver.connect()
        return self

    def __exit__(self, *exception: object) -> None:
        self.arm.close()
        self.bus.close()

    @property
    def state(self):
        return self.driver.read()

    def tick(self) -> None:
        self.now += 1 / RATE_HZ
        self.bus.advance(1 / RATE_HZ)
        self._look()

    def run(self, seconds: float, until: str | None = None) -> list[str]:
        """Let time pass, until the mode is `until` when given; the modes that were passed through."""
        modes = [self.state.mode]
        for _ in range(round(seconds * RATE_HZ)):
            self.tick()
            if self.state.mode != modes[-1]:
                modes.append(self.state.mode)
            if self.state.mode == until:
                break
        return modes

    def follow(self, q: np.ndarray, seconds: float) -> list[str]:
        """Command `q` at every other tick."""
        modes = []
        for _ in range(round(seconds * RATE_HZ / 2)):
            self.driver.command(q)
            modes += self.run(2 / RATE_HZ)
        return [mode for mode, before in zip(modes, [None, *modes], strict=False) if mode != before]
