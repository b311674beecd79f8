"""Open-loop replay: what was recorded happens again to the bit, and a demo that does not work is thrown out."""

from __future__ import annotations

import re

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import demo_to_bytes, list_demos, load_demo, save_demo
from so101.errors import DataError
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.skillgen import causes
from so101.skillgen.ik_rollout import AttemptRunner
from so101.trajectory.smoothing import smooth_demo
from so101.trajectory.verification import Verifier, verify_demos


@pytest.fixture(scope="module")
def good(vial_runner):
    return next(demo for demo in map(vial_runner.run, range(10)) if demo.strict)


@pytest.fixture(scope="module")
def verifier(vial_config):
    return Verifier(vial_config)


def sabotaged(demo, index: int = 77):
    """The jaw stays as open as it ever was."""
    targets = demo.q_target.copy()
    targets[:, 5] = targets[:, 5].max()
    return demo.replace(q_target=targets, index=index)


def test_the_unsmoothed_demo_happens_again_to_the_bit(verifier, good):
    q, objects = verifier.run_open_loop(good.physics_state, good.q_target, good.meta["randomisation"])
    np.testing.assert_array_equal(q, good.q)
    for name, poses in good.objects.items():
        np.testing.assert_array_equal(objects[name], poses)


def test_a_demo_with_all_physics_drawn_happens_again_to_the_bit(vial_seeds, tmp_path):
    """From its file, in a verifier that has replayed other physics before."""
    config = load_config(overrides=["task.name=vial_to_rack", "scene.randomisation.enabled=true"])
    runner, verifier = AttemptRunner(config, vial_seeds), Verifier(config)
    seen = set()
    for index in range(4):
        demo = load_demo(save_demo(tmp_path, runner.run(index)))
        drawn = demo.meta["randomisation"]
        seen |= {key for key, value in drawn["physics"].items() if value}
        q, objects = verifier.run_open_loop(demo.physics_state, demo.q_target, drawn)
        np.testing.assert_array_equal(q, demo.q)
        assert set(objects) == set(demo.objects) == set(config.objects)
        for name, poses in demo.objects.items():
            np.testing.assert_array_equal(objects[name], poses)
        others, _ = verifier.run_open_loop(demo.physics_state, demo.q_target, {})
        assert not np.array_equal(others, demo.q)
    assert seen == {"joints", "jaw_friction", "objects", "statics", "racked", "distractors"}


def test_a_replay_does_not_depend_on_the_one_before(verifier, good):
    first = verifier.replay(good)
    verifier.replay(sabotaged(good))
    assert demo_to_bytes(verifier.replay(good)) == demo_to_bytes(first)


def test_a_demo_that_works_is_kept_with_the_states_of_its_replay(verifier, good, vial_config):
    smoothed = smooth_demo(good, vial_config)
    replayed = verifier.replay(smoothed)
    assert replayed.strict and replayed.cause == ""
    np.testing.assert_array_equal(replayed.q_target, smoothed.q_target)
    assert not np.array_equal(replayed.q, smoothed.q)  # the states are what these targets cause
    assert np.sqrt(np.mean((replayed.q - smoothed.q) ** 2)) < 0.03  # rad: nearly the same motion
    assert replayed.meta["replay"]["axis_distance_m"] < 0.015
    assert replayed.meta["subtasks"] == good.meta["subtasks"]


def test_a_demo_whose_jaw_never_closes_is_rejected(verifier, good):
    replayed = verifier.replay(sabotaged(good))
    assert replayed.cause == causes.NOT_INSERTED
    assert not replayed.strict


def test_a_demo_that_pushes_the_rack_away_is_told_apart(verifier, good):
    loose = load_config(overrides=["task.name=vial_to_rack", "task.tasks.vial_to_rack.success.container_push_m=1e-9"])
    assert Verifier(loose).replay(sabotaged(good)).cause == causes.RACK_COLLISION


def test_keep_geometric_keeps_what_only_the_loose_test_passes(good):
    strictest = "task.tasks.vial_to_rack.success.strict.max_axis_distance_m=1e-9"
    overrides = ["task.name=vial_to_rack", strictest]
    assert Verifier(load_config(overrides=overrides)).replay(good).cause == causes.NOT_INSERTED
    replayed = Verifier(load_config(overrides=[*overrides, "skillgen.keep=geometric"])).replay(good)
    assert replayed.cause == "" and not replayed.strict and replayed.geometric


def test_a_demo_of_another_scene_is_refused(verifier, good):
    with pytest.raises(DataError, match=r"physics state has 5 numbers, this scene needs \d+.*generate again"):
        verifier.replay(good.replace(physics_state=np.zeros(5)))


def test_the_stage_names_the_file_of_another_scene(tmp_path, good, vial_config):
    run = RunFolder(tmp_path)
    path = save_demo(run.smoothed, good.replace(physics_state=np.zeros(5)))
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: the demo's physics state has 5 numbers"):
        verify_demos(vial_config, run, SilentReporter(), workers=1)


def test_the_stage_sorts_resumes_and_forgets_what_is_gone(tmp_path, good, vial_config):
    run = RunFolder(tmp_path)
    save_demo(run.smoothed, good)
    save_demo(run.smoothed, sabotaged(good))
    result = verify_demos(vial_config, run, SilentReporter(), workers=1)
    assert result.produced == 1
    assert result.summary == {"replayed": 2, "rejected": 1, "causes": {causes.NOT_INSERTED: 1}}
    (kept,), (rejected,) = list_demos(run.verified), list_demos(run.rejected)
    assert load_demo(kept).index == good.index and load_demo(rejected).index == 77
    before = kept.stat().st_mtime_ns
    assert verify_demos(vial_config, run, SilentReporter(), workers=1) == result
    assert kept.stat().st_mtime_ns == before  # nothing is done twice
    (run.smoothed / rejected.name).unlink()
    assert verify_demos(vial_config, run, SilentReporter(), workers=1).summary["rejected"] == 0
    assert not rejected.exists()
