"""`./real`: rollouts of a policy on the arm, or on a simulated one."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from proto.errors import ProtoError
from proto.stopping import StopFlag, stop_on_signals
from services.policy.client import PolicyClient
from services.policy.options import read_token
from services.real.parts import Parts, Setting
from so101.config import Config
from so101.control.asking import Asker
from so101.control.boundary import PolicyBoundary
from so101.control.policy_pilot import PolicyPilot
from so101.control.rollout import Rollout, run_rollout
from so101.control.stats import LoopStats
from so101.datasets.demo import Demo
from so101.datasets.rollouts import SessionFolder
from so101.errors import ConfigError, So101Error
from so101.files import write_json
from so101.policies.base import PolicyError
from so101.tasks.placement import draw_placements

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Wishes:
    """What the user wants of a session of rollouts.

    Attributes:
        setting: where.
        policy: its name, or "remote".
        episodes: rollouts.
        seed: of the first rollout's placement (expert, and --sim without a demo).
        demo, demo_path: what is replayed.
        name: of the session's folder; the time when None.
    """

    setting: Setting
    policy: str
    episodes: int = 1
    seed: int = 0
    demo: Demo | None = None
    demo_path: Path | None = None
    name: str | None = None


@dataclass
class Outcomes:
    """What a session came to. `exit_code`: of the program."""

    folder: SessionFolder
    exit_code: int = 0
    rollouts: list[Rollout] = field(default_factory=list)
    stats: LoopStats = field(default_factory=LoopStats)

    @property
    def counts(self) -> Counter[str]:
        return Counter(rollout.result.outcome for rollout in self.rollouts)


def session_folder(config: Config, name: str | None) -> SessionFolder:
    """The folder of session `name`, a new one named by the time when None, cleaned of what a killed program left.

    Raises:
        ConfigError: the name is no plain name.
    """
    if name is not None and not _PLAIN_NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name}: must be a plain name (letters, digits, '.', '-', '_'); it becomes a folder in "
            f"{config.deploy.control.sessions} (deploy.control.sessions)"
        )
    folder = SessionFolder(Path(config.deploy.control.sessions) / (name or time.strftime("%Y%m%d-%H%M%S")))
    folder.clean_up()
    return folder


def run_session(config: Config, wishes: Wishes, say: Callable[[str], None]) -> Outcomes:
    """Start what is missing, run the rollouts, stop it again. Raises as `Parts`.

    Raises:
        ServiceDied: a service ended meanwhile.
        PolicyError: there is no policy server, or it cannot begin.
    """
    outcomes = Outcomes(session_folder(config, wishes.name))
    with stop_on_signals() as stop, Rollouts(config, wishes, outcomes.folder, stop, say) as rollouts:
        while len(outcomes.rollouts) < wishes.episodes and not stop.is_set():
            rollout = rollouts.run(wishes.seed + len(outcomes.rollouts))
            outcomes.rollouts.append(rollout)
            outcomes.stats.add(rollout.result.stats)
            write_json(outcomes.folder.root / "session.json", _record(config, wishes, outcomes))
            tell(say, rollout)
            rollouts.parts.check()
            if rollout.result.outcome == "aborted":
                outcomes.exit_code = So101Error.exit_code
                break
    outcomes.exit_code = stop.exit_code or outcomes.exit_code
    return outcomes


class Rollouts:
    """`Parts` with a policy as the pilot. A context."""

    def __init__(
        self, config: Config, wishes: Wishes, folder: SessionFolder, stop: StopFlag, say: Callable[[str], None]
    ) -> None:
        self._config, self._wishes, self._folder, self._say = config, wishes, folder, say
        self.parts = Parts(config, wishes.setting, folder, self._make_pilot, stop, say)

    def __enter__(self) -> Rollouts:
        if self._wishes.setting.policy_server is None:
            with self._client() as client:  # before anything is started for nothing
                self._require(client)
        self.parts.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.parts.__exit__(*exception)

    def run(self, seed: int) -> Rollout:
        """One rollout; the rig and the policy are set up for it first."""
        demo, loop = self._wishes.demo, self.parts.loop
        with loop.holding():
            placed = self._set_up(seed)
        meta = {
            "policy": self._wishes.policy,
            "sim": self._wishes.setting.sim,
            "armed": self._wishes.setting.arm,
            "demo": str(self._wishes.demo_path) if demo is not None else None,
            "start_objects": placed,
            "unix_s": time.time(),
        }
        home = np.array([joint.home_rad for joint in self._config.robot.joints])
        return run_rollout(
            self._config,
            loop,
            self._folder,
            cameras=self.parts.cameras,
            start=home if demo is None else demo.q_target[0],
            seed=seed,
            meta=meta,
        )

    def _make_pilot(self, stack: ExitStack) -> PolicyPilot:
        client = stack.enter_context(self._client())
        self._require(client)
        boundary = PolicyBoundary(self._config, client.modality)
        self._asker = Asker(client)
        stack.callback(self._asker.close)
        return PolicyPilot(self._config, boundary, self._asker, self._config.task.active.language, say=self._say)

    def _client(self) -> PolicyClient:
        return PolicyClient.from_config(self._config, read_token(self._config.deploy.client.api_token_file))

    def _require(self, client: PolicyClient) -> None:
        if not client.ping(self._config.deploy.client.connect_timeout_ms):
            raise PolicyError(
                f"no policy server answers at {client.endpoint} (deploy.client); start one with ./policy, or let "
                "./real do it: --policy replay"
            )

    def _set_up(self, seed: int) -> dict[str, list[float]] | None:
        """Objects to their places in the rig, the policy to the beginning of an episode. Returns the places."""
        demo, objects, physics = self._wishes.demo, None, {}
        if demo is not None and demo.objects:
            objects = {name: poses[0] for name, poses in demo.objects.items()}
            physics = demo.meta.get("randomisation", {}).get("physics", {})
        elif self._wishes.setting.sim:
            objects, _ = draw_placements(self._config, np.random.default_rng(seed))
        placed = self.parts.place(objects, seed=seed, physics=physics)
        options: dict[str, Any] | None = None
        if self._wishes.policy == "expert":
            options = {"seed": seed}
            if objects:
                options = {"objects": {name: pose.tolist() for name, pose in objects.items()}}
        try:
            facts = self._asker.reset(options)
        except ProtoError as error:
            raise PolicyError(f"the policy could not begin an episode: {error}") from error
        if self._wishes.policy == "replay" and demo is not None and self._wishes.demo_path is not None:
            require_replay(facts, demo, self._wishes.demo_path)
        return placed


def require_replay(facts: dict[str, Any], demo: Demo, path: Path) -> None:
    """Check by what the policy answered to `reset` that it replays this demo: a server that was there already may not.

    Raises:
        PolicyError: it does something else.
    """
    source, length = facts.get("source"), facts.get("episode_length")
    if source is None or Path(str(source)).name != path.name or length != demo.num_frames:
        raise PolicyError(
            f"the policy server that answers already does not replay {path}, it serves "
            f"{source or 'another policy'}; stop it (./twin down, or where it runs), or take what it serves: "
            "--policy remote"
        )


def tell(say: Callable[[str], None], rollout: Rollout) -> None:
    """What became of a rollout, in a few lines."""
    result, stats = rollout.result, rollout.result.stats.summary()
    late, misses = stats["sent_ms"], stats["misses"]
    say(f"rollout {rollout.index}: {result.outcome} ({result.reason})")
    if late is not None:
        counted = ", ".join(f"{count} {reason}" for reason, count in misses.items()) or "none"
        ms = ", ".join(f"{name} {late[name]:.1f}" for name in ("p50", "p99", "max"))
        say(f"  {stats['ticks']} ticks; commands sent after their grid time: {ms} ms; misses: {counted}")
    if rollout.late_frames and rollout.demo is not None:
        say(f"  {rollout.late_frames} pictures are missing in the videos: this machine was too busy to encode them")
    for path in (rollout.demo, rollout.plot):
        if path is not None:
            say(f"  {path}")


def _record(config: Config, wishes: Wishes, outcomes: Outcomes) -> dict[str, Any]:
    """Content of session.json."""
    return {
        "policy": wishes.policy,
        "armed": wishes.setting.arm,
        "sim": wishes.setting.sim,
        "pseudo_real": wishes.setting.pseudo_real,
        "demo": str(wishes.demo_path) if wishes.demo_path else None,
        "task": config.task.name,
        "control": config.deploy.control.model_dump(mode="json"),
        "outcomes": dict(sorted(outcomes.counts.items())),
        "loop": outcomes.stats.summary(),
        "rollouts": [
            {"index": r.index, "outcome": r.result.outcome, "reason": r.result.reason} for r in outcomes.rollouts
        ],
    }
