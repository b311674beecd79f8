"""`./real`: rollouts of a policy on the arm, or on a simulated one."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from proto.errors import ProtoError
from proto.messages.rig import RigReset, RigTruth
from proto.stopping import StopFlag, stop_on_signals
from services.camera.client import RemoteCameras
from services.driver.client import RemoteRobot
from services.policy.client import PolicyClient
from services.policy.options import read_token
from services.real.keys import TerminalKeys
from services.real.stack import ServiceDied, Stack
from services.wire import make_client
from so101.config import Config
from so101.control.asking import Asker
from so101.control.boundary import PolicyBoundary
from so101.control.loop import ControlLoop
from so101.control.policy_pilot import PolicyPilot
from so101.control.rollout import Rollout, run_rollout
from so101.control.stats import LoopStats
from so101.datasets.demo import Demo
from so101.datasets.rollouts import Outcome, SessionFolder
from so101.errors import So101Error
from so101.files import write_json
from so101.policies.base import PolicyError
from so101.tasks.placement import draw_placements


@dataclass(frozen=True)
class Wishes:
    """What the user wants.

    Attributes:
        policy: a policy of ours, served here; None: the server at deploy.client, whatever it serves.
        arm: move; otherwise it is a dry run.
        sim: the simulated rig.
        pseudo_real: seed of a rig that differs from the twin; None: a nominal one.
        episodes: rollouts.
        seed: of the first rollout's placement (expert, and sim without a demo).
        demo: what is replayed, and its file.
        name: of the session's folder; the time when None.
        service_settings: options for the services.
    """

    policy: str | None
    arm: bool = False
    sim: bool = False
    pseudo_real: int | None = None
    episodes: int = 1
    seed: int = 0
    demo: Demo | None = None
    demo_path: Path | None = None
    name: str | None = None
    service_settings: Sequence[str] = ()


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
    """The folder of session `name`; a new one, named by the time, when None."""
    return SessionFolder(Path(config.deploy.control.sessions) / (name or time.strftime("%Y%m%d-%H%M%S")))


def run_session(config: Config, wishes: Wishes, say: Callable[[str], None]) -> Outcomes:
    """Start what is missing, run the rollouts, stop it again.

    Raises:
        So101Error, ProtoError: a service, the arm or a camera is not there; `TorqueLeftOn`: the arm is not home.
    """
    folder = session_folder(config, wishes.name)
    folder.clean_up()
    outcomes = Outcomes(folder)
    with stop_on_signals() as stop, Parts(config, wishes, folder, stop, say) as parts:
        while len(outcomes.rollouts) < wishes.episodes and not stop.is_set():
            rollout = parts.rollout(wishes.seed + len(outcomes.rollouts))
            outcomes.rollouts.append(rollout)
            outcomes.stats.add(rollout.result.stats)
            _tell(say, rollout)
            if trouble := parts.trouble():
                raise ServiceDied(trouble)
            if rollout.result.outcome == "aborted":
                outcomes.exit_code = So101Error.exit_code
                break
    outcomes.exit_code = stop.exit_code or outcomes.exit_code
    write_json(folder.root / "session.json", _record(config, wishes, outcomes))
    return outcomes


class Parts:
    """Everything a rollout is made of, opened and closed in order."""

    def __init__(
        self, config: Config, wishes: Wishes, folder: SessionFolder, stop: StopFlag, say: Callable[[str], None]
    ) -> None:
        self._config, self._wishes, self._folder, self._stop, self._say = config, wishes, folder, stop, say
        self._cameras = tuple(config.dataset.cameras)
        self._exit = ExitStack()

    def __enter__(self) -> Parts:
        with ExitStack() as stack:
            self._stack = stack.enter_context(self._services())
            self._rig = stack.enter_context(make_client(self._config, "rig")) if self._wishes.sim else None
            self._robot = stack.enter_context(RemoteRobot(self._config, name="./real"))
            cameras = stack.enter_context(RemoteCameras(self._config, self._cameras))
            cameras.latest()  # waits until all are there, or says which are not
            pilot = self._pilot(stack)
            keys = stack.enter_context(TerminalKeys(self._config.deploy.control.keys))
            self._loop = ControlLoop(
                self._config, self._robot, cameras, pilot, moves=self._wishes.arm, keys=keys,
                judge=self._judge, say=self._say, stopped=self._ending,
            )  # fmt: skip
            if self._wishes.arm:
                self._robot.arm()
            if keys.present:
                self._say("keys: space pauses, q aborts, s and f mark success and failure, h helps")
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._exit.__exit__(*exception)

    def rollout(self, seed: int) -> Rollout:
        """One rollout; the rig is set up for it first."""
        demo = self._wishes.demo
        with self._loop.holding():
            self._set_up(seed)
        meta = {
            "policy": self._wishes.policy or "remote",
            "sim": self._wishes.sim,
            "armed": self._wishes.arm,
            "demo": str(self._wishes.demo_path) if demo is not None else None,
            "unix_s": time.time(),
        }
        home = np.array([joint.home_rad for joint in self._config.robot.joints])
        start = home if demo is None else demo.q_target[0]
        return run_rollout(
            self._config, self._loop, self._folder, cameras=self._cameras, start=start, seed=seed, meta=meta
        )

    def trouble(self) -> str | None:
        """What is wrong with a service started here."""
        return self._stack.trouble()

    def _services(self) -> Stack:
        wishes = self._wishes
        own: dict[str, list[str]] = {"policy": ["--policy", str(wishes.policy)], "rig": []}
        if wishes.demo_path is not None:
            own["policy"] += ["--demo", str(wishes.demo_path)]
        if wishes.policy == "expert":
            own["policy"] += ["--seed", str(wishes.seed)]
        if wishes.pseudo_real is not None:
            own["rig"] += ["--pseudo-real", str(wishes.pseudo_real)]
        if wishes.sim and Path(self._config.robot.bus.calibration).is_file():  # the driver reads it too
            own["rig"] += ["--calibration", self._config.robot.bus.calibration]
        needs = ["rig"] * wishes.sim + ["camera"] + ["policy"] * (wishes.policy is not None) + ["driver"]
        return Stack(
            self._config, needs=needs, state_dir=self._folder.services, sim=wishes.sim, arm=wishes.arm, own=own,
            settings=wishes.service_settings, stop=self._stop, say=self._say,
        )  # fmt: skip

    def _pilot(self, stack: ExitStack) -> PolicyPilot:
        settings = self._config.deploy.client
        client = stack.enter_context(PolicyClient.from_config(self._config, read_token(settings.api_token_file)))
        if not client.ping(settings.connect_timeout_ms):
            raise PolicyError(
                f"no policy server answers at {client.endpoint} (deploy.client); start one with ./policy, or let "
                "./real do it: --policy replay"
            )
        boundary = PolicyBoundary(self._config, client.modality)
        self._asker = Asker(client)
        stack.callback(self._asker.close)
        return PolicyPilot(self._config, boundary, self._asker, self._config.task.active.language, say=self._say)

    def _set_up(self, seed: int) -> None:
        """Objects to their places in the rig, the policy to the beginning of an episode."""
        demo, objects, physics = self._wishes.demo, None, {}
        if demo is not None and demo.objects:
            objects, physics = {name: poses[0] for name, poses in demo.objects.items()}, demo.meta
        elif self._rig is not None:
            objects, _ = draw_placements(self._config, np.random.default_rng(seed))
        if self._rig is not None:
            placed = objects and {name: tuple(pose.tolist()) for name, pose in objects.items()}
            drawn = {"physics": physics.get("randomisation", {}).get("physics", {})}
            self._rig.request(RigReset(objects=placed, seed=seed, randomisation_json=json.dumps(drawn)))
        options: dict[str, Any] | None = None
        if self._wishes.policy == "expert":
            options = (
                {"objects": {name: pose.tolist() for name, pose in objects.items()}} if objects else {"seed": seed}
            )
        try:
            self._asker.reset(options)
        except ProtoError as error:
            raise PolicyError(f"the policy could not begin an episode: {error}") from error

    def _judge(self) -> Outcome:
        """The rig knows; of the real arm a person says it, or nobody."""
        if self._rig is None or not self._wishes.arm:
            return "unknown"
        return "success" if self._rig.request(RigTruth()).strict else "failure"

    def _ending(self) -> str | None:
        if self._stop.is_set():
            return "stopped"
        return self._stack.trouble()


def _tell(say: Callable[[str], None], rollout: Rollout) -> None:
    result, stats = rollout.result, rollout.result.stats.summary()
    late, misses = stats["sent_ms"], stats["misses"]
    say(f"rollout {rollout.index}: {result.outcome} ({result.reason})")
    if late is not None:
        counted = ", ".join(f"{count} {reason}" for reason, count in misses.items()) or "none"
        ms = ", ".join(f"{name} {late[name]:.1f}" for name in ("p50", "p99", "max"))
        say(f"  {stats['ticks']} ticks; commands sent after their grid time: {ms} ms; misses: {counted}")
    if rollout.demo is not None:
        say(f"  {rollout.demo}")
    say(f"  {rollout.plot}")


def _record(config: Config, wishes: Wishes, outcomes: Outcomes) -> dict[str, Any]:
    """Content of session.json."""
    return {
        "policy": wishes.policy or "remote",
        "armed": wishes.arm,
        "sim": wishes.sim,
        "pseudo_real": wishes.pseudo_real,
        "demo": str(wishes.demo_path) if wishes.demo_path else None,
        "task": config.task.name,
        "control": config.deploy.control.model_dump(mode="json"),
        "outcomes": dict(sorted(outcomes.counts.items())),
        "loop": outcomes.stats.summary(),
        "rollouts": [
            {"index": r.index, "outcome": r.result.outcome, "reason": r.result.reason} for r in outcomes.rollouts
        ],
    }
