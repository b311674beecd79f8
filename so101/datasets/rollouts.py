"""Episodes recorded on an arm, real or virtual: one demo file, one video a camera, and the way to a LeRobot dataset.

A session folder holds `episodes/demo_NNNNNN.npz`, `videos/demo_NNNNNN/CAMERA.mp4`, `logs/demo_NNNNNN.csv` and
`plots/demo_NNNNNN.png`. The demo is written last: an episode whose demo is there is complete, one without was cut off.
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from so101.config import Config
from so101.datasets.demo import Demo, demo_file_name, demo_index, list_demos, load_demo, save_demo
from so101.datasets.lerobot_v21 import write_dataset
from so101.datasets.recordings import START_POSES
from so101.errors import DataError, InsufficientDemosError
from so101.files import remove_temporaries, write_text
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.rendering.video import VideoWriter

Outcome = Literal["success", "failure", "aborted", "unknown"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_ROOM_S = 0.005  # between two looks whether there is room again
_QUEUED_FRAMES = 90  # images waiting for the encoder, all cameras: 83 MB of 640x480; beyond it the one before stands in


@dataclass(frozen=True)
class SessionFolder:
    """Paths of one session of rollouts or of recording."""

    root: Path

    @property
    def episodes(self) -> Path:
        return self.root / "episodes"

    @property
    def services(self) -> Path:
        """Logs of the processes started for it."""
        return self.root / "services"

    @property
    def run(self) -> RunFolder:
        """The same folder as the dataset stage sees it."""
        return RunFolder(self.root)

    def log(self, index: int) -> Path:
        return self.root / "logs" / Path(demo_file_name(index)).with_suffix(".csv")

    def plot(self, index: int) -> Path:
        return self.root / "plots" / Path(demo_file_name(index)).with_suffix(".png")

    def next_index(self) -> int:
        """One more than the last episode that was begun."""
        begun = [demo_index(path) for path in (*list_demos(self.episodes), *self.root.glob("logs/demo_*.csv"))]
        return max(begun, default=-1) + 1

    def clean_up(self) -> None:
        """Remove half-written files of a program that was killed here, and videos of episodes it did not finish."""
        remove_temporaries(self.root)
        for log in self.root.glob("logs/demo_*.csv"):
            if not (self.episodes / f"{log.stem}.npz").exists():
                shutil.rmtree(self.run.videos / log.stem, ignore_errors=True)


class EpisodeRecorder:
    """Takes one row a tick and leaves a complete episode, or nothing. Videos are encoded on a thread of its own.

    Args:
        patient: `add` waits for the encoder rather than leaving a picture out: for worlds whose time waits too.

    Attributes:
        late_frames: frames for which the frame before stands in, because the encoder was behind.
    """

    def __init__(
        self,
        config: Config,
        folder: SessionFolder,
        index: int,
        cameras: Collection[str],
        *,
        patient: bool = False,
    ) -> None:
        self.index, self._patient = index, patient
        self.late_frames = 0
        self._config, self._folder = config, folder
        self._q_target: list[np.ndarray] = []
        self._q: list[np.ndarray] = []
        self._objects: dict[str, list[np.ndarray]] = {}
        self._seen: dict[str, int] = {}  # camera -> index of the frame recorded last
        self._error: BaseException | None = None
        self._frames: queue.Queue[tuple[str, np.ndarray | None] | None] = queue.Queue()
        self._queued = self._encoded = 0  # images; each is written by one thread only
        self._queued_row = -_QUEUED_FRAMES  # the last row that has images of its own
        self._writers = {name: VideoWriter(folder.run.video(index, name), config) for name in cameras}
        self._thread = threading.Thread(target=self._encode, name="video", daemon=True)
        self._thread.start()

    @property
    def num_frames(self) -> int:
        return len(self._q)

    def add(self, q_target: np.ndarray, q: np.ndarray, frames: Mapping[str, tuple[int, np.ndarray]]) -> None:
        """One tick.

        Args:
            q_target: (6,) rad, the command sent after the observation.
            q: (6,) rad, the joints observed.
            frames: camera -> (frame number, (h, w, 3) uint8 RGB) of every camera of this episode. Not copied: an image
                must stay as it is. A number seen before means: no new frame.

        Raises:
            DataError: a camera is missing, or a video cannot be written.
        """
        missing = sorted(set(self._writers) - set(frames))
        if missing:
            raise DataError(f"episode {self.index}: no frame of camera {', '.join(missing)} to record")
        if self._error is not None:
            raise DataError(f"episode {self.index}: a video cannot be written: {self._error}") from self._error
        while self._patient and self._is_full() and self._thread.is_alive():
            time.sleep(_ROOM_S)
        behind = not (self._patient or self._has_room())
        for name in self._writers:
            number, image = frames[name]
            first, new = name not in self._seen, self._seen.get(name) != number
            self.late_frames += behind and new and not first
            if first or (new and not behind):
                self._frames.put((name, image))
                self._seen[name] = number
                self._queued += 1
                self._queued_row = self.num_frames
            else:
                self._frames.put((name, None))
        self._q_target.append(np.array(q_target, float))
        self._q.append(np.array(q, float))

    def _has_room(self) -> bool:
        """Whether this row's images are encoded. The longer the queue, the fewer rows have images, down to one in nine:
        the video of an encoder that stays behind gets coarser, and never stands still for long."""
        every = 1 + max(0, 16 * (self._queued - self._encoded) // _QUEUED_FRAMES - 8)
        return not self._is_full() and self.num_frames - self._queued_row >= every

    def _is_full(self) -> bool:
        return self._queued - self._encoded + len(self._writers) > _QUEUED_FRAMES

    def finish(self, *, task: str, seed: int, outcome: Outcome, meta: Mapping[str, Any]) -> Path:
        """Write the videos, then the demo; returns its path.

        Raises:
            DataError: no row was added, or a video cannot be written; nothing is left then.
        """
        self._end()
        if self._error is not None or not self._q:
            self._remove()
            why = f"a video cannot be written: {self._error}" if self._error is not None else "no tick was recorded"
            raise DataError(f"episode {self.index} is not kept: {why}") from self._error
        demo = Demo(
            index=self.index,
            seed=seed,
            task=task,
            fps=self._config.deploy.control.control_hz,
            q_target=np.array(self._q_target),
            q=np.array(self._q),
            objects={},
            physics_state=np.zeros(0),  # of a real arm nobody knows it
            cause="" if outcome == "success" else outcome,
            strict=outcome == "success",
            geometric=outcome == "success",
            meta={**meta, "outcome": outcome},
        )
        return save_demo(self._folder.episodes, demo)

    def discard(self) -> None:
        """Leave nothing of the episode but its log."""
        self._end()
        self._remove()

    def _end(self) -> None:
        self._frames.put(None)
        self._thread.join()

    def _remove(self) -> None:
        shutil.rmtree(self._folder.run.video(self.index, "").parent, ignore_errors=True)

    def _encode(self) -> None:
        try:
            self._encode_all()
        except BaseException as error:  # told by add and finish
            self._error = error

    def _encode_all(self) -> None:
        from contextlib import ExitStack

        last: dict[str, np.ndarray] = {}
        with ExitStack() as stack:
            for writer in self._writers.values():
                stack.enter_context(writer)
            while (item := self._frames.get()) is not None:
                name, image = item
                last[name] = last[name] if image is None else image
                self._writers[name].write(last[name])
                self._encoded += image is not None


def outcome_of(demo: Demo) -> str:
    """How the episode ended."""
    return str(demo.meta.get("outcome", "success" if demo.strict else "unknown"))


def export_dataset(
    config: Config,
    folder: SessionFolder,
    reporter: Reporter,
    *,
    outcomes: Collection[str] = ("success",),
    workers: int = 1,
) -> StageResult:
    """Write the episodes of a session that ended with one of `outcomes` to `folder.run.dataset` (LeRobot v2.1).

    Raises:
        InsufficientDemosError: there is none.
        DataError, RunFolderError: as `so101.datasets.lerobot_v21.write_dataset`.
    """
    paths = list_demos(folder.episodes)
    ended = {path: outcome_of(load_demo(path)) for path in paths}
    chosen = [path for path in paths if ended[path] in outcomes]
    if not chosen:
        found = ", ".join(f"{list(ended.values()).count(each)} {each}" for each in sorted(set(ended.values())))
        raise InsufficientDemosError(
            f"{folder.root}: no episode ended with {' or '.join(outcomes)} (episodes: {found or 'none'}); "
            f"record more, or take others: {', '.join(OUTCOMES)}"
        )
    verified = folder.run.verified
    shutil.rmtree(verified, ignore_errors=True)
    verified.mkdir(parents=True)
    for path in chosen:
        shutil.copyfile(path, verified / path.name)
    skillgen = config.skillgen.model_copy(update={"target_demos": len(chosen)})
    result = write_dataset(config.model_copy(update={"skillgen": skillgen}), folder.run, reporter, workers)
    starts = [load_demo(path).meta.get("start_objects") for path in chosen]
    lines = [json.dumps({"episode_index": i, "objects": objects}) for i, objects in enumerate(starts) if objects]
    if lines:  # of the simulated rig they are known: then the recording can become a seed whatever the object is
        write_text(folder.run.dataset / "meta" / START_POSES, "\n".join(lines) + "\n")
    return result
