"""An attempt is one pure function of its number: in any environment, wherever its base stands, whatever ran before."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import demo_to_bytes
from so101.geometry import make_pose, rotation_about_axis
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen.ik_rollout import AttemptRunner
from so101.tasks.success import free_openings


def random_bases(count: int) -> np.ndarray:
    """(count, 4, 4)"""
    rng = np.random.default_rng(3)
    return np.stack([
        make_pose(rotation_about_axis(np.array([0.0, 0.0, 1.0]), rng.uniform(-3, 3)), rng.uniform(-2, 2, 3))
        for _ in range(count)
    ])  # fmt: skip


@pytest.mark.parametrize("drawn", [False, True], ids=["nominal physics", "drawn physics"])
def test_eight_environments_with_bases_anywhere_make_the_demos_of_one(vial_seeds, drawn):
    """Attempt i in environment i, forwards and in another order, is attempt i of a simulator with one
    environment."""
    config = load_config(overrides=["task.name=vial_to_rack", f"scene.randomisation.enabled={str(drawn).lower()}"])
    alone = AttemptRunner(config, vial_seeds)
    expected = [demo_to_bytes(alone.run(index)) for index in range(8)]
    many = AttemptRunner(config, vial_seeds, MujocoSimulator(config, 8, T_world_base=random_bases(8)))
    for order in (range(8), (5, 2, 7)):
        for index in order:
            assert demo_to_bytes(many.run(index, env=index)) == expected[index]
    assert demo_to_bytes(many.run(0, env=3)) == expected[0]
    assert len(set(expected)) == 8


@pytest.mark.parametrize("drawn", [False, True], ids=["nominal physics", "drawn physics"])
def test_an_attempt_on_the_wide_range_made_again_by_the_same_runner_has_the_same_bytes(vial_seeds, drawn):
    config = load_config(
        overrides=["task.name=vial_to_rack_wide", f"scene.randomisation.enabled={str(drawn).lower()}"]
    )  # fmt: skip
    again = AttemptRunner(config, vial_seeds)
    first = demo_to_bytes(again.run(0))
    assert demo_to_bytes(again.run(1)) != first
    assert demo_to_bytes(again.run(0)) == first


def test_three_vials_end_in_openings_of_their_own_and_do_so_again_to_the_byte(vial_seeds):
    """The first good attempt; the same again after another."""
    config = load_config(overrides=["task.name=three_vials_to_rack", "skillgen.base_seed=0"])
    attempt = AttemptRunner(config, vial_seeds)
    good = next(demo for demo in map(attempt.run, range(8)) if demo.strict)
    assert [mark[0] for mark in good.meta["subtasks"]] == [subtask.name for subtask in config.task.active.subtasks]
    assert len(good.meta["sources"]) == 6  # a seed for every subtask
    last = {name: poses[-1] for name, poses in good.objects.items()}
    assert len(free_openings(config, last)) == 1
    for name in config.task.active.success.objects:
        assert len(free_openings(config, last, but=name)) == 2
    attempt.run(good.index + 1)
    assert demo_to_bytes(attempt.run(good.index)) == demo_to_bytes(good)
