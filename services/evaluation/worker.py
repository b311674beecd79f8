"""One worker of an evaluation: a world, a policy server on a free loopback port, and a client of it.

Every worker has a server of its own, since a policy may keep the place in its episode: replay and the expert do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proto.errors import ProtoError
from services.policy.client import PolicyClient
from services.policy.main import limit_torch
from services.policy.options import ALL_POLICIES
from services.policy.server import PolicyServer
from so101.config import Config
from so101.evaluation.closed_loop.episode import run_episode
from so101.evaluation.closed_loop.record import Episode, load_episode, save_episode
from so101.evaluation.closed_loop.twin_world import TwinWorld
from so101.evaluation.closed_loop.videos import video_path, write_video
from so101.evaluation.closed_loop.world import World
from so101.policies import PolicyOptions, make_policy
from so101.policies.base import PolicyError
from so101.rendering.renderer import StateRenderer

SEEDED = ("expert", "embedded")  # policies that are told the seed of an episode: it is the same whatever ran before
MakeWorld = Callable[[Config, Collection[str]], World]


@dataclass(frozen=True)
class Served:
    """The policy and where it is served.

    Attributes:
        name: of `services.policy.options.ALL_POLICIES`.
        options: of the policy.
        server: HOST:PORT of a server that runs already; None: one is started.
        token: what that one wants.
    """

    name: str
    options: PolicyOptions = field(default_factory=PolicyOptions)
    server: str | None = None
    token: str | None = None


class Worker:
    """A context in which episodes are run.

    Args:
        make_world: called with the configuration and the cameras that the policy looks through.

    Raises:
        PolicyError: the policy cannot be made, or no server answers.
    """

    def __init__(self, config: Config, served: Served, make_world: MakeWorld = TwinWorld) -> None:
        self._config, self._served, self._make_world = config, served, make_world
        self._exit = ExitStack()

    def __enter__(self) -> Worker:
        with ExitStack() as stack:
            self.client = stack.enter_context(self._client(stack))
            camera_of = {picture: camera for camera, picture in self._config.dataset.cameras.items()}
            video = self.client.modality.video
            cameras = [camera_of[name] for name in video if name in camera_of]  # of others the episode tells
            self.world = self._make_world(self._config, cameras)
            stack.callback(self.world.close)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._exit.close()

    def run(self, seed: int) -> Episode:
        """The episode of `seed`, with what the server says of its own pace.

        Raises:
            PolicyError: the server is gone; a policy that merely fails makes the episode a failure.
        """
        options = {"seed": seed} if self._served.name in SEEDED else None
        episode = run_episode(self._config, self.world, self.client, seed, reset_options=options)
        if episode.ended == "error" and not self.client.ping(self._config.deploy.client.connect_timeout_ms):
            raise PolicyError(
                f"{self.client.endpoint}: the policy server does not answer any more ({episode.error}). Finished "
                "episodes are kept, this one says nothing of the policy; start the server again, then the same command "
                "goes on"
            )
        return dataclasses.replace(episode, meta={**episode.meta, "server": self._stats()})

    def _client(self, stack: ExitStack) -> PolicyClient:
        config = self._config
        if self._served.server is None:
            policy = make_policy(config, self._served.name, self._served.options, ALL_POLICIES)
            if (close := getattr(policy, "close", None)) is not None:
                stack.callback(close)
            limit_torch(config.deploy.evaluation.torch_threads)
            settings = config.deploy.server.model_copy(update={"deadline_ms": float(config.deploy.client.timeout_ms)})
            endpoint = stack.enter_context(PolicyServer(policy, "tcp://127.0.0.1:0", settings)).endpoint
        else:
            endpoint = f"tcp://{self._served.server}"
        client = PolicyClient(
            timeout_ms=config.deploy.client.timeout_ms,
            api_token=self._served.token,
            wire=config.deploy.client.wire,
            max_message_bytes=config.deploy.client.max_message_bytes,
            endpoint=endpoint,
        )
        if not client.ping(config.deploy.client.connect_timeout_ms):
            client.close()
            raise PolicyError(
                f"--server {self._served.server}: no policy server answers there; start one with ./policy, or leave "
                "the option out"
            )
        return client

    def _stats(self) -> dict[str, Any]:
        try:
            stats = self.client.stats()
        except ProtoError:  # a server of GR00T has none
            return {}
        return {name: stats[name] for name in ("infer_ms", "queue_ms") if name in stats}


# What worker processes call. Each has one `Worker` and, for videos, one renderer.

_held: dict[str, Any] = {}


def begin(settings: str, served: Served, folder: Path, make_world: MakeWorld = TwinWorld) -> None:
    """Make the worker of this process; `settings`: a `Config` in JSON."""
    end()
    config = Config.model_validate_json(settings)
    _held.update(folder=folder, worker=Worker(config, served, make_world).__enter__())


def evaluate(seed: int) -> tuple[int, bool, str]:
    """Run an episode and write it down; its seed, strict success, furthest stage."""
    episode = _held["worker"].run(seed)
    save_episode(_held["folder"], episode)
    return seed, episode.strict, episode.stage


def begin_videos(settings: str, folder: Path) -> None:
    """Make the renderer of this process; videos go to `folder`."""
    end()
    config = Config.model_validate_json(settings)
    _held.update(folder=folder, config=config, renderer=StateRenderer(config))


def film(path: Path) -> Path:
    """Write the video of the episode in file `path`."""
    episode = load_episode(path)
    target = video_path(_held["folder"], episode)
    write_video(target, _held["config"], episode, _held["renderer"])
    return target


def end() -> None:
    """Free what this process holds."""
    if (worker := _held.pop("worker", None)) is not None:
        worker.__exit__(None, None, None)
    if (renderer := _held.pop("renderer", None)) is not None:
        renderer.close()
    _held.clear()
