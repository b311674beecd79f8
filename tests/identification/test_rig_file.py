"""From a recording to a rig file to a configuration, as a user does it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from so101.cli.app import main
from so101.cli.identify import numbers
from so101.config import load_config
from so101.errors import ConfigError
from so101.identification import servos_of
from tests.identification.synthetic import made_by_twin, quick, true_servos

QUICK = [
    "--set", "robot.identification.scan_candidates=1", "--set", "robot.identification.iterations=[1, 1]",
    "--set", "scene.physics.substeps=8", "--set", "teleop.recordings.units=radians",
]  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Two CSV episodes of the twin with other servos."""
    config = quick()
    folder = tmp_path_factory.mktemp("recordings") / "made"
    folder.mkdir()
    names = config.robot.joint_names
    header = ",".join(["t", *(f"action.{name}" for name in names), *(f"state.{name}" for name in names)])
    for seed in range(2):
        piece = made_by_twin(config, true_servos(config), frames=40, seed=seed)
        clock = np.arange(40)[:, None] / 30
        rows = np.concatenate([clock, piece.command, piece.measured], axis=1)
        np.savetxt(folder / f"episode_{seed}.csv", rows, delimiter=",", header=header, comments="", fmt="%.9f")
    return folder


def test_identify_writes_a_rig_that_loads(recording, tmp_path, capsys):
    rig, figures = tmp_path / "arm.yaml", tmp_path / "arm.json"
    assert main(["identify", str(recording), "--out", str(rig), "--json", str(figures), "--plot", *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "held out episodes" in printed and "not told by the recording" in printed
    values = json.loads(figures.read_text())
    assert values["episodes"] == [0] and values["held_out"] == [1]
    loaded = servos_of(load_config(rig=rig))
    assert dict(zip(load_config().robot.joint_names, loaded, strict=True)) == values["servos"]
    assert (tmp_path / "arm.png").read_bytes().startswith(b"\x89PNG")
    first = rig.read_bytes()
    assert main(["identify", str(recording), "--out", str(rig), *QUICK]) == 0
    assert rig.read_bytes() == first and str(tmp_path).encode() not in first


def test_numbers_of_episodes():
    assert numbers("0-2", "--episodes", 5) == [0, 1, 2]
    assert numbers("4, 1-2,1", "--episodes", 5) == [1, 2, 4]
    for text in ("a", "3-1", "1-", "-1", "", "\u00b2"):
        with pytest.raises(ConfigError, match="write numbers and ranges"):
            numbers(text, "--episodes", 5)
    for text in ("5", "0-99999999999999"):
        with pytest.raises(ConfigError, match=r"--episodes .*: no episode \d+; the recording has 0 to 4"):
            numbers(text, "--episodes", 5)


def test_outputs_are_refused_before_the_work(recording, tmp_path, capsys):
    command = ["identify", str(recording), *QUICK]
    assert main([*command, "--out", str(tmp_path)]) == 2
    assert f"error: --out: cannot write {tmp_path}, a folder; name a file in it" in capsys.readouterr().err
    rig = tmp_path / "arm.png"
    assert main([*command, "--out", str(rig), "--plot"]) == 2
    assert f"error: --plot: would overwrite {rig}, the file of --out" in capsys.readouterr().err
    assert main([*command, "--out", str(rig), "--json", str(rig)]) == 2
    assert "--json: would overwrite" in capsys.readouterr().err and not rig.exists()


def test_a_joint_that_never_counts_keeps_its_servo(recording, tmp_path, monkeypatch):
    from so101 import identification as ident

    def read(path, config):
        episodes = ident.pieces.read_pieces(path, config)
        for piece in (piece for episode in episodes for piece in episode):
            piece.counts[:, -1] = False  # as when the jaw holds something all along
        return episodes

    monkeypatch.setattr(ident, "read_pieces", read)
    rig, figures = tmp_path / "arm.yaml", tmp_path / "arm.json"
    assert main(["identify", str(recording), "--out", str(rig), "--json", str(figures), *QUICK]) == 0
    values = json.loads(figures.read_text())
    assert values["told"]["gripper"] == [] and set(values["rmse_growth_with_default"]["gripper"].values()) == {None}
    assert servos_of(load_config(rig=rig))[-1] == servos_of(load_config())[-1]


def test_an_episode_is_fitted_or_held_out_not_both(recording, tmp_path, capsys):
    rig = tmp_path / "arm.yaml"
    command = ["identify", str(recording), "--out", str(rig), *QUICK]
    assert main([*command, "--episodes", "0-1", "--held-out", "1"]) == 2
    assert "error: --held-out 1: episodes [1] are fitted too (--episodes 0-1)" in capsys.readouterr().err
    assert main([*command, "--held-out", "0"]) == 2
    assert "(--episodes is the first half)" in capsys.readouterr().err and not rig.exists()
