from __future__ import annotations

import numpy as np
import pytest

from so101.datasets.demo_file import DemoHeader, DemoWriter, Episode
from so101.datasets.demo_transitions import load_transitions
from so101.families import find_task, make_env
from so101.learning.rl.demo_rewards import with_rewards

TASK = "so101_tower_lift_brick"


def recorded(reward_mode: str, steps: int = 25) -> tuple[Episode, DemoHeader]:
    """An episode of targets that wander, the same whatever is paid."""
    env = make_env(TASK, 1, reward_mode=reward_mode, autoreset=False, threads=1)
    random = np.random.default_rng(0)
    columns: dict[str, list[np.ndarray]] = {key: [] for key in ("obs", "action", "reward", "next_obs")}
    obs, _ = env.reset(options={"seeds": [10_000]})
    action = env.hold_action(env.qpos[:, :6])
    for _ in range(steps):
        action = np.clip(action + random.uniform(-0.1, 0.1, (1, 6)), -1, 1)
        after, reward, *_ = env.step(action)
        for key, value in zip(columns, (obs, action, reward, after), strict=True):
            columns[key].append(np.asarray(value[0], np.float32))
        obs = after
    names = [f"j{i}" for i in range(6)]
    header = DemoHeader(TASK, "so101_tower", 1 / env.control_dt, env.observation_names, names, {})
    zeros = np.zeros(steps, np.float32)
    arrays = {key: np.array(values) for key, values in columns.items()}
    return Episode(**arrays, done=zeros, flags=np.zeros(steps, np.uint32), seed=10_000, success=False), header


@pytest.mark.parametrize("mode", ["staged", "potential"])
def test_demos_are_paid_as_the_environment_would(tmp_path, mode):
    episode, header = recorded("staged")
    DemoWriter(tmp_path / "a.demo", header).append(episode)
    demos = load_transitions([tmp_path / "a.demo"])
    paid = with_rewards(demos, [tmp_path / "a.demo"], "all", find_task(TASK), mode)
    np.testing.assert_allclose(paid.reward, recorded(mode)[0].reward, atol=2e-3)
    assert (paid.obs == demos.obs).all()
