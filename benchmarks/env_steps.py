"""Environment steps a second, ours beside others of the same arm, at the same control rate in the same run.

    python3.12 -m venv NEXUS && NEXUS/bin/pip install 'so101-nexus[mjbatch]==0.10.*'
    .venv/bin/python benchmarks/env_steps.py --nexus NEXUS/bin/python      # two minutes

so101_tower_lift_brick against pick-lift of so101-nexus (its own 5 ms physics, and our 2 ms) and the pick environment
of lerobot-env-so101, with random actions and holding still; one environment alone, and each as many as its own
vectorisation does on this machine. Contestants wait in processes of their own and take turns, in another order every
round, so that a noisy machine meets all of them. Figures are medians of rounds; ratios are of ours to theirs within a
round. "CPU" counts steps of a second of CPU, which other programs on the machine hardly move. Who is not installed is
left out with a word.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

SIDE = Path(__file__).with_name("env_steps_side.py")
POLICIES = ("random", "hold")


class Contestant:
    """A process with one kind of environment; `missing` says why there is none."""

    def __init__(self, label: str, group: str, python: Path | None, why_not: str = "", **wanted: Any) -> None:
        self.label, self.group, self.missing = label, group, why_not
        self.runs: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
        self.facts: dict[str, Any] = {}
        self._process = None
        if python is None:
            return
        ours = wanted["name"] == "ours"
        surroundings = {**os.environ, "PYTHONPATH": str(SIDE.parents[1]) if ours else "", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [str(python), str(SIDE), json.dumps(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.PIPE, env=surroundings,
        )  # fmt: skip
        self.facts = self._read()
        self.missing = self.facts.pop("missing", self.missing)

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        lines = self._process.stderr.read().strip().splitlines()
        return {"missing": f"it ended with: {lines[-1] if lines else 'no word'}"}

    def run(self, policy: str, seconds: float) -> None:
        """One turn."""
        print(json.dumps({"policy": policy, "seconds": seconds}), file=self._process.stdin, flush=True)
        answer = self._read()
        if "missing" in answer:
            self.missing = answer["missing"]
        else:
            self.runs[policy].append(answer)

    def rates(self, policy: str, per: str) -> np.ndarray:
        """Steps a second of each round; per: wall_s or cpu_s."""
        return np.array([run["steps"] / max(run[per], 1e-9) for run in self.runs[policy]])

    def end(self) -> None:
        """Its input ends, so it does."""
        if self._process is None:
            return
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


def contestants(arguments: argparse.Namespace) -> list[Contestant]:
    """All of them, started one after the other; those that are missing too."""
    own, nexus, cores = Path(sys.executable), arguments.nexus, len(os.sched_getaffinity(0))
    without = "" if nexus else "no --nexus PYTHON given; see this program's head"
    period, lanes = {"period_s": arguments.period}, arguments.lanes
    workers = arguments.workers or cores
    theirs = {"5 ms": {}, "2 ms": {"timestep_s": 0.002}}
    found = [
        Contestant("ours", "alone", own, name="ours", kind="single", lanes=1, **period),
        Contestant(f"ours, {lanes} lanes", "vectorised", own, name="ours", kind="vector", lanes=lanes, **period),
        Contestant("lerobot-env-so101", "alone", own, name="lerobot", kind="single", lanes=1, **period),
        Contestant(
            f"lerobot-env-so101, {workers} processes", "vectorised", own, name="lerobot", kind="async", lanes=workers,
            **period,
        ),
    ]  # fmt: skip
    for physics, wanted in theirs.items():
        ways = [("alone", "single", 1, ""), ("vectorised", "async", workers, f", {workers} processes"),
                ("vectorised", "batch", lanes, f", {lanes} lanes of mjbatch")]  # fmt: skip
        found += [
            Contestant(
                f"so101-nexus, {physics}{text}", group, nexus, without, name="nexus", kind=kind, lanes=count,
                **wanted, **period,
            )
            for group, kind, count, text in ways
        ]  # fmt: skip
    return found


def figures(all_of_them: list[Contestant]) -> list[dict[str, Any]]:
    """One dictionary a contestant."""
    base = {each.group: each for each in all_of_them if each.label.startswith("ours")}
    rows = []
    for each in all_of_them:
        row: dict[str, Any] = {"name": each.label, "group": each.group, **each.facts, "missing": each.missing}
        if not each.missing:
            for policy in POLICIES:
                for per in ("wall_s", "cpu_s"):
                    rates, reference = each.rates(policy, per), base[each.group].rates(policy, per)
                    ratios = reference / rates
                    row[f"{policy}_steps_per_{per}"] = round(float(np.median(rates)), 1)
                    row[f"{policy}_ours_to_theirs_{per}"] = round(float(np.median(ratios)), 3)
                    row[f"{policy}_ratio_range_{per}"] = [round(float(f(ratios)), 3) for f in (np.min, np.max)]
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """The tables: alone, vectorised, and who was left out."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    for group in ("alone", "vectorised"):
        table = Table(
            title=f"{group}: environment steps a second, {1e3 * arguments.period:g} ms of control period, "
            f"{len(os.sched_getaffinity(0))} CPUs, {arguments.rounds} rounds of {arguments.seconds:g} s"
        )
        for column in (
            "",
            "physics",
            "dofs",
            "random",
            "ours/theirs",
            "hold",
            "ours/theirs",
            "CPU: random",
            "ours/theirs",
        ):
            table.add_column(column, justify="right" if column else "left")
        for row in rows:
            if row["group"] != group or row["missing"]:
                continue
            cells = [row["name"], f"{1e3 * row['timestep_s']:g} ms x {row['substeps']}", str(row["dofs"])]
            for policy, per in (("random", "wall_s"), ("hold", "wall_s"), ("random", "cpu_s")):
                low, high = row[f"{policy}_ratio_range_{per}"]
                cells += [
                    f"{row[f'{policy}_steps_per_{per}']:,.0f}",
                    "" if row["name"].startswith("ours") else
                    f"{row[f'{policy}_ours_to_theirs_{per}']:.2f} ({low:.2f} to {high:.2f})",
                ]  # fmt: skip
            table.add_row(*cells)
        console.print(table)
    for row in rows:
        if row["missing"]:
            console.print(f"left out: {row['name']}: {row['missing']}")


def main() -> None:
    """The whole program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nexus", type=Path, help="a Python that has so101-nexus")
    parser.add_argument("--period", type=float, default=0.02, help="s between two actions [0.02, that of so101-nexus]")
    parser.add_argument("--lanes", type=int, default=32, help="of vectorised environments in one process")
    parser.add_argument("--workers", type=int, help="processes of gymnasium's AsyncVectorEnv; one a CPU when not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each turn")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    them = contestants(arguments)
    try:
        order = np.random.default_rng(0)
        for _ in range(arguments.rounds):
            for policy in POLICIES:
                for number in order.permutation(len(them)):
                    if not them[number].missing:
                        them[number].run(policy, arguments.seconds)
        rows = figures(them)
    finally:
        for each in them:
            each.end()
    show(rows, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
