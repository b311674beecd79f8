"""CPU time of an attempt in this checkout and in another one, in turns: is generation slower than it was?

    git worktree add /tmp/before 823709e
    .venv/bin/python benchmarks/side_by_side.py /tmp/before

Each checkout makes its own seeds with its own default settings. One process at a time; the machine's mood meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
# Runs in either checkout: only what both have.
_ATTEMPTS = """
import json, sys, time
from so101.config import load_config
from so101.datasets.seeds_hdf5 import read_seeds
from so101.skillgen.ik_rollout import AttemptRunner
config = load_config(overrides=["skillgen.base_seed=0", "task.name=vial_to_rack"])
runner = AttemptRunner(config, read_seeds(sys.argv[1], getattr(config, "of_seeds", config)))
runner.run(0)
first, count = int(sys.argv[2]), int(sys.argv[3])
begun, frames, strict = time.process_time(), 0, 0
for index in range(first, first + count):
    demo = runner.run(index)
    frames, strict = frames + demo.num_frames, strict + demo.strict
seconds = time.process_time() - begun
print(json.dumps({"ms_per_attempt": seconds / count * 1e3, "frames": frames / count, "strict": strict, "n": count}))
"""


def run(checkout: Path, *command: str) -> str:
    """Standard output of a Python command that imports from `checkout`."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONPATH": str(checkout)}
    result = subprocess.run([sys.executable, *command], cwd=checkout, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{checkout}: {result.stderr.strip()}")
    return result.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="checkout to compare with")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--attempts", type=int, default=20, help="a round; attempt seeds from 1 on")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    checkouts = {"this": HERE, "other": options.other.resolve()}
    rounds: dict[str, list[dict]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        for name, checkout in checkouts.items():
            run(checkout, "-m", "so101.cli", "seeds", "--run", f"{folder}/{name}", "--task", "vial_to_rack")
        for i in range(options.rounds):
            for name, checkout in checkouts.items():
                first, seeds = 1 + i * options.attempts, f"{folder}/{name}/seeds.hdf5"
                figures = json.loads(run(checkout, "-c", _ATTEMPTS, seeds, str(first), str(options.attempts)))
                rounds[name].append(figures)
                print(f"{name:6} {figures['ms_per_attempt']:6.1f} CPU ms an attempt, {figures['frames']:.0f} frames, "
                      f"{figures['strict']} of {figures['n']} strict")  # fmt: skip
    mean = {name: float(np.mean([r["ms_per_attempt"] for r in rows])) for name, rows in rounds.items()}
    ratio = mean["this"] / mean["other"]
    print(f"this / other: {mean['this']:.1f} / {mean['other']:.1f} ms = {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"rounds": rounds, "mean_ms": mean, "ratio": ratio}, indent=1) + "\n")


if __name__ == "__main__":
    main()
