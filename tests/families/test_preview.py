"""Pictures of a family: joints in LeRobot units, what the cameras see, the twin beside a photo."""

from __future__ import annotations

import numpy as np
import pytest

from so101.cli.app import main
from so101.datasets.units import make_units, rad_to_lerobot
from so101.errors import ConfigError, DataError, SimulationError
from so101.families import find_task
from so101.families.preview import beside, blended, draw_views, joints_of, read_photo, state_of, surface_m, write_png
from so101.families.render import FamilyRenderer, Mark, Orbit

REST = np.array([24.4, -105.8, 95.8, 77.1, 59.2, 25.1])


@pytest.fixture(scope="module")
def tower():
    return find_task("so101_tower_cube_in_bowl").family


@pytest.fixture(scope="module")
def views(tower):
    q, _ = joints_of(tower, REST)
    return draw_views(tower, state_of(tower, q, {"bowl": (0.30, 0.09), "brick": (0.33, -0.07)}))


def test_joints_within_the_limits_come_back_as_they_were_given(tower):
    robot = tower.config.robot
    rng = np.random.default_rng(0)
    lower, upper = (np.array([getattr(j, k) for j in robot.joints]) for k in ("lower_rad", "upper_rad"))
    for _ in range(20):
        state = rad_to_lerobot(rng.uniform(lower, upper), make_units("degrees", robot))
        q, clamped = joints_of(tower, state)
        assert not clamped and np.allclose(rad_to_lerobot(q, make_units("degrees", robot)), state)


def test_of_the_rest_pose_only_the_lift_is_clamped(tower):
    q, clamped = joints_of(tower, REST)
    assert [(c.joint, c.given) for c in clamped] == [("shoulder_lift", -105.8)] and clamped[0].drawn == pytest.approx(
        -100
    )
    assert q[5] == pytest.approx(np.radians(-10 + 1.1 * 25.1))


@pytest.mark.parametrize("state", [[1, 2, 3], [0, 0, 0, 0, 0, np.nan]])
def test_a_state_is_six_finite_numbers(tower, state):
    with pytest.raises(ConfigError, match="6 finite numbers"):
        joints_of(tower, np.array(state, float))


def test_objects_stand_on_the_desk_and_others_are_parked(tower):
    qpos = state_of(tower, np.zeros(6), {"brick": (0.3, 0.1)})
    assert qpos[13:16] == pytest.approx([0.3, 0.1, surface_m(tower) + 0.0125]) and qpos[8] > 10
    with pytest.raises(ConfigError, match="has no object 'brik' to place; it has bowl, brick; did you mean 'brick'"):
        state_of(tower, np.zeros(6), {"brik": (0, 0)})


def colour(picture, rgb, near=60):
    """Middle (row, column) of the pixels of about this colour, as shares of the picture."""
    rows, columns = np.nonzero(np.abs(picture.astype(int) - rgb).sum(-1) < near)
    assert len(rows) > 5, "nothing of this colour is seen"
    return rows.mean() / picture.shape[0], columns.mean() / picture.shape[1]


def test_overhead_forward_is_up_and_left_is_left(tower):
    def seen(x, y):
        return colour(draw_views(tower, state_of(tower, np.zeros(6), {"bowl": (x, y)}))["overhead"], (240, 158, 22))

    row, column = seen(0.28, 0.0)
    assert (
        seen(0.34, 0.0)[0] < row - 0.03 and seen(0.28, 0.1)[1] < column - 0.03 and seen(0.28, -0.1)[1] > column + 0.03
    )


def test_the_jaws_are_at_the_bottom_of_the_wrist_picture(tower):
    """What changes when the jaw opens lies in the lower half."""
    shut, wide = REST.copy(), REST.copy()
    shut[5], wide[5] = 10, 60
    a, b = (draw_views(tower, state_of(tower, joints_of(tower, s)[0], {}))["wrist"].astype(int) for s in (shut, wide))
    rows = np.nonzero(np.abs(a - b).sum(-1) > 30)[0]
    assert np.median(rows) > 0.6 * len(a)


def test_two_drawings_of_one_state_are_equal_and_marks_show(tower):
    qpos = state_of(tower, np.zeros(6), {})
    with FamilyRenderer(tower, 160, 120) as renderer:
        plain, again = renderer.draw(qpos, Orbit()), renderer.draw(qpos, Orbit())
        marked = renderer.draw(qpos, Orbit(), marks=[Mark(np.array([0.3, 0, 0.1]), (1, 0, 0, 1), 0.03)])
        with pytest.raises(SimulationError, match="no camera 'overhed'.*did you mean 'overhead'"):
            renderer.draw(qpos, "overhed")
    assert (plain == again).all() and colour(marked, (200, 0, 0), 120)


def test_an_orbit_stays_over_the_floor_and_comes_back():
    orbit = Orbit()
    assert orbit.turned(0, -400).elevation_deg == -89 and orbit.zoomed(1e9).distance_m == 5
    assert orbit.turned(30, 10).turned(-30, -10).azimuth_deg == pytest.approx(orbit.azimuth_deg)
    assert Orbit(azimuth_deg=180).moved(0.1, 0).lookat_m == pytest.approx((0.18, 0.1, 0.10))


def test_a_photo_goes_beside_and_into_the_blend(tmp_path, views):
    drawn = views["overhead"]
    write_png(tmp_path / "photo.png", np.full((480, 640, 3), 200, np.uint8))
    photo = read_photo(tmp_path / "photo.png", 320, 240)
    assert beside(photo, drawn).shape == (240, 640, 3)
    assert (blended(photo, drawn, 0) == photo).all() and (blended(photo, drawn, 1) == drawn).all()
    assert blended(photo, np.zeros_like(photo), 0.25)[0, 0, 0] == 150
    write_png(tmp_path / "square.png", np.zeros((100, 100, 3), np.uint8))
    with pytest.raises(DataError, match="100x100; the twin's camera has the aspect 320:240"):
        read_photo(tmp_path / "square.png", 320, 240)
    (tmp_path / "no.png").write_text("no picture")
    with pytest.raises(DataError, match="cannot be read as a picture"):
        read_photo(tmp_path / "no.png", 320, 240)


def test_the_command_writes_both_views_and_says_what_it_clamped(tmp_path, capsys):
    write_png(tmp_path / "photo.png", np.full((240, 320, 3), 200, np.uint8))
    out = tmp_path / "out"
    photo = f"wrist={tmp_path / 'photo.png'}"
    assert main(["preview", "--width", "64", "--photo", photo, "--out-dir", str(out)]) == 0
    assert "shoulder_lift is at -105.8; the model ends at -100.0" in capsys.readouterr().out
    names = {"wrist_cam.png", "overhead_cam.png", "wrist_beside.png", "wrist_blend.png"}
    assert {path.name for path in out.iterdir()} == names


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--state", "1,2"], "--state is '1,2'; write 6 numbers"),
        (["--bowl", "0.3"], "--bowl is '0.3'; write 2 numbers"),
        (["--photo", "ego=x.png"], "no camera 'ego'; the family has wrist, overhead"),
        (["--task", "so101_tower_lift"], "unknown task 'so101_tower_lift'"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, capsys, arguments, text):
    assert main(["preview", *arguments, "--width", "32", "--out-dir", str(tmp_path)]) == 2
    assert text in capsys.readouterr().err
