"""Which rig an episode meets, and the table and picture of a transfer."""

from __future__ import annotations

import csv
import json
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from so101.config import load_config
from so101.errors import ConfigError
from so101.evaluation.closed_loop.stages import NONE, STAGES
from so101.evaluation.statistics import wilson_interval
from so101.evaluation.transfer import COLUMNS, RigWorlds, TransferPoint, check_apart, transfer_figure, write_transfer
from so101.robot.virtual.pseudo_real import NOMINAL, draw_rig

FIRST = 1_000_000


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=["task.name=vial_to_rack"])


def _point(policy: str, strength: float, successes: int, n: int = 50) -> TransferPoint:
    low, high = wilson_interval(successes, n)
    test = {"successes": successes, "share": successes / n, "low": low, "high": high}
    failures = {**dict.fromkeys((NONE, *STAGES), 0), STAGES[-1]: n - successes}
    summary = {"n": n, "confidence": 0.95, "strict": test, "geometric": test, "failures": failures}
    summary |= {"time_to_success_s": {"median": 8.2, "p90": 9.0} if successes else None, "latency_ms": {"p99": 31.0}}
    return TransferPoint(policy, strength, summary)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(episode=st.integers(0, 500), rigs=st.integers(1, 20), strength=st.floats(0.1, 3.0))
def test_rigs_come_in_turn_and_only_strength_tells_them_apart(config, episode, rigs, strength):
    worlds = RigWorlds(strength, FIRST, FIRST, rigs)
    rig = worlds.rig(config, FIRST + episode)
    assert rig.seed == FIRST + episode % rigs and rig.strength == strength
    assert repr(rig) == repr(worlds.rig(config, FIRST + episode + rigs)) == repr(draw_rig(config, rig.seed, strength))
    assert RigWorlds(0.0, FIRST, FIRST, rigs).rig(config, FIRST + episode) is NOMINAL


def test_other_rigs_are_another_evaluation(config):
    worlds = RigWorlds(1.0, FIRST, FIRST, 10)
    others = [RigWorlds(2.0, FIRST, FIRST, 10), RigWorlds(1.0, FIRST, FIRST + 1, 10), RigWorlds(1.0, FIRST, FIRST, 9)]
    assert all(other.facts(config) != worlds.facts(config) for other in others)
    faster = load_config(overrides=["task.name=vial_to_rack", "robot.bus.rate_hz=90"])
    assert worlds.facts(faster) != worlds.facts(config)
    assert pickle.loads(pickle.dumps(worlds)) == worlds  # it goes to worker processes


def test_rigs_that_gave_demos_are_not_evaluated(config):
    check_apart(config)
    for setting, told in (
        (
            "deploy.transfer.demos.first_rig=1000009",
            "rigs 1000000 to 1000009 are evaluated and 1000009 to 1000018 give",
        ),
        ("deploy.transfer.demos.first_seed=1000000", "demos.first_seed is 1000000; placements from 1000000 on"),
    ):
        with pytest.raises(ConfigError, match=told):
            check_apart(load_config(overrides=[setting]))


def test_the_table_holds_every_point_with_its_interval(tmp_path):
    points = [_point("plain", 0.5, 40), _point("plain", 1.0, 25), _point("plain", 2.0, 0)]
    write_transfer(tmp_path, points, "try")
    rows = list(csv.DictReader((tmp_path / "transfer.csv").open()))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 3
    assert rows[1] == {
        "policy": "plain", "strength": "1.0", "episodes": "50", "successes": "25", "share": "0.5", "low": "0.3664",
        "high": "0.6336", "geometric": "25", "median_s": "8.2", "failed_at": f"{STAGES[-1]} 25", "p99_ms": "31.0",
    }  # fmt: skip
    assert rows[2]["median_s"] == ""
    kept = json.loads((tmp_path / "transfer.json").read_text())
    assert [row["successes"] for row in kept["rows"]] == [40, 25, 0] and len(kept["summaries"]) == 3
    assert (tmp_path / "transfer.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_has_a_line_a_policy_over_strength():
    points = [_point(policy, strength, 30) for policy in ("a", "b") for strength in (2.0, 0.5, 1.0)]
    axes = transfer_figure(points, "try").axes[0]
    lines = {container.get_label(): container.lines[0] for container in axes.containers}
    assert set(lines) == {"a", "b"}
    for line in lines.values():
        assert line.get_xdata() == pytest.approx([0.5, 1.0, 2.0], abs=0.02)
        assert line.get_ydata() == pytest.approx([60.0] * 3)


def test_one_strength_and_no_success_can_be_drawn():
    assert transfer_figure([_point("a", 1.0, 0)], "try").axes
