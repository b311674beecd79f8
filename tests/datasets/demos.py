"""Small .demo episodes: random rows in which each observation follows the one before."""

from __future__ import annotations

import struct

import numpy as np

from so101.datasets.demo_chunks import row_dtype
from so101.datasets.demo_file import INTERVENED, SUCCESS, DemoHeader, Episode


def make_header(obs_dim: int = 3, action_dim: int = 2, **changes) -> DemoHeader:
    values = {
        "task": "so101_tower_lift_brick",
        "family": "so101_tower",
        "control_hz": 31.25,
        "observation_names": tuple(f"word_{i}" for i in range(obs_dim)),
        "action_names": tuple(f"joint_{i}" for i in range(action_dim)),
        "meta": {"who": "täst"},
    }
    return DemoHeader(**values | changes)


def make_episode(seed: int, num_rows: int, header: DemoHeader | None = None, *, success: bool = True) -> Episode:
    """Every second row is intervened."""
    obs_dim, action_dim = (header or make_header()).widths
    rng = np.random.default_rng(seed)
    words = rng.normal(size=(num_rows + 1, obs_dim)).astype(np.float32)
    flags = np.where(np.arange(num_rows) % 2, INTERVENED, 0) | (SUCCESS if success else 0)
    return Episode(
        obs=words[:-1],
        action=rng.uniform(-1, 1, (num_rows, action_dim)).astype(np.float32),
        reward=rng.uniform(0, 2, num_rows).astype(np.float32),
        next_obs=words[1:],
        done=np.zeros(num_rows, np.float32),
        flags=flags.astype(np.uint32),
        seed=seed,
        success=success,
        meta={"take": seed},
    )


def assert_same(a: Episode, b: Episode) -> None:
    for key, values in vars(a).items():
        other = getattr(b, key)
        if isinstance(values, np.ndarray):
            assert values.dtype == other.dtype
            np.testing.assert_array_equal(values, other)
        elif key != "meta":
            assert values == other, key


def mrl_bytes(episodes: list[Episode], /, **header: int) -> bytes:
    """The episodes as a file of the older kind, written from its description; `header` overrides its numbers."""
    obs_dim, action_dim = episodes[0].obs.shape[1], episodes[0].action.shape[1]
    rows = np.zeros(sum(e.num_rows for e in episodes), row_dtype(obs_dim, action_dim))
    table, first = b"", 0
    for episode in episodes:
        part = rows[first : first + episode.num_rows]
        for key in rows.dtype.names:
            part[key] = getattr(episode, key)
        table += struct.pack("<QQI", first, episode.num_rows, episode.success)
        first += episode.num_rows
    numbers = {"version": 1, "obs": obs_dim, "act": action_dim, "rows": len(rows), "episodes": len(episodes)} | header
    return struct.pack("<8sIIIQI", b"MRLDEMO1", *numbers.values()) + rows.tobytes() + table
