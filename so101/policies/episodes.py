"""Where replay takes its joint targets from: demo files of a run and episodes of LeRobot datasets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from so101.config import Config
from so101.datasets.demo import list_demos, load_demo
from so101.datasets.recordings import Recording, read_recording
from so101.datasets.rollouts import SessionFolder
from so101.datasets.unit_detection import detect_recording_units, to_radians
from so101.datasets.validate import MARKER
from so101.errors import DataError
from so101.pipeline.run_folder import RunFolder
from so101.policies.base import PolicyOptions
from so101.policies.interface import PolicyInterface


def read_episodes(config: Config, options: PolicyOptions) -> tuple[list[np.ndarray], str]:
    """Targets (T, 6) of each episode in dataset units, and where they come from.

    Raises:
        DataError: nothing there, unreadable, or at another rate than the control loop's.
    """
    interface = PolicyInterface(config)
    if options.dataset is None:
        path = demo_path(options.demo or Path(config.deploy.server.run))
        demo = load_demo(path)
        _check_rate(config, demo.fps, str(path))
        return [interface.to_units(demo.q_target)], str(path)
    recordings = read_recording(options.dataset, config)
    _check_rate(config, recordings[0].fps, str(options.dataset))
    return [interface.to_units(q) for q in _radians(options.dataset, recordings, config)], str(options.dataset)


def demo_path(path: Path) -> Path:
    """The demo itself, or the newest verified one of a run folder, or the newest episode of a session of ./real."""
    if path.is_file():
        return path
    demos = list_demos(RunFolder(path).verified) or list_demos(SessionFolder(path).episodes) or list_demos(path)
    if not demos and path.suffix:
        raise DataError(f"{path}: no such file; --demo takes a demo (.npz) or the folder of a run")
    if not demos:
        raise DataError(
            f"{path}: no verified demo to replay; make some with `./twin run --run {path}`, or name a demo file or run "
            "with --demo (./policy: or a LeRobot folder with --dataset)"
        )
    return max(demos, key=lambda demo: (demo.stat().st_mtime_ns, demo.name))


def _radians(folder: Path, recordings: list[Recording], config: Config) -> list[np.ndarray]:
    """Datasets of ours say their units; of others they are found out from the numbers."""
    marker = Path(folder) / "meta" / MARKER
    if marker.is_file():
        try:
            units = json.loads(marker.read_text(encoding="utf-8"))["units"]
            scale, offset = np.array(units["scale_per_rad"], float), np.array(units["offset"], float)
            return [(recording.action - offset) / scale for recording in recordings]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{marker}: does not say the units of the dataset ({error}); write it again") from None
    decisions = detect_recording_units(recordings, config)
    return [to_radians(r.action, decision, config) for r, decision in zip(recordings, decisions, strict=True)]


def _check_rate(config: Config, fps: float, source: str) -> None:
    wanted = config.deploy.control.control_hz
    if abs(fps - wanted) > 1e-3 * wanted:
        raise DataError(
            f"{source}: recorded at {fps:g} Hz, but the control loop runs at {wanted:g} (deploy.control.control_hz); "
            "replayed at another rate it would move at another speed"
        )
