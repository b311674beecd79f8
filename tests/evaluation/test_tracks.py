"""Tracks: every kind of file gives the same thing, with what it knows and nothing it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from so101.cli.app import main
from so101.control.rollout_log import TickLog, TickRow
from so101.datasets.demo import Demo, save_demo
from so101.errors import DataError
from so101.evaluation.measure import measure, reference_paths, totals
from so101.evaluation.tracks import read_tracks, track_files, track_of_demo

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "so101_record_test_4ep"
NOTHING = np.full(6, np.nan)


def demo(index=0, *, success=True, frames=90, meta=None):
    t = np.linspace(0, 1, frames)[:, None]
    q = 0.4 * np.sin(3 * t + np.arange(6)) * t
    return Demo(
        index=index, seed=index, task="vial_to_rack", fps=30.0, q_target=q + 0.01, q=q, objects={},
        physics_state=np.zeros(0), strict=success, cause="" if success else "dropped", meta=meta or {},
    )  # fmt: skip


def write_log(path, config, phases):
    """A row a phase, three chunks; the driver refused one command."""
    with TickLog(path, config.robot.joint_names) as log:
        for i, phase in enumerate(phases):
            q = np.full(6, 0.01 * i)
            sent = NOTHING if i == 6 else q + 0.1
            miss = "camera" if i == 5 else ""
            log.write(TickRow(i, i / 25, 0.1, 0.2, 0, phase, i // 4, i % 4, miss, q, q + 0.2, sent, 9.0))


def test_demos_of_a_run(tmp_path, config):
    for index, success in ((0, True), (3, False)):
        save_demo(tmp_path / "verified", demo(index, success=success))
    tracks = read_tracks(tmp_path, config)
    assert [track.name for track in tracks] == ["demo_000000", "demo_000003"]
    assert [track.success for track in tracks] == [True, False] and tracks[1].facts["cause"] == "dropped"
    assert np.allclose(tracks[0].sent - tracks[0].q, 0.01) and not tracks[0].seams.size
    assert read_tracks(tmp_path, config, episode=1)[0].name == "demo_000003"
    assert read_tracks(tmp_path / "verified" / "demo_000003.npz", config)[0].name == "demo_000003"


def test_a_session_of_the_arm_is_read_from_its_log(tmp_path, config):
    phases = ["start"] * 2 + ["policy"] * 10 + ["settle", "home"]
    write_log(tmp_path / "logs" / "demo_000000.csv", config, phases)
    save_demo(tmp_path / "episodes", demo(0, success=False, meta={"outcome": "failure"}))
    write_log(tmp_path / "logs" / "demo_000001.csv", config, phases)
    first, second = read_tracks(tmp_path, config)
    assert first.num_frames == 10 and first.fps == pytest.approx(25)
    assert first.q[0] == pytest.approx(np.full(6, 0.02)) and first.q_target[0] == pytest.approx(np.full(6, 0.22))
    assert first.sent[4] == pytest.approx(first.sent[3])  # nothing was sent: the arm holds
    assert first.misses == {3: "camera"} and first.seams.tolist() == [2, 6]
    assert first.success is False and second.success is None and second.facts["outcome"] == "unknown"


def test_a_dataset_is_read_in_radians(config):
    if not REAL.is_dir():
        pytest.skip("the shared recordings are not here")
    tracks = read_tracks(REAL, config)
    assert [track.name for track in tracks] == [f"episode_00000{i}" for i in range(4)]
    assert all(track.fps == 30 and np.abs(track.q).max() < 3.2 and track.success is None for track in tracks)
    assert read_tracks(REAL, config, episode=2)[0].q == pytest.approx(tracks[2].q)


def test_what_is_not_there_is_told(tmp_path, config):
    with pytest.raises(DataError, match="does not exist; pass a folder of ./twin eval, a session"):
        track_files(tmp_path / "nowhere")
    with pytest.raises(DataError, match="rollouts were looked for, and it holds none"):
        read_tracks(tmp_path, config)
    save_demo(tmp_path, demo(0))
    with pytest.raises(DataError, match="there is no episode 1; it has 0 to 0"):
        read_tracks(tmp_path, config, episode=1)
    write_log(tmp_path / "s" / "logs" / "demo_000000.csv", config, ["start", "policy", "home"])
    with pytest.raises(DataError, match="the policy moved the arm in 1 ticks; there is nothing to measure"):
        read_tracks(tmp_path / "s", config)


def test_failures_are_no_references_and_nothing_is_its_own(tmp_path, config, fk):
    save_demo(tmp_path, demo(0))
    save_demo(tmp_path, demo(1, success=False, frames=60))
    references = reference_paths(tmp_path, config, fk)
    assert [name for name, _ in references] == ["demo_000000"]
    assert measure(config, track_of_demo(demo(0), "same"), fk, references).near is None
    assert measure(config, track_of_demo(demo(0, frames=80), "other"), fk, references).near.reference == "demo_000000"
    save_demo(tmp_path / "failed", demo(1, success=False))
    with pytest.raises(DataError, match="every episode is a failure; name demos"):
        reference_paths(tmp_path / "failed", config, fk)
    with pytest.raises(DataError, match="short: 2 frames are too few to measure; at least 3 are needed"):
        measure(config, track_of_demo(demo(0, frames=2), "short"), fk)


def test_many_are_summed_up_by_their_medians(config, fk):
    tracks = [track_of_demo(demo(frames=frames), str(frames)) for frames in (60, 90, 120)]
    still = tracks[0].sent * [1, 1, 1, 1, 1, 0]
    tracks[0] = replace(tracks[0], q=tracks[0].q * [1, 1, 1, 1, 1, 0], sent=still, q_target=still)
    numbers = totals([measure(config, track, fk) for track in tracks])
    assert numbers["frame/duration_s"] == pytest.approx(3.0)
    assert numbers["diagnosis/gripper_never_commanded"] == pytest.approx(1 / 3)
    assert np.isfinite(list(numbers.values())).all() and f"lag_ms/{config.robot.joint_names[0]}" in numbers


def test_people_who_lead_a_real_arm_fail_in_no_known_way(config, fk):
    if not REAL.is_dir():
        pytest.skip("the shared recordings are not here")
    references = reference_paths(REAL, config, fk)
    measured = [measure(config, track, fk, references) for track in read_tracks(REAL, config)]
    assert [one.diagnoses for one in measured] == [[]] * 4
    lags = np.array([one.errors.lag_frames for one in measured])
    assert ((3 < lags) & (lags < 5)).all()  # 100 to 170 ms, as servos of this kind are known for
    assert all(80 < one.frame.action_mse < 160 for one in measured)  # as the published rollouts


def test_the_command_tells_and_draws(tmp_path, capsys):
    save_demo(tmp_path / "run" / "verified", demo(0))
    save_demo(tmp_path / "run" / "verified", demo(1))
    out = tmp_path / "out"
    assert main(["metrics", str(tmp_path / "run"), "--out", str(out), "--figures", "1"]) == 0
    said = capsys.readouterr().out
    assert "Commanded against observed" in said and "Joints, medians of 2" in said and "gripper" in said
    assert sorted(path.name for path in out.iterdir())[-1] == "metrics.json" and len(list(out.glob("*.png"))) == 3
    assert main(["metrics", str(tmp_path / "nothing")]) == 3
    assert "does not exist" in capsys.readouterr().err
