import numpy as np
import pytest

from so101.learning.normalisation import Normalisation, chunk_rows, fit_normalisation

HORIZON = 4
RELATIVE = np.array([True, False])


@pytest.fixture
def fitted() -> Normalisation:
    rng = np.random.default_rng(0)
    states = [rng.normal([10, 50], [3, 20], (40, 2)) for _ in range(3)]
    actions = [s + rng.normal(size=s.shape) for s in states]
    points = [rng.normal(size=(40, 5, 3)) for _ in range(3)]
    return fit_normalisation(states, actions, points, RELATIVE, HORIZON)


def test_chunks_hold_the_last_action_past_the_end():
    actions = np.arange(5)[:, None] * [1.0, 10.0]
    chunks = chunk_rows(actions, np.array([0, 3]), HORIZON)
    assert chunks[:, :, 0].tolist() == [[0, 1, 2, 3], [3, 4, 4, 4]]


def test_decoding_undoes_encoding_within_the_range_of_the_actions(fitted):
    rng = np.random.default_rng(1)
    state = rng.normal([10, 50], [1, 5], (6, 2)).astype(np.float32)
    chunk = np.clip(state[:, None] + rng.normal(size=(6, HORIZON, 2)), fitted.low, fitted.high)
    decoded = fitted.decode_chunk(fitted.encode_chunk(chunk, state), state)
    np.testing.assert_allclose(decoded, chunk, atol=1e-4)


def test_what_it_gives_never_leaves_the_range_of_the_actions(fitted):
    wild = np.full((1, HORIZON, 2), 1e6, np.float32)
    decoded = fitted.decode_chunk(wild, np.zeros((1, 2), np.float32))
    np.testing.assert_array_equal(decoded, np.broadcast_to(fitted.high, (1, HORIZON, 2)))


def test_relative_joints_do_not_change_when_state_and_chunk_move_together(fitted):
    state = np.array([[10.0, 50.0]])
    chunk = np.array([[[11.0, 60.0]] * HORIZON])
    moved = fitted.encode_chunk(chunk + 5, state + 5) - fitted.encode_chunk(chunk, state)
    np.testing.assert_allclose(moved[..., 0], 0, atol=1e-5)
    assert (np.abs(moved[..., 1]) > 0.1).all()


def test_a_worked_number():
    states = [np.array([[0.0], [2.0]])]
    actions = [np.array([[1.0], [5.0]])]
    fitted = fit_normalisation(states, actions, [np.zeros((2, 0, 3))], np.array([True]), 1)
    assert fitted.state.ravel().tolist() == [1.0, 1.0]  # of 0 and 2
    assert fitted.chunk.ravel().tolist() == [2.0, 1.0]  # of 1 - 0 and 5 - 2
    assert fitted.encode_chunk(np.array([[[5.0]]]), np.array([[2.0]])).item() == 1.0


def test_what_never_moves_is_not_blown_up():
    still = [np.full((10, 1), 3.0)]
    fitted = fit_normalisation(still, still, [np.zeros((10, 0, 3))], np.array([False]), 2)
    assert fitted.encode_state(np.array([[3.001]])).item() == pytest.approx(0.1, abs=1e-3)


def test_points_that_nobody_knows_are_left_out(fitted):
    points = [np.full((4, 2, 3), np.nan)]
    points[0][:2, 0] = [1.0, 2.0, 3.0]
    some = fit_normalisation([np.zeros((4, 2))], [np.zeros((4, 2))], points, RELATIVE, HORIZON)
    assert some.points[0].tolist() == [[1, 2, 3], [0, 0, 0]]
    assert np.isnan(some.encode_points(points[0])).sum() == np.isnan(points[0]).sum()


def test_json_keeps_it_to_the_bit(fitted):
    again = Normalisation.from_json(fitted.to_json())
    for name, value in fitted.__dict__.items():
        np.testing.assert_array_equal(getattr(again, name), value)
        assert getattr(again, name).dtype == value.dtype
