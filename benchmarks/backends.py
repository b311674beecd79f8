"""The same attempts with each IK backend and with planned transits: success, causes, time, and who touched the rack.

    .venv/bin/python benchmarks/backends.py --attempts 10      # a minute or two
    .venv/bin/python benchmarks/backends.py --json out.json    # 200 attempts each, the figure to report: half an hour

One process, one core; the file is written after every attempt. "rack contacts" are physics steps in which the arm or
the object in the hand touches the container while a transit runs, looked at after every physics step (not only every
frame). Planned transits and those that are interpolated, by choice or because no plan was found, are told apart.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
from rich.console import Console
from rich.table import Table

from so101.config import Config, load_config
from so101.datasets.seeding import make_seeds
from so101.datasets.seeds_hdf5 import read_seeds
from so101.evaluation.statistics import wilson_interval
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.skillgen.ik_rollout import AttemptRunner

VARIANTS = {
    "jacobian": [],
    "curobo": ["ik.backend=curobo"],
    "curobo + planner": ["ik.backend=curobo", "skillgen.transit.planner=curobo"],
    "jacobian + planner": ["skillgen.transit.planner=curobo"],
}


class TransitContacts:
    """Steps the runner's physics one step at a time and counts contacts with the container while a transit runs."""

    def __init__(self, runner: AttemptRunner, config: Config) -> None:
        self._simulator, self._transits = runner.simulator, runner.transits
        self._container = config.task.active.success.container
        self._not_arm = {*config.scene.statics, *config.objects, "world"}
        self._held: str | None = None
        self._kind: str | None = None  # of the transit that runs: planned or interpolated
        self._steps: Counter[str] = Counter()
        self._run_transit, self._run_plan = runner._transit, runner.transits.plan
        runner._transit, runner.transits.plan, runner.simulator.step = self._transit, self._plan, self._step
        self.transits: Counter[str] = Counter()

    @property
    def steps(self) -> dict[str, int]:
        """kind of transit -> physics steps with contact."""
        return {kind: self._steps[kind] for kind in ("planned", "interpolated")}

    def _plan(self, *arguments) -> np.ndarray | None:
        before = (self._transits.planner_counts() or {"planned": 0})["planned"]
        path = self._run_plan(*arguments)
        after = (self._transits.planner_counts() or {"planned": 0})["planned"]
        self._next = "planned" if after > before else "interpolated"
        return path

    def _transit(self, path, jaw, held) -> None:
        self._held, self._kind = held.name if held is not None else None, self._next
        self.transits[self._kind] += 1
        try:
            self._run_transit(path, jaw, held)
        finally:
            self._kind = None

    def _step(self, env: int, q_target: np.ndarray) -> None:
        model, data = self._simulator.models[env], self._simulator.data[env]
        data.ctrl[:] = q_target
        for _ in range(self._simulator.substeps):
            mujoco.mj_step(model, data)
            if self._kind is not None and self._touches(model, data):
                self._steps[self._kind] += 1

    def _touches(self, model: mujoco.MjModel, data: mujoco.MjData) -> bool:
        for pair in model.geom_bodyid[data.contact.geom] if data.ncon else ():
            names = [model.body(int(body)).name for body in pair]
            if self._container in names:
                other = names[1 - names.index(self._container)]
                if other == self._held or other not in self._not_arm:
                    return True
        return False


def measure(config: Config, seeds: Path, attempts: int) -> Iterator[dict]:
    """The figures of one configuration after each attempt."""
    runner = AttemptRunner(config, read_seeds(seeds, config.of_seeds))
    contacts = TransitContacts(runner, config)
    strict, causes, planner, cpu, frames = 0, Counter(), Counter(), [], []
    first, started = config.skillgen.base_seed, time.perf_counter()
    for index in range(attempts):
        begun = time.process_time()
        demo = runner.run(index)
        cpu.append(time.process_time() - begun)
        frames.append(len(demo.q))
        strict += demo.strict
        causes[demo.cause or "success"] += 1
        if counts := runner.transits.planner_counts():
            planner["planned"] += counts["planned"]
            planner.update({f"fallback {reason}": n for reason, n in counts["fallback"].items()})
        n = index + 1
        low, high = wilson_interval(strict, n)
        yield {
            "n": n,
            "seeds": [first, first + index],
            "strict": strict,
            "strict_success": round(strict / n, 4),
            "wilson_95": [round(low, 4), round(high, 4)],
            "causes": dict(causes.most_common()),
            "cpu_s_per_attempt": round(float(np.mean(cpu)), 3),
            "cpu_s_p95": round(float(np.percentile(cpu, 95)), 3),
            "wall_s": round(time.perf_counter() - started, 1),
            "frames_mean": round(float(np.mean(frames)), 1),
            "transits": dict(contacts.transits),
            "rack_contact_steps": contacts.steps,
            "planner": dict(planner),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=200)
    parser.add_argument("--base-seed", type=int, default=20_000)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS)[:3])
    parser.add_argument("--seeds", type=Path, help="seeds.hdf5 to use; five from the scripted operator when absent")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    base = [f"skillgen.base_seed={options.base_seed}", *options.set]
    report = {}
    table = Table("variant", "strict", "n", "Wilson 95 %", "CPU s", "rack contacts", "planner", "causes of failure")
    with tempfile.TemporaryDirectory() as folder:
        seeds = options.seeds
        if seeds is None:
            run = RunFolder(Path(folder))
            make_seeds(load_config(overrides=base), run, SilentReporter(), 1)
            seeds = run.seeds
        for name in options.variants:
            for row in measure(load_config(overrides=[*base, *VARIANTS[name]]), seeds, options.attempts):
                report[name] = row
                if options.json:
                    options.json.write_text(json.dumps(report, indent=1) + "\n")
            failures = ", ".join(f"{cause} {n}" for cause, n in row["causes"].items() if cause != "success") or "none"
            interval = f"{row['wilson_95'][0]:.1%} .. {row['wilson_95'][1]:.1%}"
            touched = ", ".join(f"{n} {kind}" for kind, n in row["rack_contact_steps"].items())
            planner = ", ".join(f"{key} {n}" for key, n in row["planner"].items()) or "-"
            table.add_row(
                name, f"{row['strict_success']:.1%}", str(row["n"]), interval, str(row["cpu_s_per_attempt"]), touched,
                planner, failures,
            )  # fmt: skip
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
