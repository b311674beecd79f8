"""Looks: draws repeat and do not shift one another, a dressed model is the one baked that way, nothing gets black or
blown out."""

from __future__ import annotations

import json

import mujoco
import numpy as np
import pytest

from so101.config import Config, load_config
from so101.errors import ConfigError, SimulationError
from so101.geometry import (
    pose_from_pos_quat,
    pose_to_pos_quat,
    rotation_from_quat,
    rotation_from_rotation_vector,
)
from so101.rendering.looks import changed_color, draw_looks, temperature_rgb
from so101.rendering.renderer import StateRenderer
from so101.sim.bake import T_world_base, bake
from so101.sim.randomisation import draw_randomisation

from .scene_states import home, start_objects

ON = ["task.name=vial_to_rack", "render.randomisation.enabled=true", "scene.randomisation.enabled=true"]
SMALL = ["cameras.width_px=160", "cameras.height_px=120", *(
    f"cameras.cameras.{name}.{key}={value}"
    for name, f in (("ego", 80), ("side", 150), ("top", 150))
    for key, value in (("fx_px", f), ("fy_px", f), ("cx_px", 80), ("cy_px", 60))
)]  # fmt: skip
KEYS = {"exposure_ev": "exposure_ev", "temperature": "temperature_k", "lamp_shift_m": "lamps", "robot_rgb": "robot_rgb",
        "surfaces": "surfaces", "cameras": "cameras"}  # fmt: skip


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=[*ON, *SMALL])


@pytest.fixture(scope="module")
def renderer(config):
    with StateRenderer(config) as made:
        made.set_state(home(config), start_objects(config))
        yield made


def picture(renderer: StateRenderer, looks: dict, camera: str = "side", physics: dict | None = None) -> np.ndarray:
    renderer.set_scene({"physics": physics or {}}, looks)
    renderer.set_state(home(renderer.config), start_objects(renderer.config))
    return renderer.render_state(camera)


# Drawing


def test_off_draws_nothing(vial_config):
    assert draw_looks(vial_config, 3) == {}


def test_equal_seeds_give_equal_draws_and_json_keeps_them(config):
    draws = [draw_looks(config, seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert json.loads(json.dumps(draws[0])) == draws[0]


@pytest.mark.parametrize("key", KEYS)
def test_switching_a_group_off_leaves_the_others(config, key):
    without = load_config(overrides=[*ON, *SMALL, f"render.randomisation.{key}=null"])
    full, less = draw_looks(config, 5), draw_looks(without, 5)
    for name in full:
        if name == "light_rgb" and key in ("exposure_ev", "temperature"):
            continue
        if name == KEYS[key]:
            assert not less.get(name)
        else:
            assert less[name] == full[name]


def test_values_fill_their_ranges(config):
    settings = config.render.randomisation
    draws = [draw_looks(config, seed) for seed in range(300)]
    low, high = settings.exposure_ev
    exposures = [draw["exposure_ev"] for draw in draws]
    assert low <= min(exposures) < low + 0.02 and high - 0.02 < max(exposures) <= high
    assert {tuple(draw["robot_rgb"]) for draw in draws} == {tuple(rgb) for rgb in settings.robot_rgb}
    focal = [draw["cameras"]["ego"]["focal"] for draw in draws]
    assert 12 / 13.5 - 1e-3 <= min(focal) < 0.9 and 1.1 < max(focal) <= 15 / 13.5 + 1e-3
    for name, extent in (("ego", 0.003), ("side", 0.02)):
        shift = np.array([draw["cameras"][name]["shift_m"] for draw in draws])
        assert 0.98 * extent < np.abs(shift[:, 0]).max() <= extent
    for draw in draws:
        for name, rgb in draw["surfaces"].items():
            surface = settings.surfaces[name]
            assert all(a <= v <= b for a, v, b in zip(surface.low_rgb, rgb, surface.high_rgb, strict=True))
        assert draw["objects"]["vial"] == draw["objects"]["racked_vial"]  # vials look alike
        assert set(draw["objects"]) == set(config.objects)


def test_a_cold_lamp_is_blue_and_daylight_is_white(config):
    settings = config.render.randomisation.temperature
    np.testing.assert_allclose(temperature_rgb(settings.white_k, settings), 1.0, atol=1e-12)
    warm, cold = temperature_rgb(3000.0, settings), temperature_rgb(9000.0, settings)
    assert warm[0] > warm[1] > warm[2] and cold[0] < cold[1] < cold[2]


def test_a_full_turn_of_hue_is_none_and_grey_has_no_hue():
    orange = np.array([0.9, 0.3, 0.12])
    np.testing.assert_allclose(changed_color(orange, 1.0, 1.0, 1.0), orange, atol=1e-12)
    np.testing.assert_allclose(changed_color(np.full(3, 0.5), 0.3, 1.5, 1.2), 0.6, atol=1e-12)
    np.testing.assert_allclose(changed_color(np.array([1.0, 0.0, 0.0]), 1 / 3, 1.0, 0.5), [0.0, 0.5, 0.0], atol=1e-12)


# Dressing


def moved_cameras(config: Config, looks: dict) -> list[str]:
    """cameras.yaml with the drawn cameras, as overrides."""
    overrides = []
    for name, change in looks["cameras"].items():
        camera = config.cameras.cameras[name]
        R = rotation_from_quat(np.array(camera.quat_wxyz)) @ rotation_from_rotation_vector(np.array(change["turn_rad"]))
        T = np.eye(4)
        T[:3, :3], T[:3, 3] = R, np.array(camera.position_m) + change["shift_m"]
        pose = pose_to_pos_quat(T).tolist()
        values = {"position_m": pose[:3], "quat_wxyz": pose[3:], "fx_px": camera.fx_px * change["focal"],
                  "fy_px": camera.fy_px * change["focal"]}  # fmt: skip
        overrides += [f"cameras.cameras.{name}.{key}={value}" for key, value in values.items()]
    return overrides


@pytest.mark.parametrize("yaw", [0.0, 0.7])
def test_a_dressed_model_has_the_cameras_and_lamps_it_would_be_baked_with(yaw):
    base = [*ON, *SMALL, f"robot.base_yaw_rad={yaw}"]
    config = load_config(overrides=base)
    looks = draw_looks(config, 11)
    lamp = np.add(config.render.lights[0].position_m, looks["lamps"]["ceiling"]).tolist()
    expected = bake(
        load_config(overrides=[*base, *moved_cameras(config, looks), f"render.lights.0.position_m={lamp}"])
    ).compile()
    with StateRenderer(config) as renderer:
        renderer.set_scene({}, looks)
        for name in ("cam_pos", "cam_quat", "cam_fovy", "cam_intrinsic", "light_pos", "light_dir"):
            ours, theirs = getattr(renderer.model, name), getattr(expected, name)
            if name == "cam_quat":
                ours, theirs = (np.array([rotation_from_quat(q) for q in quats]) for quats in (ours, theirs))
            np.testing.assert_allclose(ours, theirs, atol=1e-6, err_msg=name)


def test_looks_do_not_depend_on_those_before_and_come_off_again(config, renderer):
    plain = picture(renderer, {})
    first = picture(renderer, draw_looks(config, 1))
    picture(renderer, draw_looks(config, 2))
    np.testing.assert_array_equal(picture(renderer, draw_looks(config, 1)), first)
    np.testing.assert_array_equal(picture(renderer, {}), plain)
    with StateRenderer(config) as fresh:
        fresh.set_state(home(config), start_objects(config))
        np.testing.assert_array_equal(fresh.render_state("side"), plain)
    assert np.abs(first.astype(float) - plain).mean() > 5


def test_half_the_light_gives_half_the_brightness(renderer):
    full, half = (picture(renderer, {"light_rgb": [x, x, x]}).astype(float) for x in (0.8, 0.4))
    assert half.mean() == pytest.approx(full.mean() / 2, rel=0.02)


def test_the_robot_changes_colour_and_its_motors_do_not(config, renderer):
    renderer.set_scene({}, {"robot_rgb": [0.1, 0.5, 0.6]})
    model, prefix = renderer.model, config.render.motor_mesh_prefix
    colors = {}
    for geom in np.flatnonzero(model.geom_matid >= 0).tolist():
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
            name = model.mesh(int(model.geom_dataid[geom])).name
            colors.setdefault(name.startswith(prefix), set()).add(
                tuple(model.mat_rgba[model.geom_matid[geom]].round(3))
            )
    assert colors[False] == {tuple(np.float32([0.1, 0.5, 0.6, 1.0]).round(3))}
    assert colors[True] == {tuple(np.float32(config.robot.motor_color_rgba).round(3))}


def test_the_mat_is_drawn_where_the_physics_put_it(config, renderer):
    physics = {"statics": {"mat": {"x_m": 0.01, "y_m": -0.01, "yaw_rad": 0.1}}}
    plain, moved = picture(renderer, {}, "top"), picture(renderer, {}, "top", physics)
    assert (np.abs(plain.astype(int) - moved).max(-1) > 20).mean() > 0.005
    mat = renderer.model.body("mat")
    T_world_mat = T_world_base(config) @ pose_from_pos_quat([*mat.pos, *mat.quat])
    np.testing.assert_allclose(T_world_mat[:2, 3], np.add(config.scene.static_positions_m["mat"][:2], [0.01, -0.01]))
    np.testing.assert_array_equal(picture(renderer, {}, "top"), plain)


def test_nothing_gets_black_or_blown_out(config, renderer):
    for seed in range(24):
        for camera in ("side", "top"):
            drawn = picture(renderer, draw_looks(config, seed), camera)
            assert 30 < drawn.mean() < 190, (seed, camera)
            assert (drawn.min(-1) > 250).mean() < 0.05 and (drawn.max(-1) < 8).mean() < 0.05, (seed, camera)
            assert drawn.std() > 12, (seed, camera)  # there is something to see


def test_the_vial_stands_out_from_the_mat(config, renderer):
    """Colours of a vial on its mat, seen from above: far apart for every draw."""
    objects = start_objects(config)
    for seed in range(24):
        looks = {**draw_looks(config, seed), "cameras": {}}
        with_vial = picture(renderer, looks, "top")
        renderer.set_state(home(config), {"vial": objects["vial"] + [0, 0, -1, 0, 0, 0, 0]})
        without = renderer.render_state("top")
        changed = np.abs(with_vial.astype(int) - without).max(-1)
        assert np.median(changed[changed > 8]) > 40, seed


# Errors


def test_draws_of_another_scene_are_refused(config, vial_config, renderer):
    draw = draw_randomisation(config, np.random.default_rng(0))
    draw["physics"]["objects"]["cup"] = {"mass_kg": 1.0}
    with pytest.raises(SimulationError, match="a draw is about 'cup'"):
        renderer.set_scene(draw, {})
    renderer.set_scene({}, {})


def test_a_geom_that_is_not_there_is_named():
    wrong = load_config(overrides=[*ON, *SMALL, "render.randomisation.surfaces.mat.geoms=[mat/mats]"])
    with pytest.raises(SimulationError, match=r"surfaces\.mat names geom 'mat/mats'.*did you mean 'mat/mat'"):
        StateRenderer(wrong)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("exposure_ev=[1, 0]", r"exposure_ev is \[1, 0\]; the first number must not exceed the second"),
        ("cameras.ego.focal=[0, 1]", r"cameras\.ego\.focal\.0 is 0"),
        ("surfaces.mat.low_rgb=[0.9, 0, 0]", r"low_rgb \[0\.9, 0\.0, 0\.0\] must not exceed high_rgb"),
        (
            "cameras.tip={focal: [1, 1], shift_m: [0, 0, 0], turn_rad: [0, 0, 0]}",
            r"cameras names 'tip'; cameras\.yaml has ego, side, top; did you mean 'top'",
        ),
        ("temperature.seen=2", r"temperature\.seen is 2"),
    ],
)  # fmt: skip
def test_impossible_ranges_are_refused(override, text):
    with pytest.raises(ConfigError, match=text):
        load_config(overrides=["render.randomisation.enabled=true", f"render.randomisation.{override}"])
