"""How punctual the control loop is: `./real --sim --policy replay --arm` again and again at 30 Hz, through pty, driver,
cameras, policy server. Beside it, in a process of its own, an empty loop on the same grid shows what the machine adds.

    .venv/bin/python benchmarks/tick_jitter.py --minutes 10
    .venv/bin/python benchmarks/tick_jitter.py --policy embedded --role policy --set cameras.scale=0.25

Lateness in ms after the grid time: when the loop woke, and when its command had been answered by the driver.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.policy_latency import untrained_policy
from proto.stopping import stop_on_signals
from services.real.parts import Setting
from services.real.session import Rollouts, Wishes
from so101.config import load_config
from so101.control.demos import chosen_demo, make_demo
from so101.control.pacing import Grid, MonotonicClock
from so101.control.stats import LoopStats
from so101.datasets.rollouts import SessionFolder
from tests.ports import free_port

_EDGES_MS = (1, 2, 5, 10, 15, 20, 33.3, 50, 100)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of rollouts, without the pauses between them")
    parser.add_argument("--overlap", action="store_true", help="inference overlapped with execution")
    parser.add_argument("--policy", choices=("replay", "embedded"), default="replay")
    parser.add_argument("--role", help="embedded: folder in models/; weights at random without")
    parser.add_argument("--seconds", type=float, default=15.0, help="embedded: of a rollout; replay ends by itself")
    parser.add_argument("--demo", type=Path, help="a demo or a run; made by the scripted operator without")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="so101-jitter-") as folder:
        result = measure(options, Path(folder))
    print(table(result))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result["outcomes"].get("aborted", 0) == 0 else 1


def measure(options: argparse.Namespace, folder: Path) -> dict:
    settings = own_sockets(folder)
    settings += [f"deploy.control.overlap={str(options.overlap).lower()}", *options.set]
    config = load_config(overrides=settings)
    path = demo = None
    if options.policy == "replay":
        path, demo = chosen_demo(config, options.demo or make_demo(config, folder), folder)
        if demo.task != config.task.name:
            settings.append(f"task.name={demo.task}")
        server = ["--policy", "replay", "--demo", str(path)]
    else:
        models, role = Path(config.deploy.server.models_dir).absolute(), options.role
        if role is None:
            models, role = folder / "models", "untrained"
            untrained_policy(config, models / role)
        server = ["--policy", "embedded", "--models-dir", str(models), "--role", role]
        settings.append(f"deploy.control.max_episode_s={options.seconds}")
    config = load_config(overrides=settings)
    words = [word for setting in settings for word in ("--set", setting)]
    wishes = Wishes(Setting(True, True, None, server, words), options.policy, demo=demo, demo_path=path)
    stats, outcomes = LoopStats(), {}
    ticks = options.minutes * 60 * config.deploy.control.control_hz
    ended, empty = multiprocessing.Event(), multiprocessing.Queue()
    beside = multiprocessing.Process(target=empty_loop, args=(config.deploy.control.control_hz, ended, empty))
    load = os.getloadavg()[0]
    with stop_on_signals() as stop, Rollouts(config, wishes, SessionFolder(folder), stop, say) as rollouts:
        beside.start()
        try:
            while stats.ticks < ticks and not stop.is_set():
                rollout = rollouts.run(sum(outcomes.values()))
                stats.add(rollout.result.stats)
                outcome = rollout.result.outcome
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                say(f"{stats.ticks / ticks:4.0%}  {outcome} ({rollout.result.reason})")
                if outcome == "aborted":
                    break
        finally:
            ended.set()
            alone = empty.get()
            beside.join()
    return {
        "machine": {"cpus": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()[0]},
        "minutes": stats.ticks / config.deploy.control.control_hz / 60,
        "policy": options.policy if options.role is None else f"{options.policy} {options.role}",
        "overlap": config.deploy.control.overlap,
        "outcomes": outcomes,
        "loop": stats.summary(),
        "lateness": {
            "empty loop, woke": spread(alone),
            "loop, woke": spread(stats.woke_ms),
            "loop, command sent": spread(stats.sent_ms),
        },
        "deadline_ms": config.deploy.control.deadline_ms,
    }


def own_sockets(folder: Path) -> list[str]:
    """Settings with which nothing meets the services of others on this machine."""
    settings = [f"deploy.control.sessions={folder}", f"deploy.server.run={folder}"]
    for name in ("driver", "driver_state", "cameras", "rig_state", "rig"):
        settings += [f"deploy.sockets.{name}.{end}=ipc://{folder}/{name}" for end in ("bind", "connect")]
    port = free_port()
    return [*settings, f"deploy.server.port={port}", f"deploy.client.port={port}"]


def empty_loop(rate_hz: float, ended, found) -> None:
    """Wakes on the grid and does nothing."""
    grid, late = Grid(rate_hz, MonotonicClock()), []
    while not ended.is_set():
        tick = grid.wait()
        late.append(1000 * (tick.woke_s - tick.due_s))
    found.put(late)


def spread(late_ms: list[float]) -> dict:
    values = np.array(late_ms)
    cuts = np.percentile(values, [50, 90, 99, 99.9])
    return {
        "ticks": len(values),
        **{name: round(float(cut), 2) for name, cut in zip(("p50", "p90", "p99", "p99.9"), cuts, strict=True)},
        "max": round(float(values.max()), 2),
        "above_ms": {str(edge): int((values > edge).sum()) for edge in _EDGES_MS},
    }


def table(result: dict) -> str:
    loop, machine = result["loop"], result["machine"]
    misses = sum(loop["misses"].values())
    lines = [
        f"{result['minutes']:.1f} min at 30 Hz, {result['policy']}, overlap {result['overlap']}; "
        f"{machine['cpus']} CPUs, load {machine['load_before']:.1f} before, {machine['load_after']:.1f} after",
        f"rollouts: {', '.join(f'{count} {name}' for name, count in result['outcomes'].items())}",
        "",
        f"{'ms after the grid time':24}{'ticks':>8}"
        + "".join(f"{n:>8}" for n in ("p50", "p90", "p99", "p99.9", "max")),
    ]
    for name, row in result["lateness"].items():
        figures = "".join(f"{row[n]:8.2f}" for n in ("p50", "p90", "p99", "p99.9", "max"))
        lines.append(f"{name:24}{row['ticks']:8}{figures}")
    lines += ["", f"{'ticks later than, ms':24}" + "".join(f"{edge:>8g}" for edge in _EDGES_MS)]
    for name, row in result["lateness"].items():
        lines.append(f"{name:24}" + "".join(f"{row['above_ms'][str(edge)]:8}" for edge in _EDGES_MS))
    counted = ", ".join(f"{count} {reason}" for reason, count in loop["misses"].items()) or "none"
    inference = loop["inference_ms"]
    lines += [
        "",
        f"misses (later than {result['deadline_ms']:g} ms or no fresh action): {misses} of {loop['ticks']} ({counted})",
        f"grid places skipped: {loop['skipped']}; policy errors: {loop['policy_errors']}; "
        f"policy answers: p50 {inference['p50']:.1f}, p99 {inference['p99']:.1f}, max {inference['max']:.1f} ms",
    ]
    return "\n".join(lines)


def say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
