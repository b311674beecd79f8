"""Attempts a minute and worker of the executors local, network and ray, in turns, and whether their files are the same.

    .venv/bin/python benchmarks/executors.py                           # about two minutes on idle processors
    .venv/bin/python benchmarks/executors.py --attempts 300 --rounds 3 --json executors.json

All use `--workers` workers on this machine. A round is one `generate` of each executor, in a new folder, with workers
that have done attempts before (what starting costs is a column of its own). Rates count from the first finished attempt
to the last one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from services.work import register
from services.work.broker import Broker
from so101.config import Config, load_config
from so101.datasets.seeding import make_seeds
from so101.files import write_json
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import SINGLE_THREAD
from so101.skillgen.generate import generate

REPOSITORY = Path(__file__).resolve().parents[1]
EXECUTORS = ("local", "network", "ray")


class FirstAndLast(SilentReporter):
    """When attempts came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def advance(self, count: int = 1, note: str = "") -> None:
        self.times.append(time.monotonic())


def digest(run: RunFolder) -> str:
    """SHA-256 over names and bytes of all attempts."""
    total = hashlib.sha256()
    for path in sorted([*run.generated.glob("*.npz"), *run.failed.glob("*.npz")]):
        total.update(f"{path.parent.name}/{path.name}".encode() + path.read_bytes())
    return total.hexdigest()


def settings(endpoint: str, attempts: int, executor: str, given: list[str]) -> list[str]:
    place = f"{{bind: '{endpoint}', connect: '{endpoint}'}}"
    return [
        "task.name=vial_to_rack", "teleop.operator.num_demos=2", "skillgen.generation_guarantee=false",
        f"skillgen.max_attempts={attempts}", f"deploy.sockets.work={place}", f"deploy.work.executor={executor}", *given,
    ]  # fmt: skip


def one(config: Config, seeds: Path, folder: Path, workers: int) -> tuple[float, float, str]:
    """Seconds to the first attempt, attempts a second after it, digest."""
    run, reporter = RunFolder(folder), FirstAndLast()
    folder.mkdir(parents=True)
    run.seeds.write_bytes(seeds.read_bytes())
    begun = time.monotonic()
    generate(config, run, reporter, workers)
    first, last = reporter.times[0], reporter.times[-1]
    return first - begun, (len(reporter.times) - 1) / (last - first), digest(run)


def measure(options: argparse.Namespace, folder: Path) -> dict:
    endpoint = f"ipc://{folder}/work"
    configs = {
        name: load_config(overrides=settings(endpoint, options.attempts, name, options.set)) for name in EXECUTORS
    }
    seeded = RunFolder(folder / "seeded")
    make_seeds(configs["local"], seeded, SilentReporter(), options.workers)
    generator = [sys.executable, "-m", "services.cli", "serve", "generator"]
    for value in settings(endpoint, options.attempts, "local", options.set):
        generator += ["--set", value]
    rows: dict[str, list[dict]] = {name: [] for name in EXECUTORS}
    digests = set()
    with Broker(configs["network"]) as broker:
        log = open(folder / "log", "wb")  # noqa: SIM115
        pool = subprocess.Popen([*generator, "--processes", str(options.workers)], stdout=log, stderr=log)
        try:
            while len(broker.status().workers) < options.workers:
                time.sleep(0.1)
            for number in range(options.rounds + 1):  # the first warms up: Ray starts, workers load
                for name, config in configs.items():
                    target = folder / f"{name}_{number}"
                    first_s, rate, found = one(config, seeded.seeds, target, options.workers)
                    digests.add(found)
                    if number:
                        rows[name].append({"first_s": round(first_s, 2), "attempts_per_min": round(60 * rate, 1)})
        finally:
            pool.terminate()
            pool.wait()
    return {"attempts": options.attempts, "workers": options.workers, "rounds": rows, "same_bytes": len(digests) == 1}


def mean(rounds: list[dict], key: str) -> float:
    return sum(row[key] for row in rounds) / len(rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=100, help="a round and executor")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.update(SINGLE_THREAD)
    register()
    with tempfile.TemporaryDirectory(prefix="executors_") as folder:
        figures = measure(options, Path(folder))
    local = mean(figures["rounds"]["local"], "attempts_per_min")
    table = Table("executor", "workers", "a worker and min", "of local", "rounds", "first after s")
    for name, rounds in figures["rounds"].items():
        rate = mean(rounds, "attempts_per_min")
        each = " ".join(f"{row['attempts_per_min'] / options.workers:.0f}" for row in rounds)
        table.add_row(
            name, str(options.workers), f"{rate / options.workers:.0f}", f"{rate / local:.2f}", each,
            f"{mean(rounds, 'first_s'):.1f}",
        )  # fmt: skip
    Console().print(table)
    print(f"same bytes from all, in every round: {'yes' if figures['same_bytes'] else 'NO'}")
    if options.json:
        write_json(options.json, figures)
    return 0 if figures["same_bytes"] else 1


if __name__ == "__main__":
    sys.exit(main())
