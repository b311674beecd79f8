"""Training on a task: experience, updates, evaluations, files. It may be killed at any instant and goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from so101.config.rl import RlConfig
from so101.datasets.demo_transitions import Transitions
from so101.errors import DataError
from so101.learning.rl.actions import RandomActions
from so101.learning.rl.beginning import (
    Beginning,
    TaskFacts,
    check_beginning,
    choose_actions,
    first_change,
    training_identity,
)
from so101.learning.rl.checkpoint import RlPolicy, save_policy
from so101.learning.rl.curve import append_row, cut_rows, draw_curves
from so101.learning.rl.evaluate_rl import run_episodes, told
from so101.learning.rl.health import judge
from so101.learning.rl.sac import FamilySac, Takeover
from so101.learning.rl.training_state import read_facts, restore_state, save_state
from so101.learning.rl.vec_env import FamilyVecEnv
from so101.pipeline.progress import Reporter
from so101.tracking import NullRun

STATE, CURVE, PICTURE = "state.safetensors", "curve.csv", "curve.png"
_CHUNK = 8  # steps of all lanes between two looks at the clock


class RlTrainer:
    """One training of one role.

    Args:
        settings: `training.rl` of the task.
        task: facts for the checkpoint.
        make: (lanes, autoreset) -> environment of the task.
        folder: of the role; ``training/`` in it holds state and curve.
        demos: rows to learn from beside what the arm does.
        begin_with: weights to begin with.
        takeover: (environment) -> what to ask before every step which lanes an expert drives.

    Attributes:
        run_id: of the tracked run that is to be continued, or None.

    Raises:
        DataError: demos or weights do not fit the task, or the folder holds another training.
    """

    def __init__(
        self,
        settings: RlConfig,
        task: TaskFacts,
        make: Callable[[int, bool], Any],
        folder: Path,
        *,
        demos: Transitions | None = None,
        begin_with: Beginning | None = None,
        takeover: Callable[[FamilyVecEnv], Callable[[], Takeover | None]] | None = None,
    ) -> None:
        self.settings, self.task, self.folder = settings, task, folder
        self.own = folder / "training"
        self.own.mkdir(parents=True, exist_ok=True)
        self._make = make
        env = make(settings.envs, True)
        self._names, self._control_hz = tuple(env.observation_names), 1 / env.control_dt
        if begin_with is not None:
            check_beginning(begin_with, self._names, settings)
        self.actions = choose_actions(settings, env, demos) if begin_with is None else begin_with.policy.actions
        self.env = FamilyVecEnv(env, self.actions)
        self.identity = training_identity(settings, task, demos, begin_with, takeover is not None)
        facts = read_facts(self.own / STATE)
        self.run_id: str | None = facts.get("run_id")
        self._minutes, self._best = facts.get("minutes", 0.0), facts.get("best")
        if facts and (change := first_change(facts["identity"], self.identity)):
            raise DataError(
                f"{folder}: holds a training of something else ({change}); set it as it was, train under another "
                "--role, or begin anew with --fresh"
            )
        self._next_seed = facts.get("next_seed", settings.first_seed)
        if self._next_seed + settings.steps // env.horizon + settings.envs >= settings.evaluation.final_seed:
            raise DataError(
                f"training episodes would reach the held-out seeds from {settings.evaluation.final_seed} on; lower "
                "training.rl.first_seed or steps"
            )
        self.env.begin_at(self._next_seed)
        mean, deviation = self._normalisation(facts, demos, begin_with)
        pretrained = bool(settings.bc.pretrain_updates and demos is not None) or begin_with is not None
        starts = settings.learning_starts if demos is None else settings.learning_starts_with_demos
        room = len(demos) if demos is not None else 0
        self.sac = FamilySac(
            self.env,
            settings,
            mean,
            deviation,
            learning_starts=starts,
            random_steps=0 if pretrained else starts,
            demo_room=room + (settings.intervention.room_rows if takeover is not None else 0),
            takeover=None if takeover is None else takeover(self.env),
        )
        self._pretrained = pretrained
        if demos is not None:
            u = self.actions.from_env(demos.obs, demos.action)
            self.sac.show(demos.obs, u, demos.reward, demos.done, demos.next_obs)
        if facts:
            restore_state(self.own / STATE, self.sac)
            cut_rows(self.own / CURVE, self.step)
        else:
            (self.own / CURVE).unlink(missing_ok=True)
            if begin_with is not None:
                self._take_over(begin_with)

    @property
    def step(self) -> int:
        """Steps of all lanes together so far."""
        return self.sac.num_timesteps

    def run(self, reporter: Reporter, run: NullRun, clock: Callable[[], float]) -> dict[str, Any] | None:
        """Train to the end; the summary of the best evaluation on tuning seeds. `clock` gives s."""
        settings, sac = self.settings, self.sac
        began = clock() - 60 * self._minutes
        self._evaluator = self._make(min(settings.evaluation.lanes, settings.evaluation.episodes), False)
        if self.step == 0:
            if settings.bc.pretrain_updates and sac.replay_buffer.demos.size:
                self._pretrain(reporter)
            if self._pretrained:
                self._evaluate(run, 0.0, reporter)
        reporter.start("rl", settings.steps, self.step, unit="steps")
        saved, health, note = clock(), "fine", ""
        log_at, evaluate_at = (self._after(n) for n in (settings.log_steps, settings.evaluation.every_steps))
        try:
            while self.step < settings.steps:
                before = self.step
                sac.learn(_CHUNK * settings.envs, reset_num_timesteps=False, log_interval=None)
                self._minutes = (clock() - began) / 60
                if self.step >= log_at or self.step >= settings.steps:
                    log_at = self._after(settings.log_steps)
                    health, note = self._log(run, reporter, health)
                if self.step >= evaluate_at or self.step >= settings.steps:
                    evaluate_at = self._after(settings.evaluation.every_steps)
                    self._evaluate(run, self._minutes, reporter)
                    saved = -math.inf  # a state that is older than the best policy would forget how good that was
                reporter.advance(self.step - before, note=note)
                if clock() - saved > 60 * settings.save_minutes:
                    self._save(run.id)
                    saved = clock()
        except BaseException as stop:
            if not isinstance(stop, Exception):  # asked to stop: what was learned since the last save is kept
                self._save(run.id)
            raise
        self._evaluator.close()
        return self._best

    def policy(self) -> RlPolicy:
        """What acts now."""
        sac, best = self.sac, self._best or {}
        return RlPolicy(
            task=self.task.name,
            family=self.task.family,
            language=self.task.language,
            control_hz=self._control_hz,
            observation_names=self._names,
            action_names=self.task.action_names,
            actions=self.actions,
            shape=self.settings.actor,
            standardise=sac.policy.standardise,
            actor=sac.actor,
            training={
                "steps": self.step,
                "updates": sac._n_updates,
                "minutes": round(self._minutes, 2),
                "seed": self.settings.seed,
                "tuning": best.get("summary", {}),
                "identity": self.identity,
            },
        )

    # what happens now and then

    def _after(self, every: int) -> int:
        return (self.step // every + 1) * every

    def _log(self, run: NullRun, reporter: Reporter, health: str) -> tuple[str, str]:
        """A point of the curves; the state of health, and the note beside the bar."""
        sac, settings = self.sac, self.settings
        figures = sac.figures()
        bad = [key for key, value in figures.items() if not math.isfinite(value)]
        if bad:
            raise DataError(
                f"{bad[0]} is {figures[bad[0]]} at step {self.step}: the values ran away. Lower "
                "training.rl.learning_rate or training.rl.target.tau, or take "
                "training.rl.critics.layer_norm; then begin anew with --fresh"
            )
        row: dict[str, Any] = {"step": self.step, "minutes": self._minutes, "updates": sac._n_updates, **figures}
        if sac.takeover is not None:
            row["intervened"] = sac.intervened
        if sac.ep_info_buffer:
            row["train_return"] = float(np.mean([episode["r"] for episode in sac.ep_info_buffer]))
            row["train_success"] = float(np.mean(sac.ep_success_buffer))
        judged = judge(
            figures, settings.gamma, settings.entropy.backup, settings.health.overshoot, settings.health.diverged
        )
        note = "random actions" if judged is None else judged.line
        if judged is not None:
            row["q_ratio"] = judged.ratio
            if judged.state != health:
                reporter.message(f"step {self.step}: {judged.advice}")
                health = judged.state
        if "train_success" in row:
            note += f", success {row['train_success']:.0%}"
        append_row(self.own / CURVE, row)
        run.log({key: value for key, value in row.items() if key != "step"}, step=self.step)
        return health, note

    def _evaluate(self, run: NullRun, minutes: float, reporter: Reporter) -> None:
        """Greedy episodes on tuning seeds; the checkpoint, when it is the best so far."""
        wanted, policy = self.settings.evaluation, self.policy()
        seeds = range(wanted.first_seed, wanted.first_seed + wanted.episodes)
        summary = run_episodes(self._act(policy), self._evaluator, seeds, wanted.held_s).summary()
        rates = {f"eval_{key}": summary[key]["rate"] for key in ("any", "end", "held")}
        values = {**rates, "eval_n": summary["n"], "eval_return": summary["mean_return"]}
        append_row(self.own / CURVE, {"step": self.step, "minutes": minutes, "updates": self.sac._n_updates, **values})
        run.log(values, step=self.step)
        score = [rates["eval_end"], rates["eval_any"], summary["mean_return"]]
        best = self._best is None or score >= self._best["score"]
        if best:
            self._best = {"score": score, "step": self.step, "summary": summary}
            save_policy(self.folder, self.policy(), self.sac.critic.state_dict())
        reporter.message(f"step {self.step}: {told(summary)}{'; best so far' if best else ''}")
        draw_curves({self.folder.name: self.own / CURVE}, self.own / PICTURE, f"{self.task.name}, {self.folder.name}")

    def _act(self, policy: RlPolicy) -> Callable[[np.ndarray], np.ndarray]:
        """As `RlPolicy.act`, where the networks are on a GPU."""

        def act(obs: np.ndarray) -> np.ndarray:
            u, _ = self.sac.predict(obs, deterministic=True)
            return policy.actions.to_env(obs, u)

        return act

    def _pretrain(self, reporter: Reporter) -> None:
        count = self.settings.bc.pretrain_updates
        reporter.start("imitate", count, unit="updates")
        for begin in range(0, count, 100):
            self.sac.pretrain(min(100, count - begin))
            reporter.advance(min(100, count - begin))
        figures = self.sac.figures()
        reporter.message(
            f"imitated the demos in {count} updates: actions {figures['bc_loss']:.4f} apart, of a half range of 1"
        )

    def _save(self, run_id: str | None) -> None:
        facts = {
            "identity": self.identity,
            "run_id": run_id,
            "minutes": self._minutes,
            "best": self._best,
            "next_seed": int(np.max(self.env.env.episode_seeds)) + 1,
            "mean": self.sac.policy.standardise.mean.tolist(),
            "deviation": self.sac.policy.standardise.deviation.tolist(),
        }
        save_state(self.own / STATE, self.sac, facts)

    # how it begins

    def _normalisation(
        self, facts: dict[str, Any], demos: Transitions | None, begin_with: Beginning | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation (D,) of the observations."""
        settings = self.settings.normalisation
        if facts:
            return np.array(facts["mean"], np.float32), np.array(facts["deviation"], np.float32)
        if begin_with is not None:
            begun = begin_with.policy.standardise
            return begun.mean.numpy(), begun.deviation.numpy()
        seen = self._look_around(settings.rows) if demos is None else np.concatenate([demos.obs, demos.next_obs[-1:]])
        mean, deviation = seen.mean(0), np.maximum(seen.std(0), settings.least)
        for word, name in enumerate(self.env.env.observation_names):
            fixed = settings.fixed.get(name, settings.fixed.get(name.split(".")[0]))
            if fixed is not None:
                mean[word], deviation[word] = 0.0, fixed
        return mean, deviation

    def _look_around(self, rows: int) -> np.ndarray:
        """Observations (rows or more, D) of random actions."""
        env, seen = self.env, [self.env.reset()]
        act = RandomActions(
            (env.num_envs, *env.action_space.shape),
            self.settings.random_hold_s / env.env.control_dt,
            self.settings.seed,
        )
        while len(seen) * env.num_envs < rows:
            seen.append(env.step(act())[0])
        return np.concatenate(seen)

    def _take_over(self, begin_with: Beginning) -> None:
        sac = self.sac
        sac.actor.load_state_dict(begin_with.policy.actor.state_dict())
        try:
            for critics in (sac.critic, sac.critic_target):
                critics.load_state_dict(begin_with.critics)
        except RuntimeError as error:
            if begin_with.critics:
                raise DataError(
                    f"--init {begin_with.role}: its critics are of another shape ({str(error)[:200]}); set "
                    "training.rl.critics as they were"
                ) from None
