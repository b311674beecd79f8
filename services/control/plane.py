"""Everything the control plane consists of, put together; the API asks this object."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

from services.control import models
from services.control.hub import Hub
from services.control.launcher import Launcher
from services.control.runs import Runs
from services.control.sources.arm import ArmSource
from services.control.sources.cameras import CameraSource
from services.control.sources.policy import policy_source
from services.control.sources.poller import Poller
from services.control.sources.work import WorkSource
from so101.config import Config

log = logging.getLogger(__name__)


class ControlPlane:
    """Opens sockets and threads; `close` ends them.

    Attributes:
        hub: the live state; topics health, run/ID, workers, arm, cameras, policy.
        browsers: event streams open.
        closing: set when event streams shall end.
    """

    def __init__(self, config: Config, launcher: Launcher | None = None) -> None:
        self.config, self.settings = config, config.deploy.control_plane
        self.hub, self.browsers, self.closing = Hub(), 0, False
        self._started_s = time.monotonic()
        self.runs = Runs(self.settings, launcher, executor=self._executor, more_overrides=lambda: self._for_every_run)
        self.work = WorkSource(config, embed=self.settings.embed_broker)
        self.arm, self.cameras, self.policy = ArmSource(config), CameraSource(config), policy_source(config)
        deploy = config.deploy
        self._for_every_run = [
            f"deploy.sockets.work.connect={json.dumps(self.work.endpoint)}",
            f"deploy.security.curve={json.dumps(deploy.security.curve)}",
            f"deploy.security.keys_dir={json.dumps(deploy.security.keys_dir)}",
        ]
        self.models_dir = Path(deploy.server.models_dir)
        self._pollers: list[Poller] = []

    def start(self) -> ControlPlane:
        """Begin to look around: take up runs, listen to the other services."""
        fast, slow = self.settings.events.poll_s, self.settings.events.slow_poll_s
        self._pollers = [
            Poller("runs", self._look_at_runs, fast),
            Poller("arm", lambda: self._tell("arm", self.arm.look()), fast),
            Poller("cameras", lambda: self._tell("cameras", self.cameras.look()), fast),
            Poller("workers", lambda: self._tell("workers", self.work.look()), slow),
            Poller("policy", lambda: self._tell("policy", self.policy.look()), slow),
        ]
        return self

    def health(self) -> models.Health:
        """How this process is doing."""
        running, queued = self.runs.counts()
        return models.Health(
            ok=True,
            uptime_s=round(time.monotonic() - self._started_s, 1),
            browsers=self.browsers,
            running=running,
            queued=queued,
            broker=self.work.endpoint if self.work.embedded else None,
        )

    def service(self, topic: str) -> models.Service:
        """The newest that is known of arm, cameras, workers or policy."""
        value = self.hub.value(topic)
        return models.Service(**value) if value else models.Service(running=False, problem="not looked at yet")

    def close(self) -> None:
        """End everything; runs stop to go on later, or are left, as deploy.yaml says."""
        self.closing = True
        for poller in self._pollers:
            poller.close()
        if self.settings.runs.at_exit == "stop":
            self.runs.pause()
        for part in (self.runs, self.work, self.arm, self.cameras, self.policy):
            part.close()

    def __enter__(self) -> ControlPlane:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _look_at_runs(self) -> None:
        self.runs.step()
        runs = {f"run/{run.id}": run for run in self.runs.list()}
        for topic in self.hub.topics("run/"):
            if topic not in runs:
                self.hub.remove(topic)
        for topic, run in runs.items():
            self.hub.put(topic, run.model_dump(mode="json"))

    def _tell(self, topic: str, service: models.Service) -> None:
        self.hub.put(topic, service.model_dump(mode="json"))

    def _executor(self) -> str:
        """For a run that starts now."""
        chosen = self.settings.runs.executor
        if chosen != "auto":
            return chosen
        return "network" if self.work.embedded and self.work.has_workers() else "local"
