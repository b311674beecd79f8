"""What of a recording is compared: held objects, unknown pasts, missing commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.recordings import Recording
from so101.datasets.unit_detection import UnitDecision
from so101.errors import DataError
from so101.identification import choose, read_pieces
from so101.identification.pieces import cut, held_frames

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "so101_record_test_4ep"

RADIANS = UnitDecision("radians", (), (None,) * 6)


@pytest.fixture(scope="module")
def config():
    return load_config()


def jaw_that_grips() -> tuple[np.ndarray, np.ndarray]:
    """Closes, is stopped by something at 0.2 for frames 30 to 59, opens."""
    command = np.interp(np.arange(100), [0, 20, 35, 60, 70, 99], [0.8, 0.8, -0.1, -0.1, 0.8, 0.8])
    jaw = np.maximum(command, np.where((np.arange(100) >= 25) & (np.arange(100) < 63), 0.2, -1))
    return jaw, command


def test_held_is_from_contact_to_release(config):
    jaw, command = jaw_that_grips()
    ((first, last),) = held_frames(jaw, command, 30.0, config)
    assert np.abs(jaw[first:last] - 0.2).max() <= config.teleop.replay.jaw_level_rad
    assert 28 <= first <= 33 and 60 <= last <= 65
    assert not held_frames(command, command, 30.0, config)


def test_a_piece_begins_where_the_jaw_lets_go(config):
    jaw, command = jaw_that_grips()
    others = np.zeros((100, 5)) + 0.1 * np.sin(np.arange(100) / 9)[:, None]
    recording = Recording(
        "made", 30.0, config.robot.joint_names, np.column_stack([others, command]), np.column_stack([others, jaw])
    )
    first, second = cut(recording, RADIANS, config)
    assert len(first.command) + len(second.command) == 100
    np.testing.assert_array_equal(np.concatenate([first.command, second.command]), recording.action)
    np.testing.assert_array_equal(second.past, first.command)
    assert second.counts.all() and not first.counts[40, 5] and first.counts[40, :5].all()
    skipped = round(config.robot.identification.skip_s * 30)
    assert not first.counts[:skipped].any() and first.counts[skipped].all()
    np.testing.assert_allclose(second.velocity[0], np.gradient(others[:, 0])[len(first.command)] * 30)


def test_a_recording_without_commands_is_refused(config, tmp_path):
    path = tmp_path / "by_hand.csv"
    rows = "\n".join(",".join(f"{0.1 * np.sin(t / 9 + j):.5f}" for j in range(6)) for t in range(50))
    path.write_text(",".join(config.robot.joint_names) + "\n" + rows + "\n")
    with pytest.raises(DataError, match="has no commands apart from the measured joints.*Record with a leader arm"):
        read_pieces(path, config)


def test_an_episode_that_is_not_there_is_named():
    with pytest.raises(DataError, match=r"--held-out: no episode 4; the recording has 0 to 1"):
        choose([[], []], [0, 4], "--held-out")


def test_episodes_of_which_nothing_counts_are_refused(config):
    still = np.zeros((10, 6))
    pieces = cut(Recording("short", 30.0, config.robot.joint_names, still, still), RADIANS, config)
    with pytest.raises(DataError, match="--episodes: nothing to compare in short: .*skip_s.*longer episodes"):
        choose([pieces], [0], "--episodes")
    assert choose([pieces], [], "--held-out") == []


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real recording beside the repository")
def test_the_real_episodes_each_hold_their_cube_once(config):
    episodes = read_pieces(REAL, config)
    assert [len(pieces) for pieces in episodes] == [2, 2, 2, 2]
    for before, after in episodes:
        held = ~before.counts[15:, 5]
        assert 30 < held.sum() < 90 and held[-1] and after.counts.all()
