"""The virtual servo bus: what a look at the arm costs against the bytes on a real wire, what physics costs, and whether
a demonstration replayed through driver, port and servos gets the task done, on the nominal and on pseudo-real rigs.

.venv/bin/python benchmarks/virtual_bus.py --rigs 5      # about 2 minutes; wants an idle core
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from so101.config import Config, load_config
from so101.datasets.seeds import SeedDemo
from so101.geometry import pose_to_pos_quat
from so101.robot import make_driver
from so101.robot.base import RobotError
from so101.robot.feetech_bus import FeetechBus
from so101.robot.tables import REGISTERS
from so101.robot.virtual import KinematicPlant, VirtualBus
from so101.robot.virtual.pseudo_real import NOMINAL, RigDraw, draw_rig
from so101.robot.virtual.twin_plant import TwinPlant
from so101.tasks.operator import ScriptedOperator, TakeFailed

LOOK = ("torque_enable", "status")  # the driver's block: from here to there
REPLY_EXTRA_BYTES = 6  # header, id, length, error, checksum
REQUEST_BYTES = 8 + 6  # of a SYNC_READ of six servos
BITS_PER_BYTE = 10


def look_ms(config: Config, looks: int) -> list[dict[str, Any]]:
    """One SYNC_READ of all servos, as the driver's: measured, and what its bytes alone take."""
    first, last = (REGISTERS[name] for name in LOOK)
    size = last.address + last.size - first.address
    wire_s = (REQUEST_BYTES + 6 * (size + REPLY_EXTRA_BYTES)) * BITS_PER_BYTE / config.robot.bus.baud
    rows = []
    for plant_name, make_plant in (("kinematic", KinematicPlant), ("twin", TwinPlant)):
        for pacing in (False, True):
            with VirtualBus(config, plant=make_plant(config), pacing=pacing) as bus:
                for servo in bus.servos.values():
                    servo.memory["return_delay"] = config.robot.bus.setup.return_delay
                host = FeetechBus(bus.port, config.robot.bus)
                host.open()
                times, missing = [], 0
                for _ in range(looks):
                    begun = time.perf_counter()
                    missing += 6 - len(host.sync_read(LOOK, config.robot.bus.ids))
                    times.append(time.perf_counter() - begun)
                host.close()
            p50, p99 = np.percentile(times, [50, 99]) * 1000
            rows.append({"plant": plant_name, "pacing": pacing, "wire_ms": wire_s * 1000, "p50_ms": p50, "p99_ms": p99,
                         "missing": missing})  # fmt: skip
    return rows


def physics(config: Config, seconds: float) -> list[dict[str, Any]]:
    """CPU time of a bus nobody talks to, in real time, and how much faster it could go."""
    rows = []
    for plant_name, make_plant in (("kinematic", KinematicPlant), ("twin", TwinPlant)):
        with VirtualBus(config, plant=make_plant(config)) as bus:
            cpu = time.process_time()
            time.sleep(seconds)
            share = (time.process_time() - cpu) / seconds
            behind_s = bus.counts.behind_s
        with VirtualBus(config, plant=make_plant(config), real_time=False) as bus:
            begun = time.perf_counter()
            bus.advance(seconds)
            speed = seconds / (time.perf_counter() - begun)
        rows.append({"plant": plant_name, "cpu_share": share, "behind_s": behind_s, "times_real_time": speed})
    return rows


def replay(config: Config, demo: SeedDemo, rig: RigDraw, folder: Path) -> dict[str, Any]:
    """The demo's commands at its rate, without looking: does the task get done?"""
    start = {name: pose_to_pos_quat(poses[0]) for name, poses in demo.objects.items()}
    plant = TwinPlant(config, rig)
    plant.reset(start, q=demo.q[0])
    limited, apart, late = 0, [], []
    with VirtualBus(config, plant=plant, reply_delay_s=rig.reply_delay_s) as bus:
        bus.calibration.write(folder / "arm.json")
        with make_driver(config, arm=True, port=bus.port, calibration=folder / "arm.json") as driver:
            driver.arm()
            begun = time.monotonic()
            for frame, q_target in enumerate(demo.q_target):
                time.sleep(max(0.0, begun + frame / demo.fps - time.monotonic()))
                late.append(time.monotonic() - begun - frame / demo.fps)
                apart.append(np.abs(plant.truth().q - demo.q[frame]).max())
                try:
                    limited += bool(driver.command_limited(q_target).by)
                except RobotError:
                    limited += 1
            time.sleep(1.0)
            verdict = plant.verdict()
        home = not bus.state().torque_on.any()
        return {
            "strict": verdict.strict,
            "off_axis_mm": verdict.axis_distance_m * 1000,
            "limited": limited,
            "frames": demo.num_frames,
            "apart_p95_deg": float(np.degrees(np.percentile(apart, 95))),
            "late_p99_ms": float(np.percentile(late, 99) * 1000),
            "behind_s": bus.counts.behind_s,
            "home_and_released": home,
        }


def first_demo(config: Config) -> SeedDemo:
    operator = ScriptedOperator(config)
    for take in range(config.teleop.operator.max_tries):
        try:
            return operator.demo(take)
        except TakeFailed:
            pass
    raise SystemExit("the scripted operator did not get the task done")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rigs", type=int, default=5, help="pseudo-real rigs, seeds 0, 1, ...")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config, console = load_config(), Console()
    report: dict[str, Any] = {"looks": look_ms(config, options.looks), "physics": physics(config, options.seconds)}
    table = Table("plant", "pacing", "bytes alone ms", "look p50 ms", "p99 ms", "p50 / bytes", "servos missed")
    for row in report["looks"]:
        ratio = row["p50_ms"] / row["wire_ms"]
        table.add_row(row["plant"], str(row["pacing"]), f"{row['wire_ms']:.2f}", f"{row['p50_ms']:.2f}",
                      f"{row['p99_ms']:.2f}", f"{ratio:.2f}", str(row["missing"]))  # fmt: skip
    console.print(table)
    table = Table("plant", "CPU share at rest", "given up s", "times real time")
    for row in report["physics"]:
        table.add_row(
            row["plant"], f"{row['cpu_share']:.2f}", f"{row['behind_s']:.2f}", f"{row['times_real_time']:.0f}"
        )
    console.print(table)
    demo, report["replays"] = first_demo(config), []
    table = Table(
        "rig", "done", "off axis mm", "apart from the demo p95 deg", "limited", "late p99 ms", "let go at home"
    )
    with tempfile.TemporaryDirectory() as folder:
        for rig in (None, *range(options.rigs)):
            row = replay(config, demo, NOMINAL if rig is None else draw_rig(config, rig), Path(folder))
            report["replays"].append({"rig": rig, **row})
            table.add_row("nominal" if rig is None else f"pseudo-real {rig}", str(row["strict"]),
                          f"{row['off_axis_mm']:.1f}", f"{row['apart_p95_deg']:.1f}",
                          f"{row['limited']} of {row['frames']}", f"{row['late_p99_ms']:.0f}",
                          str(row["home_and_released"]))  # fmt: skip
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
