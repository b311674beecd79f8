"""`expert`: the scripted operator does the task in the twin for known places of the objects; its targets are served."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from so101.config import Config
from so101.policies.base import Action, Observation, PolicyError, PolicyOptions
from so101.policies.playback import Playback, batch_of, check_options, option_int
from so101.tasks.operator import ScriptedOperator, TakeFailed
from so101.tasks.placement import draw_placements

_MOST = 2**63 - 1


class ExpertPolicy:
    """Plans at every `reset`, some seconds, and then serves what worked in the twin; it does not look.

    `reset` takes `seed` (the placement that ``draw_placements(config, default_rng(seed))`` gives), or `objects`:
    name -> [x, y, z, qw, qx, qy, qz] in base for every object of the task.

    Raises:
        ConfigError: the operator does not know the task in use.
        PolicyError: it does not get the task done.
    """

    def __init__(self, config: Config, options: PolicyOptions) -> None:
        self._config = config.without_randomisation
        self._takes = config.deploy.server.expert_takes
        self._operator = ScriptedOperator(self._config)
        self._playback = Playback(config)
        self.modality = self._playback.interface.modality
        self.reset({"seed": options.seed})

    def reset(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan for a placement; without options begin the same plan again."""
        options = check_options(options, ("seed", "objects"), "expert")
        if options:
            self._plan(options)
        self._playback.start(self._values)
        return {**self._facts, "episode_length": len(self._values)}

    def get_action(
        self, observation: Observation | None, options: dict[str, Any] | None = None
    ) -> tuple[Action, dict[str, Any]]:
        action, info = self._playback.next(batch_of(observation, options))
        return action, {**info, **self._facts}

    def _plan(self, options: dict[str, Any]) -> None:
        if len(options) == 2:
            raise PolicyError("expert: give seed or objects, not both: each says where the objects are")
        if "seed" in options:
            seed = option_int(options, "seed", 0, least=0, most=_MOST)
            objects, _ = draw_placements(self._config, np.random.default_rng(seed))
            placement: dict[str, Any] = {"seed": seed}
        else:
            objects, placement = self._checked(options["objects"]), {}
        causes: Counter[str] = Counter()
        for take in range(self._takes):
            try:
                demo = self._operator.demo(take, objects)
            except TakeFailed as failure:
                causes[str(failure)] += 1
                continue
            self._values = self._playback.interface.to_units(demo.q_target)
            self._facts = {**placement, "take": take}
            return
        tried = ", ".join(f"{cause} {count} times" for cause, count in causes.most_common())
        where = f"seed {placement['seed']}" if placement else "the objects given"
        raise PolicyError(
            f"expert: the scripted operator did not get {self._config.task.name} done in {self._takes} takes for "
            f"{where} ({tried}); choose another placement, or raise deploy.server.expert_takes"
        )

    def _checked(self, objects: Any) -> dict[str, np.ndarray]:
        names = self._config.task.active.objects
        if not isinstance(objects, dict) or set(objects) != set(names):
            found = ", ".join(map(str, objects)) if isinstance(objects, dict) else type(objects).__name__
            raise PolicyError(f"expert: objects must be a map of {', '.join(names)} to poses, got {found or 'nothing'}")
        poses = {}
        for name, pose in objects.items():
            try:
                values = np.array(pose, float)
            except (TypeError, ValueError):
                values = np.zeros(0)
            if values.shape != (7,) or not np.isfinite(values).all() or abs(np.linalg.norm(values[3:]) - 1) > 1e-3:
                raise PolicyError(
                    f"expert: objects.{name} must be x, y, z in m and a unit quaternion w, x, y, z in the robot's base"
                )
            poses[name] = values
        return poses
