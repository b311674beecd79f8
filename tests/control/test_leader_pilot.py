import numpy as np
import pytest

from so101.config import load_config
from so101.control.leader_pilot import LeaderPilot
from so101.control.loop import ControlLoop
from so101.robot.base import BusError
from tests.control.fakes import FakeArm, FakeCameras, FakeClock, Rows, ScriptedKeys

CONFIG = load_config(overrides=["deploy.control.start_ease_s=0.5", "deploy.control.max_failed_reads=5"])
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])
EASE = 15


class Leader:
    """A hand that moves all joints, `broken` at some reads."""

    def __init__(self) -> None:
        self.read, self.broken, self.poses = 0, set(), []

    def __call__(self) -> np.ndarray:
        self.read += 1
        if self.read in self.broken:
            raise BusError("leader unplugged")
        self.poses.append(HOME + 0.5 + 0.3 * np.sin(0.05 * self.read))
        return self.poses[-1]


def fly(leader: Leader, keys: dict[int, str]):
    clock, rows, started = FakeClock(), Rows(), []
    arm = FakeArm(clock, HOME)
    pilot = LeaderPilot(CONFIG, leader, lambda: started.append(len(rows.log)))
    cameras = FakeCameras(clock, ("ego",))
    loop = ControlLoop(CONFIG, arm, cameras, pilot, moves=True, clock=clock, keys=ScriptedKeys(keys))
    return loop.run_episode(None, rows, rows), rows, arm, started


def test_the_arm_comes_to_the_leader_without_a_jump_and_then_goes_with_it():
    leader = Leader()
    result, rows, arm, started = fly(leader, {61: "success"})
    assert result.outcome == "success"
    following = np.array(leader.poses[EASE:])
    np.testing.assert_array_equal(rows.targets, following)  # recorded from where the arm has come to the leader
    assert len(following) == 60 - EASE
    way = np.abs(np.diff([HOME, *arm.sent[:EASE]], axis=0)).max()
    assert way < np.pi / 2 * 0.8 / EASE + 0.02, "the leader was 0.5 to 0.8 rad away"
    assert started == [EASE - 1]


def test_after_a_pause_the_arm_comes_to_the_leader_again():
    leader = Leader()
    _, rows, arm, _ = fly(leader, {30: "pause", 60: "pause", 120: "success"})
    assert np.abs(np.diff(arm.sent[: 60 + EASE], axis=0)).max() < 0.12
    phases = [row.phase for row in rows.log]
    assert phases[29:59] == ["paused"] * 30 and phases[59 : 59 + EASE] == ["start"] * EASE
    assert phases[59 + EASE] == "leader"


def test_a_leader_that_stumbles_is_waited_for_and_one_that_is_lost_ends_the_episode():
    leader = Leader()
    leader.broken = {30, 31}
    result, rows, arm, _ = fly(leader, {61: "success"})
    assert result.stats.misses == {"leader": 2}
    np.testing.assert_array_equal(arm.sent[29], arm.sent[28])
    leader = Leader()
    leader.broken = set(range(30, 100))
    result, rows, arm, _ = fly(leader, {})
    assert (result.outcome, result.reason) == ("aborted", "the leader arm does not answer: leader unplugged")
    np.testing.assert_allclose(arm.sent[-1], HOME)


@pytest.mark.parametrize("key,outcome", [("success", "success"), ("failure", "failure"), ("abort", "aborted")])
def test_keys_say_what_becomes_of_the_episode(key, outcome):
    assert fly(Leader(), {40: key})[0].outcome == outcome
