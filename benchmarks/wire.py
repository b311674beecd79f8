"""The wire: round trips of camera frames and the GR00T codec against GR00T's own way of writing, all in one run.

    .venv/bin/python benchmarks/wire.py                  # about half a minute
    .venv/bin/python benchmarks/wire.py --requests 500 --json wire.json

GR00T's own way is msgpack with numpy.save and numpy.load of every array, and a REP server that reads plain frames: the
independent peer of tests/proto/groot. Servers are processes of their own; the kinds take turns, so that a busy machine
meets all of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proto.groot import decode, encode
from proto.messages import Message
from proto.sockets import Client, Server
from services.policy import PolicyClient, PolicyServer
from so101.config import load_config
from so101.policies import Modality
from tests.proto.groot.peer import PeerClient, PeerPolicy, PeerSerialiser, PeerServer, peer_observation

CAMERAS = ("front", "wrist", "top")
HEIGHT, WIDTH = 480, 640
ROUND = 10  # requests of one kind before the next has its turn
KINDS = {
    "ours": "our messages to our server",
    "groot": "GR00T codec to our policy server",
    "stock client": "GR00T client to our policy server",
    "reference": "GR00T client to a GR00T server",
}


class WireLook(Message):
    """What a policy is asked with, as a message of ours."""

    images: dict[str, np.ndarray]
    state: np.ndarray


class WireChunk(Message):
    """Its answer."""

    action: np.ndarray


class FixedPolicy:
    """Answers at once, so that only the wire takes time."""

    def __init__(self, cameras: tuple[str, ...]) -> None:
        sizes = {"single_arm": 5, "gripper": 1}
        self.modality = Modality(cameras, sizes, sizes, PeerPolicy.language, 16)
        self._action = {name: np.zeros((1, 16, size), np.float32) for name, size in sizes.items()}

    def get_action(self, observation, options=None):
        return self._action, {}

    def reset(self, options=None):
        return {}


def serve(kind: str, endpoint: str, cameras: tuple[str, ...], ready, stop) -> None:
    """One server in a process of its own."""
    if kind == "ours":
        chunk = WireChunk(action=np.zeros((16, 6), np.float32))
        server = Server(endpoint, {WireLook: lambda look: chunk}, name="benchmark")
    elif kind == "reference":
        policy = PeerPolicy()
        policy.video = cameras
        server = PeerServer(policy, endpoint=endpoint)
    else:
        server = PolicyServer(FixedPolicy(cameras), endpoint, load_config().deploy.server)
    with server:
        ready.put(server.endpoint)
        stop.wait()


def asker(kind: str, endpoint: str, cameras: tuple[str, ...], stack: ExitStack) -> Callable[[], object]:
    """A function that makes one round trip."""
    observation = peer_observation(cameras, height=HEIGHT, width=WIDTH)
    if kind == "ours":
        client = stack.enter_context(Client(endpoint, timeout_s=30))
        images = {name: image[0, 0] for name, image in observation["video"].items()}
        return lambda: client.request(WireLook(images=images, state=np.zeros(6, np.float32)))
    if kind == "groot":
        client = stack.enter_context(PolicyClient(endpoint=endpoint))
    else:
        client = stack.enter_context(PeerClient(endpoint))
    return lambda: client.get_action(observation)


def timed_ms(calls: dict[str, Callable[[], object]], count: int) -> dict[str, np.ndarray]:
    """(count,) ms of each call, in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    while len(next(iter(times.values()))) < count:
        for name, call in calls.items():
            for _ in range(ROUND):
                began = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - began) * 1000)
    return {name: np.array(values[:count]) for name, values in times.items()}


def round_trips(num_cameras: int, transport: str, count: int, folder: str) -> dict[str, dict[str, float]]:
    cameras, spawn = CAMERAS[:num_cameras], multiprocessing.get_context("spawn")
    stop, servers, calls = spawn.Event(), [], {}
    with ExitStack() as stack:
        stack.callback(lambda: [server.join() for server in servers])
        stack.callback(stop.set)
        for kind in KINDS:
            ready = spawn.Queue()
            place = "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{folder}/{num_cameras}-{kind.split()[0]}"
            server = spawn.Process(target=serve, args=(kind, place, cameras, ready, stop))
            server.start()
            servers.append(server)
            calls[kind] = asker(kind, ready.get(timeout=60), cameras, stack)
        times = timed_ms(calls, count)
    reference = np.median(times["reference"])
    return {
        kind: {
            "median_ms": float(np.median(values)),
            "p99_ms": float(np.percentile(values, 99)),
            "times_faster_than_reference": float(reference / np.median(values)),
        }
        for kind, values in times.items()
    }


def codec(num_cameras: int, count: int) -> dict[str, float]:
    """Writing and reading one request, ours and GR00T's way; both make the same bytes and read each other's."""
    observation = peer_observation(CAMERAS[:num_cameras], height=HEIGHT, width=WIDTH)
    request = {"endpoint": "get_action", "data": {"observation": observation, "options": None}}
    peer, message = PeerSerialiser(), encode(request)
    assert message == peer.pack(request)
    np.testing.assert_equal(decode(message).value, request)
    np.testing.assert_equal(peer.unpack(message), request)
    calls = {
        "ours_encode": lambda: encode(request),
        "reference_encode": lambda: peer.pack(request),
        "ours_decode": lambda: decode(message),
        "reference_decode": lambda: peer.unpack(message),
    }
    times = timed_ms(calls, count)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    fastest = {name: float(values.min()) for name, values in times.items()}
    both, best = (
        {side: values[f"{side}_encode"] + values[f"{side}_decode"] for side in ("ours", "reference")}
        for values in (medians, fastest)
    )
    return {
        "bytes": len(message),
        **{f"{name}_ms": value for name, value in medians.items()},
        "encode_ratio": medians["reference_encode"] / medians["ours_encode"],
        "decode_ratio": medians["reference_decode"] / medians["ours_decode"],
        "ratio": both["reference"] / both["ours"],
        "ratio_of_fastest": best["reference"] / best["ours"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200, help="round trips of each kind")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, report = Console(width=120), {"codec": {}, "round_trips": {}}
    head = ("cameras", "bytes", "encode ms", "GR00T's", "decode ms", "GR00T's", "encode", "decode", "both", "fastest")
    table = Table(*head)
    for cameras in (1, 3):
        found = report["codec"][str(cameras)] = codec(cameras, options.requests)
        columns = ("ours_encode_ms", "reference_encode_ms", "ours_decode_ms", "reference_decode_ms")
        ratios = ("encode_ratio", "decode_ratio", "ratio", "ratio_of_fastest")
        table.add_row(
            str(cameras),
            f"{found['bytes']:,}",
            *(f"{found[name]:.2f}" for name in columns),
            *(f"{found[name]:.1f} x" for name in ratios),
        )
    console.print("One request, same bytes both ways", table)
    table = Table("cameras", "transport", "who", "median ms", "p99 ms", "against GR00T's")
    with tempfile.TemporaryDirectory() as folder:
        for cameras in (1, 3):
            for transport in ("tcp", "ipc"):
                found = round_trips(cameras, transport, options.requests, folder)
                report["round_trips"][f"{cameras} {transport}"] = found
                for kind, values in found.items():
                    numbers = (f"{values['median_ms']:.2f}", f"{values['p99_ms']:.2f}")
                    table.add_row(
                        str(cameras),
                        transport,
                        KINDS[kind],
                        *numbers,
                        f"{values['times_faster_than_reference']:.1f} x",
                    )
    console.print(f"Round trips of {HEIGHT} x {WIDTH} frames, a chunk back", table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
