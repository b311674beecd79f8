"""kill -9 of a training, again and again: does it end where one ends that nobody touched?

The same small training is run twice through `./twin train`: once undisturbed, once killed `--kills` times after a
random time and started again. Its state is saved every `--save-minutes`. Then the weights and the last losses of both
are compared. The last loss is a mean over the steps since the last start, so it may differ a little; weights may not.

    .venv/bin/python benchmarks/kill_training.py --dataset runs/default/dataset
    .venv/bin/python benchmarks/kill_training.py --dataset runs/default/dataset --kills 3 --steps 300 --json kills.json
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.numpy import load_file

from so101.files import write_json

REPOSITORY = Path(__file__).resolve().parents[1]


def command(arguments: argparse.Namespace, models: Path) -> list[str]:
    settings = {
        "deploy.server.models_dir": models,
        "training.tracking.enabled": "false",
        "training.embedded.max_steps": arguments.steps,
        "training.embedded.save_minutes": arguments.save_minutes,
        "training.embedded.log_steps": 10,
        "training.embedded.batch_size": arguments.batch_size,
        "training.embedded.held_out_share": 0.1,
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    base = [sys.executable, "-m", "services.cli", "train", "--dataset", str(arguments.dataset), "--role", "policy"]
    return [*base, "--workers", str(arguments.threads), *sets]


def step_of(models: Path) -> int:
    """Of the saved state; -1 without one."""
    from so101.learning.train import read_state

    return int(read_state(models / "policy").get("step", -1))


def last_figures(models: Path) -> dict[str, float]:
    with open(models / "policy/training/log.csv", encoding="utf-8") as file:
        rows = [(int(step), key, float(value)) for step, key, value in csv.reader(file)]
    end = max(step for step, _, _ in rows)
    return {key: value for step, key, value in rows if step == end}


def run_to_the_end(arguments: argparse.Namespace, models: Path) -> float:
    """Seconds it took."""
    began = time.monotonic()
    subprocess.run(command(arguments, models), check=True, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def run_with_kills(arguments: argparse.Namespace, models: Path, whole_s: float) -> list[int]:
    """Steps that were saved when it was killed. A start that was killed before it came on is no kill that counts."""
    rng, kills = random.Random(arguments.seed), []
    while len(kills) < arguments.kills:
        before = step_of(models)
        process = subprocess.Popen(command(arguments, models), cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        wait = arguments.start_s + rng.uniform(0.3, 1.5) * whole_s / (arguments.kills + 2)
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        now = step_of(models)
        if now > before and process.returncode != 0:
            kills.append(now)
            print(f"kill {len(kills)}: {now} of {arguments.steps} steps are saved", flush=True)
        if process.returncode == 0:
            break
    return kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--save-minutes", type=float, default=0.02)
    parser.add_argument("--start-s", type=float, default=6.0, help="until a start has come to its first step")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.dataset = arguments.dataset.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        whole, killed = Path(scratch, "whole"), Path(scratch, "killed")
        whole_s = run_to_the_end(arguments, whole)
        (killed / ".frames").parent.mkdir(parents=True)
        (whole / ".frames").rename(killed / ".frames")  # decoding is not what is tested
        steps = run_with_kills(arguments, killed, whole_s)
        run_to_the_end(arguments, killed)
        figures = {name: last_figures(folder) for name, folder in (("whole", whole), ("killed", killed))}
        weights = [load_file(folder / "policy/weights.safetensors") for folder in (whole, killed)]
    apart = max(float(abs(weights[0][key] - weights[1][key]).max()) for key in weights[0])
    result = {
        "kills": len(steps),
        "saved_steps_at_kills": steps,
        "steps": arguments.steps,
        "largest_difference_of_a_weight": apart,
        "last_figures": figures,
    }
    print(f"{len(steps)} kills of {arguments.steps} steps; largest difference of a weight: {apart:.3g}")
    for key in ("loss", "chunk_loss", "object_loss", "held_out_chunk_loss"):
        if key in figures["whole"]:
            a, b = figures["whole"][key], figures["killed"][key]
            print(f"{key:>22}: undisturbed {a:.6f}, killed {b:.6f}, ratio {b / a if a else float('nan'):.6f}")
    if arguments.json:
        write_json(arguments.json, json.loads(json.dumps(result)))


if __name__ == "__main__":
    main()
