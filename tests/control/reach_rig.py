"""A simulated bare arm on a servo bus and its driver, on a clock that moves when somebody sleeps."""

from __future__ import annotations

import numpy as np

from so101.config import Config
from so101.control.reach import Reacher
from so101.control.reach_model import ReachModel
from so101.control.reach_scripted import ScriptedReach
from so101.evaluation.reach_transfer import bare_arm
from so101.families.declaration import find_task
from so101.robot import ArmDriver, FeetechArm
from so101.robot.tick_map import TickMap
from so101.robot.virtual import VirtualBus, packets
from so101.robot.virtual.twin_plant import TwinPlant

LOOK_S = 0.01


class ReachRig:
    """Use it in a `with`. It is a `so101.control.pacing.Clock`.

    Attributes:
        written: instructions that wrote anything, as the servos heard them.
    """

    def __init__(self, config: Config, folder, *, may_arm: bool = True) -> None:
        self.task = find_task(config.deploy.reach.task)
        self.config = bare_arm(config, self.task)
        self.model = ReachModel(self.task)
        self.bus = VirtualBus(self.config, plant=TwinPlant(self.config), pacing=False, real_time=False)
        self.bus.calibration.write(folder / "arm.json")
        self.arm = FeetechArm(self.config.robot, self.bus.port, folder / "arm.json")
        self.driver = ArmDriver(self.config, self.arm, may_arm=may_arm, clock=self.now, threaded=False)
        self.driver.watch(lambda state: self._pass(LOOK_S))  # whoever looks waits
        self._now_s, self.written = 100.0, []
        hear = self.bus._arm.hear

        def heard(packet, baud):
            if packet.instruction in (packets.WRITE, packets.SYNC_WRITE, packets.REG_WRITE):
                self.written.append(packet)
            return hear(packet, baud)

        self.bus._arm.hear = heard

    def __enter__(self) -> ReachRig:
        self.bus.start()
        self.driver.connect()
        return self

    def __exit__(self, *exception: object) -> None:
        self.arm.close()
        self.bus.close()

    def reacher(self, policy=None, **changes) -> Reacher:
        settings = self.config.deploy.reach.model_copy(update=changes)
        units = self.driver.calibration.units(self.config.robot)
        tick_map = TickMap(self.config.robot, units, settings.tick_map)
        return Reacher(self.model, tick_map, policy or ScriptedReach(self.model), settings)

    def now(self) -> float:
        return self._now_s

    def sleep_until(self, time_s: float) -> None:
        while self._now_s < time_s - 1e-9:
            self.driver.step()

    def true_point(self) -> np.ndarray:
        return self.model.point(self.bus.plant.truth().q)

    def _pass(self, seconds: float) -> None:
        if self.arm.bus.is_open:
            self.arm.bus.read(1, "torque_enable")  # answered after all goals that were sent before
        self.bus.advance(seconds)
        self._now_s += seconds
