"""`./twin deploy-reach`: a reach policy on the arm, and how much of what it can do arrives there."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from so101.cli.options import Settings, with_options
from so101.errors import ConfigError

if TYPE_CHECKING:
    from so101.config import Config
    from so101.control.reach import Policy, Step
    from so101.control.reach_model import ReachModel
    from so101.families.declaration import FamilyTask
    from so101.robot.tick_map import TickMap

_FURTHEST_M = 1.0  # twice the arm's length: a point beyond was meant in mm or cm
EPILOG = "Example: ./twin deploy-reach --sim --arm --target 0.22,0.05,0.18      (without --sim: the real arm)"

_POLICIES = ("learned", "scripted")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAY_S = 0.5


@with_options(Settings)
def deploy_reach(
    settings: Settings,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,Z", help="Point to reach, m in the base frame.", show_default="deploy.reach.target_m"
        ),
    ] = None,
    targets: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Reach so many drawn points one after the other.",
            show_default="--transfer: 50",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the first drawn point.", show_default="deploy.evaluation: 1000000")
    ] = None,
    arm: Annotated[bool, typer.Option("--arm", help="Move the arm. Without it: a dry run, no goal is sent.")] = False,
    sim: Annotated[bool, typer.Option("--sim", help="A simulated arm on a virtual servo bus.")] = False,
    transfer: Annotated[
        bool, typer.Option("--transfer", help="The transfer number, on virtual arms that are not quite the twin.")
    ] = False,
    strength: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0,
            max=10.0,
            help="--transfer: how far they are from the twin; repeatable.",
            show_default="deploy.transfer: 0.5, 1, 2",
        ),
    ] = None,
    policy: Annotated[str, typer.Option(metavar="NAME", help="learned; scripted: least squares.")] = "learned",
    role: Annotated[
        str | None, typer.Option(help="learned: folder of the policy in models/.", show_default="deploy.reach.role")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="For a point.", show_default="deploy.reach: 5")] = None,
    port: Annotated[str | None, typer.Option(help="Serial port.", show_default="robot.bus.port")] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="LeRobot's file.", show_default="robot.bus.calibration")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the files go.", show_default="runs/reach/NAME")
    ] = None,
) -> None:
    """Reach points with the arm by the reach policy. It goes home and lets go at every end."""
    from so101.control.reach_model import ReachModel
    from so101.families.declaration import find_task

    config = settings.load()
    own = config.deploy.reach
    point = _point(target, targets, transfer)
    if (strength or []) and not transfer:
        raise ConfigError("--strength is about the arms of --transfer; add it, or leave --strength out")
    if transfer and (arm or sim or port is not None):
        raise ConfigError("--transfer makes its own virtual arms; leave out --arm, --sim and --port")
    if sim and port is not None:
        raise ConfigError("--sim makes its own port; leave out --port")
    if sim and calibration is not None:
        raise ConfigError("--sim makes its own calibration; leave out --calibration")
    task = find_task(own.task, settings.configs)
    make_policy = _policy(config, policy, role or own.role, task)
    first = config.deploy.evaluation.first_seed if seed is None else seed
    name = policy if policy == "scripted" else role or own.role
    folder = out or Path("runs/reach") / (f"{name}_transfer" if transfer else name)
    if transfer:
        _transfer(
            config, task, make_policy, name, strength or config.deploy.transfer.strengths,
            range(first, first + (targets or config.deploy.transfer.episodes)), seconds or own.seconds, folder,
        )  # fmt: skip
        return
    model = ReachModel(task)
    points = [np.array(own.target_m if point is None else point)]
    if targets is not None:
        points = [model.beginning(first + number)[1] for number in range(targets)]
    with contextlib.ExitStack() as stack:
        if sim:
            port, calibration = stack.enter_context(_virtual_arm(config, task))
        code = _on_arm(
            config, model, make_policy(model), points, seconds or own.seconds, arm=arm, port=port,
            calibration=calibration, folder=folder,
        )  # fmt: skip
    raise typer.Exit(code)


def _on_arm(
    config: Config,
    model: ReachModel,
    policy: Policy,
    points: Sequence[np.ndarray],
    seconds: float,
    *,
    arm: bool,
    port: str | None,
    calibration: Path | None,
    folder: Path,
) -> int:
    """Reach the points with the arm at a port; the exit code.

    Raises:
        RobotError: it is not there, not well, or stopped; `TorqueLeftOn`: it did not get home.
    """
    from proto.stopping import stop_on_signals
    from so101.control.pacing import MonotonicClock
    from so101.control.reach import Reacher, ease_to, run_reach
    from so101.evaluation.reach_figure import write_runs
    from so101.evaluation.reach_transfer import with_looks
    from so101.robot import RobotError, make_driver
    from so101.robot.tick_map import TickMap

    own, clock, runs = config.deploy.reach, MonotonicClock(), []
    config = with_looks(config, own.looks_hz)
    if not arm:
        typer.echo("dry run: no goal is sent to the arm (--arm moves it)")
    with stop_on_signals(_SIGNALS) as stop, make_driver(config, arm=arm, port=port, calibration=calibration) as driver:
        units = driver.calibration.units(config.robot)
        reacher = Reacher(model, TickMap(config.robot, units, own.tick_map), policy, own)
        _tell_map(reacher.tick_map)
        if arm and not stop.is_set():
            driver.arm()
            if own.start_ease_s > 0:
                ease_to(
                    driver, reacher.tick_map.to_joints(model.start), seconds=own.start_ease_s,
                    speed_rad_s=config.robot.safety.return_speed_rad_s, rate_hz=1 / model.control_dt, clock=clock,
                    stopped=stop.is_set,
                )  # fmt: skip
        for target in points:
            if stop.is_set() or (runs and runs[-1].ended_by):
                break
            watch = _tell_steps(model, target, arm)
            run = run_reach(
                driver, reacher, target, seconds=seconds, clock=clock, moves=arm, stopped=stop.is_set, watch=watch
            )
            runs.append(run)
            for line in run.lines(own.within_m, own.throttled_warn, config.robot.joint_names):
                typer.echo(line)
        if arm:
            typer.echo("going home, to be released there")
    if arm:
        typer.echo("released at home")
    if runs:
        for path in write_runs(folder, runs, config):
            typer.echo(str(path))
    if not stop.is_set() and runs and runs[-1].ended_by:
        raise RobotError(f"the arm stopped in the run: {runs[-1].ended_by}")
    return stop.exit_code


def _transfer(
    config: Config,
    task: FamilyTask,
    make_policy: Callable[[ReachModel], Policy],
    name: str,
    strengths: Sequence[float],
    seeds: range,
    seconds: float,
    folder: Path,
) -> None:
    from rich.console import Console

    from so101.cli.progress import make_reporter
    from so101.evaluation.reach_transfer import ReachPoint, in_training, lines, on_rigs, write_points
    from so101.evaluation.transfer import check_apart

    check_apart(config)
    console, own = Console(), config.deploy.reach
    strengths = list(dict.fromkeys(strengths))
    rigs = config.deploy.transfer.rigs
    title = f"{name}, {len(seeds)} targets each, seeds {seeds.start} to {seeds.stop - 1}, {rigs} rigs, {seconds:g} s"
    with make_reporter(console) as reporter:
        points = [ReachPoint(name, None, tuple(in_training(task, make_policy, seeds, seconds)), own.within_m)]
        for each in strengths:
            reporter.start(f"strength {each:g}", len(seeds), unit="targets")
            ended = on_rigs(config, task, make_policy, each, seeds, seconds, reporter.advance)
            points.append(ReachPoint(name, each, tuple(ended), own.within_m))
            write_points(folder, points, title)
    for line in (*lines(points), f"{folder / 'reach_transfer.png'}, reach_transfer.csv, reach_transfer.json"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _policy(config: Config, kind: str, role: str, task: FamilyTask) -> Callable[[ReachModel], Policy]:
    """How the policy is made; a trained one is loaded at once, so that what is wrong with it is told first."""
    from so101.errors import did_you_mean

    if kind not in _POLICIES:
        known = f"policies: {', '.join(_POLICIES)}{did_you_mean(kind, _POLICIES)}"
        raise ConfigError(f"--policy {kind}: no such policy; {known}")
    if kind == "scripted":
        from so101.control.reach_scripted import ScriptedReach

        return ScriptedReach
    from so101.learning.rl import load_policy

    learned = load_policy(Path(config.deploy.server.models_dir) / role)
    if learned.task != task.name:
        raise ConfigError(
            f"the policy in {config.deploy.server.models_dir}/{role} was trained on {learned.task}, deploy.reach.task "
            f"is {task.name}; give the role of a policy of that task, or train one: ./twin rl {task.name} --role NAME"
        )
    return lambda model: learned


def _point(target: str | None, targets: int | None, transfer: bool) -> tuple[float, float, float] | None:
    if target is None:
        return None
    if targets is not None or transfer:
        raise ConfigError("--target is one point; leave it out where points are drawn (--targets, --transfer)")
    try:
        x, y, z = (float(part) for part in target.split(","))
    except ValueError:
        x = y = z = float("nan")
    if not np.isfinite([x, y, z]).all():
        raise ConfigError(f"--target {target}: write it as X,Y,Z in m, for example 0.22,0,0.18")
    if np.linalg.norm([x, y, z]) > _FURTHEST_M:
        raise ConfigError(
            f"--target {target}: {np.linalg.norm([x, y, z]):g} m from the base, no arm reaches so far; write it in "
            "metres, for example 0.22,0,0.18"
        )
    return x, y, z


@contextlib.contextmanager
def _virtual_arm(config: Config, task: FamilyTask) -> Iterator[tuple[str, Path]]:
    """Port and calibration of a simulated arm that moves in real time."""
    import tempfile

    from so101.evaluation.reach_transfer import bare_arm
    from so101.robot.virtual import VirtualBus
    from so101.robot.virtual.twin_plant import TwinPlant

    bare = bare_arm(config, task)
    with tempfile.TemporaryDirectory(prefix="so101-reach-") as made, VirtualBus(bare, plant=TwinPlant(bare)) as bus:
        file = Path(made) / "arm.json"
        bus.calibration.write(file)
        yield bus.port, file


def _tell_map(tick_map: TickMap) -> None:
    for text in tick_map.departures():
        typer.echo(f"  tick map: {text}")
    for each in tick_map.range_report():
        typer.echo(f"  {each.text()}")


def _tell_steps(model: ReachModel, target: np.ndarray, moves: bool) -> Callable[[Step, int], None]:
    every = max(1, round(_SAY_S / model.control_dt))
    due = 0

    def tell(step: Step, index: int) -> None:
        nonlocal due
        if index < due:
            return
        due = index + every
        far_mm = 1000 * np.linalg.norm(step.point - target)
        goal = " ".join(f"{value:7.1f}" for value in np.degrees(step.goal))
        typer.echo(
            f"  {index * model.control_dt:4.1f} s  {far_mm:6.1f} mm  {'goal' if moves else 'would send'} [deg] {goal}"
        )

    return tell
