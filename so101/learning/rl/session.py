"""`./twin rl`: environments, demos, lock, tracking, training, and the evaluation on held-out seeds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from so101.config import Config
from so101.config.rl import RlConfig
from so101.datasets.demo_transitions import Transitions, load_transitions
from so101.errors import ConfigError, DataError
from so101.files import write_json
from so101.learning.session import RoleFolder, flattened
from so101.pipeline.progress import Reporter
from so101.pipeline.session import explain_disk_errors, lock_folder

if TYPE_CHECKING:
    from so101.families import FamilyTask

EVALUATION = "evaluation.json"


@dataclass(frozen=True)
class RlJob:
    """What `./twin rl` was asked for. `threads`: of the physics."""

    task: FamilyTask
    role: str
    settings: RlConfig
    demos: tuple[Path, ...] = ()
    demo_filter: str = "all"
    begin_with: str | None = None
    intervene: bool = False
    fresh: bool = False
    against: tuple[str, ...] = ()
    threads: int | None = None


def train_rl(config: Config, job: RlJob, reporter: Reporter, clock: Callable[[], float]) -> str:
    """Train ``models/<role>``, or go on with it, then evaluate it on held-out seeds; a sentence on what came out.

    Raises:
        ConfigError: no such task, or a reward it does not have.
        DataError: demos do not fit, the role is another training's, values ran away.
        RunFolderError: the role is in use.
    """
    import torch

    from so101.learning.rl.beginning import Beginning, TaskFacts
    from so101.learning.rl.curve import draw_curves
    from so101.learning.rl.train_rl import CURVE, PICTURE, RlTrainer
    from so101.tracking import tracked_run

    _need_stable_baselines()
    target = role_folder(config, job.role)
    make = _maker(job)
    curves = {role: role_folder(config, role) / "training" / CURVE for role in (job.role, *job.against)}
    for role in job.against:
        if not curves[role].is_file():
            raise DataError(f"--against {role}: there is no {curves[role]}; train it first, or leave it out")
    demos = _demos(job, reporter) if job.demos else None
    begin_with = None
    if job.begin_with is not None:
        from so101.learning.rl.checkpoint import load_checkpoint

        begin_with = Beginning(job.begin_with, *load_checkpoint(role_folder(config, job.begin_with)))
    takeover = None
    if job.intervene:
        from so101.learning.rl.intervention import expert_takeover

        takeover = expert_takeover(job.settings.intervention)
    task = TaskFacts(job.task.name, job.task.family.name, job.task.language, tuple(config.robot.joint_names))
    folder = RoleFolder(target)
    with explain_disk_errors(folder, "--role"), lock_folder(folder, "--role"):
        torch.set_num_threads(job.settings.threads)
        if job.fresh:
            shutil.rmtree(target / "training", ignore_errors=True)
        trainer = RlTrainer(job.settings, task, make, target, demos=demos, begin_with=begin_with, takeover=takeover)
        begun = trainer.step
        if demos is not None:
            reporter.message(_demo_line(demos, trainer.actions))
        if begun < job.settings.steps:
            params = {"role": job.role, "demos": " ".join(map(str, job.demos)), **flattened(trainer.identity)}
            with tracked_run(config, kind="train", name=job.role, params=params, resume_id=trainer.run_id) as run:
                run.tags({"learner": "rl", "task": job.task.name})
                trainer.run(reporter, run, clock)
                picture = target / "training" / PICTURE
                draw_curves(curves, picture, job.task.name)
                run.artifact(picture, "figures")
        else:
            reporter.message(f"{target} is trained: {begun} steps (begin anew with --fresh)")
        text = _evaluate(job, target, make, reporter)
    return f"{target}: {text}; curve in {target / 'training' / PICTURE}"


def evaluate_role(config: Config, job: RlJob, reporter: Reporter) -> str:
    """The held-out evaluation of a policy that is there; a sentence.

    Raises:
        PolicyError: there is none.
    """
    return _evaluate(job, role_folder(config, job.role), _maker(job), reporter)


def role_folder(config: Config, role: str) -> Path:
    """``models/<role>``.

    Raises:
        DataError: not the name of a folder.
    """
    if not role or Path(role).name != role or role.startswith("."):
        raise DataError(
            f"role {role!r}: must be the name of a folder in {config.deploy.server.models_dir}, without slashes"
        )
    return Path(config.deploy.server.models_dir) / role


def _evaluate(job: RlJob, folder: Path, make: Callable[[int, bool], Any], reporter: Reporter) -> str:
    import torch

    from so101.learning.rl.checkpoint import load_policy
    from so101.learning.rl.evaluate_rl import run_episodes, told

    torch.set_num_threads(job.settings.threads)
    policy, wanted = load_policy(folder), job.settings.evaluation
    name = job.task.name
    if policy.task != name:
        reporter.message(f"{folder} was trained on {policy.task}; it is evaluated on {name}")
    env = make(min(wanted.lanes, wanted.final_episodes), False)
    reporter.start("evaluate", wanted.final_episodes, unit="episodes")
    seeds = range(wanted.final_seed, wanted.final_seed + wanted.final_episodes)
    summary = run_episodes(policy.act, env, seeds, wanted.held_s, reporter.advance).summary()
    env.close()
    text = told(summary)
    write_json(folder / EVALUATION, {"task": name, "trained_on": policy.task, "policy": policy.training, **summary})
    return f"held-out: {text}"


def _maker(job: RlJob) -> Callable[[int, bool], Any]:
    """(lanes, autoreset) -> environment of the task. Episodes that are evaluated, those without autoreset, have the
    family's horizon."""
    from so101.families import FamilyVectorEnv

    settings = job.settings

    def make(lanes: int, autoreset: bool) -> Any:
        try:
            return FamilyVectorEnv(
                job.task, lanes, horizon=settings.horizon if autoreset else None, reward_mode=settings.reward_mode,
                autoreset=autoreset, threads=job.threads,
            )  # fmt: skip
        except ConfigError as error:
            raise ConfigError(f"training.rl.reward_mode: {error}") from None

    return make


def _demos(job: RlJob, reporter: Reporter) -> Transitions:
    """Rows of the demos, with the rewards of the training."""
    demos = load_transitions(job.demos, job.demo_filter, tasks=(job.task.name,))
    declared = job.task.family.declaration.reward.mode
    recorded, ours = demos.header.meta.get("reward_mode", declared), job.settings.reward_mode or declared
    if recorded == ours or job.settings.demo_rewards == "recorded":
        return demos
    from so101.learning.rl.demo_rewards import with_rewards

    reporter.message(f"demos were recorded with {recorded} rewards; they are paid anew, {ours}")
    return with_rewards(demos, job.demos, job.demo_filter, job.task, ours)


def _demo_line(demos: Transitions, actions: Any) -> str:
    import numpy as np

    u = actions.from_env(demos.obs, demos.action)
    missed = np.abs(actions.to_env(demos.obs, u) - demos.action).max(1) > 0.01
    counts = demos.counts
    text = (
        f"demos: {counts.kept} rows of {counts.episodes} episodes, {counts.successes} successful, {counts.intervened} "
        "rows intervened"
    )
    return text + (f"; {missed.mean():.1%} of the actions are further than the policy can go" if missed.any() else "")


def _need_stable_baselines() -> None:
    try:
        import stable_baselines3  # noqa: F401
    except ImportError:
        raise DataError(
            "./twin rl needs stable-baselines3, which is not installed: pip install -e .[training]"
        ) from None
