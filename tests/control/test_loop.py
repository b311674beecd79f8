from dataclasses import replace

import numpy as np
import pytest

from so101.cameras.base import CameraError
from so101.config import load_config
from so101.control.boundary import PolicyBoundary
from so101.control.loop import ControlLoop
from so101.control.policy_pilot import PolicyPilot
from so101.policies.base import PolicyError
from so101.policies.interface import PolicyInterface
from so101.policies.playback import Playback
from so101.robot.base import BusError, CommandRefused
from tests.control.fakes import FakeArm, FakeAsker, FakeCameras, FakeClock, Rows, ScriptedKeys

CONFIG = load_config(overrides=["deploy.control.start_ease_s=0.5", "deploy.control.settle_s=0.2"])
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])
EASE = 15  # ticks of start_ease_s
PERIOD_S = 1 / 30


class Wave:
    """A policy that plays rows of a smooth movement that starts at home."""

    def __init__(self, config, rows=50) -> None:
        phase = np.linspace(0, 1, rows)[:, None]
        self.q = HOME + 0.4 * np.sin(np.pi * phase) ** 2 * np.array([1, 0.5, -0.5, -0.3, 0.2, 1.0])
        self.playback = Playback(config)
        self.playback.start(PolicyInterface(config).to_units(self.q))

    def get_action(self, observation, options=None):
        return self.playback.next(1)


class Rig:
    """A loop with everything around it."""

    def __init__(self, *overrides: str, keys=None, moves=True, videos=("wrist",), judge=None, rows=50) -> None:
        config = load_config(overrides=["deploy.control.start_ease_s=0.5", "deploy.control.settle_s=0.2", *overrides])
        self.clock = FakeClock()
        self.arm = FakeArm(self.clock, HOME)
        self.cameras = FakeCameras(self.clock, ("ego", "side", "top"))
        self.policy = Wave(config, rows)
        self.asker = FakeAsker(self.clock, self.policy)
        self.rows = Rows(self.clock)
        self.said: list[str] = []
        self.stop = None
        extra = {} if judge is None else {"judge": judge}
        boundary = PolicyBoundary(config, replace(PolicyInterface(config).modality, video=videos))
        pilot = PolicyPilot(config, boundary, self.asker, "pick it up", clock=self.clock, say=self.said.append)
        self.loop = ControlLoop(
            config, self.arm, self.cameras, pilot, moves=moves, clock=self.clock,
            keys=ScriptedKeys(keys or {}), say=self.said.append, stopped=lambda: self.stop, **extra,
        )  # fmt: skip

    def run(self, start=None):
        return self.loop.run_episode(HOME if start is None else start, self.rows, self.rows)


# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["false", "true"])
@pytest.mark.parametrize("latency_s", [0.0, 0.004])
def test_a_policy_that_plays_a_movement_is_executed_row_by_row(overlap, latency_s):
    rig = Rig(f"deploy.control.overlap={overlap}")
    rig.asker.latency_s = latency_s
    result = rig.run()
    np.testing.assert_allclose(rig.rows.targets[: len(rig.policy.q)], rig.policy.q, atol=2e-6)
    assert result.reason == "the policy is done" and not result.stats.misses and result.stats.skipped == 0


@pytest.mark.parametrize("latency_ticks", [1, 2, 5, 7])
def test_overlapped_inference_costs_nothing_after_the_first_chunk(latency_ticks):
    rig = Rig("deploy.control.overlap=true")
    rig.asker.latency_s = (latency_ticks - 0.5) * PERIOD_S
    result = rig.run()
    np.testing.assert_allclose(rig.rows.targets[: len(rig.policy.q)], rig.policy.q, atol=2e-6)
    assert not result.stats.misses


@pytest.mark.parametrize("latency_ticks", [1, 3])
def test_without_overlap_the_arm_holds_while_the_policy_thinks_and_every_such_tick_is_counted(latency_ticks):
    rig = Rig()
    rig.asker.latency_s = (latency_ticks - 0.1) * PERIOD_S
    result = rig.run()
    moved = [row.target for row in rig.rows.log if row.row >= 0]
    np.testing.assert_allclose(moved[:8], rig.policy.q[:8], atol=2e-6)
    held = [row for row in rig.rows.log if row.miss == "inference"]
    assert len(held) == result.stats.misses["inference"] == latency_ticks * (result.stats.chunks - 1)
    for row in held:
        before = rig.rows.log[rig.rows.log.index(row) - 1]
        np.testing.assert_array_equal(row.target, before.target)


def test_nothing_jumps_and_the_arm_ends_at_home():
    rig = Rig()
    start = HOME + 0.3
    rig.arm.q = HOME - 0.4
    rig.run(start)
    sent = np.array([HOME - 0.4, *rig.arm.sent])
    steepest = np.pi / 2 * 0.7 / EASE
    assert np.abs(np.diff(sent, axis=0)).max() < steepest * 1.05
    np.testing.assert_allclose(sent[EASE], start, atol=1e-12)
    np.testing.assert_allclose(sent[-1], HOME, atol=1e-12)


def test_every_tick_is_logged_and_those_of_the_policy_are_recorded_with_what_was_seen_before():
    rig = Rig()
    result = rig.run()
    assert len(rig.rows.log) == result.stats.ticks == len(rig.arm.sent)
    assert [row.phase for row in rig.rows.log[:EASE]] == ["start"] * EASE
    assert [row.phase for row in rig.rows.log[-EASE:]] == ["home"] * EASE
    assert len(rig.rows.targets) == len(recorded(rig))
    np.testing.assert_array_equal(rig.rows.seen[1:], rig.rows.targets[:-1])  # the fake arm is where it was sent
    assert set(rig.rows.frames[0]) == {"ego", "side", "top"}, "all cameras are recorded, whatever the policy looks at"


def recorded(rig: Rig):
    return [row for row in rig.rows.log if row.phase in ("policy", "settle")]


# --- what the policy is asked ----------------------------------------------------------------------------------------


def test_the_policy_sees_dataset_units_its_own_cameras_and_the_task():
    rig = Rig()
    rig.run()
    question = rig.asker.questions[0]
    assert set(question["video"]) == {"wrist"} and question["video"]["wrist"].shape == (1, 1, 4, 6, 3)
    np.testing.assert_allclose(question["state"]["single_arm"][0, 0], np.degrees(HOME[:5]), rtol=1e-5)
    assert question["state"]["gripper"].dtype == np.float32
    assert question["language"] == {"annotation.human.task_description": [["pick it up"]]}


def test_a_policy_that_wants_an_unknown_picture_is_refused():
    with pytest.raises(Exception, match="'wrst'.*dataset.cameras has wrist, front, top; did you mean 'wrist'"):
        Rig(videos=("wrst",))


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key,outcome", [("success", "success"), ("failure", "failure"), ("abort", "aborted")])
def test_keys_end_the_rollout_with_what_they_mean_and_the_arm_goes_home(key, outcome):
    rig = Rig(keys={EASE + 10: key}, judge=lambda: pytest.fail("a person has judged"))
    result = rig.run()
    assert result.outcome == outcome
    assert len(recorded(rig)) == 9
    np.testing.assert_allclose(rig.arm.sent[-1], HOME)


def test_pause_holds_the_pose_and_the_same_key_goes_on_with_a_fresh_chunk():
    rig = Rig(keys={EASE + 11: "pause", EASE + 41: "pause"})
    result = rig.run()
    paused = [row for row in rig.rows.log if row.phase == "paused"]
    assert len(paused) == 30 and not result.stats.misses
    assert len({tuple(row.target) for row in paused}) == 1
    after = next(row for row in rig.rows.log if row.tick == paused[-1].tick + 1)
    assert (after.chunk, after.row) == (3, 0), "the rest of chunk 2 is old news"
    assert "paused" in rig.said[0]
    assert all(row.phase != "paused" for row in recorded(rig))


def test_help_says_the_keys_of_the_yaml():
    rig = Rig(keys={3: "help"})
    rig.run()
    assert "space or p: pause" in rig.said[0] and "q or esc: abort" in rig.said[0]


# --- trouble ---------------------------------------------------------------------------------------------------------


def test_a_policy_error_ends_the_rollout_at_home_with_the_reason():
    rig = Rig()
    rig.asker.errors = [None, PolicyError("no GPU")]
    result = rig.run()
    assert (result.outcome, result.stats.policy_errors) == ("aborted", 1)
    assert result.reason == "the policy failed: no GPU"
    np.testing.assert_allclose(rig.arm.sent[-1], HOME)


def test_with_retries_the_arm_holds_and_asks_again():
    rig = Rig("deploy.control.policy_retries=1")
    rig.asker.errors = [None, PolicyError("busy"), None, PolicyError("busy")]
    result = rig.run()
    assert (result.reason, result.stats.policy_errors) == ("the policy is done", 2)
    assert "busy; the arm holds, asking again" in rig.said[0]


def test_errors_in_a_row_use_up_the_retries():
    rig = Rig("deploy.control.policy_retries=1")
    rig.asker.errors = [PolicyError("one"), PolicyError("two")]
    assert rig.run().reason == "the policy failed: two"


@pytest.mark.parametrize("broken", ["nan", "missing", "shape"])
def test_chunks_that_are_none_are_not_executed(broken):
    rig = Rig()
    rig.policy.get_action = lambda observation, options=None: (BROKEN[broken], {})
    result = rig.run()
    assert result.outcome == "aborted" and result.reason.startswith("the policy failed: the policy's chunk cannot")
    np.testing.assert_allclose(rig.arm.sent, np.tile(HOME, (len(rig.arm.sent), 1)))


BROKEN = {
    "nan": {"single_arm": np.full((1, 16, 5), np.nan, np.float32), "gripper": np.zeros((1, 16, 1), np.float32)},
    "missing": {"single_arm": np.zeros((1, 16, 5), np.float32)},
    "shape": {"single_arm": np.zeros((1, 16, 4), np.float32), "gripper": np.zeros((1, 16, 1), np.float32)},
}


def test_a_few_lost_reads_are_counted_and_many_end_the_rollout_where_it_is():
    rig = Rig()
    rig.arm.read_errors = []
    reads = iter(range(10_000))
    answer = rig.arm.read

    def read():
        if next(reads) in (30, 31, 32):
            raise BusError("no answer of id 3")
        return answer()

    rig.arm.read = read
    result = rig.run()
    assert result.stats.misses == {"bus": 3} and result.reason == "the policy is done"

    rig = Rig("deploy.control.max_failed_reads=5")
    rig.arm.read_errors = [None] * 0
    rig.arm.missed_reads = 1
    result = rig.run()
    assert (result.outcome, len(rig.arm.sent)) == ("aborted", 4)
    assert result.reason == "5 reads of the joints failed in a row"


def test_an_arm_that_goes_its_own_way_is_left_alone():
    rig = Rig()
    rig.arm.mode, rig.arm.reason = "returning", "servo 3 is at 71 C"
    result = rig.run()
    assert result.outcome == "aborted" and "servo 3 is at 71 C" in result.reason
    assert rig.arm.sent == []


def test_a_command_that_is_refused_ends_the_rollout():
    rig = Rig()
    rig.arm.command_error = CommandRefused("another session commands")
    result = rig.run()
    assert result.reason == "the driver refuses: another session commands" and rig.arm.sent == []


def test_old_pictures_are_not_shown_to_the_policy_the_arm_holds_meanwhile():
    rig = Rig()
    rig.cameras.ages = {1 + EASE + tick: 1.5 for tick in range(12, 30)}  # the first look is before the first tick
    result = rig.run()
    assert result.reason == "the policy is done"
    assert result.stats.misses == {"camera": 30 - 17}, "rows 12 to 16 were of a chunk asked for in time"
    moved = [row.target for row in rig.rows.log if row.row >= 0]
    np.testing.assert_allclose(moved[:16], rig.policy.q[:16], atol=2e-6)


def test_a_camera_that_is_lost_ends_the_rollout():
    rig = Rig()
    rig.cameras.age_s = 6.0
    result = rig.run()
    assert result.outcome == "aborted" and "a camera gave nothing new for 6.0 s" in result.reason
    assert rig.asker.questions == []


def test_a_camera_that_stumbles_is_counted_and_one_that_never_came_ends_the_rollout():
    rig = Rig()
    rig.cameras.errors = {21: CameraError("side: reopening")}
    result = rig.run()
    assert result.reason == "the policy is done" and result.stats.misses == {"camera": 1}
    rig = Rig()
    rig.cameras.errors = {0: CameraError("side: no such device")}
    assert rig.run().reason == "cameras: side: no such device"


def test_stop_ends_at_once_and_leaves_the_way_home_to_the_driver():
    rig = Rig()
    rig.stop = "stopped"
    result = rig.run()
    assert (result.outcome, result.reason, rig.arm.sent) == ("aborted", "stopped", [])
    assert rig.arm.left
    with rig.loop.holding():
        pass  # no Hold: that would stop it on its way


def test_an_emergency_stop_is_not_followed_by_a_way_home():
    rig = Rig()
    rig.arm.mode = "stopped"
    result = rig.run()
    assert result.outcome == "aborted" and "the arm is stopped" in result.reason
    assert rig.arm.sent == [] and not rig.arm.left


def test_a_dry_run_sends_nothing_and_logs_what_it_would_do():
    rig = Rig(moves=False)
    rig.arm.mode = "released"
    result = rig.run()
    assert result.reason == "the policy is done" and rig.arm.sent == [] and not rig.arm.left
    np.testing.assert_allclose(rig.rows.targets[: len(rig.policy.q)], rig.policy.q, atol=2e-6)
    assert np.isnan(rig.rows.log[-1].sent).all()


def test_time_is_up_and_the_judge_is_asked():
    rig = Rig("deploy.control.max_episode_s=1.0", rows=500, judge=lambda: "failure")
    result = rig.run()
    assert (result.outcome, result.reason) == ("failure", "time is up (1 s)")
    assert len(recorded(rig)) == 31


@pytest.mark.parametrize("overlap", ["false", "true"])
def test_after_a_stall_of_the_machine_the_policy_is_asked_again(overlap):
    rig = Rig(f"deploy.control.overlap={overlap}")
    rig.cameras.stalls = {1 + EASE + 13: 0.7}
    result = rig.run()
    assert result.reason == "the policy is done" and result.stats.skipped == 20
    assert result.stats.misses["inference"] <= 2


# --- lateness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow,reason", [("read_s", "bus"), ("command_s", "bus"), ("takes_s", "camera")])
def test_late_commands_are_misses_of_what_took_the_time(slow, reason):
    rig = Rig()
    setattr(rig.cameras if slow == "takes_s" else rig.arm, slow, 0.020)
    result = rig.run()
    assert set(result.stats.misses) == {reason} and result.stats.misses[reason] == result.stats.ticks
    assert result.stats.skipped == 0
    assert result.stats.summary()["sent_ms"]["p50"] == pytest.approx(20, abs=0.1)


def test_a_slow_recorder_makes_the_next_tick_late_and_is_named():
    rig = Rig()
    rig.rows.takes_s = 0.050
    result = rig.run()
    assert set(result.stats.misses) == {"recording"}
    assert result.stats.skipped > 0
    ended = 1  # the tick in which the policy had finished commands nothing and is not logged
    assert result.stats.ticks + result.stats.skipped + ended == rig.rows.log[-1].tick + 1
