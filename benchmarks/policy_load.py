"""The policy server under many clients: who is served, what is refused, what it costs in memory.

    .venv/bin/python benchmarks/policy_load.py           # about half a minute
    .venv/bin/python benchmarks/policy_load.py --clients 64 --seconds 60 --json load.json

Three rounds on one server process, whose policy thinks for a fixed time: all clients; the same beside clients that die
and one that never reads; the same with a deadline shorter than the queue. Every third client speaks as GR00T's does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import zmq
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proto.errors import ProtoError
from proto.groot import encode
from services.policy import PolicyClient, PolicyServer
from so101.config import load_config
from so101.policies import Modality
from tests.proto.groot.peer import PeerClient, PeerPolicy, peer_observation

HEIGHT, WIDTH = 240, 320
CHANGING = ("expired", "refused", "superseded", "dropped")


class ThinkingPolicy:
    """Answers with the state after `think_s`."""

    def __init__(self, think_s: float) -> None:
        sizes = {"single_arm": 5, "gripper": 1}
        self.modality = Modality(("front", "wrist"), sizes, sizes, PeerPolicy.language, 16)
        self._think_s = think_s

    def get_action(self, observation, options=None):
        time.sleep(self._think_s)
        steps = np.zeros((1, 16, 1), np.float32)
        return {name: state + steps for name, state in observation["state"].items()}, {}

    def reset(self, options=None):
        return {}


def serve(think_s: float, deadline_ms: float, ready, stop) -> None:
    settings = load_config().deploy.server.model_copy(update={"deadline_ms": deadline_ms})
    with PolicyServer(ThinkingPolicy(think_s), "tcp://127.0.0.1:0", settings) as server:
        ready.put(server.endpoint)
        stop.wait()


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


class Load:
    """Clients on threads of this process, until `seconds` are over."""

    def __init__(self, endpoint: str, clients: int, seconds: float) -> None:
        self._endpoint, self._seconds = endpoint, seconds
        self.served, self.errors = [0] * clients, Counter()
        self.latency_ms: list[float] = []
        self.ping_ms: list[float] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(len(self.served))]
        threads.append(threading.Thread(target=self._ping))
        self._end = time.monotonic() + self._seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, number: int) -> None:
        observation = peer_observation(height=HEIGHT, width=WIDTH)
        observation["state"]["gripper"][:] = number
        with (PolicyClient if number % 3 else PeerClient)(endpoint=self._endpoint) as client:
            while time.monotonic() < self._end:
                began = time.monotonic()
                try:
                    action, _ = client.get_action(observation)
                except (ProtoError, RuntimeError, zmq.Again) as error:
                    self.errors["expired" if "longer than the deadline" in str(error) else str(error)[:60]] += 1
                    continue
                if action["gripper"][0, 0, 0] != number:
                    self.errors["answer of another client"] += 1
                self.served[number] += 1
                self.latency_ms.append((time.monotonic() - began) * 1000)

    def _ping(self) -> None:
        with PolicyClient(endpoint=self._endpoint) as client:
            while time.monotonic() < self._end:
                began = time.monotonic()
                self.errors["unanswered ping"] += not client.ping()
                self.ping_ms.append((time.monotonic() - began) * 1000)
                time.sleep(0.05)


def trouble(endpoint: str, stop: threading.Event) -> None:
    """One client that asks and never reads, and one after another that asks and dies."""
    message = encode({"endpoint": "get_action", "data": {"observation": peer_observation(height=HEIGHT, width=WIDTH)}})
    with zmq.Context() as context, context.socket(zmq.DEALER) as slow:
        slow.linger, slow.rcvhwm = 0, 1
        slow.connect(endpoint)
        while not stop.wait(0.25):
            slow.send(message, zmq.DONTWAIT)
            with context.socket(zmq.DEALER) as dead:
                dead.linger = 50
                dead.connect(endpoint)
                dead.send(message)


def one_round(clients: int, seconds: float, think_ms: float, deadline_ms: float, with_trouble: bool) -> dict:
    spawn = multiprocessing.get_context("spawn")
    ready, stop = spawn.Queue(), spawn.Event()
    server = spawn.Process(target=serve, args=(think_ms / 1000, deadline_ms, ready, stop))
    server.start()
    endpoint = ready.get(timeout=60)
    Load(endpoint, clients, 2.0).run()  # memory that is used once is used from here on
    with PolicyClient(endpoint=endpoint) as client:
        before, memory_before = client.stats(), resident_mb(server.pid)
        load, done = Load(endpoint, clients, seconds), threading.Event()
        bother = threading.Thread(target=trouble, args=(endpoint, done))
        if with_trouble:
            bother.start()
        load.run()
        done.set()
        if with_trouble:
            bother.join()
        after = client.stats()
    memory_after = resident_mb(server.pid)
    stop.set()
    server.join()
    served = np.array(load.served)
    return {
        "served": int(served.sum()),
        "served_per_client": [int(served.min()), int(served.max())],
        "errors": {name: count for name, count in load.errors.items() if count},
        "counters": {name: after[name] - before[name] for name in CHANGING},
        "latency_ms_p50_p99": [float(np.percentile(load.latency_ms, p)) for p in (50, 99)] if load.latency_ms else [],
        "ping_ms_p50_p99": [float(np.percentile(load.ping_ms, p)) for p in (50, 99)],
        "memory_mb_before_after": [memory_before, memory_after],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each round")
    parser.add_argument("--think-ms", type=float, default=10.0, help="what the policy takes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    short = options.clients * options.think_ms / 2
    rounds = {
        "all well": (10_000.0, False),
        "dead and slow clients": (10_000.0, True),
        f"deadline {short:.0f} ms": (short, False),
    }
    head = ("round", "served", "per client", "errors", "expired", "dropped", "latency p50/p99", "ping p50/p99", "MB")
    table, report = Table(*head), {}
    for name, (deadline_ms, with_trouble) in rounds.items():
        found = one_round(options.clients, options.seconds, options.think_ms, deadline_ms, with_trouble)
        report[name] = found
        table.add_row(
            name,
            str(found["served"]),
            "{} to {}".format(*found["served_per_client"]),
            ", ".join(f"{count} {text}" for text, count in found["errors"].items()) or "none",
            str(found["counters"]["expired"]),
            str(found["counters"]["dropped"]),
            *("{:.0f} / {:.0f} ms".format(*found[key]) for key in ("latency_ms_p50_p99", "ping_ms_p50_p99")),
            "{:.0f}, {:.0f}".format(*found["memory_mb_before_after"]),
        )
    Console(width=140).print(f"{options.clients} clients, {options.think_ms:g} ms a request", table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
