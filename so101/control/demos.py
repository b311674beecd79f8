"""The demonstration a replay is about: found, or made on the spot by the scripted operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from so101.config import Config
from so101.datasets.demo import Demo, list_demos, load_demo, save_demo
from so101.datasets.seeds import SeedDemo
from so101.errors import DataError
from so101.geometry import pose_to_pos_quat
from so101.policies.episodes import demo_path

MADE_DEMOS = "demos"  # in the folder of all sessions


def chosen_demo(config: Config, path: Path | None, sessions: Path) -> tuple[Path, Demo]:
    """The demo at `path` (a file, or a run: its newest verified), else that of deploy.server.run, else the one that was
    made before.

    Raises:
        DataError: there is none; `make_demo` makes one.
    """
    if path is None and not list_demos(Path(config.deploy.server.run) / "verified"):
        path = sessions / MADE_DEMOS / config.task.name
    found = demo_path(Path(config.deploy.server.run) if path is None else path)
    return found, load_demo(found)


def make_demo(config: Config, sessions: Path) -> Path:
    """Let the scripted operator do the task in use once, in the twin, some seconds; returns the file.

    Raises:
        DataError: no take worked.
    """
    from so101.tasks.operator import ScriptedOperator, TakeFailed
    from so101.tasks.placement import draw_placements

    operator, causes = ScriptedOperator(config.of_seeds), []
    for take in range(config.teleop.operator.max_tries):
        objects, _ = draw_placements(config.of_seeds, np.random.default_rng(take))
        try:
            seed = operator.demo(take, objects)
        except TakeFailed as failure:
            causes.append(str(failure))
            continue
        return save_demo(sessions / MADE_DEMOS / config.task.name, _as_demo(seed, take))
    raise DataError(
        f"the scripted operator did not get {config.of_seeds.task.name} done in {len(causes)} tries "
        f"({', '.join(sorted(set(causes)))}); name a demo with --demo"
    )


def _as_demo(seed: SeedDemo, index: int) -> Demo:
    return Demo(
        index=index,
        seed=index,
        task=seed.task,
        fps=seed.fps,
        q_target=seed.q_target,
        q=seed.q,
        objects={name: np.array([pose_to_pos_quat(T) for T in poses]) for name, poses in seed.objects.items()},
        physics_state=np.zeros(0),
        strict=True,
        geometric=True,
        meta={"source": seed.source},
    )
