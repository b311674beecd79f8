"""Loading: what is accepted, how overrides and presets apply, and the texts of all refusals."""

from __future__ import annotations

import shutil

import pytest
import yaml

from so101.config import CONFIGS_DIR, Config, load_config
from so101.errors import ConfigError


@pytest.fixture
def configs(tmp_path):
    """A copy of configs/ that a test may spoil."""
    return shutil.copytree(CONFIGS_DIR, tmp_path / "configs")


def edit(configs, section, change):
    path = configs / f"{section}.yaml"
    values = yaml.safe_load(path.read_text())
    change(values)
    path.write_text(yaml.safe_dump(values))


def test_the_eleven_files_load_and_are_frozen():
    config = load_config()
    assert len(Config.model_fields) == len(list(CONFIGS_DIR.glob("*.yaml"))) == 11
    with pytest.raises(ValueError, match="frozen"):
        config.skillgen.target_demos = 3


def test_every_preset_loads():
    for preset in load_config().skillgen.presets:
        load_config(preset=preset)


def test_digest_depends_on_values_not_on_where_they_came_from(configs):
    plain, other = load_config(), load_config(overrides=["skillgen.nn_k=7"])
    edit(configs, "skillgen", lambda values: values["selection"].update(nn_k=7))
    assert load_config(configs).digest() == other.digest() != plain.digest()
    assert other.digest("ik") == plain.digest("ik")


def test_later_overrides_win_over_earlier_ones_and_over_the_preset():
    config = load_config(preset="full", overrides=["skillgen.max_attempts=5", "skillgen.max_attempts=6"])
    assert config.skillgen.max_attempts == 6
    assert config.skillgen.target_demos == load_config(preset="full").skillgen.target_demos


def test_override_by_full_path_by_short_name_and_by_list_index():
    config = load_config(overrides=["skillgen.selection.nn_k=4", "robot.joints.0.damping_nm_s_per_rad=0.25"])
    assert config.skillgen.selection.nn_k == 4 and config.robot.joints[0].damping_nm_s_per_rad == 0.25
    assert load_config(overrides=["skillgen.nn_k=5"]).skillgen.selection.nn_k == 5


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("skillgen.target_demos=0", "skillgen.yaml: target_demos is 0; input should be greater than or equal to 1"),
        ("skillgen.target_demos=many", "skillgen.yaml: target_demos is 'many'; input should be a valid integer"),
        (
            "skillgen.selection.nn_kk=1",
            "skillgen.yaml: unknown key 'selection.nn_kk' .value 1.; allowed here: fallbacks, nn_k, .*'nn_k'",
        ),
        ("skilgen.nn_k=1", "unknown section 'skilgen'; sections: .*; did you mean 'skillgen'"),
        ("skillgen.enabled.x=1", "skillgen.yaml: unknown key 'enabled'"),
        ("skillgen.nn_k", "write it as SECTION.KEY=VALUE"),
        ("nn_k=1", "write it as SECTION.KEY=VALUE"),
        ("skillgen.nn_k=[1", "is not a YAML value"),
        ("skillgen.base_seed.x=1", r"skillgen.base_seed is \d+, it has no key 'x'"),
        ("task.name=cubes", "task.yaml: name is 'cubes'; tasks: cube_in_box, three_vials_to_rack, "),
        ("skillgen.action_noise_rad=.nan", "action_noise_rad is nan; input should be a finite number"),
        ("skillgen.window_frames=20", "skillgen.yaml: smoothing: window_frames 20 must be odd"),
        ("deploy.execute_steps=20", "deploy.yaml: control: execute_steps 20 exceeds action_horizon 16"),
        ("deploy.client.port=70000", "deploy.yaml: client.port is 70000; input should be less than or equal to 65535"),
        ("deploy.port=1", "more than one key has that name; write one of deploy.server.port, .*deploy.client.port"),
        ("training.groot.embodiment_tag=new", "training.yaml: groot.embodiment_tag is 'new'; .*pattern"),
        (
            "training.groot.tune={llm: false, visual: false, projector: false, diffusion_model: false}",
            "tune: .*nothing would learn",
        ),
        ("robot.ee_quat_wxyz=[0,0,0,0]", "ee_quat_wxyz is .*; its length must be 1, is 0"),
        ("robot.jaw_boxes.0.half_size_m=[-1,1,1]", "half_size_m.0 is -1; input should be greater than 0"),
        ("robot.jaw_contact.friction=[-1,0,0]", "jaw_contact.friction.0 is -1; input should be greater than or equal"),
        ("scene.props.vial.geoms.0.size_m=[0.01]", "size_m of a .* needs . numbers, .* has 1"),
        ("scene.static_positions_m={}", "static_positions_m places nothing; the statics are floor, mat"),
        ("task.tasks.cube_in_box.objects.cube.prop=cub", "prop is 'cub'; scene.yaml has the props .*'cube'"),
        ("task.tasks.cube_in_box.subtasks.0.end_offset_frames=[9, 6]", r"end_offset_frames is \[9, 6\]; the first"),
        ("task.tasks.vial_to_rack.subtasks.1.openings=[]", r"openings is \[\]; name at least one, each once, or"),
        ("task.tasks.vial_to_rack.subtasks.1.openings=[0, 0]", r"openings is \[0, 0\]; name at least one, each once"),
        ("cameras.width_px=100000", "width_px is 100000; input should be less than or equal to 4096"),
        ("training.groot.steps.save_steps=99999", "save_steps 99999 exceeds max_steps 20000; nothing would be saved"),
    ],
)
def test_what_is_wrong_is_named_with_key_value_and_what_is_allowed(override, text):
    with pytest.raises(ConfigError, match=text) as caught:
        load_config(overrides=[override])
    assert caught.value.exit_code == 2


def test_all_faults_of_all_files_come_at_once(configs):
    edit(configs, "skillgen", lambda values: values.update(target_demos=-1, base_seed="x"))
    edit(configs, "deploy", lambda values: values.pop("control"))
    with pytest.raises(ConfigError) as caught:
        load_config(configs)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert any(
        "deploy.yaml: key 'control' is missing; add it (allowed here: " in line and " client, control, " in line
        for line in lines
    )


def test_unknown_preset_gets_the_closest():
    with pytest.raises(ConfigError, match="unknown preset 'ful'; skillgen.yaml has: .*; did you mean 'full'"):
        load_config(preset="ful")


@pytest.mark.parametrize(
    ("preset", "text"),
    [
        ({"skillgen.max_attempts": float("nan")}, "max_attempts is 'NaN'"),
        ({"skillgen.max_attempts": None}, "max_attempts is None"),
        ({"skillgen.nope": 1}, "unknown key 'nope'"),
        ({"nope.x": 1}, "unknown section 'nope'"),
        ({"skillgen": 1}, "write it as SECTION.KEY=VALUE"),
    ],
)
def test_a_wrong_preset_is_found_before_it_is_used(configs, preset, text):
    edit(configs, "skillgen", lambda values: values["presets"].update(small=preset))
    with pytest.raises(ConfigError, match=rf"^skillgen.yaml: presets.small: .*{text}"):
        load_config(configs)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a: [1", "deploy.yaml: not valid YAML"),
        ("a: {b: 1, c: 2, b: 3}", "deploy.yaml: not valid YAML .key 'b' stands twice"),
        ("- 1", "deploy.yaml: must be a mapping of keys to values, is list"),
        ("", "deploy.yaml: must be a mapping of keys to values, is NoneType"),
        (b"\xff\xfe\x00", "deploy.yaml: cannot be read"),
        (None, "deploy.yaml: no such configuration file"),
    ],
)
def test_a_spoiled_file_is_named(configs, content, text):
    path = configs / "deploy.yaml"
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=text):
        load_config(configs)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: no such configuration folder; pass --configs FOLDER"):
        load_config(tmp_path / "nowhere")


def test_training_numbers_of_the_published_run():
    training = load_config().training
    assert training.groot.batch.effective == 64 and training.groot.steps.max_steps == 20_000
    assert training.action_horizon == load_config().deploy.control.action_horizon == 16


@pytest.mark.parametrize("task", ["vial_to_rack_wide", "two_vials_to_rack", "three_vials_to_rack"])
def test_seeds_are_made_as_the_task_they_demonstrate_with_nominal_physics(task):
    config = load_config(overrides=[f"task.name={task}", "scene.randomisation.enabled=true"])
    assert config.of_seeds.task.name == "vial_to_rack" and not config.of_seeds.scene.randomisation.enabled
    assert config.task.name == task and config.scene.randomisation.enabled  # itself it stays as it was
    assert config.of_seeds.of_seeds == config.of_seeds
    plain = load_config(overrides=["task.name=vial_to_rack"])
    assert config.of_seeds == plain.of_seeds == plain


def test_scaled_cameras_see_the_same_with_fewer_pixels():
    whole, quarter = load_config().cameras, load_config(overrides=["cameras.scale=0.25"]).cameras
    assert (quarter.width_px, quarter.height_px) == (160, 120)
    for name, camera in whole.cameras.items():
        small = quarter.cameras[name]
        assert [small.fx_px, small.fy_px, small.cx_px, small.cy_px] == [
            v / 4 for v in (camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px)
        ]
        assert small.position_m == camera.position_m
    odd = load_config(overrides=["cameras.scale=0.37"]).cameras
    assert (odd.width_px, odd.height_px) == (236, 178)  # even, and focal lengths go with the sides
    assert odd.cameras["top"].fx_px == pytest.approx(600 * 236 / 640)


def test_a_scale_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="cameras.yaml: scale is 0; input should be greater than 0"):
        load_config(overrides=["cameras.scale=0"])


def test_presets_are_checked_as_the_files_are_and_not_with_what_is_overridden():
    small = load_config(overrides=["cameras.width_px=64", "cameras.height_px=48"] + [
        f"cameras.cameras.{name}.{axis}_px=16" for name in ("ego", "side", "top") for axis in ("cx", "cy")
    ])  # fmt: skip
    assert small.cameras.height_px == 48  # a quarter of that, as the preset `embedded` has, would be too small
