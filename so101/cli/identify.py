"""`./twin identify`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, default_workers, with_options
from so101.cli.progress import make_reporter
from so101.errors import ConfigError

if TYPE_CHECKING:
    from so101.identification import Comparison, Fit

EPILOG = "Example: ./twin identify recordings/my_arm --episodes 0-3 --held-out 4-5 --out my_arm.yaml --plot"

_UNITS = {
    "stiffness_nm_per_rad": "stiffness\nN m/rad",
    "velocity_gain_nm_s_per_rad": "velocity\ngain",
    "delay_s": "delay\nms",
    "friction_nm": "friction\nN m",
    "force_limit_nm": "force lim.\nN m",
    "armature_kg_m2": "armature\nkg m2",
}


@with_options(Settings)
def identify(
    settings: Settings,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="LeRobot recording of a real arm, with the leader's commands.")
    ],
    episodes: Annotated[
        str | None, typer.Option(help="Episodes to fit, as 0-1 or 0,2,5.", show_default="the first half")
    ] = None,
    held_out: Annotated[str | None, typer.Option(help="Episodes to check with.", show_default="all others")] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The rig file to write.")] = Path("rig.yaml"),
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the first held-out episode, as PNG beside the rig file.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads.", show_default="all CPUs")] = None,
) -> None:
    """Fit the twin's servos to a real arm: stiffness, damping, delay, friction, force limit of each joint."""
    from so101 import identification as ident
    from so101.files import write_json
    from so101.identification.comparison import rmse_by_joint

    picture = out.with_suffix(".png") if plot else None
    refuse_outputs({"--out": out, "--json": json, "--plot": picture})
    config = settings.load()
    console = Console()
    recording = ident.read_pieces(folder, config)
    fitted = numbers(episodes, "--episodes", len(recording)) if episodes else list(range(math.ceil(len(recording) / 2)))
    checked = (
        numbers(held_out, "--held-out", len(recording))
        if held_out
        else [i for i in range(len(recording)) if i not in fitted]
    )
    if both := sorted(set(fitted) & set(checked)):
        raise ConfigError(
            f"--held-out {held_out}: episodes {both} are fitted too (--episodes {episodes or 'is the first half'}), so "
            "errors on them say nothing about others; name episodes that are in one of the two only"
        )
    pieces = ident.choose(recording, fitted, "--episodes")
    check_pieces = ident.choose(recording, checked, "--held-out")
    threads = workers or default_workers()
    with make_reporter(console) as reporter:
        fit = ident.fit_servos(config, pieces, workers=threads, reporter=reporter)
    replay, before = ident.ServoReplay(config, threads), ident.servos_of(config)
    max_lag = config.robot.identification.max_lag_frames
    figures = {"fitted": ident.compare(replay, pieces, before, fit.servos, max_lag)}
    if check_pieces:
        figures["held out"] = ident.compare(replay, check_pieces, before, fit.servos, max_lag)
    names = config.robot.joint_names
    console.print(parameter_table(names, fit))
    for label, comparison in figures.items():
        console.print(error_table(label, names, comparison))
    ident.write_rig(
        out, config, fit, recording=folder.resolve().name, episodes=fitted, held_out=checked,
        rmse_deg=rmse_by_joint(names, figures["fitted"], figures.get("held out")),
    )  # fmt: skip
    written = [str(out)]
    if picture is not None:
        shown = (checked or fitted)[0]
        ident.write_plot(picture, replay, recording[shown], before, fit.servos, names)
        written.append(str(picture))
    if json is not None:
        write_json(json, to_json(names, fit, figures, folder.resolve().name, fitted, checked))
        written.append(str(json))
    console.print(f"Written: {', '.join(written)}", soft_wrap=True, markup=False, highlight=False)


def refuse_outputs(files: Mapping[str, Path | None]) -> None:
    """Before minutes of work: the files of the options must be different ones, and no folders.

    Raises:
        ConfigError: they are not.
    """
    taken: dict[Path, str] = {}
    for option, file in files.items():
        if file is None:
            continue
        if file.is_dir():
            raise ConfigError(f"{option}: cannot write {file}, a folder; name a file in it, as {file / 'my_arm.yaml'}")
        if other := taken.get(file.resolve()):
            raise ConfigError(f"{option}: would overwrite {file}, the file of {other}; give --out another name")
        taken[file.resolve()] = option


def numbers(text: str, option: str, count: int) -> list[int]:
    """Whole numbers below `count` from "0-3" or "0,2,5-6".

    Raises:
        ConfigError: it is neither, or there is no such episode.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not (last.isdecimal() and int(first) <= int(last))):
            raise ConfigError(
                f"{option} {text}: {part.strip()!r} is no episode; write numbers and ranges, as 0-3 or 0,2,5"
            )
        if int(last or first) >= count:
            raise ConfigError(f"{option} {text}: no episode {last or first}; the recording has 0 to {count - 1}")
        found += range(int(first), int(last or first) + 1)
    return sorted(set(found))


def parameter_table(names: Sequence[str], fit: Fit) -> Table:
    """Values in use after the fit; * marks those the recording does not tell."""
    table = Table(
        title="Servos; * not told by the recording, kept", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("joint", no_wrap=True)
    for label in _UNITS.values():
        table.add_column(label, justify="right", no_wrap=True)
    for name, servo, told in zip(names, fit.servos, fit.told, strict=True):
        cells = [f"{servo[key] * (1e3 if key == 'delay_s' else 1):.3g}{'' if key in told else '*'}" for key in _UNITS]
        table.add_row(name, *cells)
    return table


def error_table(label: str, names: Sequence[str], figures: Comparison) -> Table:
    """Errors and lags of the joints on one set of episodes, before and after."""
    table = Table(title=f"Against the recording, {label} episodes", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("joint", no_wrap=True)
    for column in ("RMSE deg\nbefore", "\nafter", "lag frames\nreal", "\nbefore", "\nafter"):
        table.add_column(column, justify="right", no_wrap=True)
    for j, name in enumerate(names):
        errors = [f"{value[j]:.2f}" for value in (figures.rmse_before_deg, figures.rmse_after_deg)]
        lags = [f"{lag[j]:.1f}" for lag in (figures.lag_recorded, figures.lag_before, figures.lag_after)]
        table.add_row(name, *errors, *lags)
    return table


def to_json(
    names: Sequence[str],
    fit: Fit,
    figures: dict[str, Comparison],
    recording: str,
    episodes: Sequence[int],
    held_out: Sequence[int],
) -> dict:
    """All figures of one identification."""
    return {
        "recording": recording,
        "episodes": list(episodes),
        "held_out": list(held_out),
        "servos": dict(zip(names, fit.servos, strict=True)),
        "told": dict(zip(names, fit.told, strict=True)),
        "rmse_growth_with_default": {
            name: {key: value if math.isfinite(value) else None for key, value in costs.items()}
            for name, costs in zip(names, fit.cost_of_default, strict=True)
        },
        "figures": {label: comparison.to_json(names) for label, comparison in figures.items()},
    }
