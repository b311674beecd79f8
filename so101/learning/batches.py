"""Batches of a dataset. Batch number k depends on the seed and k alone, so a training that was killed goes on with the
very batches it would have had."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from so101.config.training import EmbeddedConfig
from so101.learning.dataset import Dataset
from so101.learning.frames import FrameCache
from so101.learning.normalisation import Normalisation, chunk_rows

_AHEAD = 4  # batches that are made while the network works


@dataclass(frozen=True)
class Batch:
    """B samples. `pictures` (C, B, height, width, 3) uint8, `gains` and `shifts` (C, B, 3) float32: what each colour is
    multiplied by and what is added after; `joints` (B, D), `task` (B,) int64, `chunk` (B, H, D), `points` (B, P, 3),
    all normalised."""

    pictures: np.ndarray
    gains: np.ndarray
    shifts: np.ndarray
    joints: np.ndarray
    task: np.ndarray
    chunk: np.ndarray
    points: np.ndarray


class Samples:
    """The frames of some episodes that can be learned from.

    Args:
        episodes: their indices.
        weights: per episode how much of what is learned is from it, in total; in proportion to its frames when absent.
    """

    def __init__(
        self,
        dataset: Dataset,
        frames: FrameCache,
        normalisation: Normalisation,
        settings: EmbeddedConfig,
        horizon: int,
        episodes: Sequence[int],
        weights: Mapping[int, float] | None = None,
    ) -> None:
        self._dataset, self._frames, self._normalisation = dataset, frames, normalisation
        self._settings, self._horizon = settings, horizon
        stride = settings.pictures.stride
        cached = [np.arange(frames.rows[e].start, frames.rows[e].stop) for e in episodes]
        self._cached = np.concatenate(cached)
        self._episode = np.concatenate([np.full(len(part), e) for e, part in zip(episodes, cached, strict=True)])
        self._row = np.concatenate([np.arange(len(part)) * stride for part in cached])
        share = None
        if weights:
            share = np.concatenate(
                [np.full(len(c), weights[e] / len(c)) for e, c in zip(episodes, cached, strict=True)]
            )
            share = np.cumsum(share / share.sum())
        self._share = share

    def __len__(self) -> int:
        return len(self._row)

    def draw(self, number: int, *, augment: bool = True) -> Batch:
        """Batch `number`."""
        rng = np.random.default_rng([self._settings.seed, number])
        size = self._settings.batch_size
        if self._share is None:
            chosen = rng.integers(len(self), size=size)
        else:
            chosen = np.minimum(np.searchsorted(self._share, rng.random(size), side="right"), len(self) - 1)
        return self.make(chosen, rng if augment else None)

    def make(self, chosen: np.ndarray, rng: np.random.Generator | None = None) -> Batch:
        """The samples `chosen`, changed at random when there is an `rng`."""
        episodes, rows = self._episode[chosen], self._row[chosen]
        data, normal = self._dataset, self._normalisation
        state = np.stack([data.states[e][r] for e, r in zip(episodes, rows, strict=True)])
        noise = self._settings.augmentation
        if rng is not None and noise.state_noise:
            state = state + rng.normal(size=state.shape) * noise.state_noise * normal.state[1]
        chunk = np.stack(
            [chunk_rows(data.actions[e], np.array([r]), self._horizon)[0] for e, r in zip(episodes, rows, strict=True)]
        )
        points = np.stack([data.points[e][r] for e, r in zip(episodes, rows, strict=True)])
        gains, shifts = self._colours(rng, len(chosen))
        return Batch(
            pictures=self._pictures(self._cached[chosen], rng),
            gains=gains,
            shifts=shifts,
            joints=normal.encode_state(state),
            task=data.task_of[episodes].astype(np.int64),
            chunk=normal.encode_chunk(chunk, state),
            points=normal.encode_points(points),
        )

    def _pictures(self, cached: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        size, margin = self._settings.pictures, self._settings.pictures.margin_px
        cameras = list(self._frames.frames.values())
        corners = np.full((len(cameras), len(cached), 2), margin)
        shift = self._settings.augmentation.shift_px
        if rng is not None and shift:
            corners += rng.integers(-shift, shift + 1, size=corners.shape)
        out = np.empty((len(cameras), len(cached), size.height_px, size.width_px, 3), np.uint8)
        for camera, frames in enumerate(cameras):
            for i, (row, (y, x)) in enumerate(zip(cached, corners[camera], strict=True)):
                out[camera, i] = frames[row, y : y + size.height_px, x : x + size.width_px]
        return out

    def _colours(self, rng: np.random.Generator | None, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Contrast about mid grey, then brightness: x -> gain x + shift."""
        size = (len(self._frames.frames), count, 1)
        if rng is None:
            ones = np.ones((*size[:2], 3), np.float32)
            return ones, np.zeros_like(ones)
        noise = self._settings.augmentation
        contrast = 1 + rng.uniform(-1, 1, size) * noise.contrast
        tint = rng.uniform(-1, 1, (*size[:2], 3)) * noise.brightness / 3
        brightness = (1 + rng.uniform(-1, 1, size) * noise.brightness) * (1 + tint)
        return (contrast * brightness).astype(np.float32), (0.5 * (1 - contrast) * brightness).astype(np.float32)


def batches(samples: Samples, first: int, stop: int) -> Iterator[Batch]:
    """Batches number `first` to `stop` - 1, made on a thread while the network works."""
    made: queue.Queue[Batch | BaseException] = queue.Queue(_AHEAD)
    ended = threading.Event()

    def make() -> None:
        try:
            for number in range(first, stop):
                batch = samples.draw(number)
                while not ended.is_set():
                    try:
                        made.put(batch, timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if ended.is_set():
                    return
        except BaseException as error:  # of the disk: raised where the batch is wanted
            made.put(error)

    thread = threading.Thread(target=make, name="batches", daemon=True)
    thread.start()
    try:
        for _ in range(first, stop):
            batch = made.get()
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        ended.set()
        thread.join()
