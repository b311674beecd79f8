"""kill -9 of workers and of who hands out the work, while a run goes on over the network; then compare byte for byte.

The same run is made twice: by processes of the command itself, and by `--workers` generator services and a renderer
behind a broker. A generator is killed (-9) every `--every` seconds, the renderer once while it renders, the process
with the broker `--broker-kills` times; each is started again, as a supervisor or container engine would. Then the
files of both runs are compared: seeds, attempts, videos, dataset.

    .venv/bin/python benchmarks/kill_workers.py                          # 100 attempts, 3 workers
    .venv/bin/python benchmarks/kill_workers.py --control                # the control plane is what holds the broker
    .venv/bin/python benchmarks/kill_workers.py --attempts 12 --demos 2 --every 2 --json kill_workers.json
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from so101.files import write_json

REPOSITORY = Path(__file__).resolve().parents[1]
COMPARED = ("seeds.hdf5", "generated", "failed", "verified", "rejected", "videos", "dataset")
POLL_S = 0.05
FAST_LEASES = ["--set", "deploy.work.heartbeat_s=0.5", "--set", "deploy.work.lease_s=3"]


def tree_digest(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every compared file."""
    files = (path for name in COMPARED for path in [folder / name, *(folder / name).rglob("*")] if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """A process that is started again whenever it ends."""

    def __init__(self, name: str, arguments: list[str], scratch: Path) -> None:
        self.name, self._arguments, self._log = name, arguments, scratch / f"{name}.log"
        self.starts = 0
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            command = [sys.executable, "-m", "services.cli", *self._arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY, start_new_session=True)
        self.starts += 1

    def keep(self) -> None:
        if self.process.poll() is not None:
            self.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class Run:
    """`./twin run` in a folder."""

    def __init__(self, folder: Path, settings: list[str]) -> None:
        self.folder, self._log = folder, folder.with_suffix(".log")
        command = [sys.executable, "-m", "services.cli", "run", "--run", str(folder), *settings]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY)

    def ended(self) -> bool:
        code = self._process.poll()
        if code:
            raise SystemExit(f"kill_workers: the run ended with {code}:\n{self._log.read_text()[-3000:]}")
        return code == 0

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def attempts_in(folder: Path) -> int:
    return sum(len(list((folder / name).glob("demo_*.npz"))) for name in ("generated", "failed"))


def torment(
    run: Run, workers: list[Service], renderer: Service, broker: Service, options: argparse.Namespace
) -> Counter:
    """Kill as told until the run has ended; what was killed."""
    dice, killed = random.Random(options.seed), Counter()
    moments = [round(options.attempts * (k + 1) / (options.broker_kills + 1)) for k in range(options.broker_kills)]
    turns, next_kill = itertools.cycle(workers), time.monotonic() + options.every
    while not run.ended():
        time.sleep(POLL_S)
        for service in (*workers, renderer, broker):
            service.keep()
        if time.monotonic() >= next_kill:
            next(turns).kill()
            killed["worker"] += 1
            next_kill += options.every
        if not killed["renderer"] and next(run.folder.glob("videos/demo_*"), None) is not None:
            renderer.kill()  # once: it is alone, and a demo may take as long as the pause between kills
            killed["renderer"] += 1
        if moments and attempts_in(run.folder) >= moments[0]:
            moments.pop(0)
            time.sleep(dice.uniform(0, 0.5))
            broker.kill()
            killed["broker"] += 1
    return killed


def measure(options: argparse.Namespace, scratch: Path) -> dict:
    """Both runs; the figures."""
    port = free_port()
    place = f"tcp://127.0.0.1:{port}"
    shared = [
        "--set", "task.name=vial_to_rack", "--set", "teleop.operator.num_demos=2", "--set", "render.setting=fast",
        "--set", "skillgen.generation_guarantee=false", "--set", f"skillgen.max_attempts={options.attempts}",
        "--set", f"skillgen.target_demos={options.demos}", *FAST_LEASES,
        "--set", f"deploy.sockets.work={{bind: '{place}', connect: '{place}'}}",
    ]  # fmt: skip
    here = Run(scratch / "in_process", [*shared, "--workers", str(os.cpu_count() or 1)])
    begun = time.monotonic()
    while not here.ended():
        time.sleep(POLL_S)
    local_s = time.monotonic() - begun
    holder = ["broker"]
    if options.control:
        plane = "deploy.control_plane"
        holder = ["control", "--set", f"{plane}.embed_broker=true", "--set", f"{plane}.http.port={free_port()}"]
        holder += [
            "--set",
            f"{plane}.state_dir={scratch / 'state'}",
            "--set",
            f"{plane}.runs.folder={scratch / 'runs'}",
        ]
    services: list[Service] = []
    there = None
    try:
        broker = Service("broker", ["serve", *holder, *shared], scratch)
        services.append(broker)
        services += [
            Service(f"generator-{n}", ["serve", "generator", *shared], scratch) for n in range(options.workers)
        ]
        renderer = Service("renderer", ["serve", "renderer", *shared], scratch)
        services.append(renderer)
        begun = time.monotonic()
        network = ["--set", "deploy.work.executor=network", "--workers", "1"]
        there = Run(scratch / "network", [*shared, *network])
        killed = torment(there, services[1:-1], renderer, broker, options)
        network_s = time.monotonic() - begun
    finally:
        for service in services:
            service.end()
        if there is not None:
            there.end()
    expected, actual = tree_digest(here.folder), tree_digest(there.folder)
    different = sorted(name for name in expected | actual if expected.get(name) != actual.get(name))
    return {
        "attempts": options.attempts,
        "attempts_there": attempts_in(there.folder),
        "workers": options.workers,
        "holder": holder[0],
        "workers_killed": killed["worker"],
        "renderer_killed": killed["renderer"],
        "broker_killed": killed["broker"],
        "workers_missed": services[0].log().count("it is given up"),
        "files_compared": len(expected),
        "files_lost": sum(name not in actual for name in expected),
        "files_too_many": sum(name not in expected for name in actual),
        "files_different": len(different),
        "different": different[:20],
        "identical": bool(expected) and not different,
        "in_process_s": round(local_s, 1),
        "network_s": round(network_s, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=100)
    parser.add_argument("--demos", type=int, default=10, help="that are rendered into the dataset")
    parser.add_argument("--workers", type=int, default=3, help="generator services; a renderer comes on top")
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="between two kills of a worker")
    parser.add_argument("--broker-kills", type=int, default=2)
    parser.add_argument("--control", action="store_true", help="kill the control plane, which holds the broker")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which the broker is killed")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the services end too
    with tempfile.TemporaryDirectory(prefix="kill_workers_") as scratch:
        figures = measure(options, Path(scratch))
    for key, value in figures.items():
        print(f"{key:18} {value}")
    if options.json:
        write_json(options.json, figures)
    return 0 if figures["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
