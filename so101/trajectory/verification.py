"""The verify stage: every smoothed demo is replayed open loop with physics and kept only if it succeeds again.

What goes on carries the states of the replay, so that in the dataset the observations are those its actions cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.demo import Demo, demo_index, list_demos, load_demo, save_demo
from so101.errors import DataError, SimulationError
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import map_unordered
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen import causes
from so101.skillgen.generate import is_kept
from so101.tasks.success import judge

_verifier: Verifier | None = None
_folders: tuple[Path, Path]


class Verifier:
    """Replays demos of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.simulator = MujocoSimulator(config)

    def replay(self, demo: Demo) -> Demo:
        """`demo` with the states, tests and cause of its open-loop replay."""
        q, objects = self.run_open_loop(demo.physics_state, demo.q_target, demo.meta.get("randomisation", {}))
        verdict = judge(self.config, objects, q)
        replayed = demo.replace(
            q=q,
            objects=objects,
            strict=verdict.strict,
            geometric=verdict.geometric,
            meta={**demo.meta, "replay": verdict.figures()},
        )
        failed = causes.cause_at_end(verdict.container_moved_m, self.config.task.active.success.container_push_m)
        return replayed.replace(cause="" if is_kept(self.config, replayed) else failed)

    def run_open_loop(
        self, physics_state: np.ndarray, q_target: np.ndarray, randomisation: Mapping[str, Any]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Joint targets (T, 6) rad from a physics state, with the physics of a demo's draw: measured joints (T, 6) and
        object poses (T, 7) before each of them.

        Raises:
            DataError: the state belongs to another model.
            SimulationError: so does the draw.
        """
        sim = self.simulator
        if len(physics_state) != sim.physics_state_size:
            raise DataError(
                f"the demo's physics state has {len(physics_state)} numbers, this scene needs "
                f"{sim.physics_state_size}: "
                "it was made with another scene.yaml or task; generate again"
            )
        sim.randomise(0, randomisation)
        sim.set_physics_state(0, physics_state)
        qpos = np.empty((len(q_target), sim.model.nq))
        for row, target in zip(qpos, q_target, strict=True):
            row[:] = sim.data[0].qpos
            sim.step(0, target)
        return qpos[:, :6], {name: qpos[:, sim.object_slice(name)] for name in sim.object_names}


def _start(config_json: str, verified: str, rejected: str) -> None:
    global _verifier, _folders
    _verifier = Verifier(Config.model_validate_json(config_json))
    _folders = Path(verified), Path(rejected)


def _verify(path: Path) -> tuple[int, str]:
    assert _verifier is not None
    demo = load_demo(path)
    try:
        demo = _verifier.replay(demo)
    except (DataError, SimulationError) as error:
        raise type(error)(f"{path}: {error}") from None
    save_demo(_folders[1] if demo.cause else _folders[0], demo)
    return demo.index, demo.cause


def verify_demos(config: Config, run: RunFolder, reporter: Reporter, workers: int) -> StageResult:
    """Replay what `smoothed/` holds into `verified/` or `rejected/`; results of demos that are no longer there are
    removed."""
    smoothed = {demo_index(path): path for path in list_demos(run.smoothed)}
    results: dict[int, str] = {}
    for folder in (run.verified, run.rejected):
        for path in list_demos(folder):
            if demo_index(path) in smoothed:
                results[demo_index(path)] = load_demo(path).cause
            else:
                path.unlink()
    missing = [path for index, path in smoothed.items() if index not in results]
    reporter.start("verify", len(smoothed), len(results))
    initargs = (config.model_dump_json(), str(run.verified), str(run.rejected))
    if missing:
        for index, cause in map_unordered(_verify, missing, workers=workers, initializer=_start, initargs=initargs):
            results[index] = cause
            reporter.advance()
    failed = Counter(cause for cause in results.values() if cause)
    summary = {"replayed": len(results), "rejected": sum(failed.values()), "causes": dict(sorted(failed.items()))}
    return StageResult("verify", len(results) - sum(failed.values()), summary)
