"""What keeping episodes in a .demo file costs: the rewrite after each, reading, and rows for training.

    .venv/bin/python benchmarks/demo_files.py                     # some seconds
    .venv/bin/python benchmarks/demo_files.py --episodes 500 --json demo_files.json

Episodes have the size of the tower's: 300 rows of 49 words and 6 actions.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from so101.datasets.demo_file import DemoHeader, DemoWriter, Episode, read_demo
from so101.datasets.demo_transitions import load_transitions

ROWS, WORDS, ACTIONS = 300, 49, 6


def make_episode(seed: int) -> Episode:
    rng = np.random.default_rng(seed)
    words = rng.normal(size=(ROWS + 1, WORDS)).astype(np.float32)
    flags, zeros = np.zeros(ROWS, np.uint32), np.zeros(ROWS, np.float32)
    action = rng.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32)
    return Episode(words[:-1], action, zeros, words[1:], zeros, flags, seed, True)


def measure(count: int, path: Path) -> list[dict[str, float]]:
    """A row each time the number of episodes has doubled, and at the end."""
    words, joints = (tuple(f"{name}_{i}" for i in range(n)) for name, n in (("word", WORDS), ("joint", ACTIONS)))
    writer = DemoWriter(path, DemoHeader("benchmark", "benchmark", 31.25, words, joints))
    episode, rows, times, cpu = make_episode(0), [], [], []
    for number in range(1, count + 1):
        began, busy = time.perf_counter(), time.process_time()
        writer.append(episode)
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - busy)
        if number & (number - 1) == 0 or number == count:
            began = time.perf_counter()
            read_demo(path)
            read_s, began = time.perf_counter() - began, time.perf_counter()
            load_transitions([path])
            rows.append(
                {
                    "episodes": number,
                    "megabytes": path.stat().st_size / 1e6,
                    "append_ms": 1e3 * float(np.median(times[-5:])),
                    "append_cpu_ms": 1e3 * float(np.mean(cpu[-5:])),
                    "read_ms": 1e3 * read_s,
                    "load_ms": 1e3 * (time.perf_counter() - began),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options.episodes, Path(folder) / "a.demo")
    table = Table(title=f"episodes of {ROWS} rows, {WORDS} words")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:.4g}" for value in row.values()))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
