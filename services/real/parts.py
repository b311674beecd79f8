"""Everything a rollout is made of, opened and closed in order: services, arm, cameras, pilot, keys, loop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from proto.errors import ProtoError
from proto.messages.rig import RigReset, RigTruth
from proto.stopping import StopFlag
from services.camera.client import RemoteCameras
from services.driver.client import RemoteRobot
from services.real.keys import TerminalKeys
from services.real.stack import Stack
from services.wire import make_client, make_subscriber
from so101.config import Config
from so101.control.loop import ControlLoop
from so101.control.pilot import Pilot
from so101.datasets.rollouts import Outcome, SessionFolder
from so101.robot.base import RobotError

_POLL_S = 0.1


@dataclass(frozen=True)
class Setting:
    """Where rollouts take place.

    Attributes:
        arm: move; otherwise it is a dry run.
        sim: the simulated rig.
        pseudo_real: seed of a rig that differs from the twin; None: a nominal one.
        policy_server: options of the policy server to start when none answers; None: none is started.
        service_settings: options for all services.
    """

    arm: bool = False
    sim: bool = False
    pseudo_real: int | None = None
    policy_server: Sequence[str] | None = None
    service_settings: Sequence[str] = field(default_factory=tuple)


def check_same_arm(config: Config, driver_port: str) -> None:
    """The driver moves the servos of the simulated rig and no others.

    Raises:
        RobotError: it does not, or the rig does not tell.
    """
    with make_subscriber(config, "rig_state") as states:
        told = states.receive(config.deploy.messages.timeout_s)
    if told is None:
        raise RobotError(f"--sim: the rig at {config.deploy.sockets.rig_state.connect} does not tell where its arm is")
    if told[1].port != driver_port:
        raise RobotError(
            f"--sim: the driver at {config.deploy.sockets.driver.connect} has the servos at {driver_port}, "
            f"those of the simulated rig are at {told[1].port}: it may be the real arm's. Stop it, or leave out --sim"
        )


class Parts:
    """A context.

    Args:
        make_pilot: called once the services answer; may enter what it opens into the stack it is given.

    Attributes:
        loop, keys, rig: the control loop, the terminal's keys, the client of the rig (None without --sim).
        cameras: names of the cameras that are recorded.

    Raises:
        So101Error, ProtoError: something is not there, or not well; `TorqueLeftOn`, at the end: the arm is not home.
    """

    def __init__(
        self,
        config: Config,
        setting: Setting,
        folder: SessionFolder,
        make_pilot: Callable[[ExitStack], Pilot],
        stop: StopFlag,
        say: Callable[[str], None],
    ) -> None:
        self._config, self._setting, self._folder = config, setting, folder
        self._make_pilot, self._stop, self._say = make_pilot, stop, say
        self.cameras = tuple(config.dataset.cameras)
        self._exit = ExitStack()

    def __enter__(self) -> Parts:
        with ExitStack() as stack:
            self._stack = stack.enter_context(self._services())
            self.rig = stack.enter_context(make_client(self._config, "rig")) if self._setting.sim else None
            robot = stack.enter_context(RemoteRobot(self._config, name="./real"))
            if self.rig is not None:
                check_same_arm(self._config, robot.driver_state.port)
            cameras = stack.enter_context(RemoteCameras(self._config, self.cameras))
            cameras.latest()  # waits until all are there, or says which are not
            pilot = self._make_pilot(stack)
            self.keys = stack.enter_context(TerminalKeys(self._config.deploy.control.keys))
            self.loop = ControlLoop(
                self._config, robot, cameras, pilot, moves=self._setting.arm, keys=self.keys, judge=self.judge,
                say=self._say, stopped=self.ending,
            )  # fmt: skip
            if self.keys.present:
                names = self._config.deploy.control.keys.help
                self._say(f"press {' or '.join(names)} to see what the keys do")
            self._robot = robot
            if self._setting.arm:
                robot.arm()
            elif self.rig is not None and (commander := robot.driver_state.commander):
                raise RobotError(
                    f"{commander} commands the simulated arm, and a dry run would move its objects; wait until it ends"
                )
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self._wait_while_stopped()
        finally:
            self._exit.__exit__(*exception)

    def place(
        self, objects: Mapping[str, np.ndarray] | None, *, seed: int, physics: Mapping[str, Any]
    ) -> dict[str, list[float]] | None:
        """Begin anew in the simulated rig; None for the real arm.

        Args:
            objects: name -> (7,) pose in base; drawn with `seed` when None.

        Returns:
            where the objects stand.
        """
        if self.rig is None:
            return None
        placed = objects and {name: tuple(pose.tolist()) for name, pose in objects.items()}
        drawn = json.dumps({"physics": dict(physics)})
        state = self.rig.request(RigReset(objects=placed, seed=seed, randomisation_json=drawn))
        return {name: list(pose) for name, pose in state.objects.items()}

    def judge(self) -> Outcome:
        """The rig knows; of the real arm a person says it, or nobody."""
        if self.rig is None or not self._setting.arm:
            return "unknown"
        try:
            return "success" if self.rig.request(RigTruth()).strict else "failure"
        except ProtoError as error:
            self._say(f"the rig does not tell whether it worked: {error}")
            return "unknown"

    def check(self) -> None:
        """Raise `ServiceDied` when a service that was started here has ended."""
        self._stack.check()

    def ending(self) -> str | None:
        """Why the program is to end; None while it is not."""
        return "stopped" if self._stop.is_set() else self._stack.trouble()

    def _wait_while_stopped(self) -> None:
        """After an emergency stop nothing moves before somebody says so: the end of the driver would."""
        if not self._setting.arm or not self._was_stopped():
            return
        self._say(
            "EMERGENCY STOP: the arm stays where it is, with torque. Send it home from the page, or end this program "
            "(q or Ctrl-C; what it started then brings the arm home)"
        )
        while self.ending() is None and self._was_stopped() and "abort" not in self.keys.poll():
            time.sleep(_POLL_S)

    def _was_stopped(self) -> bool:
        """By a Stop, which ends the session; not by the driver itself."""
        try:
            state = self._robot.driver_state
        except RobotError:
            return False
        return state.mode == "stopped" and not state.commander

    def _services(self) -> Stack:
        setting, rig = self._setting, []
        if setting.pseudo_real is not None:
            rig += ["--pseudo-real", str(setting.pseudo_real)]
        if Path(self._config.robot.bus.calibration).is_file():  # the driver reads it too
            rig += ["--calibration", self._config.robot.bus.calibration]
        needs = ["rig"] * setting.sim + ["camera"] + ["policy"] * (setting.policy_server is not None) + ["driver"]
        return Stack(
            self._config,
            needs=needs,
            state_dir=self._folder.services,
            sim=setting.sim,
            arm=setting.arm,
            own={"policy": setting.policy_server or (), "rig": rig},
            settings=setting.service_settings,
            stop=self._stop,
            say=self._say,
        )
