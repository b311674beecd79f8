from pathlib import Path
from types import SimpleNamespace

import pytest

from services.real.session import require_replay
from so101.policies.base import PolicyError

DEMO, PATH = SimpleNamespace(num_frames=7), Path("runs/default/verified/demo_000004.npz")


def test_a_server_that_replays_the_demo_is_taken_wherever_it_sees_the_file():
    require_replay({"source": "/elsewhere/demo_000004.npz", "episode_length": 7}, DEMO, PATH)


@pytest.mark.parametrize(
    ("facts", "serves"),
    [
        ({}, "another policy"),
        ({"seed": 0, "episode_length": 7}, "another policy"),
        ({"source": "demo_000005.npz", "episode_length": 7}, "demo_000005.npz"),
        ({"source": "demo_000004.npz", "episode_length": 8}, "demo_000004.npz"),
    ],
)
def test_a_server_that_was_there_and_does_something_else_is_refused(facts, serves):
    with pytest.raises(PolicyError, match=f"does not replay {PATH}, it serves {serves}; stop it .*--policy remote"):
        require_replay(facts, DEMO, PATH)
