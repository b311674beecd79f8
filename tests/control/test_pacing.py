import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from so101.control.pacing import Grid, MonotonicClock


class FakeClock:
    """Time that passes only when told to; sleeping may wake `oversleep_s` late."""

    def __init__(self, oversleep_s: float = 0.0) -> None:
        self.time_s, self.oversleep_s = 100.0, oversleep_s

    def now(self) -> float:
        return self.time_s

    def sleep_until(self, time_s: float) -> None:
        if time_s > self.time_s:
            self.time_s = time_s + self.oversleep_s


@given(work_s=st.lists(st.floats(0, 0.2), max_size=60), oversleep_s=st.floats(0, 0.02))
def test_ticks_stay_on_the_grid_whatever_the_work_takes(work_s, oversleep_s):
    clock = FakeClock(oversleep_s)
    grid, before, served = Grid(30.0, clock), None, 0
    for busy_s in work_s:
        tick = grid.wait()
        served += 1 + tick.skipped
        np.testing.assert_allclose(tick.due_s, 100.0 + tick.index / 30.0, atol=1e-9)
        assert tick.index == served - 1, "every place of the grid is served or counted as skipped"
        assert before is None or tick.index > before
        assert tick.woke_s >= tick.due_s - 1e-9
        assert tick.woke_s - tick.due_s < 1 / 30.0 + oversleep_s + 1e-6, "never later than a period: then it skips"
        before = tick.index
        clock.time_s += busy_s


def test_a_busy_caller_skips_whole_periods_and_keeps_the_phase():
    clock = FakeClock()
    grid = Grid(10.0, clock)
    assert grid.wait().index == 0
    clock.time_s += 0.35  # ticks 1 and 2 are over, 3 has begun 50 ms ago
    tick = grid.wait()
    assert (tick.index, tick.skipped) == (3, 2)
    np.testing.assert_allclose(tick.woke_s - tick.due_s, 0.05)
    assert grid.wait().skipped == 0


def test_the_real_clock_wakes_at_or_after_the_moment_asked_for():
    clock = MonotonicClock()
    moment = clock.now() + 0.01
    clock.sleep_until(moment)
    assert clock.now() >= moment
    clock.sleep_until(moment)  # has passed: returns
