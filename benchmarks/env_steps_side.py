"""The side of `env_steps.py` that steps: one contestant in one process, in the Python that has it installed.

    PYTHON benchmarks/env_steps_side.py '{"name": "nexus", "kind": "single", "period_s": 0.02, "lanes": 1}'

First line out: what it is (JSON), or {"missing": why}. Then, for every line in, {"policy": "random" | "hold",
"seconds": s}, one line out: steps of all lanes, wall and CPU seconds (its own and its workers').
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

TABLE = 64  # actions drawn beforehand, so that no draw is timed


class Missing(Exception):
    """Something is not installed."""


class Lanes:
    """What all contestants look like: `lanes` environments behind one `step`.

    Args:
        env: gymnasium environment or vector environment.
        lanes: 0 for one that is no vector.
        hold: () -> action that keeps the arm where it is, of the shape that `env` takes.
        model: MjModel to report.
        substeps: physics steps of one control step.
    """

    def __init__(
        self, env: Any, lanes: int, hold: Callable[[], Any], model: Any, substeps: int, note: str = ""
    ) -> None:
        self.env, self.lanes, self.hold = env, lanes, hold
        self.facts = {
            "lanes": max(lanes, 1), "timestep_s": float(model.opt.timestep), "substeps": int(substeps),
            "period_s": float(model.opt.timestep * substeps), "dofs": int(model.nv), "geoms": int(model.ngeom),
            "python": platform.python_version(), "note": note,
        }  # fmt: skip
        env.action_space.seed(0)
        self._random = [env.action_space.sample() for _ in range(TABLE)]

    def run(self, policy: str, seconds: float) -> dict[str, float]:
        """Step for `seconds`; resets at the end of episodes count, the first one does not."""
        self.env.reset(seed=0)
        actions = self._random if policy == "random" else [self.hold()]
        for action in actions[:2]:
            self._step(action)
        steps, cpu, begin = 0, _cpu_s(), time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds:
            self._step(actions[steps % len(actions)])
            steps += 1
        return {"steps": steps * max(self.lanes, 1), "wall_s": elapsed, "cpu_s": _cpu_s() - cpu}

    def _step(self, action: Any) -> None:
        _, _, terminated, truncated, _ = self.env.step(action)
        if not self.lanes and (terminated or truncated):
            self.env.reset()


def _cpu_s() -> float:
    """s of CPU of this process and its workers."""
    ticks = 0
    for child in multiprocessing.active_children():
        with open(f"/proc/{child.pid}/stat") as file:
            ticks += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def ours(kind: str, period_s: float, lanes: int, task: str = "so101_tower_lift_brick") -> Lanes:
    """A task of ours with as many physics steps in a control step as the period takes."""
    from so101.families import FamilyVectorEnv, find_task
    from so101.families.env import FamilyEnv

    found = find_task(task)
    declared = found.family.declaration
    skip = round(period_s / declared.control.timestep_s)
    control = declared.control.model_copy(update={"frame_skip": skip})
    family = found.family.model_copy(update={"declaration": declared.model_copy(update={"control": control})})
    found = found.model_copy(update={"family": family})
    if kind == "single":
        env = FamilyEnv(found)
        return Lanes(env, 0, lambda: env.lanes.hold_action(env.lanes.qpos[0, :6]), env.lanes.mj_model, skip)
    env = FamilyVectorEnv(found, lanes)
    return Lanes(
        env, lanes, lambda: env.hold_action(env.qpos[:, :6]), env.mj_model, skip, "threads of MuJoCo's rollout"
    )


def lerobot(kind: str, period_s: float, lanes: int) -> Lanes:
    """The pick environment of lerobot-env-so101: inverse kinematics inside, actions are steps of the hand."""
    try:
        from lerobot_env_so101.pick_env import SO101PickCubeGymEnv
    except ImportError as error:
        raise Missing(f"lerobot-env-so101 is not installed ({error})") from error
    from gymnasium.wrappers import TimeLimit

    # a hair more than the period: they divide by the time step and round down
    make = partial(SO101PickCubeGymEnv, control_dt=period_s * 1.0001, random_block_position=True)
    hold = np.array([0.0, 0.0, 0.0, 1.0], np.float32)
    probe = make()
    return _gymnasium(kind, lambda: TimeLimit(make(), 300), lanes, lambda env: hold, probe.model, probe._n_substeps)


def nexus(kind: str, period_s: float, lanes: int, timestep_s: float | None = None) -> Lanes:
    """Pick-lift of so101-nexus on MuJoCo. timestep_s: None for its own (5 ms)."""
    try:
        import so101_nexus.mujoco  # noqa: F401 (registers)
        from so101_nexus import PhysicsConfig, PickConfig
    except ImportError as error:
        raise Missing(f"so101-nexus is not installed ({error})") from error
    import gymnasium

    # its native preset but for the two times
    physics = PhysicsConfig(
        timestep_s=timestep_s or 0.005, control_period_s=period_s, integrator="implicitfast", tolerance=1e-8,
        noslip_iterations=3,
    )  # fmt: skip
    config = PickConfig(physics=physics)
    make = partial(gymnasium.make, "MuJoCoPickLift-v1", config=config)
    probe = make().unwrapped
    if kind == "batch":
        try:
            import so101_nexus.mjbatch  # noqa: F401 (registers)

            env = gymnasium.make_vec("MJBatchPickLift-v1", num_envs=lanes, config=config)
        except ImportError as error:
            raise Missing(str(error)) from error
        tasks = [each.unwrapped for each in env.unwrapped.envs]
        hold = lambda: np.array([_held(task) for task in tasks], np.float32)  # noqa: E731
        return Lanes(env, lanes, hold, probe.model, probe._N_SUBSTEPS, "its MJBatch backend")
    return _gymnasium(kind, make, lanes, _held, probe.model, probe._N_SUBSTEPS)


def _held(env: Any) -> np.ndarray:
    """Its action is the joint targets."""
    task = env.unwrapped
    return np.clip(task.data.ctrl[task._actuator_ids], env.action_space.low, env.action_space.high).astype(np.float32)


def _gymnasium(kind: str, make: Callable[[], Any], lanes: int, hold: Callable, model: Any, substeps: int) -> Lanes:
    """Alone, or in gymnasium's worker processes."""
    from gymnasium.vector import AsyncVectorEnv

    if kind == "single":
        env = make()
        return Lanes(env, 0, lambda: hold(env), model, substeps)
    one = make()  # stands for all when a held pose is asked for: workers do not tell theirs
    one.reset(seed=0)
    env = AsyncVectorEnv([make] * lanes)
    return Lanes(env, lanes, lambda: np.stack([hold(one)] * lanes), model, substeps, f"{lanes} processes of gymnasium")


def main() -> None:
    """Make the contestant, then answer requests until the input ends."""
    wanted = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not stand between the answers
    try:
        contestant = {"ours": ours, "lerobot": lerobot, "nexus": nexus}[wanted.pop("name")](**wanted)
    except Missing as error:
        print(json.dumps({"missing": str(error)}), file=answers, flush=True)
        return
    print(json.dumps(contestant.facts), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(contestant.run(**json.loads(line))), file=answers, flush=True)
    contestant.env.close()


if __name__ == "__main__":
    main()
