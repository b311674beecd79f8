"""The scripted expert: joints that put the hand where it should be, plans that survive a lost brick, honest rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from so101.cli.app import main
from so101.datasets.demo_file import INTERVENED, SUCCESS, read_demo
from so101.families import find_task, make_env
from so101.families.expert import CLOSE, HOLD, LIFT, Expert, ExpertImpossible, ExpertOptions
from so101.families.expert_ik import HandIK
from so101.families.expert_run import ExpertRun, with_changes

LIFT_BRICK, CUBE_IN_BOWL = "so101_tower_lift_brick", "so101_tower_cube_in_bowl"


@pytest.fixture(scope="module")
def ik() -> HandIK:
    family = find_task(LIFT_BRICK).family
    return HandIK(family, family.declaration.expert.hand)


@pytest.mark.parametrize("yaw", [0.0, 0.4, -0.7, 2.0])
@pytest.mark.parametrize("at", [(0.15, 0.10), (0.22, -0.12), (0.28, 0.0)])
def test_the_jaws_close_along_a_face_and_the_camera_is_on_top(ik, at, yaw):
    face = np.array([np.cos(yaw), np.sin(yaw)])
    q = ik.solve(np.array([*at, 0.03]), -np.pi / 2, pinch=face)
    position, R = ik.pose(q)
    assert position == pytest.approx([*at, 0.03], abs=1e-6)
    assert R[:, 0] == pytest.approx([0.0, 0.0, -1.0], abs=1e-6)
    across = abs(R[:2, 2] @ face)
    assert min(across, 1.0 - across) < 2e-3
    assert R[2, 1] < 0.1  # y of the hand points down when the camera is on top


def test_a_tilted_hand_does_not_lean_more_than_it_may(ik):
    face = np.array([np.cos(0.6), np.sin(0.6)])
    for elevation in np.deg2rad([-75.0, -60.0, -45.0]):
        q = ik.solve(np.array([0.33, -0.05, 0.03]), elevation, pinch=face)
        _, R = ik.pose(q)
        assert R[2, 0] == pytest.approx(np.sin(elevation), abs=1e-6)
        assert abs(R[2, 2]) <= np.sin(np.deg2rad(ik.hand.max_lean_deg)) + 2e-3


def test_the_closing_jaw_keeps_off_the_table(ik):
    surface, reached = 0.002, 0
    for x, y in np.random.default_rng(0).uniform([0.12, -0.2], [0.34, 0.2], (12, 2)):
        q, _ = ik.over_table(np.array([x, y, 0.0145]), surface, ik.hand.jaw_open_rad, np.array([1.0, 0.0]))
        lowest = min(ik.kinematics.lowest_m(np.append(q, jaw)) for jaw in np.linspace(ik.hand.jaw_open_rad, 0.0, 12))
        reached += lowest > surface
    assert reached == 12


@pytest.mark.parametrize(("task", "lanes"), [(LIFT_BRICK, 4), (CUBE_IN_BOWL, 3)])
def test_it_does_the_task(task, lanes):
    run = ExpertRun(make_env(task, lanes, autoreset=False))
    report = run.run(lanes, seed=40)
    assert report.successes == lanes
    assert [episode.seed for episode in report.episodes] == list(range(40, 40 + lanes))
    assert run.hold_steps == 31
    assert all(episode.steps < 300 for episode in report.episodes)


def _drive_until(expert: Expert, stage: str) -> None:
    for _ in range(300):
        expert.env.step(expert.act())
        if expert.stages[0] == stage:
            return
    raise AssertionError(f"never came to {stage}")


def _finish(expert: Expert) -> bool:
    for _ in range(300):
        info = expert.env.step(expert.act())[-1]
        if info["held_steps"][0] >= 31:
            return True
    return False


@pytest.fixture
def lane() -> Expert:
    env = make_env(LIFT_BRICK, 1, autoreset=False)
    env.reset(seed=3)
    return Expert(env)


def test_a_brick_that_was_pushed_away_is_grasped_again(lane):
    _drive_until(lane, CLOSE)
    qpos = lane.env.qpos[0].copy()
    where = 6 + 7 * lane.env.slots.index("brick")
    qpos[where : where + 2] = [0.2, -0.02]
    qpos[where + 2] = 0.0145
    lane.env.set_state(0, qpos)
    assert _finish(lane)
    assert lane.tries == [2]


def test_it_takes_over_a_hand_that_holds_the_brick_without_letting_go(lane):
    _drive_until(lane, LIFT)
    for _ in range(3):
        lane.env.step(lane.act())
    lane.take_over(0)
    for _ in range(10):
        lane.env.step(lane.act())
        assert lane.stages[0] in (LIFT, HOLD)
        assert lane.env.touching[0, lane.env.slots.index("brick")]
    assert _finish(lane)


def test_it_takes_over_from_anywhere(lane):
    for _ in range(40):
        lane.env.step(np.array([[0.2, 0.1, -0.2, 0.5, 0.3, -1.0]]))
    lane.take_over(0)
    assert _finish(lane)


def _actions(seeds: list[int], steps: int = 70, **options: object) -> np.ndarray:
    env = make_env(LIFT_BRICK, len(seeds), autoreset=False)
    env.reset(options={"seeds": seeds})
    expert = Expert(env, ExpertOptions(**options))
    rows = []
    for _ in range(steps):
        rows.append(expert.act())
        env.step(rows[-1])
    return np.array(rows)


def test_noise_follows_from_the_episodes_seed_and_not_from_the_lane():
    alone, beside = _actions([8], noise=0.02)[:, 0], _actions([5, 8], noise=0.02)[:, 1]
    np.testing.assert_array_equal(alone, beside)


def test_noise_fades_on_the_way_down_and_ends_with_the_closing_jaw():
    clean = _actions([1])[:, 0]
    env = make_env(LIFT_BRICK, 1, autoreset=False)

    def spread(flat: bool) -> dict[str, float]:
        """Of the noise alone: the arm follows the clean way, so that the plans are the same."""
        env.reset(seed=1)
        noisy, found = Expert(env, ExpertOptions(noise=0.02, flat_noise=flat)), {}
        for action in clean:
            difference = noisy.act_lane(0) - action
            found.setdefault(noisy.stages[0], []).append(difference)
            env.step(action[None])
        return {stage: [float(np.std(part)) for part in np.array_split(np.array(v), 2)] for stage, v in found.items()}

    fading, flat = spread(False), spread(True)
    assert fading["pre"] == flat["pre"] and min(fading["pre"]) > 0.01
    assert fading["descend"][1] < 0.7 * fading["descend"][0]
    assert flat["descend"][1] > 0.01
    assert max(fading["close"]) == max(flat["close"]) == 0.0


def test_what_it_cannot_do_is_said():
    with pytest.raises(ExpertImpossible, match=r"so101_tower_reach_clear: the expert lifts .* and puts .* an object"):
        Expert(make_env("so101_tower_reach_clear", 1))
    with pytest.raises(ExpertImpossible, match="expert"):
        Expert(make_env("so101_reach", 1))


def test_changes_of_the_command_line_reach_the_settings():
    settings = find_task(LIFT_BRICK).family.declaration.expert
    changed = with_changes(settings, control_dt=0.032, close_steps=10, z_grasp_m=0.01, jaw_open_rad=0.6)
    assert changed.times_s.close == pytest.approx(0.32)
    assert (changed.hand.grasp_over_m, changed.hand.jaw_open_rad) == (0.01, 0.6)
    assert with_changes(settings, control_dt=0.032) == settings


def test_rows_are_what_happened_and_a_policy_hands_over():
    env = make_env(LIFT_BRICK, 1, autoreset=False)

    def stay(obs: np.ndarray) -> np.ndarray:
        return env.hold_action(obs[:, :6])

    kept = []
    run = ExpertRun(env, policy=stay, policy_steps=25)
    report = run.run(1, seed=12, keep=kept.append)
    (rows,) = kept
    assert report.episodes[0].handover_step == 25
    np.testing.assert_array_equal(rows.flags[:25], np.full(25, SUCCESS))
    np.testing.assert_array_equal(rows.flags[25:], np.full(rows.num_rows - 25, SUCCESS | INTERVENED))
    np.testing.assert_array_equal(rows.next_obs[:-1], rows.obs[1:])
    env.reset(seed=12)  # replayed, the same rewards
    replayed = [env.step(action[None])[1][0] for action in rows.action]
    np.testing.assert_allclose(replayed, rows.reward, rtol=1e-4)


def test_the_command_writes_demos_and_figures(tmp_path, capsys):
    demo, figures = tmp_path / "lift.demo", tmp_path / "lift.json"
    arguments = [LIFT_BRICK, "--episodes", "2", "--seed", "60", "--out", str(demo), "--json", str(figures)]
    assert main(["expert", *arguments, "--noise", "0.01"]) == 0
    printed = capsys.readouterr().out
    assert "Wilson 95 %" in printed and "60 to 61" in printed
    told = json.loads(figures.read_text())
    assert told["n"] == 2 and told["seeds"] == [60, 61] and told["options"]["noise"] == 0.01
    file = read_demo(demo)
    assert len(file.episodes) == told["successes"]
    assert file.header.task == LIFT_BRICK
    assert main(["expert", "so101_reach", "--episodes", "1"]) == 1
    assert "no `expert` section" in capsys.readouterr().err
