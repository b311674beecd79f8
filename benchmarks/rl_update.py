"""How long an update of `./twin rl` takes: critics, every second time the actor, sampling included; random rows.

.venv/bin/python benchmarks/rl_update.py                          # sizes of networks, batches, numbers of critics
.venv/bin/python benchmarks/rl_update.py --threads 2 --json update.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from so101.config import load_config
from so101.families import make_env
from so101.learning.rl.actions import make_action_map
from so101.learning.rl.sac import FamilySac
from so101.learning.rl.vec_env import FamilyVecEnv

CASES = ((128, 256, 2), (256, 256, 2), (256, 256, 10), (256, 8, 2))  # width of two layers, batch, critics
ROWS = 20_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="so101_tower_lift_brick")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--updates", type=int, default=200, help="for each line of the table")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [measure(options.task, *case, options.updates) for case in CASES]
    load = os.getloadavg()[0]
    table = Table(title=f"{options.task}, {options.threads} of {os.cpu_count()} CPUs, load {load:.1f}")
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=120).print(table)
    if options.json:
        told = {"task": options.task, "threads": options.threads, "load": load, "rows": rows}
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def measure(task: str, width: int, batch: int, critics: int, updates: int) -> dict[str, float]:
    """Wall and processor time of an update, ms."""
    sizes = (f"actor.hidden=[{width},{width}]", f"critics.hidden=[{width},{width}]")
    keys = (*sizes, f"batch_size={batch}", f"critics.count={critics}", "steps=100000")
    settings = load_config(overrides=[f"training.rl.{key}" for key in keys]).training.rl
    env = make_env(task, 4)
    vector = FamilyVecEnv(env, make_action_map("absolute", env))
    words = len(env.observation_names)
    mean, deviation = np.zeros(words, np.float32), np.ones(words, np.float32)
    sac = FamilySac(
        vector, settings, mean, deviation, learning_starts=0, random_steps=0, demo_room=ROWS
    )  # fmt: skip
    random = np.random.default_rng(0)
    obs, after = random.normal(size=(2, ROWS, words))
    columns = (obs, random.uniform(-1, 1, (ROWS, 6)), random.random(ROWS), np.zeros(ROWS), after)
    sac.show(*columns)
    sac.replay_buffer.online.add(sac.replay_buffer.rows(*columns))
    sac.update(20)
    wall, processor = time.perf_counter(), time.process_time()
    sac.update(updates)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    env.close()
    per = 1e3 / updates
    return {"width": width, "batch": batch, "critics": critics, "wall ms": wall * per, "processor ms": processor * per}


if __name__ == "__main__":
    sys.exit(main())
