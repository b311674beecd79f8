"""configs/families: what ships, what a fault says, a task that is nothing but YAML."""

from __future__ import annotations

import numpy as np
import pytest

from so101.errors import ConfigError
from so101.families import find_task, load_families, make_env, task_names
from tests.families.worlds import TASKS, copied_configs, edit


def test_what_ships():
    families = load_families()
    assert set(families) == {"so101_tabletop", "so101_tower", "so101_tower_teleop", "so101_reach", "so101_vial"}
    assert sorted(task_names()) == sorted(TASKS)
    controls = {name: family.declaration.control for name, family in families.items()}
    rate = {name: (control.control_dt, control.horizon) for name, control in controls.items()}
    assert rate["so101_tower"] == (pytest.approx(0.032), 300)
    assert rate["so101_tower_teleop"] == (pytest.approx(0.032), 1200)
    assert rate["so101_tabletop"] == (pytest.approx(0.004), 300)
    assert rate["so101_reach"] == (pytest.approx(0.02), 500)


def test_a_variant_differs_in_what_it_says_alone():
    families = load_families()
    tower, teleop = families["so101_tower"].declaration, families["so101_tower_teleop"].declaration
    assert set(teleop.tasks) == {"lift_brick", "cube_in_bowl"}
    same = {"control": tower.control, "tasks": tower.tasks}
    assert teleop.model_copy(update=same) == tower
    assert find_task("so101_tower_teleop_cube_in_bowl").goal == find_task("so101_tower_cube_in_bowl").goal


def test_goals_and_languages_of_the_field():
    near = find_task("so101_tower_cube_in_bowl")
    assert near.goal.near.radius_m == 0.045
    assert near.language == "Grab the cube and put it in the bowl"
    assert find_task("so101_tower_lift_brick").goal.above.margin_m == 0.05
    assert find_task("so101_lift_brick").goal.above.margin_m == 0.06
    assert find_task("so101_gather_bricks").goal.near.radius_m == 0.06


def test_an_unknown_task_is_told_with_what_there_is():
    with pytest.raises(ConfigError, match="did you mean 'so101_tower_lift_brick'") as caught:
        find_task("so101_tower_lift_bric")
    assert "so101_reach" in str(caught.value)


def set_at(*path):
    """A change that sets data[path[0]]...[path[-2]] = path[-1]; a value of None removes the key."""
    *keys, last, value = path

    def change(data):
        for key in keys:
            data = data[key]
        if value is None:
            del data[last]
        else:
            data[last] = value

    return change


LIFT = ("tasks", "lift_brick")
FAULTS = {
    "unknown key": (set_at("control", "horizen", 3), ["control.horizen"]),
    "missing key": (set_at("control", "horizon", None), ["control.horizon"]),
    "wrong type": (set_at("control", "frame_skip", "often"), ["control.frame_skip", "often"]),
    "below its least": (set_at("control", "frame_skip", 0), ["control.frame_skip", "1"]),
    "unknown cone": (set_at("physics", "cone", "round"), ["physics.cone", "elliptic", "pyramidal"]),
    "unknown reward": (set_at("reward", "mode", "sparse"), ["reward", "sparse", "staged", "potential"]),
    "unknown word group": (set_at("observation", ["qpos", "images"]), ["observation", "images", "previous_action"]),
    "no task": (set_at("tasks", {}), ["tasks"]),
    "two goals": (
        set_at(*LIFT, "goal", "near", {"subject": "brick", "target": "bowl", "radius_m": 0.1}),
        ["tasks.lift_brick.goal", "exactly one of", "near, above"],
    ),
    "unknown goal": (set_at(*LIFT, "goal", {"beside": {"subject": "brick"}}), ["tasks.lift_brick.goal", "beside"]),
    "unknown subject": (
        set_at(*LIFT, "goal", {"above": {"subject": "brik", "target": "desk", "margin_m": 0.05}}),
        ["tasks.lift_brick.goal.above.subject", "'brik'", "bowl, brick", "did you mean 'brick'"],
    ),
    "unknown target": (
        set_at(*LIFT, "goal", {"above": {"subject": "brick", "target": "table", "margin_m": 0.05}}),
        ["tasks.lift_brick.goal.above.target", "'table'", "bowl, brick, stand, desk"],
    ),
    "unknown region of a goal": (
        set_at(*LIFT, "goal", {"on_region": {"subject": "brick", "region": "desk_to"}}),
        ["tasks.lift_brick.goal.on_region.region", "'desk_to'", "did you mean 'desk_top'"],
    ),
    "subject is absent": (set_at(*LIFT, "place", {}), ["tasks.lift_brick.goal", "'brick'", "no place"]),
    "target is absent": (
        set_at("tasks", "cube_in_bowl", "place", {"brick": {"region": "desk_brick"}}),
        ["tasks.cube_in_bowl.goal", "'bowl'", "no place"],
    ),
    "unknown slot": (
        set_at(*LIFT, "place", "cup", {"region": "desk_top"}),
        ["tasks.lift_brick.place", "'cup'", "bowl, brick"],
    ),
    "unknown region": (
        set_at(*LIFT, "place", "bowl", {"region": "desk_lft"}),
        ["tasks.lift_brick.place.bowl.region", "'desk_lft'", "did you mean 'desk_left'"],
    ),
    "unknown slot to grasp": (set_at(*LIFT, "grasp", {"slot": "brik"}), ["tasks.lift_brick.grasp", "'brik'", "brick"]),
    "rectangle inside out": (
        set_at("regions", "desk_top", "rect_m", [0.1, -0.1, -0.1, 0.1]),
        ["regions.desk_top.rect_m", "x low, y low, x high, y high"],
    ),
    "no height": (set_at("regions", "desk_top", "half_height_m", 0.0), ["regions.desk_top.half_height_m", "0"]),
    "five joints": (set_at("start", "qpos_rad", [0.0] * 5), ["start.qpos_rad"]),
    "unknown task of a variant": (
        set_at("variants", "so101_tower_teleop", {"tasks": ["lift_bowl"]}),
        ["variants.so101_tower_teleop.tasks", "'lift_bowl'", "lift_brick"],
    ),
    "unknown workshop task": (set_at("workshop_task", "vial_to_rak"), ["workshop_task", "did you mean 'vial_to_rack'"]),
    "seated without a workshop": (
        set_at(*LIFT, "goal", {"seated": {"subject": "brick", "target": "bowl"}}),
        ["tasks.lift_brick.goal.seated", "workshop_task"],
    ),
    "name without a task": (set_at("name_tasks", "tower"), ["name_tasks", "{task}"]),
    "name with an unknown field": (set_at("name_tasks", "{famly}_{task}"), ["name_tasks", "famly"]),
}


@pytest.mark.parametrize(("change", "words"), FAULTS.values(), ids=FAULTS)
def test_faults_name_file_key_and_what_is_allowed(tmp_path, change, words):
    configs = copied_configs(tmp_path)
    edit(configs, "so101_tower", change)
    with pytest.raises(ConfigError) as caught:
        load_families(configs)
        task_names(configs)
    for word in ["families/so101_tower.yaml", *words]:
        assert word in str(caught.value)


def test_two_families_must_not_share_a_task_name(tmp_path):
    configs = copied_configs(tmp_path)
    edit(configs, "so101_tower", lambda data: data.update(name_tasks="so101_{task}"))
    with pytest.raises(ConfigError, match=r"both have a task 'so101_reach_clear'.*name_tasks"):
        task_names(configs)


def test_a_folder_without_families(tmp_path):
    configs = copied_configs(tmp_path)
    for path in (configs / "families").iterdir():
        path.unlink()
    with pytest.raises(ConfigError, match="no family there"):
        load_families(configs)


def test_a_task_of_a_workshop_scene_knows_its_objects(tmp_path):
    configs = copied_configs(tmp_path)
    edit(configs, "so101_vial", lambda data: data["tasks"]["vial_to_rack"]["goal"]["seated"].update(subject="viel"))
    with pytest.raises(ConfigError, match="did you mean 'vial'") as caught:
        task_names(configs)
    assert "families/so101_vial.yaml" in str(caught.value)


NEW_TASK = {
    "language": "Put the bowl over there, upright, away from the cube",
    "place": {"bowl": {"region": "desk_left", "yaw": True}, "brick": {"region": "desk_right"}},
    "goal": {
        "all_of": [
            {"on_region": {"subject": "bowl", "region": "desk_left"}},
            {"negated": {"near": {"subject": "brick", "target": "bowl", "radius_m": 0.05}}},
            {"any_of": [
                {"above": {"subject": "bowl", "target": "desk", "margin_m": 0.5}},
                {"at_region": {"site": "gripperframe", "region": "everywhere"}},
            ]},
        ]
    },
}  # fmt: skip


def test_a_task_is_nothing_but_yaml(tmp_path):
    configs = copied_configs(tmp_path)

    def change(data):
        data["tasks"]["tidy_up"] = NEW_TASK
        data["regions"]["everywhere"] = {"origin_m": [0, 0, 0], "rect_m": [-1, -1, 1, 1], "half_height_m": 1.0}

    edit(configs, "so101_tower", change)
    env = make_env("so101_tower_tidy_up", 3, configs=configs, horizon=2)
    _, info = env.reset(seed=0)
    assert info["success"].all()
    observation, reward, _, truncated, _ = env.step(env.hold_action(env.qpos[:, :6]))
    assert observation.shape == (3, 49)
    np.testing.assert_array_equal(truncated, False)
    bowl = env.qpos[0].copy()
    bowl[6] += 0.5
    env.set_state(0, bowl)
    *_, info = env.step(env.hold_action(env.qpos[:, :6]))
    assert info["success"].tolist() == [False, True, True]


def test_a_family_is_nothing_but_yaml(tmp_path):
    """A copy under another name, with a longer arm step: registered by its file name."""
    configs = copied_configs(tmp_path)
    stock = configs / "families" / "so101_reach.yaml"
    (configs / "families" / "my_arm.yaml").write_text(stock.read_text())
    edit(configs, "my_arm", lambda data: data.update(name_tasks="{family}_{task}"))
    edit(configs, "my_arm", lambda data: data["control"].update(frame_skip=20))
    env = make_env("my_arm_reach", configs=configs)
    assert env.control_dt == pytest.approx(0.04)
