"""How long the embedded policy takes on a CPU: inside the server, and from question to answer for a client in another
process, with the pictures that the control loop sends.

    .venv/bin/python benchmarks/policy_latency.py                    # weights at random when there is no --role
    .venv/bin/python benchmarks/policy_latency.py --role policy --threads 1 --threads 2 --json latency.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services.policy import PolicyClient, PolicyServer
from so101.cameras.base import Frame
from so101.config import Config, load_config
from so101.control.boundary import PolicyBoundary

SIZES = {"640x480": 1.0, "160x120": 0.25}  # cameras.scale
WARM_UP = 5  # questions that are not counted
_NEAR_HOME = 5.0  # dataset units that an untrained policy moves at most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", help="folder in --models-dir; weights at random without")
    parser.add_argument("--models-dir", type=Path, default=Path("models"))
    parser.add_argument("--threads", type=int, action="append", help="of torch; repeatable (default: 1 and 2)")
    parser.add_argument("--questions", type=int, default=100, help="for each line of the table")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="so101-latency-") as folder:
        models, role = options.models_dir, options.role
        if role is None:
            models, role = Path(folder), "untrained"
            untrained_policy(load_config(overrides=options.set), models / role)
        rows = [
            measure(options, models, role, size, scale, threads)
            for threads in options.threads or (1, 2)
            for size, scale in SIZES.items()
        ]
    load = os.getloadavg()[0]
    table = Table(title=f"{options.role or 'weights at random'}, {os.cpu_count()} CPUs, load {load:.1f}; ms")
    for column in rows[0]:
        table.add_column(column.replace(" ", "\n"), justify="right")
    for row in rows:
        table.add_row(*(f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=120).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps({"role": options.role, "load": load, "rows": rows}, indent=1) + "\n")
    return 0


def measure(options: argparse.Namespace, models: Path, role: str, size: str, scale: float, threads: int) -> dict:
    """One line of the table."""
    settings = [f"cameras.scale={scale}", *options.set]
    settings += [f"deploy.server.models_dir={models}", f"deploy.server.role={role}"]
    config = load_config(overrides=settings)
    spawn = multiprocessing.get_context("spawn")
    ready, stop = spawn.Queue(), spawn.Event()
    server = spawn.Process(target=serve, args=(settings, threads, ready, stop))
    server.start()
    try:
        with PolicyClient(endpoint=ready.get(timeout=60)) as client:
            boundary = PolicyBoundary(config, client.modality)
            rng = np.random.default_rng(0)
            shape = (config.cameras.height_px, config.cameras.width_px, 3)
            q = np.array([joint.home_rad for joint in config.robot.joints])
            trips = []
            for _ in range(options.questions + WARM_UP):
                frames = {
                    name: Frame(rng.integers(0, 256, shape, np.uint8), 0.0, 0.0, 0, name)
                    for name in config.cameras.names
                }
                observation = boundary.observation(q, frames, config.task.active.language)
                began = time.perf_counter()
                action, _ = client.get_action(observation)
                boundary.joint_targets(action)
                trips.append(1000 * (time.perf_counter() - began))
            told = client.stats()["infer_ms"]
    finally:
        stop.set()
        server.join()
    p50, p99 = np.percentile(trips[WARM_UP:], [50, 99])
    return {
        "pictures": f"3 x {size}",
        "torch threads": threads,
        "questions": options.questions,
        "in the server p50": told["p50"],
        "in the server p99": told["p99"],
        "round trip p50": float(p50),
        "round trip p99": float(p99),
        "round trip max": float(max(trips[WARM_UP:])),
    }


def serve(settings: list[str], threads: int, ready, stop) -> None:
    """The policy server in a process of its own."""
    import torch

    from so101.policies import make_policy

    torch.set_num_threads(threads)
    config = load_config(overrides=settings)
    policy = make_policy(config, "embedded")
    with PolicyServer(policy, "tcp://127.0.0.1:0", config.deploy.server) as server:
        ready.put(server.endpoint)
        stop.wait()


def untrained_policy(config: Config, folder: Path) -> None:
    """A checkpoint of training.yaml's network with weights at random, which stays near home."""
    import torch

    from so101.datasets.lerobot_v21 import dataset_units
    from so101.datasets.units import rad_to_lerobot
    from so101.learning.checkpoint import TrainedPolicy, save_policy
    from so101.learning.model import Architecture, ChunkNetwork
    from so101.learning.normalisation import Normalisation
    from so101.policies.interface import PolicyInterface

    settings, horizon, interface = config.training.embedded, config.training.action_horizon, PolicyInterface(config)
    joints, cameras = len(config.robot.joints), interface.modality.video
    model = settings.model
    points = 1
    architecture = Architecture(
        head=model.head, channels=model.channels, width=model.width, blocks=model.blocks, dropout=model.dropout,
        cameras=len(cameras), joints=joints, horizon=horizon, tasks=1, points=points,
    )  # fmt: skip
    units = dataset_units(config)
    home = rad_to_lerobot(np.array([joint.home_rad for joint in config.robot.joints]), units)
    normalisation = Normalisation(
        state=np.stack([home, np.ones(joints)]).astype(np.float32),
        chunk=np.stack([np.tile(home, (horizon, 1)), np.ones((horizon, joints))]).astype(np.float32),
        relative=np.zeros(joints, bool),
        points=np.stack([np.zeros((points, 3)), np.ones((points, 3))]).astype(np.float32),
        low=(home - _NEAR_HOME).astype(np.float32),
        high=(home + _NEAR_HOME).astype(np.float32),
    )
    policy = TrainedPolicy(
        architecture=architecture,
        normalisation=normalisation,
        pictures=settings.pictures,
        cameras=cameras,
        tasks=(config.task.active.language,),
        joints=tuple(config.robot.joint_names),
        units={"scale_per_rad": units.scale.tolist(), "offset": units.offset.tolist()},
        control_hz=config.deploy.control.control_hz,
        dataset_fingerprint="none",
        training={},
    )
    torch.manual_seed(0)
    modality = interface.modality_for(cameras, horizon)
    save_policy(folder, config.task.name, modality, policy, ChunkNetwork(architecture))


if __name__ == "__main__":
    sys.exit(main())
