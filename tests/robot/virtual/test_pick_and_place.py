"""The whole way: a demonstration's commands through the real driver, the port, the servos and the twin. The driver's
clock and physics are moved by hand, so that the machine's pace does not matter."""

from __future__ import annotations

import numpy as np
import pytest

from so101.geometry import pose_to_pos_quat
from so101.kinematics.finger_tips import FingerTips
from so101.robot import make_arm
from so101.robot.driver import ArmDriver
from so101.robot.virtual import VirtualBus
from so101.robot.virtual.pseudo_real import NOMINAL, draw_rig
from so101.robot.virtual.twin_plant import TwinPlant


class Tabletop:
    """A driver on a virtual arm, and time."""

    def __init__(self, config, bus: VirtualBus, calibration) -> None:
        self.now, self.bus = 0.0, bus
        lowest_m = FingerTips(config, config.robot.safety.floor_boxes).lowest_m
        arm = make_arm(config, bus.port, calibration)
        self.driver = ArmDriver(config, arm, may_arm=True, lowest_m=lowest_m, clock=lambda: self.now, threaded=False)

    def pass_time(self, seconds: float, looks: int) -> None:
        for _ in range(looks):
            self.bus.advance(seconds / looks)
            self.now += seconds / looks
            self.driver.step()


@pytest.mark.parametrize("rig_seed", [None, 0])
def test_a_demonstration_replayed_on_the_virtual_arm_puts_the_vial_into_the_rack(
    vial_config, vial_seeds, tmp_path, rig_seed
):
    seed = vial_seeds[0]
    start = {name: pose_to_pos_quat(poses[0]) for name, poses in seed.objects.items()}
    patient = vial_config.robot.bus.model_copy(update={"reply_timeout_ms": 1000.0})
    config = vial_config.model_copy(update={"robot": vial_config.robot.model_copy(update={"bus": patient})})
    plant = TwinPlant(config, NOMINAL if rig_seed is None else draw_rig(config, rig_seed))
    plant.reset(start, q=seed.q[0])
    with VirtualBus(config, plant=plant, pacing=False, real_time=False) as bus:
        bus.calibration.write(tmp_path / "arm.json")
        table = Tabletop(config, bus, tmp_path / "arm.json")
        driver = table.driver
        driver.connect()
        driver.arm()
        for q_target in seed.q_target:
            driver.command(q_target)
            table.pass_time(1 / seed.fps, 2)
        table.pass_time(0.4, 24)
        assert driver.read().mode == "following"
        assert plant.verdict().strict, plant.verdict()
        driver.disarm(wait=False)
        for _ in range(600):
            table.pass_time(1 / 60, 1)
            if driver.read().mode != "returning":
                break
        home = np.array([joint.home_rad for joint in config.robot.joints])
        assert driver.read().mode == "released" and np.abs(plant.truth().q - home).max() < 0.16
        assert not bus.state().torque_on.any()
        driver.close()
