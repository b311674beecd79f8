"""`./twin transfer` from policies to the table, through the policy server and the servo protocol."""

from __future__ import annotations

import json

import pytest

from services.cli.app import main
from services.evaluation.transfer import Candidate, lines, run_transfer
from services.evaluation.worker import Served
from so101.config import load_config
from so101.datasets.demo import save_demo
from so101.errors import RunFolderError
from so101.evaluation.closed_loop.folder import EvalFolder
from so101.pipeline.progress import SilentReporter
from so101.policies import PolicyOptions

SETTINGS = [
    "task.name=vial_to_rack",
    "cameras.scale=0.125",
    "render.setting=fast",
    "training.tracking.enabled=false",
    "deploy.transfer.failures_filmed=0",
    "deploy.evaluation.metrics=false",
]


@pytest.fixture(scope="module")
def demo(vial_runner, tmp_path_factory):
    """A demo that works, in a file."""
    found = next(demo for index in range(10) if (demo := vial_runner.run(index)).strict)
    return found.seed, save_demo(tmp_path_factory.mktemp("demo"), found)


def _run(root, demo, *more: str, strengths=(0.0, 1.0)):
    seed, path = demo
    candidate = Candidate(
        "replay", load_config(overrides=[*SETTINGS, *more]), Served("replay", PolicyOptions(demo=path))
    )
    return run_transfer([candidate], strengths, range(seed, seed + 1), root, SilentReporter(), workers=1)


def test_a_policy_on_the_twin_and_on_a_rig_stopped_and_gone_on_with(demo, tmp_path):
    first = _run(tmp_path, demo, strengths=(1.0,))
    folder = EvalFolder(tmp_path / "replay_strength_1")
    (episode,) = folder.load([demo[0]])
    assert episode.strict and episode.meta["rig"] == {"seed": 1_000_000, "strength": 1.0}
    stamp = next(folder.episodes.iterdir()).stat().st_mtime_ns
    points = _run(tmp_path, demo)
    assert next(folder.episodes.iterdir()).stat().st_mtime_ns == stamp  # not done again
    assert [(p.policy, p.strength, p.summary["strict"]["successes"]) for p in points] == [
        ("replay", 0.0, 1),
        ("replay", 1.0, 1),
    ]
    assert points[1].summary["strict"] == first[0].summary["strict"]
    rows = json.loads((tmp_path / "transfer.json").read_text())["rows"]
    assert [row["strength"] for row in rows] == [0.0, 1.0]
    assert "1/1 = 100 % (21 to 100 %)" in lines(points)[1]
    with pytest.raises(RunFolderError, match="rigs"):
        _run(tmp_path, demo, "deploy.transfer.rigs=3", strengths=(1.0,))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--policy", "expret"], "--policy expret: no such policy; policies: replay, expert, embedded, groot; did you"),
        (["--policy", "expert", "--role", "a"], "--role is about embedded policies; --policy expert has none"),
        (["--role", "nobody"], "nobody: no such model folder"),
        (["--role", "7"], "7: no such model folder"),
        (["--policy", "replay"], "--policy replay: a demo fits its own placement only"),
        (["--strength", "1e9"], "--strength"),
        (["--set", "deploy.transfer.strengths=[1e9]"], "transfer.strengths.0 is"),
        (["--set", "deploy.transfer.demos.first_rig=1000003"], "a policy must not be tried on rigs it learned from"),
    ],
)
def test_a_wrong_option_is_told(arguments, told, capsys, tmp_path):
    code = main(["transfer", *arguments, "--out", str(tmp_path / "out")])
    assert code != 0 and told in capsys.readouterr().err


def test_help_has_an_example(capsys):
    assert main(["transfer", "--help"]) == 0
    assert "./twin transfer --role plain" in capsys.readouterr().out
