"""Recording in a family: a hand or a policy that it corrects, keys, the leader arm on a virtual bus."""

from __future__ import annotations

import numpy as np
import pytest

from services.cli.app import main
from so101.config import load_config
from so101.datasets.demo_file import INTERVENED, SUCCESS, read_demo
from so101.families import make_env
from so101.families.drivers import Hold
from so101.families.hands import JOG_RAD, Jog, Leader, StandIn
from so101.families.recorder import Recorder
from so101.robot.base import BusError, RobotError
from so101.robot.virtual import VirtualBus
from so101.robot.virtual.plant import KinematicPlant

HOLD_S = 0.04  # 10 steps at 250 Hz


@pytest.fixture(scope="module")
def settings():
    overrides = [f"deploy.family_record.success_hold_s={HOLD_S}", "deploy.family_record.ramp_s=0.08"]
    return load_config(overrides=overrides).deploy.family_record


@pytest.fixture(scope="module")
def settled():
    """A goal that holds from the start."""
    made = make_env("so101_settle_brick", autoreset=False, horizon=30)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lifting():
    """A goal that an arm at rest never reaches."""
    made = make_env("so101_lift_brick", autoreset=False, horizon=12)
    yield made
    made.close()


class Hand:
    """A leader that stands where it is told; raises while `silent` is above 0."""

    def __init__(self, q):
        self.q, self.silent = np.array(q, float), 0

    def __call__(self):
        if self.silent:
            self.silent -= 1
            raise RobotError("no answer from 3")
        return self.q


def recorder(env, settings, source, **options):
    kept, said = [], []
    options = {"seed": 5, "episodes": 3, "say": said.append, **options}
    return Recorder(env, source, kept.append, settings, **options), kept, said


def test_a_goal_held_long_enough_keeps_the_episode_and_the_next_begins(settled, settings):
    show, kept, _ = recorder(settled, settings, StandIn(settled, Hold(settled)), episodes=2)
    while show.advance():
        pass
    assert [e.seed for e in kept] == [5, 6] and [e.num_rows for e in kept] == [10, 10]
    assert all(e.success and not e.flags.any() and not e.done.any() for e in kept)
    for episode in kept:
        assert (episode.next_obs[:-1] == episode.obs[1:]).all()
        obs, _ = settled.reset(options={"seeds": [episode.seed]})
        assert (obs[0] == episode.obs[0]).all()


@pytest.mark.parametrize(("keep_failures", "kept_seeds"), [(False, []), (True, [5, 6])])
def test_time_is_over_is_a_failure_dropped_unless_wanted(lifting, settings, keep_failures, kept_seeds):
    show, kept, said = recorder(lifting, settings, Jog(lifting.lower, lifting.upper), keep_failures=keep_failures)
    for _ in range(2 * lifting.horizon):
        show.advance()
    assert [e.seed for e in kept] == kept_seeds and not any(e.success for e in kept)
    assert "time is over after 12 rows" in said[0] and show.dropped == (0 if keep_failures else 2)


def test_n_keeps_now_and_is_a_success_only_where_the_goal_holds(settled, lifting, settings):
    for env, success in ((settled, True), (lifting, False)):
        show, kept, _ = recorder(env, settings, Jog(env.lower, env.upper))
        for _ in range(4):
            show.advance()
        show.press("n")
        assert [(e.num_rows, e.success) for e in kept] == [(4, success)] and show.frame().seed == 6


def test_x_throws_away_and_n_without_rows_keeps_nothing(settled, settings):
    show, kept, _ = recorder(settled, settings, Jog(settled.lower, settled.upper))
    show.advance()
    show.press("x")
    show.press("n")
    assert not kept and show.dropped == 2 and show.frame().seed == 7


def test_i_takes_the_arm_from_the_policy_and_flags_the_rows(lifting, settings):
    class Push:
        def begin(self, obs):
            pass

        def act(self, obs):
            return np.full(6, 0.3)

    jog = Jog(lifting.lower, lifting.upper)
    show, kept, _ = recorder(lifting, settings, jog, policy=Push(), keep_failures=True)
    for press in ("", "", "", "i", "", "", "i", "", "n"):
        show.press(press) if press else show.advance()
    flags = kept[0].flags & INTERVENED
    assert flags.tolist() == [0, 0, 0, 1, 1, 0]
    assert (
        np.allclose(kept[0].action[flags == 0], 0.3) and (np.abs(kept[0].action[flags == 1] - 0.3) > 0.01).any(1).all()
    )


def test_without_a_policy_i_does_nothing_and_rows_have_no_flag(lifting, settings):
    show, kept, _ = recorder(lifting, settings, Jog(lifting.lower, lifting.upper))
    show.advance()
    show.press("i")
    show.advance()
    show.press("n")
    assert "i" not in show.keys and not kept[0].flags.any()


def test_keys_move_one_joint_each_and_stay_within_the_ranges(lifting):
    jog = Jog(lifting.lower, lifting.upper)
    jog.begin(np.zeros(6), None)
    for key in "qqads":
        jog.press(key)
    assert jog.read(None) == pytest.approx(JOG_RAD * np.array([1, -1, -1, 0, 0, 0]))
    for _ in range(99):
        jog.press("y")
    assert jog.read(None)[5] == lifting.upper[5]


def test_a_near_leader_is_followed_at_once(settled, settings):
    obs, _ = settled.reset(options={"seeds": [5]})
    hand = Hand(settled.qpos[0, :6] + 0.1)
    show, kept, said = recorder(settled, settings, Leader(hand))
    show.advance()
    show.press("n")
    assert kept[0].action[0] == pytest.approx(settled.ctrl_to_action(hand.q), abs=1e-6) and "degrees" not in said[0]


def test_a_far_leader_is_warned_of_and_come_to_before_recording(settled, settings):
    settled.reset(options={"seeds": [5]})
    hand = Hand(settled.qpos[0, :6] + [0, -0.8, 0.9, 0, 0, 0])
    show, kept, said = recorder(settled, settings, Leader(hand), episodes=1)
    commands = [show.frame().command_rad]
    while show.advance():
        commands.append(show.frame().command_rad)
    assert "the leader is 52 degrees from the twin's arm (elbow_flex)" in said[0] and "recording" in said[1]
    way = np.array(commands)[:21]
    assert np.abs(np.diff(way, axis=0)).max() < 0.12 and way[-1] == pytest.approx(hand.q, abs=1e-5)
    assert kept[0].meta == {"ramped": True} and kept[0].obs[0, 2] > 0.1, "rows begin on the way, where the arm is"
    assert kept[0].action == pytest.approx(np.tile(settled.ctrl_to_action(hand.q), (len(kept[0].action), 1)), abs=1e-6)


def test_a_moment_of_silence_holds_the_last_action_and_a_long_one_ends(lifting, settings):
    lifting.reset(options={"seeds": [5]})
    hand = Hand(lifting.qpos[0, :6])
    show, kept, _ = recorder(lifting, settings, Leader(hand))
    hand.silent = 2
    for _ in range(4):
        show.advance()
    hand.q, hand.silent = hand.q + 0.1, 2
    for _ in range(3):
        show.advance()
    show.press("n")
    action = kept[0].action
    assert len(action) == 5, "rows begin when the leader answers"
    assert (action[:4] == action[0]).all() and (action[4] != action[0]).all()
    hand.silent = 99
    with pytest.raises(RobotError, match="not answered 30 times in a row"):
        for _ in range(31):
            show.advance()


# ---- the command ----------------------------------------------------------------------------------------------------

FAST = [f"deploy.family_record.success_hold_s={HOLD_S}", "deploy.family_record.ramp_s=0.1"]
SETS = [part for each in FAST for part in ("--set", each)]


def test_the_expert_stands_in_and_a_file_is_continued(tmp_path, capsys):
    out = tmp_path / "lift.demo"
    arguments = ["--no-arm", "--input", "expert", "--fast", "--no-view", "--episodes", "1", "--out", str(out)]
    for seed in ("3", "20"):
        assert main(["record", "so101_tower_teleop_lift_brick", "--seed", seed, *arguments, *SETS]) == 0
    demo = read_demo(out)
    assert [e.seed for e in demo.episodes] == [3, 20] and all(e.success for e in demo.episodes)
    assert (demo.episodes[0].flags == SUCCESS).all() and demo.header.meta["recorded_by"] == "expert"
    assert "1 kept, 1 of them successes, 0 thrown away" in capsys.readouterr().out


def test_a_leader_on_a_serial_port_drives_and_is_never_written_to(tmp_path, capsys):
    config = load_config()
    plant = KinematicPlant(config, np.array([0.1, -0.2, 0.3, 0.4, 0.5, 0.2]))
    with VirtualBus(config, plant=plant, pacing=False, real_time=False, reply_delay_s=0.0) as bus:
        bus.calibration.write(tmp_path / "leader.json")
        out = tmp_path / "settle.demo"
        code = main(
            ["record", "so101_settle_brick", "--leader-port", bus.port, "--no-view", "--episodes", "1", *SETS]
            + ["--set", f"robot.leader.calibration={tmp_path / 'leader.json'}", "--out", str(out)]
        )
        assert code == 0 and not bus.state().torque_on.any()
    said = capsys.readouterr().out
    assert "degrees from the twin's arm" in said and "recording" in said
    episode = read_demo(out).episodes[0]
    lower, upper = make_env("so101_settle_brick").lower, make_env("so101_settle_brick").upper
    commanded = (lower + upper) / 2 + episode.action * (upper - lower) / 2
    assert commanded == pytest.approx(np.tile([0.1, -0.2, 0.3, 0.4, 0.5, 0.2], (episode.num_rows, 1)), abs=0.003)


def test_what_is_wrong_is_told(tmp_path, capsys):
    assert main(["record", "so101_lift_brick", "--no-arm", "--input", "mouse"]) == 2
    assert "--input is 'mouse'; allowed are keys, expert" in capsys.readouterr().err
    assert main(["record", "so101_lift_brick", "--leader-port", str(tmp_path / "none")]) == BusError.exit_code
    assert "none" in capsys.readouterr().err
