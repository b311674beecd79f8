"""Rows of .demo files for training: filters, counts, and files that do not go together."""

from __future__ import annotations

import numpy as np
import pytest

from so101.datasets.demo_file import INTERVENED, SUCCESS, write_demo
from so101.datasets.demo_transitions import load_transitions
from so101.errors import DataError
from tests.datasets.demos import make_episode, make_header, mrl_bytes


@pytest.fixture
def paths(tmp_path):
    """5 + 3 rows in one file, of which the 3 failed, and 4 in another; every second row of each is intervened."""
    first, second = tmp_path / "a.demo", tmp_path / "b.demo"
    write_demo(first, make_header(), [make_episode(1, 5), make_episode(2, 3, success=False)])
    write_demo(second, make_header(), [make_episode(3, 4)])
    return [first, second]


def test_a_filter_keeps_exactly_the_rows_it_names(paths):
    every = load_transitions(paths)
    assert len(every) == 12 and vars(every.counts) == {
        "episodes": 3, "successes": 2, "rows": 12, "intervened": 2 + 1 + 2, "kept": 12,
    }  # fmt: skip
    for name, mask in {"success": every.flags & SUCCESS > 0, "intervened": every.flags & INTERVENED > 0}.items():
        chosen = load_transitions(paths, name)
        assert chosen.counts.kept == len(chosen) == mask.sum()
        for key in ("obs", "action", "reward", "next_obs", "done", "flags"):
            np.testing.assert_array_equal(getattr(chosen, key), getattr(every, key)[mask])


def test_files_keep_their_order(paths):
    there, back = load_transitions(paths), load_transitions(paths[::-1])
    np.testing.assert_array_equal(np.concatenate([there.obs[8:], there.obs[:8]]), back.obs)


@pytest.mark.parametrize(
    ("header", "options", "text"),
    [
        ({"obs_dim": 4}, {}, "observation_names is '3 words' in one and '4 words' in the other"),
        ({"task": "so101_reach"}, {}, "task is 'so101_tower_lift_brick' in one and 'so101_reach' in the other"),
        ({"control_hz": 30.0}, {}, "control_hz is 31.25 in one and 30.0 in the other"),
        ({"obs_dim": 4}, {"widths": (3, 2)}, "4 observation words and 2 actions .* but 3 and 2 are trained"),
        (
            {"task": "so101_reach"},
            {"tasks": ["so101_tower_lift_brick"]},
            "of task 'so101_reach', but 'so101_tower_lift",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_naming_both(paths, header, options, text):
    header = make_header(**header)
    write_demo(paths[1], header, [make_episode(3, 4, header)])
    with pytest.raises(DataError, match=text):
        load_transitions(paths, **options)


def test_accepted_tasks_go_together(paths):
    header = make_header(task="so101_tower_teleop_lift_brick", family="so101_tower_teleop")
    write_demo(paths[1], header, [make_episode(3, 4, header)])
    assert len(load_transitions(paths, tasks=["so101_tower_lift_brick", header.task])) == 12


def test_nothing_to_train_from_is_said(paths, tmp_path):
    write_demo(paths[0], make_header(), [make_episode(1, 5, success=False)])
    with pytest.raises(
        DataError, match="no row passes the filter 'success': 5 rows of 1 episodes, 0 successful, 2 rows"
    ):
        load_transitions(paths[:1], "success")
    with pytest.raises(DataError, match="did you mean 'success'"):
        load_transitions(paths, "succes")
    with pytest.raises(DataError, match="no .demo file"):
        load_transitions([])
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    with pytest.raises(DataError, match="damaged"):
        load_transitions(paths)
    paths[0].write_bytes(mrl_bytes([make_episode(1, 5)]))
    with pytest.raises(DataError, match="names no task"):
        load_transitions(paths[:1])
