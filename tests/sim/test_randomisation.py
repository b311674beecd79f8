"""Randomised physics: draws repeat and do not shift one another, a model takes them as if baked with them, optional
bodies stand where they disturb nothing, replays are exact."""

from __future__ import annotations

import json

import mujoco
import numpy as np
import pytest

from so101.config import Config, load_config
from so101.errors import ConfigError, SimulationError
from so101.geometry import invert_pose, make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.pipeline.record import stage_of_setting
from so101.sim.bake import T_world_base, add_prop, bake
from so101.sim.clutter import corners, footprint_radius, start_areas
from so101.sim.mujoco_sim import MujocoSimulator
from so101.sim.randomisation import draw_randomisation, extra_placements
from so101.sim.randomised_model import resized
from so101.tasks.placement import draw_placements, nominal_placements, placed_pose
from so101.trajectory.verification import Verifier

VIAL = ["task.name=vial_to_rack", "scene.randomisation.enabled=true"]
UP = np.array([0.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=VIAL)


@pytest.fixture(scope="module")
def sim(config):
    return MujocoSimulator(config)


@pytest.fixture(scope="module")
def full(config):
    """A draw with the pre-racked vial and all three distractors."""
    return next(
        draw
        for draw in (draw_randomisation(config, np.random.default_rng(seed)) for seed in range(500))
        if draw["physics"]["racked"] and len(draw["physics"]["distractors"]) == 3
    )


def home(config: Config) -> np.ndarray:
    return np.array([joint.home_rad for joint in config.robot.joints])


def commands(config: Config, frames: int) -> np.ndarray:
    """(frames, 6) targets that lower the hand to the mat and sweep it across, through whatever stands there."""
    low = np.array([0.0, 0.30, 0.10, 1.15, 1.57, 0.5])
    t = np.arange(frames)[:, None] / config.scene.physics.control_hz
    return home(config) + np.minimum(2 * t, 1) * (low - home(config)) + np.sin(2 * t) * [0.7, 0, 0, 0, 0, 0.3]


def start(config: Config, draw: dict) -> dict[str, np.ndarray]:
    objects = nominal_placements(config)
    return objects | extra_placements(config, draw, objects)


def run(sim: MujocoSimulator, env: int, draw: dict, frames: int = 40) -> np.ndarray:
    """Physics state after each command, from a reset."""
    sim.reset(env, home(sim.config), start(sim.config, draw), draw)
    states = []
    for target in commands(sim.config, frames):
        sim.step(env, target)
        states.append(sim.get_physics_state(env))
    return np.array(states)


# Drawing


def test_off_draws_nothing_and_takes_nothing_from_the_generator(vial_config):
    rng = np.random.default_rng(5)
    assert draw_randomisation(vial_config, rng) == {}
    assert rng.random() == np.random.default_rng(5).random()
    assert list(vial_config.objects) == list(vial_config.task.active.objects)


def test_equal_seeds_give_equal_draws_and_json_keeps_them(config):
    draws = [draw_randomisation(config, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert json.loads(json.dumps(draws[0])) == draws[0]


GROUPS = ["joints", "jaw_friction", "objects", "statics", "racked", "distractors"]
VALUES = ["joints.stiffness", "joints.delay_s", "objects.mass", "objects.diameter_m"]


@pytest.mark.parametrize("key", GROUPS + VALUES)
def test_switching_something_off_leaves_the_other_draws_and_the_generator(config, key):
    without = load_config(overrides=[*VIAL, f"scene.randomisation.{key}=null"])
    for seed in range(5):
        rngs = np.random.default_rng(seed), np.random.default_rng(seed)
        full, less = (draw_randomisation(c, rng)["physics"] for c, rng in zip((config, without), rngs, strict=True))
        assert rngs[0].random() == rngs[1].random()
        if key in ("racked", "distractors"):  # bodies that are away have no values
            for name in full[key]:
                del full["objects"][name]
            full[key] = {}
        elif key in GROUPS:
            del full[key]
        elif key == "joints.stiffness":  # the gripper's is another setting
            arm = [joint.stiffness_nm_per_rad for joint in config.robot.joints[:5]]
            full["joints"]["stiffness_nm_per_rad"][:5] = arm
        elif key == "joints.delay_s":
            full["joints"]["delay_s"] = [joint.delay_s for joint in config.robot.joints]
        else:
            gone = {"objects.mass": "mass_kg", "objects.diameter_m": "diameter_change_m"}[key]
            assert "vial" in full["objects"]
            for draw in full["objects"].values():
                draw.pop(gone, None)
        assert less == full


def test_values_fill_their_ranges_and_stay_inside(config):
    drawn = config.scene.randomisation
    physics = [draw_randomisation(config, np.random.default_rng(seed))["physics"] for seed in range(300)]
    nominal = config.robot.joints
    for key, ranges in (
        ("stiffness_nm_per_rad", drawn.joints.stiffness),
        ("damping_nm_s_per_rad", drawn.joints.damping),
    ):
        factors = np.array([p["joints"][key][:5] for p in physics]) / [getattr(j, key) for j in nominal[:5]]
        low, high = ranges.scale
        assert low <= factors.min() < low * 1.02 and high / 1.02 < factors.max() <= high
        assert np.median(factors) == pytest.approx(np.sqrt(low * high), rel=0.05)  # log-uniform
    gripper = np.array([p["joints"]["stiffness_nm_per_rad"][5] for p in physics]) / nominal[5].stiffness_nm_per_rad
    assert 0.6 <= gripper.min() < 0.65 and 1.6 < gripper.max() <= 1.7
    delays = np.array([p["joints"]["delay_s"] for p in physics]) - [j.delay_s for j in nominal]
    assert np.ptp(delays, axis=1).max() < 1e-12  # one bus
    assert 0.0 <= delays.min() < 0.001 and 0.019 < delays.max() <= 0.02
    masses = np.array([p["objects"]["vial"]["mass_kg"] for p in physics])
    assert 0.015 <= masses.min() < 0.0152 and 0.0248 < masses.max() <= 0.025
    racked = np.mean([bool(p["racked"]) for p in physics])
    assert abs(racked - 0.33) < 3 * np.sqrt(0.33 * 0.67 / 300)
    assert {opening for p in physics for opening in (r["opening"] for r in p["racked"].values())} == {0, 1, 2, 3}
    assert {len(p["distractors"]) for p in physics} == {0, 1, 2, 3}


# Applying


def baked(config: Config, draw: dict, mat: np.ndarray) -> mujoco.MjModel:
    """A model compiled with the values of a draw instead of being changed afterwards; the mat at `mat` (7,) in base."""
    physics, values = draw["physics"], config.model_dump()
    for key, column in physics["joints"].items():
        for joint, value in zip(values["robot"]["joints"], column, strict=True):
            joint[key] = value
    values["robot"]["jaw_contact"]["friction"] = (
        physics["jaw_friction"],
        *values["robot"]["jaw_contact"]["friction"][1:],
    )
    spec = bake(Config.model_validate(values), looks=False)
    for name in config.objects:
        body = spec.body(name)
        pose, parked = make_pose(np.eye(3), body.pos), name not in physics["objects"]
        pose = pose_from_pos_quat([*body.pos, *body.quat])
        spec.delete(body)
        prop = config.scene.props[config.objects[name].prop]
        added = add_prop(spec, name, prop if parked else resized(prop, physics["objects"][name]), pose)
        added.gravcomp = float(parked)
    spec.body("mat").pos, spec.body("mat").quat = mat[:3], mat[3:]
    return spec.compile()


def test_a_changed_model_is_the_one_baked_with_these_values(config, sim, full):
    sim.randomise(0, full)
    model, mat = sim.models[0], full["physics"]["statics"]["mat"]
    place = np.array(config.scene.static_positions_m["mat"]) + [mat["x_m"], mat["y_m"], 0.0]
    T_world_mat = make_pose(rotation_about_axis(UP, mat["yaw_rad"]), place)
    expected = baked(config, full, pose_to_pos_quat(invert_pose(T_world_base(config)) @ T_world_mat))
    compared = 0
    for name in dir(expected):
        ours, theirs = getattr(model, name), getattr(expected, name)
        if name.startswith("_") or not isinstance(theirs, np.ndarray) or theirs.dtype.kind not in "fiub":
            continue
        assert ours.shape == theirs.shape, name
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=name)
        compared += 1
    assert compared > 200
    assert model.stat.meaninertia == pytest.approx(expected.stat.meaninertia, rel=1e-12)
    assert not np.array_equal(model.geom_aabb, sim.model.geom_aabb)  # the comparison has something to find


def test_a_draw_does_not_depend_on_the_one_before_and_the_baseline_comes_back(config, sim, full):
    other = draw_randomisation(config, np.random.default_rng(77))
    nominal, first = run(sim, 0, {}), run(sim, 0, full)
    assert not np.array_equal(nominal, first)
    run(sim, 0, other)
    np.testing.assert_array_equal(run(sim, 0, full), first)
    np.testing.assert_array_equal(run(sim, 0, {}), nominal)
    assert sim.models[0] is sim.model
    np.testing.assert_array_equal(run(MujocoSimulator(config), 0, {}), nominal)


def test_every_environment_has_its_own_physics(config, full):
    many = MujocoSimulator(config, 3)
    draws = [full, {}, draw_randomisation(config, np.random.default_rng(8))]
    for env, draw in enumerate(draws):
        many.reset(env, home(config), start(config, draw), draw)
    for target in commands(config, 30):
        for env in range(3):
            many.step(env, target)
    for env, draw in enumerate(draws):
        np.testing.assert_array_equal(many.get_physics_state(env), run(MujocoSimulator(config), 0, draw, 30)[-1])


def test_a_replay_with_the_recorded_draw_repeats_every_bit(config, sim, full):
    """Through JSON, as a demo carries it; the arm hits objects on its way."""
    targets, q, poses = commands(config, 90), [], []
    sim.reset(0, home(config), start(config, full), full)
    state = sim.get_physics_state(0)
    touched = set()
    for target in targets:
        q.append(sim.joint_positions(0))
        poses.append({name: sim.object_pose(0, name) for name in sim.object_names})
        sim.step(0, target)
        touched |= {body for c in sim.contacts(0) for body in (c.body_1, c.body_2)}
    assert {"vial", "rack", "racked_vial", "gripper"} <= touched
    verifier = Verifier(config)
    verifier.run_open_loop(state, targets[::-1], {})  # whatever happened before
    replayed_q, replayed = verifier.run_open_loop(state, targets, {"placements": {}, **json.loads(json.dumps(full))})
    np.testing.assert_array_equal(replayed_q, q)
    for name in sim.object_names:
        np.testing.assert_array_equal(replayed[name], [row[name] for row in poses])
    assert not np.array_equal(verifier.run_open_loop(state, targets, {})[0], q)


def test_a_delay_shifts_what_the_servo_sees(config, sim, full):
    """The first command is felt so many steps later as the delay has; before that nothing moves differently."""
    draw = {"physics": {"joints": {"delay_s": [0.02] * 6}}}
    q = home(config)
    sim.reset(0, q, nominal_placements(config), draw)
    data, model, forces = sim.data[0], sim.models[0], []
    data.ctrl[:] = q + 0.1
    for _ in range(20):
        mujoco.mj_step(model, data)
        forces.append(data.actuator_force[0])
    jump = int(np.argmax(np.abs(np.diff(forces)))) + 1
    assert jump == round(0.02 / model.opt.timestep)


# Optional bodies


def test_parked_bodies_rest_out_of_sight_and_touch_nothing(config, sim):
    sim.reset(0, home(config), nominal_placements(config))
    before = {name: sim.object_pose(0, name) for name in sim.object_names}
    for _ in range(60):
        sim.step(0, home(config))
    absent = [name for name in config.objects if name not in config.task.active.objects]
    assert absent == ["racked_vial", "distractor_0", "distractor_1", "distractor_2"]
    touching = {body for c in sim.contacts(0) for body in (c.body_1, c.body_2)}
    for name in absent:
        np.testing.assert_allclose(sim.object_pose(0, name), before[name], atol=1e-9)
        assert name not in touching and before[name][2] < -0.2


def test_a_pre_racked_vial_stands_seated_in_its_opening(config, sim):
    success = config.task.active.success
    for opening in range(4):
        draw = {"physics": {"racked": {"racked_vial": {"opening": opening, "yaw_rad": 1.0}}, "distractors": {}}}
        objects, _ = draw_placements(config, np.random.default_rng(opening))
        sim.reset(0, home(config), objects | extra_placements(config, draw, objects), draw)
        for _ in range(60):
            sim.step(0, home(config))
        T_base_rack = pose_from_pos_quat(sim.object_pose(0, "rack"))
        T_rack_vial = invert_pose(T_base_rack) @ pose_from_pos_quat(sim.object_pose(0, "racked_vial"))
        assert np.linalg.norm(T_rack_vial[:2, 3] - success.openings_m[opening]) < success.strict.max_axis_distance_m
        assert success.strict.min_height_m < T_rack_vial[2, 3] < success.strict.max_height_m
        assert T_rack_vial[2, 2] > success.strict.min_upright_cos
        assert np.linalg.norm(T_base_rack[:3, 3] - objects["rack"][:3]) < 0.002


def test_start_areas_hold_every_start(config):
    wide = load_config(
        overrides=[*VIAL, "task.tasks.vial_to_rack.objects.vial.roll_rad=[-2.5, 1.0]",
                   "task.tasks.vial_to_rack.objects.rack.yaw_center_m=[0.06, 0.06, 0.0]"]
    )  # fmt: skip
    rng = np.random.default_rng(3)
    for (low, high), placement in zip(start_areas(wide), wide.task.active.objects.values(), strict=True):
        points = corners(wide.scene.props[placement.prop])
        outlines = []
        for _ in range(300):
            draw = {key: rng.uniform(*getattr(placement, key)) for key in ("x_m", "y_m", "roll_rad", "yaw_rad")}
            T = placed_pose(placement, draw)
            outlines.append((points @ T[:3, :3].T + T[:3, 3])[:, :2])
        assert (np.concatenate(outlines) >= low - 1e-3).all() and (np.concatenate(outlines) <= high + 1e-3).all()
        assert (np.concatenate(outlines).min(0) < low + 0.02).all()  # and are not much larger


def test_distractors_stand_still_and_away_from_the_task_and_each_other(config, sim):
    gap = config.scene.randomisation.distractors.gap_m
    seen = set()
    for seed in range(60):
        draw = draw_randomisation(config, np.random.default_rng(seed))
        circles = []
        for name, pose in draw["physics"]["distractors"].items():
            x, y, z = (T_world_base(config) @ pose_from_pos_quat(pose))[:3, 3]
            radius = footprint_radius(config.scene.props[config.distractors[name].prop])
            for low, high in start_areas(config):
                outside = np.maximum(np.maximum(low - [x, y], [x, y] - high), 0)
                assert np.linalg.norm(outside) >= gap + radius * 0.999
            assert all(np.hypot(x - a, y - b) >= gap + radius + r for a, b, r in circles)
            circles.append((x, y, radius))
            seen.add(round(float(z), 3))
    assert seen == {0.0, 0.035}  # on the floor and on the mat


def test_distractors_do_not_move_by_themselves(config, sim, full):
    sim.reset(0, home(config), start(config, full), full)
    for _ in range(60):
        sim.step(0, home(config))
    for name, pose in full["physics"]["distractors"].items():
        assert np.linalg.norm(sim.object_pose(0, name)[:3] - pose[:3]) < 0.002


def test_a_task_without_an_opening_to_spare_gets_no_extra_object():
    cube = load_config(overrides=["task.name=cube_in_box", "scene.randomisation.enabled=true"])
    assert cube.racked is None and "racked_vial" not in cube.objects
    assert draw_randomisation(cube, np.random.default_rng(0))["physics"]["racked"] == {}


# Errors


def test_draws_of_another_scene_are_refused(config, sim, vial_config, full):
    plain = MujocoSimulator(vial_config)
    with pytest.raises(
        SimulationError, match=r"a draw is about '(racked_vial|distractor_0)'.*it has vial, rack, floor"
    ):
        plain.randomise(0, full)
    with pytest.raises(SimulationError, match=r"cannot delay commands by 3 s as drawn.*or raise robot\.max_delay_s"):
        sim.randomise(0, {"physics": {"joints": {"delay_s": [3.0] * 6}}})


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("joints.stiffness.scale=[1.2, 0.8]", r"the first number must not exceed the second"),
        ("joints.stiffness.scale=[0, 1.2]", r"joints\.stiffness\.scale\.0 is 0; input should be greater than 0"),
        ("joints.stiffness.law=normal", r"joints\.stiffness\.law is 'normal'.*'uniform' or 'log_uniform'"),
        ("objects.diameter_m.add=[-0.05, 0.0]", r"would leave nothing of prop 'vial', which is 0\.0289 m thin"),
        ("statics={matt: {x_m: [0, 0], y_m: [0, 0], yaw_rad: [0, 0]}}", r"names 'matt'; there are floor, mat.*'mat'"),
        ("distractors.props=[ball]", r"randomisation\.distractors\.props names 'ball'; there are vial, rack"),
        ("racked.probability=1.5", r"racked\.probability is 1\.5"),
        ("racked.object=vial", r"racked\.object is 'vial', the name of an object of task 'vial_to_rack'"),
    ],
)
def test_impossible_ranges_are_refused(override, text):
    with pytest.raises(ConfigError, match=text):
        load_config(overrides=[f"scene.randomisation.{override}"])


def test_ranges_belong_to_the_stage_whose_files_they_decide():
    """So that a run is not continued with others; seeds do not depend on them."""
    assert stage_of_setting("scene.randomisation.joints.friction.scale") == "generate"
    assert stage_of_setting("scene.physics.substeps") == "seeds"
    assert stage_of_setting("render.randomisation.exposure_ev") == "render"


def test_without_randomisation_is_the_configuration_as_it_was(config, vial_config):
    assert config.without_randomisation == vial_config
    assert vial_config.without_randomisation is vial_config
