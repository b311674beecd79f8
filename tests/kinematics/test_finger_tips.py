"""How low the hand is, against the twin's own geoms."""

import itertools

import mujoco
import numpy as np
import pytest

from so101.config import load_config
from so101.errors import ConfigError
from so101.kinematics import ArmKinematics
from so101.kinematics.finger_tips import FingerTips
from so101.sim.bake import baked_model

CONFIG = load_config()
BOXES = ["fixed_finger_tip", "moving_jaw_tip"]
JOINTS = CONFIG.robot.joints


@pytest.mark.parametrize("seed", range(10))
def test_the_lowest_corner_is_that_of_the_collision_boxes(seed):
    share = np.random.default_rng(seed).uniform(size=6)
    q = np.array([j.lower_rad + s * (j.upper_rad - j.lower_rad) for j, s in zip(JOINTS, share, strict=True)])
    model = baked_model(CONFIG, looks=False, props=False)
    data = mujoco.MjData(model)
    data.qpos[:6] = q
    mujoco.mj_kinematics(model, data)
    heights = [ArmKinematics(CONFIG).fk(q)[2, 3]]
    for geom in (model.geom(name).id for name in BOXES):
        for corner in itertools.product((-1, 1), repeat=3):
            offset = data.geom_xmat[geom].reshape(3, 3) @ (model.geom_size[geom] * corner)
            heights.append(data.geom_xpos[geom, 2] + offset[2])
    assert FingerTips(CONFIG, BOXES).lowest_m(q) == pytest.approx(min(heights), abs=1e-12)


def test_the_jaw_counts():
    tips = FingerTips(CONFIG, BOXES)
    q = np.array([0, 0.3, 0.8, 0.4, 0, 0.0])
    opened = q + [0, 0, 0, 0, 0, 1.5]
    assert tips.lowest_m(q) != tips.lowest_m(opened)


def test_an_unknown_box_is_told():
    with pytest.raises(ConfigError, match=r"no jaw box is called \['tip'\]; jaw_boxes has fixed_finger_tip"):
        FingerTips(CONFIG, ["tip"])
