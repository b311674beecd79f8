"""The baked model is what robot.yaml and scene.yaml say."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.config import load_config
from so101.errors import SimulationError
from so101.geometry import pose_from_pos_quat, quat_from_rotation
from so101.sim import bake
from so101.sim.bake import ARM_BITS, EE_SITE, PROP_BITS, baked_model


@pytest.fixture(scope="module")
def model(vial_config):
    return baked_model(vial_config)


def geoms_of(model: mujoco.MjModel, body: str) -> list[int]:
    return np.flatnonzero(model.geom_bodyid == model.body(body).id).tolist()


def test_joints_and_servos_are_those_of_the_configuration(model, vial_config):
    for i, joint in enumerate(vial_config.robot.joints):
        row, actuator = model.joint(joint.name), model.actuator(joint.name)
        assert row.qposadr[0] == actuator.id == i
        np.testing.assert_allclose(row.range, [joint.lower_rad, joint.upper_rad], atol=1e-9)
        assert row.armature[0] == joint.armature_kg_m2
        assert row.damping[0] == joint.damping_nm_s_per_rad
        assert row.frictionloss[0] == joint.friction_nm
        assert actuator.gainprm[0] == -actuator.biasprm[1] == joint.stiffness_nm_per_rad
        assert -actuator.biasprm[2] == joint.velocity_gain_nm_s_per_rad
        np.testing.assert_allclose(actuator.forcerange, [-joint.force_limit_nm, joint.force_limit_nm])
        np.testing.assert_allclose(actuator.ctrlrange, [joint.lower_rad, joint.upper_rad])


def test_options_are_those_of_the_configuration(model, vial_config):
    physics = vial_config.scene.physics
    assert model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert model.opt.impratio == physics.impratio
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    assert model.opt.timestep * physics.substeps * physics.control_hz == pytest.approx(1.0)
    np.testing.assert_array_equal(model.opt.gravity, physics.gravity_m_s2)


def test_an_override_reaches_the_model():
    overrides = ["scene.physics.cone=pyramidal", "scene.physics.impratio=1", "robot.joints.2.force_limit_nm=1.5"]
    model = baked_model(load_config(overrides=overrides))
    assert model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    assert model.opt.impratio == 1.0
    assert model.actuator("elbow_flex").forcerange[1] == 1.5


@pytest.mark.parametrize("task", ["vial_to_rack", "cube_in_box"])
def test_objects_weigh_what_they_should(task):
    config = load_config(overrides=[f"task.name={task}"])
    model = baked_model(config)
    for name, placement in config.task.active.objects.items():
        assert model.body(name).mass[0] == pytest.approx(config.scene.props[placement.prop].mass_kg, rel=1e-9)


def test_the_arm_weighs_as_the_stock_arm(model):
    stock = mujoco.MjModel.from_xml_path(str(bake.robot_mjcf_path()))
    for body in ("base", "shoulder", "upper_arm", "lower_arm", "wrist", "gripper", "moving_jaw_so101_v1"):
        assert model.body(body).mass[0] == pytest.approx(stock.body(body).mass[0])


def test_objects_stand_where_the_task_says_seen_from_the_base(model, vial_config):
    offset = np.array(vial_config.robot.base_position_m)
    for name, placement in vial_config.task.active.objects.items():
        np.testing.assert_allclose(model.body(name).pos, placement.position_m - offset, atol=1e-12)


def test_jaws_collide_as_boxes_and_never_as_hulls(model, vial_config):
    robot = vial_config.robot
    for body in robot.hull_free_bodies:
        colliding = [g for g in geoms_of(model, body) if model.geom_contype[g] or model.geom_conaffinity[g]]
        names = {box.name for box in robot.jaw_boxes if box.body == body}
        assert {model.geom(g).name for g in colliding} == names
        assert {int(model.geom_type[g]) for g in colliding} == {int(mujoco.mjtGeom.mjGEOM_BOX)}
    for body in robot.contact_free_bodies:
        assert not any(model.geom_contype[g] or model.geom_conaffinity[g] for g in geoms_of(model, body))


def test_the_arm_never_meets_itself_and_meets_every_object(model):
    assert not ARM_BITS["contype"] & ARM_BITS["conaffinity"]
    assert ARM_BITS["contype"] & PROP_BITS["conaffinity"]
    assert PROP_BITS["contype"] & PROP_BITS["conaffinity"]
    for box in ("fixed_finger_tip", "moving_jaw_tip"):
        assert model.geom(box).contype[0] == ARM_BITS["contype"]
        assert model.geom(box).conaffinity[0] == ARM_BITS["conaffinity"]


@pytest.mark.parametrize("jaw_rad", [0.75, 0.85, 0.95])  # the operator's openings
@pytest.mark.parametrize("along_m", [-0.005, 0.0, 0.005])
def test_the_open_jaw_has_room_for_a_tube(vial_config, jaw_rad, along_m):
    """A 29 mm capsule across the hand at the end effector touches nothing; with hulls it would sit inside one."""
    spec = bake.bake(vial_config, looks=False, props=False)
    tube = spec.body(vial_config.robot.ee_body).add_geom(
        name="tube", type=mujoco.mjtGeom.mjGEOM_CAPSULE, size=[0.0145, 0.04, 0], mass=0.001, group=3,
        contype=PROP_BITS["contype"], conaffinity=PROP_BITS["conaffinity"],
    )  # fmt: skip
    ee = pose_from_pos_quat([*vial_config.robot.ee_position_m, *vial_config.robot.ee_quat_wxyz])
    tube.pos = ee[:3, 3] + along_m * ee[:3, 0] + 0.001 * ee[:3, 2]  # a millimetre towards the moving jaw
    tube.quat = quat_from_rotation(np.column_stack([ee[:3, 2], ee[:3, 0], ee[:3, 1]]))  # its axis along the hand's y
    model = spec.compile()
    tube_id = model.geom("tube").id
    data = mujoco.MjData(model)
    data.qpos[5] = jaw_rad
    mujoco.mj_forward(model, data)
    jaws = [g for body in vial_config.robot.hull_free_bodies for g in geoms_of(model, body) if g != tube_id]
    distances = [
        mujoco.mj_geomDistance(model, data, tube_id, g, 0.1, None) for g in jaws if model.geom_contype[g]
    ]  # fmt: skip
    assert len(distances) == len(vial_config.robot.jaw_boxes)
    assert min(distances) > 0


def test_a_tube_at_the_end_effector_touches_both_jaws_when_they_close(vial_config):
    """The end effector is the pinch point: at the fixed jaw it is one tube radius away, whatever the jaw does."""
    robot = vial_config.robot
    finger = next(box for box in robot.jaw_boxes if box.name == "fixed_finger_tip")
    face = finger.center_m[0] + finger.half_size_m[0]
    assert robot.ee_position_m[0] - face == pytest.approx(0.01445, abs=1e-3)


def test_the_end_effector_frame_is_that_of_the_configuration(model, vial_config):
    site = model.site(EE_SITE)
    assert model.body(site.bodyid[0]).name == vial_config.robot.ee_body
    np.testing.assert_allclose(site.pos, vial_config.robot.ee_position_m)


def test_equal_settings_share_a_model_and_other_settings_do_not(vial_config):
    again = load_config(overrides=["task.name=vial_to_rack", "skillgen.selection.nn_k=1"])
    assert baked_model(vial_config) is baked_model(again)
    assert baked_model(vial_config) is not baked_model(load_config(overrides=["scene.physics.impratio=3"]))


def test_a_missing_robot_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(bake, "ROBOT_PACKAGE", "no_such_package")
    with pytest.raises(SimulationError, match="SO-101 model is missing: run `pip install"):
        bake.robot_mjcf_path()


def test_a_stock_model_without_a_part_is_named():
    with pytest.raises(SimulationError, match="lacks a part that robot.yaml names"):
        bake.bake(load_config(overrides=["robot.ee_body=no_such_body"]), looks=False)
