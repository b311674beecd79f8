"""Generation rate and success: attempts a minute with physics and IK, no rendering.

    .venv/bin/python benchmarks/generation.py                     # about 40 s
    .venv/bin/python benchmarks/generation.py --attempts 1000     # the figure to report
    .venv/bin/python benchmarks/generation.py --attempts 300 --ablation
    .venv/bin/python benchmarks/generation.py --attempts 1000 --base-seed 20000 --preset randomised \
        --set task.name=vial_to_rack_wide --coverage    # also where the object started and what came of it

Attempt seeds start at `--base-seed` (10,000 by default: seeds below are for tuning). The clock starts when the workers
have loaded the model and the seeds, and stops when the last demo file is written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from so101.config import Config, load_config
from so101.datasets.seeding import make_seeds
from so101.evaluation.collect import collect
from so101.evaluation.report import report_numbers
from so101.evaluation.statistics import wilson_interval
from so101.evaluation.workspace import workspace
from so101.kinematics import ArmKinematics
from so101.pipeline.executors import run_job, start_worker
from so101.pipeline.jobs import Job, JobContext
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import map_unordered

ABLATION = {
    "default": [],
    "adaptive rotation off": ["ik.jacobian.adaptive_rotation.enabled=false"],
    "weighted IK, adaptive on": ["ik.jacobian.formulation=weighted"],
    "weighted IK, adaptive off": ["ik.jacobian.formulation=weighted", "ik.jacobian.adaptive_rotation.enabled=false"],
    "settle gate off": ["skillgen.gate.enabled=false"],
    "k = 1": ["skillgen.selection.nn_k=1"],
    "held correction off": ["skillgen.held_object_correction=false"],
    "no action noise": ["skillgen.action_noise_rad=0.0"],
}


def _ready(index: int) -> tuple[int, float]:
    """First job of a worker: proves that the model and the seeds are loaded."""
    time.sleep(0.2)  # so that every worker takes one
    return index, time.monotonic()


def _job(job: tuple[str, int]) -> tuple:
    kind, index = job
    return _ready(index) if kind == "ready" else run_job(Job(index))


def coverage(config: Config, run: RunFolder) -> dict:
    """The `coverage` part of the report of a run."""
    summary = collect(config, run, ArmKinematics(config).fk)
    return report_numbers(summary, config.dataset.report, workspace(config))["coverage"]


def measure(config: Config, seeds: Path, attempts: int, workers: int, with_coverage: bool = False) -> dict:
    """Run `attempts` attempts on `workers` processes; rate, success and causes."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        shutil.copyfile(seeds, run.seeds)
        context = JobContext("attempt", config.model_dump_json(), run.root)
        jobs = [("ready", i) for i in range(workers)] + [("attempt", i) for i in range(attempts)]
        strict, causes, started, cpu_frames = 0, Counter(), 0.0, 0
        results = map_unordered(_job, jobs, workers=workers, initializer=start_worker, initargs=(context,))
        for result in results:
            if isinstance(result[1], float):
                started = max(started, result[1])
                continue
            strict += result[1]["kept"]
            causes[result[1]["cause"] or "success"] += 1
            cpu_frames += 1
        seconds = time.monotonic() - started
        covered = {"coverage": coverage(config, run)} if with_coverage else {}
    low, high = wilson_interval(strict, attempts)
    return {
        "n": attempts,
        "base_seed": config.skillgen.base_seed,
        "last_seed": config.skillgen.base_seed + attempts - 1,
        "workers": workers,
        "seconds": round(seconds, 2),
        "attempts_per_min": round(attempts / seconds * 60, 1),
        "strict_success": round(strict / attempts, 4),
        "strict": strict,
        "wilson_95": [round(low, 4), round(high, 4)],
        "causes": dict(causes.most_common()),
        **covered,
    }


def print_coverage(console: Console, coverage: dict) -> None:
    """Covered shares, and the cells of the start area that hardly ever succeed."""
    for name, numbers in coverage["objects"].items():
        position = numbers["position"]
        console.print(f"{name}: {position['covered_share']:.0%} of the cells with a success")
        for cell in position["low"] if numbers["moved"] else ():
            console.print(f"  under {coverage['low_share']:.0%}: {cell}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=300)
    parser.add_argument("--base-seed", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=Path, help="seeds.hdf5 to use; five from the scripted operator when absent")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--coverage", action="store_true", help="cells of the start area")
    parser.add_argument("--preset", help="of skillgen.yaml, e.g. randomised")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    base = [f"skillgen.base_seed={options.base_seed}", "skillgen.keep=strict", *options.set]
    variants = ABLATION if options.ablation else {"default": []}
    table = Table("variant", "attempts/min", "strict", "n", "Wilson 95 %", "causes of failure")
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        seeds = options.seeds
        if seeds is None:
            run = RunFolder(Path(folder))
            make_seeds(load_config(preset=options.preset, overrides=base), run, SilentReporter(), options.workers)
            seeds = run.seeds
        for name, overrides in variants.items():
            config = load_config(preset=options.preset, overrides=[*base, *overrides])
            row = measure(config, seeds, options.attempts, options.workers, options.coverage)
            report[name] = row
            failures = ", ".join(f"{cause} {n}" for cause, n in row["causes"].items() if cause != "success") or "none"
            interval = f"{row['wilson_95'][0]:.1%} .. {row['wilson_95'][1]:.1%}"
            table.add_row(
                name,
                f"{row['attempts_per_min']:.0f}",
                f"{row['strict_success']:.1%}",
                str(row["n"]),
                interval,
                failures,
            )
    Console().print(table)
    if options.coverage:
        print_coverage(Console(), report["default"]["coverage"])
    if options.json:
        result = report if options.ablation else report["default"]
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
