"""Maps of the workspace: what a cell says is what IK says there, and the pictures show it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from so101.cli import app as program
from so101.config import load_config
from so101.datasets.demo import save_demo
from so101.errors import ConfigError
from so101.evaluation.maps import pictures, standalone
from so101.evaluation.report import write_report
from so101.evaluation.workspace import (
    StartArea,
    area_numbers,
    start_areas,
    workspace,
    workspace_numbers,
)
from so101.kinematics import ArmKinematics
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.tasks.grasping import PinchFinder

from .factory import make_demo

# Coarse, with two approaches: a second instead of four.
COARSE = [
    "dataset.report.workspace.cell_m=0.04",
    "dataset.report.workspace.yaw_step_deg=60",
    "dataset.report.workspace.slice_samples=16",
    "dataset.report.workspace.slice_cell_m=0.04",
    "task.pinch.dips_deg=[80.0, 50.0]",
]


@pytest.fixture(scope="module")
def coarse():
    return load_config(overrides=COARSE)


@pytest.fixture(scope="module")
def maps(coarse):
    return workspace(coarse)


def test_cells_say_what_ik_says_there(coarse, maps):
    """Every cell is a turn of the ray about the pan axis: at such points pinches asked for anew are the same."""
    kinematics = ArmKinematics(coarse)
    finder = PinchFinder(coarse, kinematics)
    table, step = maps.table, coarse.dataset.report.workspace.cell_m
    x, y = ((edges[:-1] + edges[1:]) / 2 for edges in (table.x_edges, table.y_edges))
    base = np.array(coarse.robot.base_position_m)
    rng, yaws, seen = np.random.default_rng(0), np.deg2rad(np.arange(0, 180, 60)), set()
    for i, j in rng.permutation(list(np.ndindex(table.reached.shape)))[:12]:
        away = np.array([x[i], y[j]]) - maps.pan_axis_m
        ring = (round(np.linalg.norm(away) / step - 0.5) + 0.5) * step  # the nearest point that the ray was asked at
        azimuth = np.arctan2(away[1], away[0])
        point = np.array([*maps.pan_axis_m + ring * away / np.linalg.norm(away), table.height_m]) - [*base[:2], 0.0]
        served = np.array([
            [any(finder.pinch(point, [np.cos(azimuth + yaw), np.sin(azimuth + yaw), 0.0], np.deg2rad(dip), flipped)
                 for flipped in (False, True)) for yaw in yaws] for dip in table.dips_deg
        ])  # fmt: skip
        assert served.any(1).tolist() == table.dips_served[i, j].tolist()
        assert served.any(0).mean() == pytest.approx(table.yaw_share[i, j])
        seen.add(bool(served.any()))
    assert seen == {True, False}


def test_room_to_the_limits_is_nowhere_more_than_half_and_only_where_reached(maps):
    table = maps.table
    assert (np.isnan(table.margin) == ~table.reached).all() and ((table.nearest_joint < 0) == ~table.reached).all()
    assert (table.margin[table.reached] >= 0).all() and (table.margin[table.reached] <= 0.5).all()
    assert (table.reached == table.dips_served.any(-1)).all()
    assert 0.4 < table.reached.mean() < 1.0


def test_pan_limits_bound_the_map():
    """A pan joint between -30 and +10 degrees reaches azimuths of -10 to +30 degrees: its axis points down."""
    limits = ["robot.joints.0.lower_rad=-0.5236", "robot.joints.0.upper_rad=0.1745", "robot.joints.0.home_rad=-0.1"]
    narrow = workspace(load_config(overrides=[*COARSE, *limits]))
    table = narrow.table
    x, y = np.meshgrid(*((e[:-1] + e[1:]) / 2 for e in (table.x_edges, table.y_edges)), indexing="ij")
    azimuth = np.rad2deg(np.arctan2(y - narrow.pan_axis_m[1], x - narrow.pan_axis_m[0]))
    assert not table.reached[(azimuth > 33) | (azimuth < -13)].any()
    assert table.reached[(azimuth > 17) & (azimuth < 27)].any() and table.reached[np.abs(azimuth) < 7].any()


def test_a_base_put_elsewhere_takes_its_map_along(maps):
    shift = np.array([0.1, -0.04])
    move = [f"robot.base_position_m=[{-0.05 + shift[0]}, {shift[1]}, 0.0]"]
    table = [f"scene.static_positions_m.mat=[{0.22 + shift[0]}, {shift[1]}, 0.0]"]
    moved = workspace(load_config(overrides=[*COARSE, *move, *table]))
    assert moved.pan_axis_m == pytest.approx(maps.pan_axis_m + shift)
    assert moved.table.x_edges == pytest.approx(maps.table.x_edges + shift[0])
    assert (moved.table.yaw_share == maps.table.yaw_share).all()


def test_slice_holds_what_the_arm_does(coarse, maps):
    """The hand at any joints in the arm's plane lies in a cell whose approaches include its own, up to the step
    between samples."""
    kinematics, heights = ArmKinematics(coarse), maps.slice
    rng, missed = np.random.default_rng(1), 0
    for q in rng.uniform(kinematics.lower[:5], kinematics.upper[:5], (400, 5)):
        q[0], q[4] = 0.0, 0.5 * np.pi
        T = kinematics.fk(q)
        r, z = T[0, 3] - coarse.skillgen.transit.pan_axis_m[0], T[2, 3]
        i, j = np.digitize(r, heights.radius_edges) - 1, np.digitize(z, heights.height_edges) - 1
        if not (0 <= i < heights.dip_low_deg.shape[0] and 0 <= j < heights.dip_low_deg.shape[1]):
            continue
        dip = np.rad2deg(np.arctan2(-T[2, 0], T[0, 0]))
        missed += not heights.dip_low_deg[i, j] - 15 <= dip <= heights.dip_high_deg[i, j] + 15
    assert missed <= 8  # at the edge of the reach


def test_slice_serves_between_its_ends(maps):
    heights = maps.slice
    middle = (heights.dip_low_deg + heights.dip_high_deg) / 2
    some = np.isfinite(middle)
    assert some.any() and not some.all()
    place = tuple(np.argwhere(some)[0])
    assert heights.serves(middle[place])[place] and not heights.serves(heights.dip_high_deg[place] + 1)[place]
    assert not heights.serves(45.0)[~some].any()


def test_start_areas_are_where_objects_start(coarse):
    areas = {area.name: area for area in start_areas(coarse)}
    assert list(areas) == ["vial", "rack"] and areas["vial"].moved and not areas["rack"].moved
    assert areas["vial"].x_m == pytest.approx((0.19, 0.27)) and areas["vial"].y_m == pytest.approx((-0.09, -0.07))


def test_area_numbers_count_cells(maps):
    table = maps.table
    whole = StartArea("all", True, (-1, 1), (-1, 1))
    numbers = area_numbers(maps, whole)
    assert numbers["cells"] == table.reached.size and numbers["reached"] == table.reached.sum()
    assert numbers["limit_margin"] == round(float(np.nanmin(table.margin)), 4)
    point = area_numbers(maps, StartArea("dot", True, (0.2, 0.2), (0.0, 0.0)))
    assert point["cells"] in (1, 2, 4) and point["reached"] == point["cells"] and point["dips_deg"] == [50.0, 80.0]
    nowhere = area_numbers(maps, StartArea("far", True, (0.41, 0.42), (0.28, 0.3)))
    assert nowhere["reached"] == 0 and nowhere["dips_deg"] is None and nowhere["nearest_joint"] is None
    json.dumps(workspace_numbers(maps), allow_nan=False)


def test_pictures_are_svg_with_areas_and_names(maps):
    drawn = pictures(maps)
    assert set(drawn) == {"yaws", "approaches", "limits", "slice"} and pictures(maps) == drawn
    for name, svg in drawn.items():
        ElementTree.fromstring(svg)
        alone = standalone(svg)
        assert "var(" in svg and "var(" not in alone
        assert ElementTree.fromstring(alone).tag == "{http://www.w3.org/2000/svg}svg"
        if name != "slice":
            assert ">vial<" in svg and ">rack<" in svg and ">arm<" in svg
    assert ">100 %<" in drawn["yaws"] and ">50–80°<" in drawn["approaches"]
    assert ">shoulder<" in drawn["limits"] and ">90° down<" in drawn["slice"]


def test_page_shows_the_maps_or_says_how(coarse, tmp_path):
    run = RunFolder(tmp_path / "run")
    write_report(coarse, run, SilentReporter(), 1)
    text, numbers = (run.report / "index.html").read_text(), json.loads((run.report / "report.json").read_text())
    assert "Yaws of an object that are served" in text and "What the arm reaches" in text
    assert numbers["workspace"]["vial"]["reached"] == numbers["workspace"]["vial"]["cells"] > 0
    without = load_config(overrides=[*COARSE, "dataset.report.workspace.in_report=false"])
    write_report(without, run, SilentReporter(), 1)
    assert "./twin workspace" in (run.report / "index.html").read_text()
    assert json.loads((run.report / "report.json").read_text())["workspace"] is None


def test_cells_that_fail_are_told_what_ik_serves_there(coarse, maps, tmp_path):
    run = RunFolder(tmp_path / "run")
    for index in range(6):
        save_demo(run.failed, make_demo(coarse, index, cause="grasp_missed"))
    write_report(coarse, run, SilentReporter(), 1)
    objects = json.loads((run.report / "report.json").read_text())["coverage"]["objects"]
    low = objects["vial"]["position"]["low"]
    assert low and all(c["yaws_served"] == maps.table.yaw_share_in(c["x_m"], c["y_m"]) == 1.0 for c in low)
    assert all(cell["yaws_served"] is None for cell in objects["rack"]["position"]["low"])
    assert "Yaws the arm serves" in (run.report / "index.html").read_text()


def test_command_writes_cells_and_pictures(coarse, maps, tmp_path, capsys):
    sets = [item for override in COARSE for item in ("--set", override)]
    assert program.main(["workspace", "--json", str(tmp_path / "w.json"), "--out", str(tmp_path / "maps"), *sets]) == 0
    assert "vial" in capsys.readouterr().out
    assert json.loads((tmp_path / "w.json").read_text()) == json.loads(json.dumps(workspace_numbers(maps)))
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == [
        "approaches.svg", "limits.svg", "slice.svg", "yaws.svg",
    ]  # fmt: skip


def test_a_table_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"report\.workspace\.table is 'matt'; scene\.yaml has the statics .*mat"):
        workspace(load_config(overrides=["dataset.report.workspace.table=matt"]))
