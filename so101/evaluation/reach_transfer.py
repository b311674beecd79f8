"""The transfer number of a reach policy: the point it was given against where the hand of an arm that is not quite the
twin ended, over how far off that arm is.

In lock-step on the virtual servo bus, with the driver of the real arm, so that equal seeds give equal numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from so101.config import Config
from so101.control.reach import Policy, Reacher, run_reach
from so101.control.reach_model import ReachModel
from so101.control.reach_run import ReachRun
from so101.evaluation.closed_loop.bus_world import BusWorld
from so101.evaluation.statistics import wilson_interval
from so101.evaluation.style import BLUE, LINE, MUTED, ORANGE
from so101.evaluation.transfer import RigWorlds
from so101.families.declaration import FamilyTask
from so101.families.vector_env import FamilyVectorEnv
from so101.files import write_json, write_text
from so101.robot.tick_map import TickMap
from so101.tasks.start import Start

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINING = "training"  # the name of the arm that the policy was trained with, in tables
COLUMNS = (
    "policy", "arm", "targets", "median_mm", "p95_mm", "worst_mm", "within", "share", "low", "high",
    "believed_median_mm", "closest_median_mm", "throttled", "limited", "reversals_pct", "stopped",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """One target on one arm, mm. `error`: where the hand really was at the end; `believed`: by the measured joints.

    Attributes:
        seed, rig: of the target and start, and of the arm; no rig in training's own environment.
        run: what the arm told; None in training's environment.
    """

    seed: int
    rig: int | None
    target_m: tuple[float, float, float]
    error_mm: float
    believed_mm: float
    closest_mm: float
    run: ReachRun | None = None


@dataclass(frozen=True)
class ReachPoint:
    """One policy on arms of one strength; None: in the environment it was trained in."""

    policy: str
    strength: float | None
    ended: tuple[Ended, ...]
    within_m: float

    @property
    def arm(self) -> str:
        return TRAINING if self.strength is None else f"{self.strength:g}"

    def row(self) -> dict[str, Any]:
        """Its line of the table, by COLUMNS."""
        errors = np.array([each.error_mm for each in self.ended])
        within = int(np.sum(errors <= 1000 * self.within_m))
        low, high = wilson_interval(within, len(errors))
        runs = [each.run for each in self.ended if each.run is not None]
        told = [run.summary(self.within_m) for run in runs]
        reversals = [each["reversals_pct"] for each in told if each["reversals_pct"] is not None]
        return {
            "policy": self.policy,
            "arm": self.arm,
            "targets": len(errors),
            "median_mm": round(float(np.median(errors)), 2),
            "p95_mm": round(float(np.percentile(errors, 95)), 2),
            "worst_mm": round(float(errors.max()), 2),
            "within": within,
            "share": round(within / len(errors), 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "believed_median_mm": round(float(np.median([each.believed_mm for each in self.ended])), 2),
            "closest_median_mm": round(float(np.median([each.closest_mm for each in self.ended])), 2),
            "throttled": sum(run.throttled for run in runs) if runs else None,
            "limited": sum(run.limited for run in runs) if runs else None,
            "reversals_pct": round(float(np.mean(reversals)), 1) if reversals else None,
            "stopped": sum(bool(run.ended_by) for run in runs) if runs else None,
        }


class WorldClock:
    """`so101.control.pacing.Clock` of a world in lock-step: who sleeps lets its time pass."""

    def __init__(self, world: BusWorld) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now()

    def sleep_until(self, time_s: float) -> None:
        while self._world.now() < time_s - 1e-9:
            self._world.wait()


def bare_arm(config: Config, task: FamilyTask) -> Config:
    """`config` with an arm and nothing else, at the rate of `task`: the scene that a reach policy was trained in."""
    control = task.family.declaration.control
    physics = {"control_hz": 1.0 / control.control_dt, "substeps": control.frame_skip}
    scene = config.scene.model_copy(update={"statics": {}, "physics": config.scene.physics.model_copy(update=physics)})
    definition = config.task.active.model_copy(update={"objects": {}})
    tasks = config.task.model_copy(update={"tasks": {**config.task.tasks, config.task.name: definition}})
    return with_looks(config, 1.0 / control.control_dt).without_randomisation.model_copy(
        update={"scene": scene, "task": tasks}
    )


def with_looks(config: Config, rate_hz: float) -> Config:
    """`config` with a driver that looks at the arm at `rate_hz`."""
    bus = config.robot.bus.model_copy(update={"rate_hz": rate_hz})
    return config.model_copy(update={"robot": config.robot.model_copy(update={"bus": bus})})


def on_rigs(
    config: Config,
    task: FamilyTask,
    make_policy: Callable[[ReachModel], Policy],
    strength: float,
    seeds: Sequence[int],
    seconds: float,
    done: Callable[[], None] = lambda: None,
) -> list[Ended]:
    """One target a seed, each on its rig of deploy.transfer. Starts and targets are those of training's episodes.

    Args:
        done: called after every target.

    Raises:
        BusError: the virtual servos did not answer.
        PolicyError, CalibrationError: as `Reacher`.
    """
    bare, settings, transfer = bare_arm(config, task), config.deploy.reach, config.deploy.transfer
    rigs = RigWorlds(strength, seeds[0], transfer.first_rig, transfer.rigs)
    model, ended = ReachModel(task), []
    policy = make_policy(model)
    with BusWorld(bare, partial(rigs.rig, bare), cameras=()) as world:
        for seed in seeds:
            q, target = model.beginning(seed)
            world.begin(seed, Start(q, {}, {}, {}))
            units = world.driver.calibration.units(bare.robot)
            reacher = Reacher(model, TickMap(bare.robot, units, settings.tick_map), policy, settings)
            run = run_reach(world.driver, reacher, target, seconds=seconds, clock=WorldClock(world), moves=True)
            error_m = np.linalg.norm(model.point(world.joints()) - target)
            ended.append(
                Ended(
                    seed=seed,
                    rig=rigs.rig(bare, seed).seed,
                    target_m=tuple(target.tolist()),
                    error_mm=float(1000 * error_m),
                    believed_mm=float(1000 * run.errors_m[-1]),
                    closest_mm=float(1000 * run.errors_m.min()),
                    run=run,
                )
            )
            done()
    return ended


def in_training(
    task: FamilyTask, make_policy: Callable[[ReachModel], Policy], seeds: Sequence[int], seconds: float
) -> list[Ended]:
    """The same targets in the environment that the policy was trained in: what it can do."""
    env = FamilyVectorEnv(task, len(seeds), autoreset=False, threads=1)
    try:
        observation, _ = env.reset(options={"seeds": seeds})
        policy, closest = make_policy(ReachModel(task)), np.full(len(seeds), np.inf)
        for _ in range(round(seconds / env.control_dt)):
            observation, _, _, _, info = env.step(policy.act(observation))
            closest = np.minimum(closest, info["reach_m"])
        errors, targets = 1000 * info["reach_m"], env.targets
    finally:
        env.close()
    return [
        Ended(seed, None, tuple(target.tolist()), float(error), float(error), float(1000 * near))
        for seed, target, error, near in zip(seeds, targets, errors, closest, strict=True)
    ]


def write_points(folder: Path, points: Sequence[ReachPoint], title: str) -> Figure:
    """Write reach_transfer.json (with every target), .csv and .png; returns the figure."""
    rows, text = [point.row() for point in points], io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(folder / "reach_transfer.csv", text.getvalue())
    write_json(folder / "reach_transfer.json", {"title": title, "rows": rows, "targets": list(_targets(points))})
    from so101.evaluation.closed_loop.figures import write_figure

    figure = transfer_figure(points, title)
    write_figure(folder / "reach_transfer.png", figure)
    return figure


def _targets(points: Iterable[ReachPoint]) -> Iterable[dict[str, Any]]:
    for point in points:
        for each in point.ended:
            summary = {} if each.run is None else each.run.summary(point.within_m)
            yield {
                "policy": point.policy, "arm": point.arm, "seed": each.seed, "rig": each.rig, "target_m": each.target_m,
                "error_mm": round(each.error_mm, 3), "believed_mm": round(each.believed_mm, 3),
                "closest_mm": round(each.closest_mm, 3), "run": summary,
            }  # fmt: skip


def lines(points: Sequence[ReachPoint]) -> list[str]:
    """The table for people."""
    width = max(6, *(len(point.policy) for point in points))
    within_mm = 1000 * points[0].within_m
    told = [f"{'policy':{width}}  arm       median    p95      worst    within {within_mm:g} mm (Wilson 95 %)"]
    for row in (point.row() for point in points):
        share = f"{row['within']}/{row['targets']} = {100 * row['share']:.0f} %"
        interval = f"({100 * row['low']:.0f} to {100 * row['high']:.0f} %)"
        told.append(
            f"{row['policy']:{width}}  {row['arm']:<8}  {row['median_mm']:5.1f} mm  {row['p95_mm']:5.1f} mm  "
            f"{row['worst_mm']:5.1f} mm  {share} {interval}"
        )
    return told


def transfer_figure(points: Sequence[ReachPoint], title: str) -> Figure:
    """Every target's error over the arm's strength, median and 95th percentile; the numbers below."""
    from matplotlib.figure import Figure

    arms = list(dict.fromkeys(point.arm for point in points))
    policies = list(dict.fromkeys(point.policy for point in points))
    figure = Figure(figsize=(9, 4.4 + 0.26 * len(points)), layout="constrained")
    axes, below = figure.subplots(2, 1, height_ratios=[4.0, 0.5 + 0.26 * len(points)])
    jitter = np.random.default_rng(0)
    for number, policy in enumerate(policies):
        colour = (BLUE, ORANGE)[number % 2]
        own = [point for point in points if point.policy == policy]
        beside = 0.3 * (number - (len(policies) - 1) / 2)
        places = [arms.index(point.arm) + beside for point in own]
        for place, point in zip(places, own, strict=True):
            errors = [each.error_mm for each in point.ended]
            spread = jitter.uniform(-0.09, 0.09, len(errors))
            axes.plot(place + spread, errors, ".", color=colour, alpha=0.45, ms=6, mec="none")
        rows = [point.row() for point in own]
        axes.plot(places, [row["median_mm"] for row in rows], "o-", color=colour, label=f"{policy}: median")
        axes.plot(places, [row["p95_mm"] for row in rows], "^--", color=colour, label=f"{policy}: p95")
    within_mm = 1000 * points[0].within_m
    axes.axhline(within_mm, color=MUTED, lw=1, ls=":")
    axes.set_yscale("log")
    axes.set(xticks=range(len(arms)), xticklabels=arms, xlim=(-0.6, len(arms) - 0.4), ylabel="hand from target [mm]")
    axes.set_xlabel(f"arm: {TRAINING} = environment of the training; else strength of the rigs (0: twin, 1: as drawn)")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_title(f"{title}; dotted: {within_mm:g} mm", loc="left", fontsize=10)
    axes.grid(axis="y", color=LINE)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    _draw_table(below, [point.row() for point in points])
    return figure


def _draw_table(axes: Any, rows: list[dict[str, Any]]) -> None:
    axes.axis("off")
    cells = [
        [
            row["policy"],
            row["arm"],
            f"{row['median_mm']:.1f} mm",
            f"{row['p95_mm']:.1f} mm",
            f"{row['worst_mm']:.1f} mm",
            f"{row['within']}/{row['targets']} ({100 * row['low']:.0f} to {100 * row['high']:.0f} %)",
            f"{row['believed_median_mm']:.1f} mm",
            "" if row["reversals_pct"] is None else f"{row['reversals_pct']:.0f} %",
        ]
        for row in rows
    ]
    heads = ["policy", "arm", "median", "p95", "worst", "near enough", "believed median", "turned back"]
    widths = [0.16, 0.1, 0.11, 0.11, 0.11, 0.19, 0.14, 0.1]
    table = axes.table(
        cells, colLabels=heads, colWidths=widths, loc="upper left", cellLoc="left", colLoc="left", edges="horizontal"
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
