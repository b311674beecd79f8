"""Memory of the control plane while browsers watch: an hour's worth of events at an accelerated rate.

    .venv/bin/python benchmarks/sse.py [--clients 8] [--seconds 60] [--json FILE]

A control plane in a process of its own (no runs, no other services). Changes of an hour (of 4 running runs with 10
messages each, workers, arm and policy) are put through its hub in `--seconds`, while clients read: half of them as fast
as they can, half 2 kB/s at most. Prints resident memory before, in steps, and after, and what clients got.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from pathlib import Path

HOUR_S = 3600
POLL_S, SLOW_POLL_S = 0.5, 2.0  # of deploy.yaml: an hour has this many looks at runs and arm, and at the rest
SLOW_BYTES_S = 2000
STEPS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, options.seconds), daemon=True)
    server.start()
    port = ours.recv()
    ended = threading.Event()
    clients = [_Client(port, slow=bool(i % 2), ended=ended) for i in range(options.clients)]
    ours.send("go")
    report = ours.recv()
    ended.set()
    report |= {
        "clients": options.clients,
        "events_of_a_fast_client": max((client.events for client in clients if not client.slow), default=0),
        "bytes_of_a_fast_client": max((client.bytes for client in clients if not client.slow), default=0),
        "bytes_of_a_slow_client": max((client.bytes for client in clients if client.slow), default=0),
    }
    ours.send("end")
    server.join(10)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    for name, value in report.items():
        print(f"{name:28} {value}")


class _Client:
    """A browser on a raw socket."""

    def __init__(self, port: int, *, slow: bool, ended: threading.Event) -> None:
        self.slow, self.events, self.bytes = slow, 0, 0
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384 if slow else 1 << 20)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        threading.Thread(target=self._read, args=(ended,), daemon=True).start()

    def _read(self, ended: threading.Event) -> None:
        while not ended.is_set():
            part = self._socket.recv(SLOW_BYTES_S if self.slow else 1 << 16)
            if not part:
                return
            self.bytes += len(part)
            self.events += part.count(b"event: change")
            if self.slow:
                ended.wait(1.0)


def _serve(pipe, seconds: float) -> None:
    import uvicorn

    from services.control.app import create_app
    from services.control.auth import Gate
    from services.control.plane import ControlPlane
    from so101.config import load_config

    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)
    sockets = [
        f"deploy.sockets.{name}.{side}=ipc://{folder}/{name}"
        for name in ("driver", "driver_state", "cameras", "work")
        for side in ("bind", "connect")
    ]
    plane = ControlPlane(load_config(overrides=[*sockets, "deploy.client.port=1"]))  # nothing polls: we put the changes
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(plane, Gate(None)), lifespan="off", log_config=None))
    threading.Thread(target=server.run, args=([listening],), daemon=True).start()
    pipe.send(listening.getsockname()[1])
    pipe.recv()
    while plane.browsers == 0:
        time.sleep(0.1)
    time.sleep(1)
    changes = _hour(plane)
    memory = [_resident_mb()]
    put = 0
    for step in range(STEPS):
        until = time.monotonic() + seconds / STEPS
        share = len(range(step, HOUR_LOOKS, STEPS))
        for done in range(share):
            put += next(changes)
            ahead = until - (1 - done / share) * seconds / STEPS - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
        memory.append(_resident_mb())
    pipe.send(
        {
            "accelerated": f"{HOUR_S / seconds:.0f} x",
            "changes_put": put,
            "browsers_at_the_end": plane.browsers,
            "resident_mb": memory,
            "growth_after_first_step_mb": round(memory[-1] - memory[1], 2),
        }
    )
    pipe.recv()
    os._exit(0)


HOUR_LOOKS = int(HOUR_S / POLL_S)


def _hour(plane):
    """Each step is one look: how many changes it put."""
    hub = plane.hub
    for look in range(HOUR_LOOKS):
        for run in range(4):
            hub.put(f"run/run-{run}", _run(run, look))
        hub.put("arm", _service(joints=[[look, i] for i in range(6)], mode="following"))
        if look % round(SLOW_POLL_S / POLL_S) == 0:
            hub.put("workers", _service(workers=[{"worker": str(i), "done": look} for i in range(16)]))
            hub.put("policy", _service(requests={"get_action": look}))
        if look % 600 == 0:  # runs come and go
            hub.put(f"run/old-{look}", _run(9, look))
            hub.remove(f"run/old-{look - 600}")
        yield 5 + (2 if look % 4 == 0 else 0)


def _service(**values) -> dict:
    return {"running": True, "problem": "", "values": values}


def _run(number: int, look: int) -> dict:
    stage = {"name": "generate", "state": "running", "done": look, "total": 7200, "unit": "demos", "rate_per_s": 0.5}
    share = {"count": look, "of": 2 * look, "low": 0.4, "high": 0.6}
    causes = [{"cause": f"cause {i}", "share": share} for i in range(8)]
    return {
        "id": f"run-{number}", "state": "running", "stages": [stage] * 8,
        "messages": [f"message {look} {i} " + "x" * 60 for i in range(10)],
        "outcomes": {"succeeded": share, "verified": share, "causes": causes},
    }  # fmt: skip


def _resident_mb() -> float:
    with open("/proc/self/status") as status:
        return round(next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024, 1)


if __name__ == "__main__":
    main()
