"""One episode: the policy looks, its chunk is executed row by row as the control loop does it, and so on to the end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from so101.cameras.base import Frame
from so101.config import Config
from so101.control.boundary import PolicyBoundary
from so101.control.chunks import ChunkPlan
from so101.errors import ConfigError
from so101.evaluation.closed_loop.record import Episode
from so101.evaluation.closed_loop.stages import stage_frames
from so101.evaluation.closed_loop.world import World
from so101.kinematics.arm import ArmKinematics
from so101.policies.base import Policy
from so101.tasks.success import judge


def run_episode(
    config: Config,
    world: World,
    policy: Policy,
    seed: int,
    language: str | None = None,
    *,
    reset_options: Mapping[str, Any] | None = None,
) -> Episode:
    """Run `policy` in `world` from the start that `seed` gives until strict success has held, the policy has no more,
    it fails, or time is up; then things settle and are judged. Rows, seams and delays: deploy.control and
    deploy.evaluation.

    Args:
        language: the task text; the task's own when None.
        reset_options: for `policy.reset`.

    Raises:
        ConfigError: the policy wants pictures that no camera gives; the rates of world and control loop differ.
    """
    return _Run(config, world, policy, seed, language or config.task.active.language).run(reset_options)


class _Answer(NamedTuple):
    """A chunk on its way: frame it was made from, rows executed by then, its rows (H, 6) rad."""

    frame: int
    executed: int
    rows: np.ndarray


@dataclass
class _Log:
    q: list[np.ndarray] = field(default_factory=list)
    q_target: list[np.ndarray] = field(default_factory=list)
    sent: list[np.ndarray] = field(default_factory=list)
    objects: dict[str, list[np.ndarray]] = field(default_factory=dict)
    places: list[tuple[int, int]] = field(default_factory=list)  # chunk, row
    answers: list[_Answer] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)


class _Run:
    """The state of one episode."""

    def __init__(self, config: Config, world: World, policy: Policy, seed: int, language: str) -> None:
        self._config, self._world, self._policy = config, world, policy
        self._seed, self._language = seed, language
        control, settings = config.deploy.control, config.deploy.evaluation
        if control.control_hz != config.scene.physics.control_hz:
            raise ConfigError(
                f"deploy.control.control_hz is {control.control_hz:g} and scene.physics.control_hz "
                f"{config.scene.physics.control_hz:g}: a world passes one period of the latter a command, so a policy "
                "would be tried at another rate than its own; make them equal"
            )
        self._hz = control.control_hz
        self._boundary = PolicyBoundary(config, policy.modality)
        self._sees = bool(policy.modality.video)
        self._plan = ChunkPlan(
            control.execute_steps,
            run_on=control.overlap,
            ema_alpha=control.ema_alpha,
            max_stale_s=control.max_stale_ms / 1000,
        )
        self._delay = settings.observation_delay_frames
        self._most = max(1, round(settings.max_s * self._hz))
        self._settle = round(control.settle_s * self._hz)
        self._hold = max(1, round(settings.success_hold_s * self._hz))
        self._pending: _Answer | None = None
        self._done = False
        self._facts: dict[str, Any] = {}

    def run(self, reset_options: Mapping[str, Any] | None) -> Episode:
        world, plan, log = self._world, self._plan, _Log()
        self._log = log
        world.reset(self._seed)
        target = world.measured()
        plan.start_from(target)
        log.objects = {name: [] for name in world.objects()}
        ended, error, held, ending = "", "", 0, 0  # held: frames of strict success, ending: of settling
        try:
            self._facts = dict(self._policy.reset(dict(reset_options) if reset_options else None) or {})
        except Exception as failure:  # of the policy or the wire: it counts as a failure of this episode
            ended, error = "error", _text(failure)
        while True:
            frame = len(log.q)
            if not ended:
                try:
                    self._ask(frame)
                except Exception as failure:
                    ended, error = "error", _text(failure)
            if not ended and self._done and plan.wants_next and self._pending is None:
                ended = "done"
            if not ended and frame >= self._most:
                ended = "time"
            row = None if ended else plan.next(frame / self._hz)
            target = target if row is None else row.q
            self._step(target, (-1, -1) if row is None else (row.chunk - 1, row.row))
            held = held + 1 if self._strict_now() else 0
            if held >= self._hold and ended != "error":
                ended = "success"
                break
            if ended:
                ending += 1
                if ended == "error" or ending > self._settle:
                    break
        return self._finish(ended, error, held)

    def _ask(self, frame: int) -> None:
        """Take over a chunk whose time has come; ask for the next when it is time for it. In the order of
        `so101.control.policy_pilot.PolicyPilot`; only without a delay comes what is asked for in the same frame."""
        self._take_over(frame)
        if self._plan.wants_next and self._pending is None and not self._done:
            rows = self._chunk(frame)
            self._pending = _Answer(frame, self._plan.executed, rows)
            self._log.answers.append(self._pending)
            self._take_over(frame)

    def _take_over(self, frame: int) -> None:
        if self._pending is not None and frame >= self._pending.frame + self._delay:
            elapsed = self._plan.executed - self._pending.executed
            self._plan.push(self._pending.rows, elapsed=elapsed, now_s=frame / self._hz)
            self._pending = None

    def _chunk(self, frame: int) -> np.ndarray:
        """(H, 6) rad."""
        q, images = self._world.look() if self._sees else (self._world.measured(), {})
        now_s = frame / self._hz
        frames = {name: Frame(image, now_s, now_s, frame, name) for name, image in images.items()}
        observation = self._boundary.observation(q, frames, self._language)
        began = time.perf_counter()
        action, info = self._policy.get_action(observation, None)
        self._log.latency_ms.append(1000 * (time.perf_counter() - began))
        self._facts["last_chunk"] = info
        self._done = bool(info.get("done"))
        return self._boundary.joint_targets(action)

    def _step(self, target: np.ndarray, place: tuple[int, int]) -> None:
        log, world = self._log, self._world
        log.q.append(world.measured())
        for name, pose in world.objects().items():
            log.objects[name].append(pose)
        log.q_target.append(target)
        log.sent.append(world.act(target))
        log.places.append(place)

    def _strict_now(self) -> bool:
        """The strict test on the newest frames; it is not cheap, so first whether it can hold at all."""
        log, success = self._log, self._config.task.active.success
        jaw = self._config.robot.joints[-1]
        least = jaw.lower_rad + success.strict.min_jaw_open_fraction * (jaw.upper_rad - jaw.lower_rad)
        if log.q[-1][-1] <= least or not all(self._was_moved(name) for name in success.objects):
            return False
        newest = slice(-success.strict.still_frames - 1, None)
        objects = {name: np.array(poses[newest]) for name, poses in log.objects.items()}
        return judge(self._config, objects, np.array(log.q[newest])).strict

    def _was_moved(self, name: str) -> bool:
        poses = self._log.objects[name]
        return float(np.linalg.norm(poses[-1][:3] - poses[0][:3])) > self._config.task.active.success.grasp_lift_m

    def _finish(self, ended: str, error: str, held: int) -> Episode:
        log, config = self._log, self._config
        q, sent = np.array(log.q), np.array(log.sent)
        objects = {name: np.array(poses) for name, poses in log.objects.items()}
        verdict = judge(config, objects, q)
        strict = verdict.strict and not error
        chunk, row = np.array(log.places, int).T
        horizon = min((len(answer.rows) for answer in log.answers), default=0)
        chunks = [answer.rows[:horizon] for answer in log.answers]
        return Episode(
            seed=self._seed,
            task=config.task.name,
            fps=self._hz,
            q=q,
            q_target=np.array(log.q_target),
            sent=sent,
            objects=objects,
            chunk=chunk,
            row=row,
            chunks=np.array(chunks, float).reshape(len(chunks), horizon, q.shape[1]),
            asked=np.array([answer.frame for answer in log.answers], int),
            latency_ms=np.array(log.latency_ms, float),
            physics_state=self._world.physics_state,
            strict=strict,
            geometric=verdict.geometric and not error,
            stages=stage_frames(config, ArmKinematics(config).fk(q), q, sent, objects),
            success_frame=max(0, len(q) - max(held, 1)) if strict else None,
            ended=ended,
            error=error,
            meta={
                "verdict": verdict.figures(),
                "language": self._language,
                "policy": json.loads(json.dumps(self._facts, default=str)),
                **self._world.meta,
            },
        )


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
