"""Ticks of a rate, and stamps of a clock that is not ours."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from so101.cameras.timing import DeviceClock, Pacer


class Clock:
    """Time that passes when someone sleeps, or is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds


@given(st.floats(5, 120), st.lists(st.floats(0, 0.3), max_size=30))
def test_ticks_are_on_the_grid_and_late_ones_are_skipped(rate_hz, work_s):
    clock = Clock()
    pacer = Pacer(rate_hz, clock, clock.sleep)
    last = -1
    for seconds in work_s:
        tick, due = pacer.wait()
        assert tick > last and due == 100.0 + tick / rate_hz
        assert clock.now_s >= due  # waited for it
        assert clock.now_s - due <= 1 / rate_hz + 1e-9  # and it is the newest one
        last = tick
        clock.now_s += seconds


def test_a_reader_in_time_misses_no_tick():
    clock = Clock()
    pacer = Pacer(30.0, clock, clock.sleep)
    ticks = []
    for _ in range(300):
        ticks.append(pacer.wait()[0])
        clock.now_s += 0.03
    assert ticks == list(range(300))


@given(
    st.floats(-1e6, 1e6),
    st.floats(-5e-5, 5e-5),
    st.lists(st.floats(0.002, 0.05), min_size=50, max_size=200),
)
def test_stamps_of_a_drifting_clock_come_out_within_the_least_delay(offset_s, skew, delays_s):
    """Ours = device (1 + skew) + offset; frames arrive after `delays_s`, the fastest after 2 ms."""
    clock = DeviceClock(drift=1e-4)
    for i, delay_s in enumerate([*delays_s, 0.002]):
        ours_s = 1000.0 + i / 30
        told_s = clock.to_ours((ours_s - offset_s) / (1 + skew), ours_s + delay_s)
        assert told_s <= ours_s + delay_s + 1e-6
    assert abs(told_s - ours_s) < 0.002 + 1e-3


def test_jitter_of_the_arrival_does_not_get_into_the_stamps():
    clock, rng = DeviceClock(drift=1e-4), np.random.default_rng(0)
    arrivals = [i / 30 + 0.01 + rng.exponential(0.02) for i in range(300)]
    told = [clock.to_ours(5e4 + i / 30, arrival) for i, arrival in enumerate(arrivals)]
    assert np.std(np.diff(told[100:])) < 1e-3 < np.std(np.diff(arrivals[100:]))


def test_a_restarted_device_clock_is_noticed_when_it_jumps_ahead():
    clock = DeviceClock(drift=1e-4)
    clock.to_ours(10.0, 1000.0)
    assert clock.to_ours(500.0, 1000.1) == 1000.1  # a frame cannot come before it was taken
