"""`groot`: a GR00T server behind ours, which adds the checks, the queue and the token that GR00T's does not have."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from services.policy.client import PolicyClient
from so101.config import Config
from so101.config.deploy import GrootConfig
from so101.learning.groot import has_groot
from so101.learning.groot_checkpoint import check_checkpoint
from so101.policies import Action, Observation, PolicyOptions
from so101.policies.base import PolicyError

log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_PING_MS = 1000
_STOP_S = 10.0


class GrootPolicy:
    """Asks the server at deploy.server.groot, which is started here when no host is named.

    Raises:
        PolicyError: it does not answer, or Isaac-GR00T is not installed.
        DataError: the folder at deploy.server.groot.model_path is no checkpoint for its embodiment_tag.
        RemoteError, BadMessage: it answers, but does not say what it takes.
    """

    def __init__(self, config: Config, options: PolicyOptions) -> None:
        settings = config.deploy.server.groot
        client = config.deploy.client
        self._process = _start(settings, config.training.groot.python) if settings.host is None else None
        self._client = PolicyClient(
            settings.host or _LOOPBACK,
            settings.port,
            timeout_ms=client.timeout_ms,
            wire=settings.wire,
            max_message_bytes=client.max_message_bytes,
        )
        try:
            self._wait(settings.start_timeout_s if self._process else client.connect_timeout_ms / 1000)
            self.modality = self._client.modality
        except BaseException:
            self._client.close()
            self.close()
            raise

    def reset(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._client.reset(options)

    def get_action(
        self, observation: Observation | None, options: dict[str, Any] | None = None
    ) -> tuple[Action, dict[str, Any]]:
        return self._client.get_action(observation, options)

    def close(self) -> None:
        """End the server that was started here. The connection is left to the thread that may still wait on it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._client.ping(timeout_ms=_PING_MS):
            if self._process is not None and self._process.poll() is not None:
                raise PolicyError(
                    f"Isaac-GR00T's server ended with exit code {self._process.returncode} before it answered; its "
                    "messages are above"
                )
            if time.monotonic() > deadline:
                raise PolicyError(
                    f"no GR00T server answered at {self._client.endpoint} within {timeout_s:g} s; start it, or correct "
                    "deploy.server.groot (host, port)"
                )


def _start(settings: GrootConfig, python: str | None) -> subprocess.Popen[bytes]:
    if not has_groot(python):
        where = f"the environment of {python} (training.groot.python)" if python else "this environment"
        raise PolicyError(
            f"Isaac-GR00T is not installed in {where} (no package gr00t). Name the interpreter of an environment that "
            "has it (--set training.groot.python=FILE), or start its server where it is "
            "(gr00t/eval/run_gr00t_server.py, or the gpu profile of compose.yaml) and name "
            "it: --set deploy.server.groot.host=HOST --set deploy.server.groot.port=PORT"
        )
    if Path(settings.model_path).is_dir():  # anything else is for GR00T to find or to refuse
        check_checkpoint(Path(settings.model_path), settings.embodiment_tag)
    command = [python or sys.executable, "-m", "gr00t.eval.run_gr00t_server"]
    command += ["--model-path", settings.model_path, "--embodiment-tag", settings.embodiment_tag]
    command += ["--device", settings.device, "--host", _LOOPBACK, "--port", str(settings.port)]
    log.info("starting Isaac-GR00T: %s", " ".join(command))
    return subprocess.Popen(command)
