"""What the camera service delivers: three cameras from its process to this one.

    .venv/bin/python benchmarks/cameras.py                   about four minutes: 30 s a row
    .venv/bin/python benchmarks/cameras.py --seconds 5 --sources synthetic --json FILE

A row: source and transport; frames a second that arrived, of the least and of all cameras; frames lost on the way
(device and network) and replaced before this process took them; test patterns that were halves of two frames; capture
to consumer, median, 99th percentile and longest; processor share of the service and of this process, in percent of one
core. `twin` draws in software where there is no GPU, from states that this process publishes at 100 Hz. The load of the
machine is told, as it decides the tails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from proto.messages.rig import STATE_TOPIC, RigState
from services.camera.client import RemoteCameras
from services.wire import make_publisher
from so101.cameras.synthetic import frame_number
from so101.config import Config, load_config
from so101.rendering.video import encode_video
from so101.tasks.placement import nominal_placements

SOURCES = ("synthetic", "playback", "twin")
TRANSPORTS = ("tcp", "ipc")
STATE_HZ = 100.0
WIDTH = 16  # of a column, characters
READY_S = 90.0  # for the service to show its first frames


def settings(source: str, transport: str, folder: Path) -> list[str]:
    """Overrides of one row, for the service and for this process."""
    endpoint = f"ipc://{folder}/cameras" if transport == "ipc" else "tcp://127.0.0.1:15558"
    sets = [f"deploy.sockets.cameras={{bind: '{endpoint}', connect: '{endpoint}'}}"]
    rig = f"ipc://{folder}/rig"
    sets.append(f"deploy.sockets.rig_state={{bind: '{rig}', connect: '{rig}'}}")
    for name in load_config().cameras.names:
        value = f"{{kind: {source}, path: '{folder}/{name}.mp4'}}" if source == "playback" else f"{{kind: {source}}}"
        sets.append(f"cameras.sources.{name}={value}")
    return sets


def make_videos(config: Config, folder: Path) -> None:
    """Four seconds of noise-free moving picture a camera."""
    width, height = config.cameras.width_px, config.cameras.height_px
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    for number, name in enumerate(config.cameras.names):
        waves = (
            np.stack([127 + 100 * np.sin((x + 3 * i) / (20 + 5 * k) + (y - 2 * i) / 31 + number) for k in range(3)], -1)
            for i in range(int(4 * config.cameras.fps_hz))
        )
        encode_video(folder / f"{name}.mp4", (wave.astype(np.uint8) for wave in waves), config)


def publish_states(config: Config, ended: threading.Event) -> None:
    """A rig that swings its joints, objects at their places."""
    poses = nominal_placements(config)
    q = np.array([joint.home_rad for joint in config.robot.joints])
    with make_publisher(config, "rig_state") as publisher:
        while not ended.wait(1 / STATE_HZ):
            now_s = time.time()
            moved = q + 0.3 * np.sin(now_s + np.arange(6))
            state = RigState(
                stamp_s=now_s, q_rad=tuple(moved.tolist()), looks_json="{}", randomisation_json="{}", port="",
                objects={name: tuple(pose.tolist()) for name, pose in poses.items()},
            )  # fmt: skip
            publisher.send(STATE_TOPIC, state)


def cpu_s(pid: int) -> float:
    """Processor time of process `pid` so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(source: str, transport: str, seconds: float, folder: Path, extra: list[str]) -> dict[str, float | str]:
    """One row."""
    sets = [*settings(source, transport, folder), *extra]
    config = load_config(overrides=sets)
    ended = threading.Event()
    if source == "twin":
        threading.Thread(target=publish_states, args=(config, ended), daemon=True).start()
    command = [sys.executable, "-m", "services.cli", "serve", "camera", "--log-level", "warning"]
    command += [word for assignment in sets for word in ("--set", assignment)]
    service = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[1])
    try:
        with RemoteCameras(config) as cameras:
            cameras.latest(READY_S)
            cameras.take(0)
            return {"source": source, "transport": transport, **receive(cameras, service.pid, seconds, source)}
    finally:
        ended.set()
        service.send_signal(signal.SIGTERM)
        service.wait()


def receive(cameras: RemoteCameras, pid: int, seconds: float, source: str) -> dict[str, float]:
    ages, counts, torn = [], Counter(), 0
    lost, skipped = cameras.lost.total(), cameras.skipped.total()
    start, service_s, own_s = time.monotonic(), cpu_s(pid), time.process_time()
    while (elapsed := time.monotonic() - start) < seconds:
        for frame in cameras.take(0.5):
            ages.append(frame.age_s * 1e3)
            counts[frame.camera] += 1
            torn += source == "synthetic" and frame_number(frame.image) != frame.index % 65536
    service_s, own_s = cpu_s(pid) - service_s, time.process_time() - own_s
    p50, p99, longest = np.percentile(ages, [50, 99, 100])
    return {
        "fps_least": round(min(counts[name] for name in cameras.names) / elapsed, 2),
        "fps_all": round(counts.total() / elapsed, 2),
        "lost": cameras.lost.total() - lost,
        "skipped": cameras.skipped.total() - skipped,
        "torn": torn,
        "p50_ms": round(p50, 2),
        "p99_ms": round(p99, 2),
        "max_ms": round(longest, 2),
        "service_cpu_pct": round(100 * service_s / elapsed, 1),
        "consumer_cpu_pct": round(100 * own_s / elapsed, 1),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each row")
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the configuration")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="so101_cameras_") as scratch:
        folder = Path(scratch)
        if "playback" in arguments.sources:
            make_videos(load_config(), folder)
        for source in arguments.sources:
            for transport in arguments.transports:
                rows.append(measure(source, transport, arguments.seconds, folder, arguments.set))
                if len(rows) == 1:
                    print(*(f"{key:>{WIDTH}}" for key in rows[0]))
                print(*(f"{value:>{WIDTH}}" for value in rows[-1].values()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
