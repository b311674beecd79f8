"""Episodes of a task driven by a person, or by a policy that the person corrects, kept in a .demo file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from so101.config.family_tools import FamilyRecordConfig
from so101.datasets.demo_file import INTERVENED, Episode
from so101.families.drivers import Driver
from so101.families.hands import Jog, Source
from so101.families.shows import distances, goal_marks
from so101.families.vector_env import FamilyVectorEnv
from so101.families.viewer import Frame, Readout
from so101.families.words import goal_in_words
from so101.robot.base import RobotError

_COLUMNS = ("obs", "action", "reward", "next_obs", "flags")


class Recorder:
    """A `Show`: episode after episode until there are enough.

    A goal held for success_hold_s keeps the episode. `n` keeps it now, as a success only if the goal holds; `x` throws
    it away; the horizon is a failure, dropped unless `keep_failures`. A hand that is far from the twin's arm is warned
    of, and the twin comes to it before recording begins. With `policy` that drives, and `i` gives the arm to the hand
    and back; rows of the hand are flagged INTERVENED.

    Args:
        env: one lane, without autoreset.
        keep: takes every kept episode.
        episodes: wanted.
        seed: of the first one; the next ones follow.
        say: tells the person.

    Attributes:
        kept, dropped: episodes so far.
    """

    def __init__(
        self,
        env: FamilyVectorEnv,
        source: Source,
        keep: Callable[[Episode], None],
        settings: FamilyRecordConfig,
        *,
        seed: int,
        episodes: int,
        policy: Driver | None = None,
        keep_failures: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._env, self._source, self._keep, self._settings = env, source, keep, settings
        self._policy, self._keep_failures, self._say, self._wanted = policy, keep_failures, say, episodes
        self.task, self.period_s, self.drivable = env.task, env.control_dt, isinstance(source, Jog)
        self.title = f"record {env.task.name}"
        self.keys: Mapping[str, str] = {"n": "keep it now", "x": "throw it away"}
        if policy is not None:
            self.keys = {**self.keys, "i": "take over, give back"}
        self.kept, self.dropped, self.successes = 0, 0, 0
        self._hold_steps = max(1, round(settings.success_hold_s / env.control_dt))
        self._ramp_steps = max(1, math.ceil(settings.ramp_s / env.control_dt))
        self._begin(seed)

    # ---- as a show -----------------------------------------------------------------------------------------------

    def frame(self) -> Frame:
        env = self._env
        drives = "your hand" if self._policy is None or self._intervening else "the policy"
        readouts = [
            Readout("goal", goal_in_words(self.task.goal)),
            Readout(
                "episode", f"{min(self.kept + 1, self._wanted)} of {self._wanted}, seed {int(env.episode_seeds[0])}"
            ),
            Readout(
                "step", f"{len(self._rows['obs'])} of {env.horizon}, {len(self._rows['obs']) * env.control_dt:.1f} s"
            ),
            Readout("drives", drives, "good" if self._intervening else ""),
            *distances(self._info, env.control_dt),
            Readout("kept", f"{self.kept}, {self.successes} of them successes; thrown away {self.dropped}"),
        ]
        return Frame(
            env.qpos[0].copy(),
            tuple(readouts),
            goal_marks(env, self._obs[0]),
            env.action_to_ctrl(self._action),
            int(env.episode_seeds[0]),
            self._note,
        )

    def advance(self) -> bool:
        """Raises RobotError when the leader has not answered for max_failed_reads looks."""
        by_hand = self._policy is None or self._intervening
        if by_hand:
            wanted = self._hand()
            if self._begun == "":
                if self._failed_reads:
                    return True  # where the hand is must be known first
                self._meet(wanted)
            action = self._env.ctrl_to_action(self._eased(wanted))
        else:
            self._begun = "yes"
            action = np.asarray(self._policy.act(self._obs), float)
        action = np.asarray(np.clip(action, -1.0, 1.0), np.float32)
        seen, reward, _, _, self._info = self._env.step(action[None])
        self._action = action.astype(float)
        if self._begun == "ramp":
            self._obs = seen
            if self._ease_left == 0:
                self._say("the twin has come to the leader: recording")
                self._note, self._begun, self._ramped = "recording", "yes", True
                self._env.steps[0] = 0
        else:
            flags = INTERVENED if by_hand and self._policy is not None else 0
            for key, value in zip(_COLUMNS, (self._obs[0], action, reward[0], seen[0], flags), strict=True):
                self._rows[key].append(value)
            self._obs = seen
            if self._info["held_steps"][0] >= self._hold_steps:
                self._end(True, "success")
            elif len(self._rows["obs"]) >= self._env.horizon:
                self._end(False, "time is over")
        return self.kept < self._wanted

    def press(self, key: str) -> None:
        if key == "n":
            self._end(bool(self._info["success"][0]), "kept by you", keep=True)
        elif key == "x":
            self._end(False, "thrown away by you", keep=False)
        elif key == "i" and self._policy is not None:
            self._intervening = not self._intervening
            if self._intervening:
                self._source.begin(self._env.qpos[0, :6], self._obs)
                self._eased_from, self._ease_left = self._env.qpos[0, :6].copy(), 0
                self._begun = self._begun or "yes"
                self._meet_again = True
            self._note = "you have the arm" if self._intervening else "the policy has the arm"
            self._say(self._note)
        else:
            self._source.press(key)

    def restart(self, seed: int | None) -> None:
        self._begin(int(self._env.episode_seeds[0]) if seed is None else seed)

    def drive(self, q: np.ndarray) -> None:
        self._source.drive(q)

    # ---- the hand ------------------------------------------------------------------------------------------------

    def _hand(self) -> np.ndarray:
        """Where the hand is; where it was last when it does not answer for a moment."""
        try:
            self._last_hand = np.asarray(self._source.read(self._obs), float)
            self._failed_reads = 0
        except RobotError as error:
            self._failed_reads += 1
            if self._failed_reads >= self._settings.max_failed_reads:
                raise RobotError(
                    f"the leader has not answered {self._failed_reads} times in a row ({error}); what is kept stays"
                ) from error
        return self._last_hand

    def _meet(self, hand: np.ndarray) -> None:
        """Compare the hand with the arm as the episode begins."""
        far, text = self._distance(hand)
        self._begun = "ramp" if far else "yes"
        self._note = f"{text}: the twin comes to it, then recording begins" if far else "recording"
        self._ease_left = self._ramp_steps if far else 0
        if far:
            self._say(self._note)

    def _distance(self, hand: np.ndarray) -> tuple[bool, str]:
        gap = np.abs(hand - self._env.qpos[0, :6])
        joint = int(gap.argmax())
        name = self.task.family.config.robot.joint_names[joint]
        text = f"the leader is {math.degrees(gap[joint]):.0f} degrees from the twin's arm ({name})"
        return bool(gap[joint] > self._settings.far_rad), text

    def _eased(self, hand: np.ndarray) -> np.ndarray:
        if self._meet_again:
            self._meet_again = False
            far, text = self._distance(hand)
            if far:
                self._say(f"{text}: the twin comes to it")
                self._ease_left = self._ramp_steps
        if self._ease_left == 0:
            return hand
        self._ease_left -= 1
        share = (1 - math.cos(math.pi * (1 - self._ease_left / self._ramp_steps))) / 2
        return self._eased_from + share * (hand - self._eased_from)

    # ---- episodes ------------------------------------------------------------------------------------------------

    def _begin(self, seed: int) -> None:
        self._obs, self._info = self._env.reset(options={"seeds": [seed]})
        q = self._env.qpos[0, :6].copy()
        self._action = self._env.hold_action(q)
        self._rows: dict[str, list] = {key: [] for key in _COLUMNS}
        self._begun, self._note, self._ramped = "", "", False  # "", ramp, yes
        self._eased_from, self._last_hand = q, q
        self._ease_left, self._failed_reads = 0, 0
        self._intervening, self._meet_again = False, False
        self._source.begin(q, self._obs)
        if self._policy is not None:
            self._policy.begin(self._obs)

    def _end(self, success: bool, why: str, keep: bool | None = None) -> None:
        rows = len(self._rows["obs"])
        keep = (success or self._keep_failures) if keep is None else keep
        seed = int(self._env.episode_seeds[0])
        if keep and rows:
            self._keep(self._episode(seed, success))
            self.kept += 1
            self.successes += success
        else:
            self.dropped += 1
        outcome = f"kept as {'a success' if success else 'no success'}" if keep and rows else "dropped"
        self._say(f"seed {seed}: {why} after {rows} rows; {outcome}")
        self._begin(seed + 1)

    def _episode(self, seed: int, success: bool) -> Episode:
        rows = len(self._rows["obs"])
        arrays = {key: np.array(self._rows[key], np.float32) for key in ("obs", "action", "reward", "next_obs")}
        return Episode(
            **arrays,
            done=np.zeros(rows, np.float32),
            flags=np.array(self._rows["flags"], np.uint32),
            seed=seed,
            success=success,
            meta={"ramped": True} if self._ramped else {},
        )
