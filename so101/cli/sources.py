"""`./twin sources`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, with_options

if TYPE_CHECKING:
    from so101.config import Config
    from so101.evaluation.source_plots import SourceMotion

EPILOG = "Example: ./twin sources runs/both"


@with_options(Settings)
def sources(
    settings: Settings,
    dataset: Annotated[Path, typer.Argument(metavar="FOLDER", help="A merged dataset, or any LeRobot dataset.")],
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the picture here.", show_default="FOLDER/sources.png")
    ] = None,
    units: Annotated[
        str | None, typer.Option(help="Unit of the joints, where the numbers do not say.", show_default=False)
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
) -> None:
    """Show how the sources of a dataset move, as table and violins, and how often their frames are drawn."""
    from so101.datasets.unit_detection import UNITS
    from so101.errors import ConfigError
    from so101.evaluation.source_plots import source_numbers
    from so101.files import write_json

    if units is not None and units not in UNITS:
        raise ConfigError(f"--units is {units!r}; allowed are {', '.join(UNITS)}")
    found = show_sources(dataset, png or dataset / "sources.png", settings.load(), Console(), units)
    if json is not None:
        write_json(json, source_numbers(found))


def show_sources(
    dataset: Path, png: Path, config: Config, console: Console, units: str | None = None
) -> list[SourceMotion]:
    """Print the table and write the picture; returns what they show.

    Raises:
        DataError: as `so101.evaluation.source_plots.source_motions`.
    """
    from so101.evaluation.source_plots import source_motions, write_sources_png

    found = source_motions(dataset, config, units)
    console.print(_table(found))
    write_sources_png(png, found, f"{dataset.resolve().name}: how its sources move")
    console.print(f"picture: {png}", soft_wrap=True, markup=False, highlight=False)
    return found


def _table(found: list[SourceMotion]) -> Table:
    import numpy as np

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="medians over episodes", caption_justify="left")
    table.add_column("source", overflow="fold")
    table.add_column("kind")
    for column in ("demos", "frames", "drawn", "path\nm", "time\ns", "smooth-\nness", "jaw\nstrokes"):
        table.add_column(column, justify="right", no_wrap=True)
    for source in found:
        path, time, smoothness, strokes = np.median(np.array(source.episodes), axis=0)
        cells = (f"{path:.2f}", f"{time:.1f}", f"{smoothness:.3f}", f"{strokes:.1f}")
        counts = (str(len(source.episodes)), str(source.frames), f"{source.share:.0%}")
        table.add_row(source.name, source.kind, *counts, *cells)
    return table
