"""Laws of the vectorised environment: what an episode is depends on its seed and its actions, on nothing else."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.families import EnvironmentFault, make_env
from tests.families.worlds import TASKS

SHORT = ("so101_tower_lift_brick", "so101_lift_brick", "so101_reach")


def drive(env, steps, seed=0, reset=None):
    """Bytes of everything a run of random actions returns."""
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=0) if reset is None else reset()
    seen = [observation]
    for _ in range(steps):
        observation, reward, _, _, info = env.step(rng.uniform(-1, 1, (env.num_envs, 6)))
        seen += [observation, reward, info["reach_m"], info["goal_shortfall_m"]]
    return b"".join(each.tobytes() for each in seen)


@pytest.mark.parametrize("name", SHORT)
def test_same_seed_same_bytes_whatever_ran_before(name):
    env = make_env(name, 3)
    first = drive(env, 8)
    drive(env, 5, seed=9)
    assert drive(env, 8) == first
    assert drive(make_env(name, 3), 8) == first


@pytest.mark.parametrize("name", SHORT)
def test_threads_do_not_change_a_byte(name):
    assert drive(make_env(name, 5, threads=1), 6) == drive(make_env(name, 5, threads=2), 6)


@pytest.mark.parametrize("name", SHORT)
def test_a_lane_does_not_depend_on_the_others(name):
    """One lane of five, alone with the same seed and actions, is the same to the byte; so is any order of lanes."""
    rng = np.random.default_rng(1)
    seeds, order = np.array([3, 41, 5, 6, 1_000_000]), np.array([4, 2, 0, 3, 1])
    actions = rng.uniform(-1, 1, (6, 5, 6))
    five, mixed = make_env(name, 5), make_env(name, 5)
    alone = make_env(name, 1, threads=1)
    starts = five.reset(options={"seeds": seeds})[0], mixed.reset(options={"seeds": seeds[order]})[0]
    np.testing.assert_array_equal(starts[0][order], starts[1])
    np.testing.assert_array_equal(starts[0][4:], alone.reset(seed=1_000_000)[0])
    for each in actions:
        observation, reward, *_ = five.step(each)
        observation_mixed, reward_mixed, *_ = mixed.step(each[order])
        observation_alone, reward_alone, *_ = alone.step(each[4:])
        np.testing.assert_array_equal(observation[order], observation_mixed)
        np.testing.assert_array_equal(reward[order], reward_mixed)
        np.testing.assert_array_equal(observation[4:], observation_alone)
        assert reward[4] == reward_alone[0]


@pytest.mark.parametrize("name", TASKS)
def test_plain_mujoco_gives_the_same_bytes(name):
    """The loop that anybody would write: set the state, the targets, step; then read sites and contacts."""
    env = make_env(name, 2)
    env.reset(seed=21)
    model, rng = env.mj_model, np.random.default_rng(0)
    datas = []
    for lane in range(2):
        data = mujoco.MjData(model)
        data.qpos[:] = env.qpos[lane]
        state = mujoco.mjtState.mjSTATE_FULLPHYSICS
        mujoco.mj_setState(model, data, env._state[lane], state)
        datas.append(data)
    skip = env.family.declaration.control.frame_skip
    for _ in range(4):
        actions = rng.uniform(-1, 1, (2, 6))
        observation, _, _, _, info = env.step(actions)
        for lane, data in enumerate(datas):
            data.ctrl[:] = env.action_to_ctrl(actions[lane])
            data.qacc_warmstart[:] = 0.0  # every period begins cold, so that a state says all
            for _ in range(skip):
                mujoco.mj_step(model, data)
            absent = ~env.active[lane]
            for slot in np.flatnonzero(absent):
                start = 6 + 7 * slot
                data.qpos[start : start + 7] = [10.0 + 0.5 * slot, 0, 50, 1, 0, 0, 0]
                data.qvel[6 + 6 * slot : 12 + 6 * slot] = 0.0
            np.testing.assert_array_equal(env.qpos[lane], data.qpos)
            np.testing.assert_array_equal(env.qvel[lane], data.qvel)
            mujoco.mj_kinematics(model, data)
            site = data.site(env.family.declaration.arm.gripper_site).xpos
            words = env.words["goal"] if "goal" in env.words else env.words["site"]
            np.testing.assert_array_equal(observation[lane, words][:3], site.astype(np.float32))


def test_layout_of_the_observation():
    tower, tabletop, reach = (make_env(name) for name in ("so101_tower_lift_brick", "so101_lift_brick", "so101_reach"))
    assert [len(env.observation_names) for env in (tower, tabletop, reach)] == [49, 63, 27]
    assert tower.words == {"qpos": slice(0, 20), "qvel": slice(20, 38), "active": slice(38, 40), "goal": slice(40, 49)}
    assert tower.observation_names[43:46] == ["to_subject.x", "to_subject.y", "to_subject.z"]
    assert tower.observation_names[6:13] == [f"bowl.{c}" for c in ("x", "y", "z", "qw", "qx", "qy", "qz")]
    assert list(reach.words) == ["qpos", "qvel", "site", "target", "target_minus_site", "previous_action"]
    for env in (tower, tabletop, reach):
        assert len(set(env.observation_names)) == len(env.observation_names)
        observation, _ = env.reset(seed=0)
        assert observation.shape == (1, len(env.observation_names))
        assert observation.dtype == np.float32
        assert observation in env.observation_space


def test_words_are_what_their_names_say():
    env = make_env("so101_tower_lift_brick", 2)
    observation, info = env.reset(seed=5)
    observation, _, _, _, info = env.step(env.action_space.sample())
    for lane in range(2):
        data, words = env.data(lane), observation[lane]
        np.testing.assert_array_equal(words[:20], data.qpos.astype(np.float32))
        np.testing.assert_array_equal(words[20:38], data.qvel.astype(np.float32))
        gripper, brick = data.site("grasp_center").xpos, data.body("brick").xpos
        desk = env.mj_model.body("desk").pos
        goal = np.concatenate([gripper, brick - gripper, desk - brick])
        np.testing.assert_allclose(words[40:49], goal, atol=1e-6)
        assert info["reach_m"][lane] == pytest.approx(np.linalg.norm(brick - gripper))


def test_reach_sees_its_point_and_its_last_action():
    env = make_env("so101_reach", 2)
    observation, _ = env.reset(seed=5)
    np.testing.assert_allclose(observation[:, 21:], env.hold_action(env.qpos), atol=1e-6)
    actions = np.random.default_rng(0).uniform(-2, 2, (2, 6))
    observation, _, _, _, info = env.step(actions)
    np.testing.assert_allclose(observation[:, 21:], np.clip(actions, -1, 1), atol=1e-6)
    np.testing.assert_allclose(observation[:, 15:18], env.targets, atol=1e-6)
    np.testing.assert_allclose(observation[:, 18:21], observation[:, 15:18] - observation[:, 12:15], atol=1e-6)
    np.testing.assert_allclose(info["reach_m"], np.linalg.norm(observation[:, 18:21], axis=1), atol=1e-6)


def test_absent_objects_are_parked_every_step_and_read_as_zeros():
    env = make_env("so101_reach_brick", 2)
    observation, _ = env.reset(seed=0)
    assert env.active.tolist() == [[True, False, False]] * 2
    for _ in range(30):
        observation, *_ = env.step(env.action_space.sample())
        for number in (1, 2):
            at = 6 + 7 * number
            np.testing.assert_array_equal(env.qpos[:, at : at + 7], [[10 + 0.5 * number, 0, 50, 1, 0, 0, 0]] * 2)
            assert (env.qvel[:, 6 + 6 * number : 12 + 6 * number] == 0.0).all()
        assert (observation[:, 13:27] == 0.0).all()  # qpos of the cubes
        assert (observation[:, 39:51] == 0.0).all()  # qvel of the cubes
        assert observation[:, env.words["active"]].tolist() == [[1.0, 0.0, 0.0]] * 2


def test_zero_is_the_middle_of_the_range_not_stay():
    env = make_env("so101_tower_lift_brick")
    np.testing.assert_allclose(env.action_to_ctrl(np.zeros(6)), (env.lower + env.upper) / 2)
    assert env.action_to_ctrl(np.zeros(6))[5] == pytest.approx(0.7854, abs=1e-4)  # half open
    env.reset(seed=0)
    before = env.qpos[0, :6].copy()
    for _ in range(15):
        env.step(np.zeros((1, 6)))
    assert np.abs(env.qpos[0, :6] - before).max() > 0.5


@pytest.mark.parametrize(("name", "drift_rad"), [("so101_tower_lift_brick", 0.01), ("so101_lift_brick", 0.01)])
def test_hold_action_holds(name, drift_rad):
    """A second of holding, where the arm was put: gravity moves stiff servos by less than a hundredth of a radian."""
    env = make_env(name, 4)
    env.reset(seed=0)
    start = env.qpos[:, :6].copy()
    action = env.hold_action(start)
    for _ in range(int(1.0 / env.control_dt)):
        env.step(action)
    assert np.abs(env.qpos[:, :6] - start).max() < drift_rad
    assert np.abs(env.qvel[:, :6]).max() < 0.02


def test_actions_and_targets_are_inverses_and_clip():
    env = make_env("so101_reach")
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (7, 3, 6))
    np.testing.assert_allclose(env.ctrl_to_action(env.action_to_ctrl(actions)), actions, atol=1e-12)
    np.testing.assert_allclose(env.action_to_ctrl(np.full(6, 9.0)), env.upper)
    np.testing.assert_allclose(env.action_to_ctrl(np.full(6, -9.0)), env.lower)
    assert (np.abs(env.hold_action(np.full(6, 3.0))) == 1.0).all()
    assert env.action_to_ctrl(np.ones(6)) == pytest.approx(env.mj_model.actuator_ctrlrange[:, 1])


def test_actions_beyond_the_range_are_those_at_its_end():
    wide, clipped = make_env("so101_reach", 2), make_env("so101_reach", 2)
    wide.reset(seed=0), clipped.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-3, 3, (2, 6))
    np.testing.assert_array_equal(wide.step(actions)[0], clipped.step(np.clip(actions, -1, 1))[0])


def test_the_horizon_truncates_and_the_lane_goes_on_with_a_new_episode():
    env, fresh = make_env("so101_lift_brick", 3, horizon=4, seed=10), make_env("so101_lift_brick", 3)
    env.reset()
    assert env.episode_seeds.tolist() == [10, 11, 12]
    for step in range(1, 4):
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        assert not (terminated | truncated).any()
        assert info["steps"].tolist() == [step] * 3
        assert "final_obs" not in info
    observation, _, terminated, truncated, info = env.step(env.action_space.sample())
    assert truncated.all()
    assert not terminated.any()
    assert info["episode_seed"].tolist() == [10, 11, 12]
    assert info["steps"].tolist() == [4] * 3
    assert env.episode_seeds.tolist() == [13, 14, 15]
    np.testing.assert_array_equal(observation, fresh.reset(seed=13)[0])
    assert not np.array_equal(info["final_obs"], observation)
    assert env.steps.tolist() == [0] * 3


def test_final_observation_is_the_one_a_longer_episode_would_have_seen():
    short, long = make_env("so101_lift_brick", 2, horizon=3), make_env("so101_lift_brick", 2)
    short.reset(seed=0), long.reset(seed=0)
    for action in np.random.default_rng(0).uniform(-1, 1, (3, 2, 6)):
        *_, info = short.step(action)
        seen, *_ = long.step(action)
    np.testing.assert_array_equal(info["final_obs"], seen)


def test_lanes_end_at_their_own_time():
    env = make_env("so101_lift_brick", 3, horizon=4)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    untouched = env.qpos[[0, 2]].copy()
    env.reset_lanes(np.array([False, True, False]), np.array([0, 77, 0]))
    np.testing.assert_array_equal(env.qpos[[0, 2]], untouched)
    assert env.episode_seeds.tolist() == [0, 77, 2]
    ends = [env.step(env.action_space.sample())[3].tolist() for _ in range(4)]
    assert ends == [[False] * 3, [False] * 3, [True, False, True], [False, True, False]]
    assert env.episode_seeds.tolist() == [3, 80, 5]


def test_every_reset_without_a_seed_begins_the_next_episodes():
    env = make_env("so101_lift_brick", 2, seed=4)
    env.reset()
    assert env.episode_seeds.tolist() == [4, 5]
    env.reset()
    assert env.episode_seeds.tolist() == [6, 7]
    env.reset(seed=1)
    assert env.episode_seeds.tolist() == [1, 2]


def test_settle_brick_holds_from_the_start():
    env = make_env("so101_settle_brick", 4)
    _, info = env.reset(seed=0)
    assert info["success"].all()
    assert (info["goal_shortfall_m"] == 0.0).all()
    for step in range(1, 4):
        *_, info = env.step(env.hold_action(env.qpos[:, :6]))
        assert info["held_steps"].tolist() == [step] * 4


def test_held_steps_count_from_the_last_loss():
    env = make_env("so101_settle_brick")
    env.reset(seed=0)
    hold = env.hold_action(env.qpos[:, :6])
    counts = []
    for lift in (0.0, 0.0, 0.3, 0.0, 0.0):
        qpos, held = env.qpos[0].copy(), env._held[0]
        qpos[6 + 2] = 0.035 + lift
        env.set_state(0, qpos)
        env._held[0] = held  # a state that was put begins an episode: keep the count for this test
        counts.append(int(env.step(hold)[-1]["held_steps"][0]))
    assert counts == [1, 2, 0, 1, 2]


def test_nothing_ends_with_success():
    env = make_env("so101_settle_brick", horizon=6)
    env.reset(seed=0)
    ends = [env.step(env.hold_action(env.qpos[:, :6])) for _ in range(6)]
    assert [bool(each[2][0]) for each in ends] == [False] * 6
    assert [bool(each[3][0]) for each in ends] == [False] * 5 + [True]
    assert all(each[-1]["success"][0] for each in ends)


def test_a_brick_at_rest_earns_its_goal_term_for_nothing():
    env = make_env("so101_tower_lift_brick", 8)
    env.reset(seed=0)
    for _ in range(16):
        *_, info = env.step(env.hold_action(env.qpos[:, :6]))
    assert info["goal_shortfall_m"] == pytest.approx(0.0365, abs=3e-4)
    assert env._reward.goal_term(info["goal_shortfall_m"]) == pytest.approx(0.736, abs=0.004)


def test_rewards_of_the_modes_agree_with_each_other():
    """From the same actions: potential pays the steps of the staged sum, from the first step on."""
    staged, potential = (
        make_env("so101_tower_lift_brick", 3),
        make_env("so101_tower_lift_brick", 3, reward_mode="potential"),
    )
    staged.reset(seed=0), potential.reset(seed=0)
    before = staged._reward(staged._features())
    for action in np.random.default_rng(0).uniform(-1, 1, (5, 3, 6)):
        _, paid, *_ = staged.step(action)
        _, step, *_ = potential.step(action)
        np.testing.assert_allclose(step, paid - before, atol=1e-12)
        before = paid
    assert staged.reward_per_step == pytest.approx(2.25)


def test_a_state_that_is_put_begins_an_episode():
    """Also for a reward that remembers: the first step after it must not pay for the jump."""
    env = make_env("so101_tower_lift_brick", 2, reward_mode="potential")
    env.reset(seed=0)
    for _ in range(15):
        env.step(env.hold_action(env.qpos[:, :6]))
    qpos = env.qpos[0].copy()
    qpos[:6] = [0.5, -0.3, 0.3, 0.9, 0.0, 0.2]
    env.set_state(0, qpos)
    assert env.steps.tolist() == [0, 15]
    np.testing.assert_array_equal(env.qpos[0], qpos)
    assert (env.qvel[0] == 0.0).all()
    _, reward, _, _, info = env.step(env.hold_action(env.qpos[:, :6]))
    assert np.abs(reward).max() < 0.02
    assert info["steps"].tolist() == [1, 16]


def test_set_state_returns_what_was_put_and_takes_objects_away():
    env = make_env("so101_lift_brick", 2)
    env.reset(seed=0)
    env.set_state(1, env.qpos[1].copy(), env.qvel[1].copy(), np.array([True, False, False]))
    observation, *_ = env.step(env.hold_action(env.qpos[:, :6]))
    assert observation[:, env.words["active"]].tolist() == [[1, 1, 0], [1, 0, 0]]
    assert (observation[1, 13:27] == 0.0).all()


def test_without_autoreset_the_last_state_can_be_looked_at():
    env = make_env("so101_lift_brick", 2, horizon=2, autoreset=False)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    observation, _, _, truncated, info = env.step(env.action_space.sample())
    assert truncated.all()
    assert "final_obs" not in info
    assert env.episode_seeds.tolist() == [0, 1]
    np.testing.assert_array_equal(observation[:, :6], env.qpos[:, :6].astype(np.float32))
    first, info = env.reset_lanes(np.array([True, False]), np.array([9, 9]))
    np.testing.assert_array_equal(first[1], observation[1])
    assert info["episode_seed"].tolist() == [9, 1]


def test_what_a_step_returned_does_not_change_afterwards():
    """Learners keep these arrays."""
    env = make_env("so101_tower_lift_brick", 2, horizon=3)
    env.reset(seed=0)
    kept, copies = [], []
    for _ in range(5):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        arrays = [observation, reward, terminated, truncated, *info.values()]
        kept.append(arrays)
        copies.append([each.copy() for each in arrays])
    for arrays, before in zip(kept, copies, strict=True):
        for array, copy in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_data_has_positions_and_contacts_and_leaves_the_lane_alone():
    env = make_env("so101_tower_lift_brick", 2)
    env.reset(seed=0)
    for _ in range(20):
        env.step(env.hold_action(env.qpos[:, :6]))
    before = env.qpos.copy(), env.qvel.copy()
    data = env.data(1)
    np.testing.assert_array_equal(data.qpos, env.qpos[1])
    assert data.ncon > 0
    assert data.body("brick").xpos == pytest.approx(env.qpos[1, 13:16])
    np.testing.assert_array_equal(env.qpos, before[0])
    np.testing.assert_array_equal(env.qvel, before[1])


@pytest.mark.parametrize("name", TASKS)
def test_every_task_runs(name):
    env = make_env(name, 2, horizon=5)
    observation, info = env.reset(seed=1_000_000)
    assert np.isfinite(observation).all()
    assert set(info) == {
        "success", "held_steps", "reach_m", "grasped", "goal_shortfall_m", "episode_seed", "steps",
    }  # fmt: skip
    for _ in range(6):
        observation, reward, _, _, info = env.step(env.action_space.sample())
        assert np.isfinite(observation).all()
        assert (reward >= 0.0).all()
        assert (reward <= env.reward_per_step).all()
        assert (info["success"] == (info["goal_shortfall_m"] == 0.0)).all()
    env.close()


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: make_env("so101_reach", 0), "num_envs is 0"),
        (lambda: make_env("so101_reach", horizon=0), "horizon is 0"),
        (lambda: make_env("so101_reach").step(np.zeros((1, 6))), "reset before step"),
        (lambda: _stepped(np.zeros(6)), r"\(2, 6\) finite numbers, got \(6,\)"),
        (lambda: _stepped(np.full((2, 6), np.nan)), "finite"),
        (lambda: make_env("so101_reach", 2).reset(options={"seeds": [1]}), "seeds must be 2 numbers"),
        (lambda: make_env("so101_reach", 2).reset(options={"seeds": [1, -1]}), r"from 0 on, got \[1, -1\]"),
    ],
)
def test_faults_say_what_is_wrong(act, text):
    with pytest.raises(EnvironmentFault, match=text):
        act()


def _stepped(actions):
    env = make_env("so101_reach", 2)
    env.reset(seed=0)
    env.step(actions)
