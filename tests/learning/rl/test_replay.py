from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from so101.learning.rl.replay import Replay, Ring

OBS, ACTION = gymnasium.spaces.Box(-9, 9, (3,)), gymnasium.spaces.Box(-1, 1, (2,))


def rows(first: int, count: int) -> torch.Tensor:
    return torch.arange(first, first + count, dtype=torch.float32)[:, None].repeat(1, 2)


@given(pinned=st.integers(0, 5), parts=st.lists(st.integers(0, 12), max_size=6), room=st.integers(1, 9))
def test_a_ring_holds_what_is_pinned_and_the_newest_of_the_rest(pinned, parts, room):
    ring = Ring(pinned + room, 2, torch.device("cpu"))
    ring.rows[:] = float("nan")
    ring.add(rows(-pinned, pinned))
    ring.pin()
    written = 0
    for part in parts:
        ring.add(rows(written, part))
        written += part
    held = sorted(ring.rows[: ring.size, 0].tolist())
    assert held == [*range(-pinned, 0), *range(max(0, written - room), written)]


def test_a_ring_comes_back_as_it_was():
    ring, other = Ring(5, 2, torch.device("cpu")), Ring(5, 2, torch.device("cpu"))
    ring.add(rows(0, 2))
    ring.pin()
    ring.add(rows(2, 4))
    other.restore(*ring.state())
    for each in (ring, other):
        each.add(rows(6, 2))
    assert torch.equal(ring.rows, other.rows) and ring.pinned == other.pinned


def test_more_rows_than_there_is_room_for_are_refused():
    ring = Ring(5, 2, torch.device("cpu"))
    with pytest.raises(ValueError, match="7 rows do not fit into 5"):
        ring.restore(rows(0, 7), {"pinned": 0, "next": 0})


def add(replay: Replay, value: float, done: bool, ran_out: bool) -> None:
    replay.add(
        np.full((1, 3), value), np.full((1, 3), value + 1), np.full((1, 2), 0.5), np.array([value * 10]),
        np.array([done]), [{"TimeLimit.truncated": ran_out} if done else {}],
    )  # fmt: skip


def test_an_episode_that_ran_out_is_not_terminal():
    replay = Replay(10, OBS, ACTION, n_envs=1)
    add(replay, 1.0, done=False, ran_out=False)
    add(replay, 2.0, done=True, ran_out=True)
    add(replay, 3.0, done=True, ran_out=False)
    (batch,) = replay.draw(1, 400)
    terminal = {int(o): float(t) for o, t in zip(batch.obs[:, 0], batch.terminal, strict=True)}
    assert terminal == {1: 0.0, 2: 0.0, 3: 1.0}
    assert torch.equal(batch.next_obs, batch.obs + 1)
    assert torch.equal(batch.reward, batch.obs[:, 0] * 10)
    assert batch.demos == 0


def test_half_of_every_batch_is_demos_for_ever():
    replay = Replay(4, OBS, ACTION, n_envs=1, demo_room=2)
    replay.demos.add(replay.rows(np.full((2, 3), -1), np.zeros((2, 2)), np.zeros(2), np.zeros(2), np.zeros((2, 3))))
    replay.demos.pin()
    for value in range(1, 100):
        add(replay, value, done=False, ran_out=False)
    for batch in replay.draw(5, 32):
        assert batch.demos == 16
        assert (batch.obs[:16] == -1).all() and (batch.obs[16:] >= 96).all()


def test_with_nothing_done_yet_a_batch_is_all_demos():
    replay = Replay(4, OBS, ACTION, n_envs=1, demo_room=2)
    replay.demos.add(replay.rows(np.full((2, 3), -1), np.zeros((2, 2)), np.zeros(2), np.zeros(2), np.zeros((2, 3))))
    (batch,) = replay.draw(1, 8)
    assert batch.demos == 8 and (batch.obs == -1).all()


def test_what_is_drawn_depends_on_the_seed_alone():
    drawn = []
    for seed in (3, 3, 4):
        replay = Replay(50, OBS, ACTION, n_envs=1, seed=seed)
        for value in range(50):
            add(replay, value, done=False, ran_out=False)
        drawn.append(replay.draw(2, 16)[1].obs)
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
