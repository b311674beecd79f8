"""A world behind a servo bus: the twin, nominal or pseudo-real, moved by the real arm's driver with all its safety over
the servo protocol, in lock-step. Time passes in `BusWorld.act` only, so that the machine's pace does not matter."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.kinematics.finger_tips import FingerTips
from so101.rendering.looks import draw_looks
from so101.robot.arm import FeetechArm
from so101.robot.base import BusError, CommandRefused, NotArmed, RobotError
from so101.robot.driver import ArmDriver
from so101.robot.safety import checked
from so101.robot.virtual import VirtualBus
from so101.robot.virtual.pseudo_real import NOMINAL, RigDraw
from so101.robot.virtual.twin_plant import TwinPlant
from so101.tasks.start import Start, draw_start

log = logging.getLogger(__name__)

_PATIENCE_MS = 30_000.0  # for a reply: physics waits meanwhile, so a busy machine must not look like a silent servo


class BusWorld:
    """`so101.evaluation.closed_loop.world.World` over the servo protocol.

    The arm is a virtual bus that this object makes, so it is energised without asking: no other port can be reached.
    `reset` takes its power and puts it at its start; `close` brings it home and releases it, in time of the bus.

    Args:
        rig_of: seed of an episode -> how the rig differs from the twin in it. The twin itself when None.
        cameras: those that `look` shows; all of cameras.yaml when None.

    Attributes:
        driver: of the episode; who speaks to it steps in, as a person at the arm would.
        refusals: why the driver took no command any more in this episode; the arm then does what the driver decides.
    """

    def __init__(
        self,
        config: Config,
        rig_of: Callable[[int], RigDraw] | None = None,
        cameras: Collection[str] | None = None,
    ) -> None:
        bus = config.robot.bus.model_copy(update={"reply_timeout_ms": _PATIENCE_MS})
        self._config = config.model_copy(update={"robot": config.robot.model_copy(update={"bus": bus})})
        self._rig_of = rig_of or (lambda seed: NOMINAL)
        self._cameras = tuple(config.cameras.names if cameras is None else cameras)
        self._plant = TwinPlant(self._config)
        self._lowest_m = FingerTips(self._config, config.robot.safety.floor_boxes).lowest_m
        substeps = config.scene.physics.substeps
        looks = min(substeps, max(1, round(bus.rate_hz / config.scene.physics.control_hz)))
        self._looks = np.diff(np.linspace(0, substeps, looks + 1).round().astype(int)).tolist()  # substeps of each
        self._folder = tempfile.TemporaryDirectory(prefix="so101-world-")
        self._bus: VirtualBus | None = None
        self._renderer = None
        self.refusals: list[str] = []

    def reset(self, seed: int) -> None:
        """A new episode: rig, placements and start pose of `seed`. The arm is measured where an attempt begins, which a
        rig with zero errors is not."""
        self.begin(seed, draw_start(self._config, np.random.default_rng(seed)))

    def begin(self, seed: int, start: Start) -> None:
        """As `reset`, but where the arm and the objects are is given."""
        rig, plant = self._rig_of(seed), self._plant
        self._drop()
        plant.rig = rig
        plant.reset(start.objects, q=start.q - rig.zero_error_rad, randomisation=start.randomisation)
        self._placements = start.draws
        self._scene = (plant.randomisation, rig.looks or draw_looks(self._config, seed))
        self._dressed, self._now_s = False, 0.0
        self.refusals, self._limited = [], Counter()
        self._bus = VirtualBus(self._config, plant=plant, pacing=False, real_time=False).start()
        calibration = Path(self._folder.name) / "arm.json"
        self._bus.calibration.write(calibration)
        self._arm = FeetechArm(self._config.robot, self._bus.port, calibration)
        self.driver = ArmDriver(
            self._config,
            self._arm,
            may_arm=True,
            lowest_m=self._lowest_m,
            clock=lambda: self._now_s,
            threaded=False,
        )
        self.driver.connect()
        self.driver.arm()

    def look(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Measured joints (6,) rad, and what the cameras of this rig see, name -> (H, W, 3) uint8 RGB."""
        if self._renderer is None:
            from so101.rendering.renderer import StateRenderer  # an OpenGL context of this thread

            self._renderer = StateRenderer(self._config)
        if not self._dressed:
            self._renderer.set_scene(*self._scene)
            self._dressed = True
        truth = self._plant.truth()
        self._renderer.set_state(truth.q, truth.objects)
        return self.measured(), {name: self._renderer.render_state(name) for name in self._cameras}

    def measured(self) -> np.ndarray:
        """(6,) rad, as the servos told at the end of the last control period."""
        return self.driver.read().q_rad.copy()

    def act(self, q_target: np.ndarray) -> np.ndarray:
        """One control period; returns the goal (6,) rad that the servos have after all limits of the driver.

        Raises:
            CommandRefused: not six finite numbers.
            BusError: the virtual servos did not answer: the episode must be made again.
        """
        wanted = checked(q_target)
        try:
            sent, by = self.driver.command_limited(wanted)
            self._limited.update(by)
        except (CommandRefused, NotArmed) as error:
            if str(error) not in self.refusals:
                self.refusals.append(str(error))
                log.info("%s", error)
            sent = self.driver.read().goal_rad
        self.wait()
        return np.array(sent)

    def wait(self) -> None:
        """One control period passes; who did not `act` may have commanded the driver before.

        Raises:
            BusError: as `act`.
        """
        for number, substeps in enumerate(self._looks):
            if number == 0 or self.driver.read().mode != "following":  # then looks send goals of their own
                self._deliver()
            self._pass(substeps)
            self._look_at_arm()

    def now(self) -> float:
        """s since the episode began, of the world's time."""
        return self._now_s

    def joints(self) -> np.ndarray:
        """(6,) rad: where they really are."""
        return self._plant.truth().q

    def objects(self) -> dict[str, np.ndarray]:
        """Name -> (7,) pose in base: the truth."""
        return self._plant.truth().objects

    @property
    def physics_state(self) -> np.ndarray:
        """Empty: what is behind a servo bus cannot be put back."""
        return np.zeros(0)

    @property
    def meta(self) -> dict[str, Any]:
        """Of the episode, JSON: what was drawn, what the driver changed (limit -> commands) and refused."""
        randomisation, looks = self._scene
        rig = self._plant.rig
        return {
            "rig": {"seed": rig.seed, "strength": rig.strength},
            "randomisation": {"placements": self._placements, **randomisation},
            "looks": looks,
            "limited": dict(sorted(self._limited.items())),
            "refused": self.refusals,
        }

    def close(self) -> None:
        """The arm goes home and is released, then everything is gone. Twice is fine."""
        try:
            if self._bus is not None:
                self.driver.watch(lambda state: self._pass(self._looks[0]))  # on the way home looks take time too
                self.driver.close()
        except RobotError as error:
            log.warning("the simulated arm did not get home: %s", error)
        finally:
            self._drop()
            if self._renderer is not None:
                self._renderer.close()
                self._renderer = None
            self._folder.cleanup()

    def __enter__(self) -> BusWorld:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _deliver(self) -> None:
        """Goals are not acknowledged. This is, and after everything that was sent before."""
        self._arm.bus.read(self._config.robot.bus.ids[0], "torque_enable")

    def _look_at_arm(self) -> None:
        self.driver.step()
        if self.driver.read().missed_reads:
            self._bus.check()
            raise BusError(
                f"the virtual servos at {self._bus.port} did not answer within {_PATIENCE_MS / 1000:g} s, though time "
                "waits for them: was this machine suspended, or out of memory? Run the same command again; it goes on"
            )

    def _pass(self, substeps: int) -> None:
        seconds = substeps * self._plant.step_s
        self._bus.advance(seconds)
        self._now_s += seconds

    def _drop(self) -> None:
        if self._bus is not None:
            self._arm.close()
            self._bus.close()
            self._bus = None
