"""What all stage subcommands do: load the configuration, run the stage in its folder, say what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from so101.cli.options import Common
from so101.cli.progress import make_reporter
from so101.pipeline.progress import StageResult


def run_one_stage(name: str, common: Common, *, source: Path | None = None) -> None:
    """Run stage `name` and print its result.

    Raises:
        So101Error: as `so101.pipeline.flow.run_stage`.
    """
    from so101.pipeline.flow import run_stage

    console = Console()
    config = common.load_for_run(console, source=source, makes_seeds=name == "seeds")
    with make_reporter(console) as reporter:
        result = run_stage(
            name,
            config,
            common.run_folder,
            reporter=reporter,
            workers=common.worker_count,
            source=source,
            fresh=common.fresh,
        )
    print_result(console, result)


def print_result(console: Console, result: StageResult) -> None:
    """One line: what was produced and the short values of the summary."""
    parts = [f"{result.stage}: {result.produced} in the folder"]
    parts += [f"{key} {text}" for key, value in result.summary.items() if (text := _short(value))]
    console.print("; ".join(parts), soft_wrap=True, markup=False, highlight=False)


def _short(value: Any) -> str:
    """Scalars and mappings of scalars as text; anything longer is in the report."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, dict) and value and all(isinstance(v, (int, float, str)) for v in value.values()):
        return "(" + ", ".join(f"{key} {_short(v)}" for key, v in value.items()) + ")"
    return ""
