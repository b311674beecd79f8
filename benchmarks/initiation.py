"""What perturbed starts with recovery (skillgen.initiation) cost and buy: strict rate, frames, and space visited.

    .venv/bin/python benchmarks/initiation.py                      # 300 attempts each, about 2 min on 2 CPUs
    .venv/bin/python benchmarks/initiation.py --json initiation.json

Space visited: cubes of `--cell` that the end effector passes through, over as many strict successes of each variant,
the first ones. Seeds 0 to 299 are tuning seeds: this compares settings.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from so101.config import Config, load_config
from so101.datasets.seeding import make_seeds
from so101.datasets.seeds_hdf5 import read_seeds
from so101.evaluation.statistics import wilson_interval
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import map_unordered
from so101.skillgen.ik_rollout import AttemptRunner

VARIANTS = {
    "off": [],
    "on": ["skillgen.initiation.enabled=true"],
    "on, half of the segments": ["skillgen.initiation.enabled=true", "skillgen.initiation.probability=0.5"],
    "on, half as far": [
        "skillgen.initiation.enabled=true",
        "skillgen.initiation.position_m=0.04",
        "skillgen.initiation.turn_deg=[0, 40]",
    ],
}

_runner: AttemptRunner | None = None
_cell_m = 0.0


class Outcome(NamedTuple):
    """One attempt. `before_grasp` and `carrying`: cubes (n, 3) that the end effector passed in the subtasks without and
    with an object in the hand; `detours`: perturbed starts it took."""

    index: int
    strict: bool
    cause: str
    frames: int
    detours: int
    before_grasp: set[tuple[int, ...]]
    carrying: set[tuple[int, ...]]


def _start(config_json: str, seeds: str, cell_m: float) -> None:
    global _runner, _cell_m
    config = Config.model_validate_json(config_json)
    _runner, _cell_m = AttemptRunner(config, read_seeds(seeds, config.of_seeds)), cell_m


def _attempt(index: int) -> Outcome:
    demo = _runner.run(index)
    cubes: dict[bool, set[tuple[int, ...]]] = {False: set(), True: set()}
    held = {subtask.name: subtask.held is not None for subtask in _runner.task.subtasks}
    for name, first, end in demo.meta["subtasks"]:
        positions = _runner.simulator.fk(demo.q[first:end])[:, :3, 3]
        cubes[held[name]] |= set(map(tuple, np.floor(positions / _cell_m).astype(int).tolist()))
    detours = len(demo.meta.get("initiation", []))
    return Outcome(index, demo.strict, demo.cause, demo.num_frames, detours, cubes[False], cubes[True])


def measure(config: Config, seeds: Path, attempts: int, workers: int, cell_m: float) -> list[Outcome]:
    """All attempts of one variant, in order."""
    initargs = (config.model_dump_json(), str(seeds), cell_m)
    results = map_unordered(_attempt, range(attempts), workers=workers, initializer=_start, initargs=initargs)
    return sorted(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=300)
    parser.add_argument("--base-seed", type=int, default=0)
    parser.add_argument("--cell", type=float, default=0.02, help="edge of a cube, m")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    base = [f"skillgen.base_seed={options.base_seed}", *options.set]
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        make_seeds(load_config(overrides=base), run, SilentReporter(), options.workers)
        for name, overrides in VARIANTS.items():
            config = load_config(overrides=[*base, *overrides])
            outcomes[name] = measure(config, run.seeds, options.attempts, options.workers, options.cell)
    compared = min(sum(outcome.strict for outcome in each) for each in outcomes.values())
    report = {
        "seeds": [options.base_seed, options.base_seed + options.attempts - 1],
        "cell_m": options.cell,
        "demos_compared": compared,
        "variants": {name: _row(each, compared) for name, each in outcomes.items()},
    }
    Console().print(_table(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def _row(outcomes: list[Outcome], compared: int) -> dict:
    good = [outcome for outcome in outcomes if outcome.strict]
    low, high = wilson_interval(len(good), len(outcomes))
    return {
        "n": len(outcomes),
        "strict": len(good),
        "wilson_95": [round(low, 4), round(high, 4)],
        "causes": dict(Counter(outcome.cause for outcome in outcomes if not outcome.strict).most_common()),
        "median_frames": float(np.median([outcome.frames for outcome in good])),
        "detours_per_demo": round(float(np.mean([outcome.detours for outcome in good])), 2),
        "cubes_before_grasp": len(set().union(*(outcome.before_grasp for outcome in good[:compared]))),
        "cubes_carrying": len(set().union(*(outcome.carrying for outcome in good[:compared]))),
    }


def _table(report: dict) -> Table:
    first, last = report["seeds"]
    title = (
        f"seeds {first} to {last}; cubes of {100 * report['cell_m']:g} cm over {report['demos_compared']} demos each"
    )
    table = Table("initiation noise", "strict", "n", "Wilson 95 %", "causes", "frames", "detours", "cubes before grasp",
                  "carrying", title=title)  # fmt: skip
    for name, row in report["variants"].items():
        low, high = row["wilson_95"]
        table.add_row(
            name,
            f"{row['strict'] / row['n']:.1%}",
            str(row["n"]),
            f"{low:.1%} .. {high:.1%}",
            ", ".join(f"{cause} {count}" for cause, count in row["causes"].items()) or "none",
            f"{row['median_frames']:.0f}",
            f"{row['detours_per_demo']:.2f}",
            str(row["cubes_before_grasp"]),
            str(row["cubes_carrying"]),
        )
    return table


if __name__ == "__main__":
    main()
