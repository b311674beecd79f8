"""`./twin compare`: runs side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, with_options
from so101.errors import ConfigError

if TYPE_CHECKING:
    from so101.evaluation.comparison import Compared, Pair

EPILOG = "Example: ./twin compare runs/eval/policy_50 runs/eval/policy_400 --out runs/compare/demos"

_SHOWN = 25  # settings that differ
_WIDEST = 28  # characters of a setting's value
_TOLD_OTHERWISE = ("system/", "strict_", "geometric_low", "geometric_high", "episodes")
_FIGURES = {  # heading -> (first words of the figures' names, factor, format); in the order of the table
    "stages, % of the episodes": (("stage/",), 100, ".1f"),
    "failures ended at, %": (("failed_at/",), 100, ".1f"),
    "time, latency": (("time_to_success_s/", "latency_ms/", "server/"), 1, ".2f"),
    "FRAME, medians": (("frame/", "reference/"), 1, ".4g"),
    "joints, medians": (("mse/", "mse_share/", "lag_ms/"), 1, ".3g"),
    "diagnoses, % of the rollouts": (("diagnosis/",), 100, ".1f"),
}


@with_options(Settings)
def compare(
    settings: Settings,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders of ./twin eval, of models, or ids or names of MLflow runs."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Picture and JSON go here.")] = Path("runs/compare"),
) -> None:
    """Put runs side by side: success and its differences with intervals, stages, times, metrics, settings, losses."""
    from so101.evaluation.compared_runs import find_run
    from so101.evaluation.comparison import differing_params, pairs, unique_names
    from so101.evaluation.comparison_figure import comparison_figure
    from so101.files import atomic_path, write_json

    if len(runs) < 2:
        raise ConfigError(f"compare {runs[0]}: one run alone cannot be compared; name two or more")
    config, console = settings.load(), Console()
    confidence = config.dataset.report.confidence
    found = unique_names([find_run(run, config) for run in runs])
    compared, differing = pairs(found, confidence), differing_params(found)
    console.print(_figures_table(found, confidence))
    for pair in compared:
        console.print(pair_text(pair, confidence), soft_wrap=True, markup=False, highlight=False)
    if differing:
        console.print(_settings_table(found, differing))
    with atomic_path(out / "comparison.png") as temporary:
        comparison_figure(found, confidence).savefig(temporary, dpi=110, metadata={"Software": None})
    write_json(
        out / "comparison.json",
        {
            "runs": [
                {
                    "name": run.name,
                    "source": run.source,
                    "success": run.success,
                    "metrics": {key: value if math.isfinite(value) else None for key, value in run.metrics.items()},
                    "params": run.params,
                }
                for run in found
            ],
            "pairs": [pair._asdict() for pair in compared],
            "confidence": confidence,
        },
    )
    console.print(f"Written: {out / 'comparison.png'}, {out / 'comparison.json'}", soft_wrap=True, markup=False)


def _figures_table(runs: Sequence[Compared], confidence: float) -> Table:
    from so101.evaluation.statistics import wilson_interval

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold")
    for run in runs:
        table.add_column(run.name, justify="right", overflow="fold")
    if any(run.success for run in runs):
        cells = []
        for run in runs:
            if run.success is None:
                cells.append("")
                continue
            k, n = run.success
            low, high = wilson_interval(k, n, confidence)
            cells.append(f"{k}/{n} = {k / max(n, 1):.1%}\n{100 * low:.1f} to {100 * high:.1f}")
        table.add_row(f"strict success\nWilson {confidence:.0%}, %", *cells)
        table.add_section()
    shown: set[str] = set()
    for heading, (beginnings, factor, form) in _FIGURES.items():
        keys = [key for key in _keys(runs) if key.startswith(beginnings)]
        shown |= set(keys)
        _add_rows(table, heading, runs, keys, factor, form)
    rest = [key for key in _keys(runs) if key not in shown and not key.startswith(_TOLD_OTHERWISE)]
    _add_rows(table, "others, last", runs, rest, 1, ".4g")
    return table


def _keys(runs: Sequence[Compared]) -> list[str]:
    """Figures of all runs, stages in their order."""
    from so101.evaluation.closed_loop.stages import STAGES

    keys = dict.fromkeys(key for run in runs for key in run.metrics)
    place = {stage: i for i, stage in enumerate(STAGES)}
    return sorted(keys, key=lambda key: place.get(key.rpartition("/")[2], -1))  # those of one place stay as they are


def _add_rows(
    table: Table, heading: str, runs: Sequence[Compared], keys: Sequence[str], factor: float, form: str
) -> None:
    if not keys:
        return
    table.add_row(f"[bold]{heading}[/]")
    for key in keys:
        values = [run.metrics.get(key) for run in runs]
        table.add_row(f"  {key}", *("" if value is None else format(factor * value, form) for value in values))
    table.add_section()


def _settings_table(runs: Sequence[Compared], differing: dict[str, list[str]]) -> Table:
    more = f", {_SHOWN} of {len(differing)}" if len(differing) > _SHOWN else ""
    table = Table(title=f"Settings that differ{more}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("setting", overflow="fold")
    for run in runs:
        table.add_column(run.name, overflow="fold")
    for key, values in list(differing.items())[:_SHOWN]:
        table.add_row(key, *(value if len(value) <= _WIDEST else f"{value[: _WIDEST - 3]}..." for value in values))
    return table


def pair_text(pair: Pair, confidence: float) -> str:
    """One difference for people."""
    value, low, high = (100 * part for part in pair.difference)
    told = "it holds 0: these runs do not tell them apart" if low <= 0 <= high else "clear of 0"
    text = (
        f"{pair.first} - {pair.second}: {value:+.1f} points of strict success "
        f"(Newcombe {confidence:.0%}: {low:+.1f} to {high:+.1f}, {told})"
    )
    if pair.p_value is None:
        return text
    return (
        f"{text}; on the same seeds {pair.only_first} were done by {pair.first} alone, {pair.only_second} by "
        f"{pair.second} alone (exact sign test p = {pair.p_value:.3g})"
    )
