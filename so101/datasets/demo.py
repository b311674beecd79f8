"""One demonstration in memory and on disk: the currency between the stages after generation.

A demo is one `.npz` file (no pickle, fixed zip dates: equal demos are equal bytes), written atomically.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from so101.errors import DataError
from so101.files import write_atomic

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Demo:
    """T frames at `fps`. Row t is the observation at t and the command sent after it.

    Attributes:
        index: attempt index in its run, names the file.
        seed: attempt seed; (config, seed demos, seed) determine everything here.
        task: key in task.yaml.
        fps: frames per second, Hz.
        q_target: (T, 6) commanded joint targets, rad, joint order of robot.yaml (five arm joints, jaw last).
        q: (T, 6) measured joint positions, rad.
        objects: name -> (T, 7) pose of the object in `base`: position m, quaternion w x y z.
        physics_state: (nstate,) full simulator state at row 0 (`Simulator.get_physics_state`); replay starts here.
        cause: "" for success, else one of `so101.skillgen.causes.CAUSES`.
        strict: the strict success test holds on the settled final state.
        geometric: the loose (blog) geometric filter holds on the settled final state.
        meta: JSON values: `sources` (seed name per subtask), `subtasks` (list of [name, first_frame, end_frame]),
            `randomisation` (every draw: `placements` of the task's objects, `physics` when it is randomised; looks
            follow from `seed` and are kept beside the videos), `diagnostics`.
    """

    index: int
    seed: int
    task: str
    fps: float
    q_target: np.ndarray
    q: np.ndarray
    objects: dict[str, np.ndarray]
    physics_state: np.ndarray
    cause: str = ""
    strict: bool = False
    geometric: bool = False
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def num_frames(self) -> int:
        return len(self.q)

    def replace(self, **changes: Any) -> Demo:
        return dataclasses.replace(self, **changes)


def demo_file_name(index: int) -> str:
    """File name of attempt `index`, e.g. demo_000042.npz."""
    return f"demo_{index:06d}.npz"


def demo_index(path: Path) -> int:
    """The attempt index in a name made by `demo_file_name`."""
    return int(path.stem.removeprefix("demo_"))


def list_demos(folder: Path | str) -> list[Path]:
    """Demo files of a folder in index order; an absent folder holds none."""
    return sorted(Path(folder).glob("demo_[0-9]*.npz"))


def demo_to_bytes(demo: Demo) -> bytes:
    """The file content of a demo; also what a worker sends over a wire."""
    header = {
        "version": FORMAT_VERSION,
        **{key: getattr(demo, key) for key in ("index", "seed", "task", "fps", "cause", "strict", "geometric", "meta")},
        "objects": list(demo.objects),
    }
    arrays = {
        "header": np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8),
        "q_target": np.asarray(demo.q_target, np.float64),
        "q": np.asarray(demo.q, np.float64),
        "physics_state": np.asarray(demo.physics_state, np.float64),
        **{f"object_{i}": np.asarray(poses, np.float64) for i, poses in enumerate(demo.objects.values())},
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def save_demo(folder: Path | str, demo: Demo) -> Path:
    """Write `demo` to its file in `folder`, atomically."""
    path = Path(folder) / demo_file_name(demo.index)
    content = demo_to_bytes(demo)
    write_atomic(path, lambda file: file.write(content))
    return path


def load_demo(path: Path | str) -> Demo:
    """Read a demo file.

    Raises:
        DataError: not a demo file, truncated, or of another version.
    """
    with _explained(path), np.load(path, allow_pickle=False) as file:
        header = _header(path, file)
        objects = {name: file[f"object_{i}"] for i, name in enumerate(header.pop("objects"))}
        arrays = {key: file[key] for key in ("q_target", "q", "physics_state")}
    demo = Demo(objects=objects, **arrays, **header)
    if demo.q.ndim != 2 or demo.q.shape != demo.q_target.shape or any(len(p) != len(demo.q) for p in objects.values()):
        raise DataError(f"{path}: arrays of a demo must have one row a frame; found q {demo.q.shape}")
    return demo


def load_demo_header(path: Path | str) -> dict[str, Any]:
    """A demo's fields without its arrays, as in `Demo`; `objects` are names alone. The arrays stay on disk.

    Raises:
        DataError: as `load_demo`.
    """
    with _explained(path), np.load(path, allow_pickle=False) as file:
        return _header(path, file)


def _header(path: Path | str, file: np.lib.npyio.NpzFile) -> dict[str, Any]:
    header = json.loads(file["header"].tobytes())
    if header.pop("version") != FORMAT_VERSION:
        raise DataError(f"{path}: demo of another format version; this program reads version {FORMAT_VERSION}")
    return header


@contextmanager
def _explained(path: Path | str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        why = "no .npz" if "pickle" in str(error) else error  # NumPy says to trust the file
        raise DataError(f"{path}: not a demo file or truncated ({why}); delete it and run the stage again") from None
