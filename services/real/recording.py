"""`./real record`: episodes driven by a leader arm, as a LeRobot dataset."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from proto.stopping import StopFlag, stop_on_signals
from services.real.parts import Parts, Setting
from services.real.session import session_folder, tell
from so101.config import Config
from so101.control.leader_pilot import LeaderPilot
from so101.control.loop import EpisodeResult
from so101.control.rollout import run_rollout
from so101.datasets.demo import list_demos
from so101.datasets.rollouts import SessionFolder
from so101.robot import CalibrationError, make_leader

KEPT = ("success", "unknown")  # episodes that become part of the dataset
_POLL_S = 0.05


@dataclass(frozen=True)
class RecordWishes:
    """What the user wants recorded.

    Attributes:
        episodes: kept ones in the session, those of earlier calls included.
        seed: sim: of the first episode's placement.
        leader_port: serial port of the leader arm; that of robot.yaml when None.
        name: of the session's folder; the time when None.
    """

    setting: Setting
    episodes: int
    seed: int = 0
    leader_port: str | None = None
    name: str | None = None


def run_recording(config: Config, wishes: RecordWishes, say: Callable[[str], None]) -> tuple[SessionFolder, int]:
    """Record until there are enough episodes, or somebody ends it; returns the folder and the exit code. Raises as
    `Parts`.

    Raises:
        BusError, CalibrationError: the leader arm.
        ServiceDied: a service ended meanwhile.
    """
    folder = session_folder(config, wishes.name)

    def make_pilot(stack: ExitStack) -> LeaderPilot:
        leader = make_leader(config, wishes.leader_port)
        leader.connect()
        stack.callback(leader.bus.close)
        if leader.calibration_fault:
            raise CalibrationError(f"the leader cannot be followed: {leader.calibration_fault}")
        return LeaderPilot(config, lambda: leader.read().q_rad, lambda: say("recording"))

    with stop_on_signals() as stop, Parts(config, wishes.setting, folder, make_pilot, stop, say) as parts:
        while (kept := len(list_demos(folder.episodes))) < wishes.episodes:
            seed = wishes.seed + folder.next_index()
            with parts.loop.holding():
                placed = parts.place(None, seed=seed, physics={})
                say(f"episode {kept + 1} of {wishes.episodes}: s keeps it, f throws it away, q ends")
                if not _begin(parts, stop, say):
                    break
            rollout = run_rollout(
                config,
                parts.loop,
                folder,
                cameras=parts.cameras,
                start=None,
                seed=seed,
                meta={
                    "policy": "leader",
                    "sim": wishes.setting.sim,
                    "start_objects": placed,
                    "unix_s": time.time(),
                },
                keep=_kept,
            )
            tell(say, rollout)
            parts.check()
            if rollout.result.outcome == "aborted":
                break
    return folder, stop.exit_code


def _kept(result: EpisodeResult) -> bool:
    return result.outcome in KEPT


def _begin(parts: Parts, stop: StopFlag, say: Callable[[str], None]) -> bool:
    """Wait until somebody says that the scene is ready; at once where nobody can. False: end."""
    if not parts.keys.present:
        return not stop.is_set()
    say("put the scene in order, then press space: the arm comes to the leader and recording begins")
    while parts.ending() is None:
        pressed = parts.keys.poll()
        if "abort" in pressed:
            return False
        if "pause" in pressed:
            return True
        time.sleep(_POLL_S)
    return False
