"""The services a rollout needs: those that answer are used, others are started, and stopped again, the driver first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from proto.stopping import StopFlag
from services.lineup import health_check, line_up
from services.supervisor import Process, Spec, Supervisor
from so101.config import Config
from so101.errors import So101Error
from so101.robot.base import RobotError, TorqueLeftOn

_ORDER = ("rig", "camera", "policy", "driver")  # of the start; stopped in reverse: the arm goes home first
_LOG_LINES = 12


class Stack:
    """Rig (only with `sim`), cameras, policy server and driver. A context: inside, all of them answer.

    Args:
        needs: which of rig, camera, policy and driver.
        state_dir: their logs go here.
        arm: a driver started here may move the arm.
        own: service -> options of its own.
        settings: options of the command line that gave `config`, for every service.

    Attributes:
        found: services that answered already.

    Raises:
        RobotError: `sim`, and a driver answers that belongs to no simulated rig.
        SupervisorError: a service does not start; says why, with the end of its log.
    """

    def __init__(
        self,
        config: Config,
        *,
        needs: Sequence[str],
        state_dir: Path,
        sim: bool,
        arm: bool,
        own: dict[str, Sequence[str]],
        settings: Sequence[str],
        stop: StopFlag,
        say: Callable[[str], None],
    ) -> None:
        self._stop, self._say, self._arm = stop, say, arm
        timeout_s = config.deploy.supervisor.check_timeout_s
        self.found = [name for name in needs if health_check(config, name).problem(timeout_s) is None]
        if sim and "rig" not in self.found and "driver" in self.found:
            raise RobotError(
                f"--sim: a driver answers at {config.deploy.sockets.driver.connect}, but no simulated rig does: it may "
                "be that of the real arm. Stop it, or leave out --sim"
            )
        missing = [name for name in _ORDER if name in needs and name not in self.found]
        specs = line_up(
            config, state_dir, profile="sim" if sim else "real", arm=arm, only=missing, settings=settings
        ) if missing else []  # fmt: skip
        named = {spec.name: spec for spec in specs}
        specs = [_with(named[name], own.get(name, ())) for name in missing]
        self._supervisor = Supervisor(specs, state_dir, config.deploy.supervisor, say=lambda line: say(f"  {line}"))

    def __enter__(self) -> Stack:
        for name in self.found:
            self._say(f"  {name} answers already and is used as it is")
        self._supervisor.start(self._stop)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        """Stop what was started here.

        Raises:
            TorqueLeftOn: the driver ended without having released the arm, or was killed and could not say.
        """
        driver = next((p for p in self._supervisor.processes if p.spec.name == "driver"), None)
        self._supervisor.stop()
        if driver is not None and _exit_code(driver) == TorqueLeftOn.exit_code:
            raise TorqueLeftOn(
                "the driver could not bring the arm home: TORQUE IS ON. Hold the arm, then cut its power.\n"
                f"{_tail(driver)}"
            )
        if driver is not None and self._arm and (_exit_code(driver) or 0) < 0:
            raise TorqueLeftOn(
                f"the driver was {driver.exit_text()}: TORQUE MAY BE ON, where the arm was last. Hold the arm, then "
                "cut its power, or start the driver again with --arm: it brings the arm home when it ends.\n"
                f"{_tail(driver)}"
            )

    def trouble(self) -> str | None:
        """Which service that was started here has ended, and how; None when all run. Cheap."""
        ended = self._ended()
        return None if ended is None else f"{ended.spec.name} {ended.exit_text()}"

    def check(self) -> None:
        """Raise when a service that was started here has ended.

        Raises:
            ServiceDied: with the end of its log.
        """
        ended = self._ended()
        if ended is not None:
            raise ServiceDied(f"{ended.spec.name} {ended.exit_text()}\n{_tail(ended)}")

    def _ended(self) -> Process | None:
        return next((process for process in self._supervisor.processes if not process.running()), None)


class ServiceDied(So101Error):
    """A service ended while it was needed."""


def _with(spec: Spec, own: Sequence[str]) -> Spec:
    """`spec` with further options. What dies in a rollout is told, never started again behind the arm's back."""
    return replace(spec, argv=(*spec.argv, *own), required=True, restart=False)


def _exit_code(process: Process) -> int | None:
    return None if process.child is None else process.child.poll()


def _tail(process: Process) -> str:
    lines = process.log.read_text(errors="replace").splitlines()[-_LOG_LINES:] if process.log.exists() else []
    return "\n".join([f"the end of {process.log}:", *(f"  {line}" for line in lines)])
