"""The compiled models: options, servos, boxes and contacts are what the files say; touch is felt with both jaws."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.errors import SimulationError
from so101.families import find_task, load_families, make_env
from so101.families.scene import EXTENT_M, TOUCH, compiled, hand_bodies, slot_names
from tests.families.worlds import copied_configs, edit

FAMILIES = ("so101_tower", "so101_tabletop", "so101_reach")
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")


def model_of(name):
    return compiled(load_families()[name])


@pytest.mark.parametrize("name", FAMILIES)
def test_options_are_set_on_the_compiled_model(name):
    """MuJoCo takes options from the parent of a scene alone; without these two a grasp creeps."""
    model = model_of(name)
    assert model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert model.opt.impratio == {"so101_tabletop": 30.0}.get(name, 10.0)
    assert model.opt.timestep == 0.002
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    assert model.opt.solver == mujoco.mjtSolver.mjSOL_NEWTON
    assert model.opt.gravity.tolist() == [0.0, 0.0, -9.81]
    assert model.stat.extent == EXTENT_M


@pytest.mark.parametrize("name", FAMILIES)
def test_the_arm_is_the_same_six_joints_first(name):
    model = model_of(name)
    for number, joint in enumerate(JOINTS):
        assert model.joint(joint).qposadr[0] == model.joint(joint).dofadr[0] == number
        assert model.actuator(joint).trnid[0] == model.joint(joint).id
    lower = [-1.91986, -1.74533, -1.69, -1.65806, -2.74385, -0.17453]
    upper = [1.91986, 1.74533, 1.69, 1.65806, 2.84121, 1.74533]
    np.testing.assert_allclose(model.actuator_ctrlrange.T, [lower, upper])


@pytest.mark.parametrize("name", ["so101_tower", "so101_tabletop"])
def test_stiff_servos_as_declared(name):
    model = model_of(name)
    np.testing.assert_allclose(model.actuator_gainprm[:, 0], 998.22)
    np.testing.assert_allclose(model.actuator_biasprm[:, :3], [[0.0, -998.22, -2.731]] * 6)
    np.testing.assert_allclose(model.actuator_forcerange, [[-3.35, 3.35]] * 6)
    np.testing.assert_allclose(model.dof_damping[:6].ravel(), 0.60)
    np.testing.assert_allclose(model.dof_frictionloss[:6], 0.052)
    np.testing.assert_allclose(model.dof_armature[:6], 0.028)
    assert (model.actuator_delay == 0.0).all()


def test_reach_has_the_servos_of_the_robot_file():
    model, robot = model_of("so101_reach"), load_families()["so101_reach"].config.robot
    np.testing.assert_allclose(model.actuator_gainprm[:, 0], [joint.stiffness_nm_per_rad for joint in robot.joints])
    np.testing.assert_allclose(model.actuator_delay, [joint.delay_s for joint in robot.joints])
    reach = model.actuator_history[:, 0] * model.opt.timestep
    assert (reach >= model.actuator_delay).all(), "the history must reach back as far as the longest delay"


@pytest.mark.parametrize("name", FAMILIES)
def test_jaws_are_boxes_and_their_hulls_are_gone(name):
    """Hulls fill the cavity between the jaws."""
    family = load_families()[name]
    model, boxes = model_of(name), {box.name: box for box in family.config.robot.jaw_boxes}
    jaws = {model.body(body).id for body in hand_bodies(family)}
    collide = [number for number in range(model.ngeom) if model.geom_contype[number] or model.geom_conaffinity[number]]
    on_jaws = {model.geom(number).name for number in collide if model.geom_bodyid[number] in jaws}
    assert on_jaws == set(boxes) | {box.name for box in family.declaration.arm.boxes}
    contact = family.declaration.arm.jaw_contact
    for box in boxes.values():
        geom = model.geom(box.name)
        assert geom.type == mujoco.mjtGeom.mjGEOM_BOX
        np.testing.assert_allclose(geom.pos, box.center_m)
        np.testing.assert_allclose(geom.size, box.half_size_m)
        np.testing.assert_allclose(geom.solref, contact.solref)
        np.testing.assert_allclose(geom.solimp, contact.solimp)
        assert geom.condim[0] == contact.condim


def test_sizes_of_the_tower():
    model = model_of("so101_tower")
    assert (model.nq, model.nv, model.nu) == (20, 18, 6)
    assert model.site("grasp_center").bodyid[0] == model.body("gripper").id
    np.testing.assert_allclose(model.site("grasp_center").pos, [0.0221, 0.0012, -0.0681])
    np.testing.assert_allclose(model.body("base").pos, [0, 0, 0.005])
    assert model.body("brick").mass[0] == pytest.approx(0.010)
    assert model.body("bowl").mass[0] == pytest.approx(0.088)
    assert [model.joint(slot).qposadr[0] for slot in ("bowl", "brick")] == [6, 13]


def test_the_desk_decides_the_friction_of_what_lies_on_it():
    """MuJoCo takes the larger friction of two unless one has priority: the desk's 0.5 must beat the brick's 1.5."""
    env = make_env("so101_tower_lift_brick", threads=1)
    env.reset(seed=0)
    for _ in range(20):
        env.step(env.hold_action(env.qpos[:, :6]))
    model, data = env.mj_model, env.data(0)
    assert model.geom("desk/mat").priority[0] > model.geom("brick/brick").priority[0]
    mat, brick = model.geom("desk/mat").id, model.geom("brick/brick").id
    between = [contact for contact in data.contact if set(contact.geom) == {mat, brick}]
    assert between, "the brick lies on the desk"
    assert all(contact.friction[0] == 0.5 for contact in between)
    assert model.geom_pos[mat][2] + model.body("desk").pos[2] + model.geom_size[mat][2] == pytest.approx(0.002)


def test_touch_is_felt_with_both_jaws():
    """A brick between closed jaws touches both; one beside the hand, or held by nothing, none."""
    env = make_env("so101_tower_lift_brick", 3, threads=1)
    env.reset(seed=0)
    q = np.array([0.0, -0.6, 0.6, 0.9, 0.0, 0.55])
    names = [TOUCH.format(slot="brick", body=body) for body in hand_bodies(env.family)]
    model = env.mj_model
    assert [model.sensor(name).type[0] for name in names] == [mujoco.mjtSensor.mjSENS_CONTACT] * 2
    columns = [model.sensor(name).adr[0] for name in names]
    probe = mujoco.MjData(model)
    probe.qpos[:6] = q
    mujoco.mj_kinematics(model, probe)
    hand = model.body("gripper").id
    center, turn = probe.site("grasp_center").xpos.copy(), probe.xquat[hand].copy()
    for lane, offset in enumerate([(0.0, 0.0, 0.0), (0.0, -0.15, 0.0), (0.0, 0.25, 0.0)]):
        qpos = env.qpos[lane].copy()
        qpos[:6] = q
        qpos[6:13] = [0.3, 0.25, 0.002, 1, 0, 0, 0]
        qpos[13:] = [*(center + offset), *turn]
        env.set_state(lane, qpos)
    close = q.copy()
    close[5] = env.lower[5]
    for _ in range(6):
        *_, info = env.step(env.ctrl_to_action(np.tile(close, (3, 1))))
    assert info["grasped"].tolist() == [True, False, False]
    felt = [(env.data(lane).sensordata[columns] > 0).tolist() for lane in range(3)]
    assert felt == [[True, True], [False, False], [False, False]]


@pytest.mark.parametrize("name", ["so101_tower", "so101_tabletop", "so101_reach"])
def test_a_model_with_looks_moves_alike(name):
    """Pictures are taken of the states that physics made, so joints and masses must be the same."""
    family = load_families()[name]
    bare, looks = compiled(family), compiled(family, looks=True)
    assert (looks.nq, looks.nv, looks.nu, looks.nbody) == (bare.nq, bare.nv, bare.nu, bare.nbody)
    np.testing.assert_array_equal(looks.body_mass, bare.body_mass)
    np.testing.assert_allclose(looks.body_inertia, bare.body_inertia)
    assert looks.ngeom > bare.ngeom
    assert {looks.camera(number).name for number in range(looks.ncam)} >= set(family.declaration.cameras)


def test_models_are_shared_until_the_scene_changes(tmp_path):
    configs = copied_configs(tmp_path)
    stock = find_task("so101_tower_lift_brick")
    same = find_task("so101_tower_lift_brick", configs)
    assert compiled(stock.family) is compiled(same.family)
    edit(configs, "so101_tower", lambda data: data["slots"]["brick"].update(mass_kg=0.02))
    heavier = compiled(find_task("so101_tower_lift_brick", configs).family)
    assert heavier.body("brick").mass[0] == pytest.approx(0.02)
    assert compiled(stock.family).body("brick").mass[0] == pytest.approx(0.010)


def _misspelt_site(data):
    data["arm"]["gripper_site"] = "grasp_centre"


def _misspelt_body(data):
    data["arm"]["sites"]["grasp_center"]["body"] = "griper"


def _misspelt_box(data):
    data["arm"]["boxes"][0]["body"] = "hand"


def _misspelt_joint(data):
    data["arm"]["joint_limits_rad"] = {"elbow": [-1.0, 1.0]}


def _misspelt_goal_site(data):
    data["tasks"]["reach_clear"]["goal"]["at_region"]["site"] = "gripper_frame"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_misspelt_site, ("so101_tower", "arm.gripper_site", "'grasp_centre'", "grasp_center")),
        (_misspelt_body, ("so101_tower", "arm.sites.grasp_center.body", "'griper'", "did you mean 'gripper'")),
        (_misspelt_box, ("so101_tower", "arm.boxes.camera_arm.body", "'hand'", "gripper")),
        (_misspelt_joint, ("so101_tower", "arm.joint_limits_rad", "'elbow'", "elbow_flex")),
        (_misspelt_goal_site, ("so101_tower", "at_region.site", "'gripper_frame'", "gripperframe")),
    ],
)
def test_parts_that_the_model_lacks_are_named(tmp_path, change, words):
    configs = copied_configs(tmp_path)
    edit(configs, "so101_tower", change)
    with pytest.raises(SimulationError) as caught:
        make_env("so101_tower_reach_clear", configs=configs)
    for word in words:
        assert word in str(caught.value)


def test_slots_in_the_order_of_the_observation():
    families = load_families()
    assert slot_names(families["so101_tower"]) == ("bowl", "brick")
    assert slot_names(families["so101_tabletop"]) == ("brick", "cube_a", "cube_b")
    assert slot_names(families["so101_reach"]) == ()
    assert set(slot_names(families["so101_vial"])) == {"vial", "rack"}
