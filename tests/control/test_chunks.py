import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.control.chunks import ChunkPlan

ALPHA = 0.2


def plan(*, execute_steps=8, run_on=False, ema_alpha=ALPHA, max_stale_s=0.5) -> ChunkPlan:
    made = ChunkPlan(execute_steps, run_on=run_on, ema_alpha=ema_alpha, max_stale_s=max_stale_s)
    made.start_from(np.zeros(6))
    return made


def chunk(begin: float, slope: float = 0.01, rows: int = 16) -> np.ndarray:
    return np.repeat(begin + slope * np.arange(rows)[:, None], 6, axis=1)


@given(st.integers(1, 15), st.floats(0.05, 1.0))
def test_chunks_that_agree_pass_unchanged(execute_steps, alpha):
    made, sent = plan(execute_steps=execute_steps, ema_alpha=alpha), []
    made.start_from(np.full(6, 0.0))
    for _ in range(5):
        made.push(chunk(0.01 * len(sent)), elapsed=0, now_s=0.0)
        while not made.wants_next:
            sent.append(made.next(0.0).q[0])
    np.testing.assert_allclose(sent, 0.01 * np.arange(len(sent)), atol=1e-12)


@given(st.floats(-1, 1), st.floats(0.05, 1.0))
def test_the_difference_at_a_seam_fades_as_a_moving_average(jump, alpha):
    made = plan(ema_alpha=alpha)
    made.push(chunk(0.0), elapsed=0, now_s=0.0)
    for _ in range(8):
        made.next(0.0)
    new = chunk(0.08 + jump)
    made.push(new, elapsed=0, now_s=0.0)
    for k in range(8):
        np.testing.assert_allclose(made.next(0.0).q, new[k] - jump * (1 - alpha) ** (k + 1), atol=1e-12)


def test_the_first_chunk_fades_in_from_the_pose_held():
    made = plan()
    made.start_from(np.full(6, 1.0))
    made.push(chunk(0.0, slope=0.0), elapsed=0, now_s=0.0)
    assert made.next(0.0).q[0] == pytest.approx(0.8)
    assert made.next(0.0).q[0] == pytest.approx(0.64)


def test_after_a_hold_the_new_chunk_fades_in_from_what_was_sent_last():
    made = plan(ema_alpha=0.5)
    made.push(chunk(0.0), elapsed=0, now_s=0.0)
    for _ in range(8):
        made.next(0.0)
    assert made.next(0.0) is None  # eight of sixteen, and no run-on
    made.push(chunk(0.3, slope=0.0), elapsed=0, now_s=0.0)
    assert made.next(0.0).q[0] == pytest.approx((0.3 + 0.07) / 2)  # 0.07 was the last row sent, not 0.08


def test_run_on_executes_the_rest_of_the_old_chunk_and_the_new_one_is_aligned():
    made = plan(run_on=True, ema_alpha=1.0)
    made.push(chunk(0.0), elapsed=0, now_s=0.0)
    for _ in range(8):
        made.next(0.0)
    assert made.wants_next
    asked_at = made.executed
    assert [made.next(0.0).row for _ in range(3)] == [8, 9, 10]
    made.push(chunk(5.0), elapsed=made.executed - asked_at, now_s=0.0)
    target = made.next(0.0)
    assert target.row == 3 and target.q[0] == pytest.approx(5.03)
    assert not made.wants_next
    for _ in range(4):
        made.next(0.0)
    assert made.wants_next, "asked again eight rows after the observation, not after the arrival"


def test_a_chunk_that_comes_after_its_last_row_is_not_executed():
    made = plan(run_on=True)
    made.push(chunk(0.0), elapsed=16, now_s=0.0)
    assert made.next(0.0) is None and made.wants_next


@pytest.mark.parametrize("run_on", [True, False])
def test_stale_rows_are_not_executed_and_the_next_chunk_is_wanted(run_on):
    made = plan(run_on=run_on, max_stale_s=0.5)
    made.push(chunk(0.0), elapsed=0, now_s=10.0)
    assert made.next(10.5) is not None and not made.wants_next
    assert made.next(10.51) is None
    assert made.wants_next and made.empty


def test_a_pause_forgets_the_chunk_but_not_the_pose():
    made = plan()
    made.push(chunk(1.0, slope=0.0), elapsed=0, now_s=0.0)
    held = made.next(0.0).q
    made.drop()
    assert made.next(0.0) is None and made.wants_next
    made.push(chunk(1.0, slope=0.0), elapsed=0, now_s=0.0)
    np.testing.assert_allclose(made.next(0.0).q, 0.2 * 1.0 + 0.8 * held)


def test_short_chunks_are_executed_to_their_end():
    made = plan()
    made.push(chunk(0.0, rows=3), elapsed=0, now_s=0.0)
    assert [made.next(0.0) is not None for _ in range(4)] == [True, True, True, False]
    assert made.wants_next
