"""The closed jaw holds what it holds, and the check can fail."""

from __future__ import annotations

import pytest

from so101.config import load_config
from so101.errors import SimulationError
from so101.tasks.grasp_check import check_grasp


def test_vial_is_held_and_lifted():
    summary = check_grasp(load_config(overrides=["task.name=vial_to_rack"])).summary
    assert summary["hold_s"] == 5.0
    assert summary["lift_m"] > 0.02
    assert 0 < summary["creep_m"] < 0.001


def test_a_vial_that_creeps_is_told():
    overrides = ["task.name=vial_to_rack", "task.grasp_check.max_creep_m=0.0001", "task.grasp_check.hold_s=1"]
    with pytest.raises(
        SimulationError, match=r"The vial crept 0\.\d\d mm in the closed jaw within 1.0 s; allowed are 0.10 mm"
    ):
        check_grasp(load_config(overrides=overrides))


def test_a_slippery_vial_is_never_lifted():
    overrides = ["task.name=vial_to_rack", "scene.props.vial.contact.friction=[0.01, 0.0, 0.0]"]
    overrides += ["robot.jaw_contact.friction=[0.01, 0.0, 0.0]", "task.grasp_check.max_tries=2"]
    with pytest.raises(SimulationError, match="did not carry the vial to its place in 2 takes"):
        check_grasp(load_config(overrides=overrides))
