"""Pictures of the workspace maps: inline SVG in the colours of the page, or files of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from scipy import ndimage

from so101.evaluation import plots
from so101.evaluation.style import CSS
from so101.evaluation.workspace import HeightSlice, Workspace

_CM = 100.0
_SIZE_IN = (3.7, 4.6)  # the table's short side is across
_TINTS = 12  # steps of opacity, up to the strongest
_STRONGEST = 0.7
_SMALLEST_LABELLED = 6  # cells; smaller regions have no name in the picture
_SLICE_COLOURS = (plots.BAD, plots.SEEDS, plots.GENERATED, plots.GOOD)


def pictures(maps: Workspace) -> dict[str, str]:
    """name -> inline `<svg>` of every map."""
    table = maps.table
    yaw_pct = np.rint(100 * table.yaw_share).astype(int)
    joint = np.where(table.reached, table.nearest_joint, -1)
    steepest, flattest = (np.where(table.reached, each, -1) for each in _dip_ends(maps))
    ends = np.where(table.reached, 1000 * flattest + steepest, -1).astype(int)  # both in one number: a region each
    roomiest = float(np.nanmax(table.margin, initial=0.0))
    widest = np.ptp(table.dips_deg) or 1.0
    return {
        "yaws": _table_picture(
            maps,
            table.yaw_share,
            np.where(table.reached, yaw_pct, -1),
            lambda pct: f"{pct} %",
            "Yaws of an object that are served",
            "yaws",
        ),
        "approaches": _table_picture(
            maps,
            (1.0 + (steepest - flattest) / widest) / 2,
            ends,
            lambda both: f"{both // 1000}°" if both // 1000 == both % 1000 else f"{both // 1000}–{both % 1000}°",
            "Approaches below the horizontal",
            "approaches",
        ),
        "limits": _table_picture(
            maps,
            np.nan_to_num(table.margin / (roomiest or 1.0)),
            joint,
            lambda index: maps.joints[index].replace("_", "\n"),
            f"Room to the nearest joint limit, up to {100 * roomiest:.0f} %",
            "limits",
        ),
        "slice": _slice_picture(maps.slice, table.height_m, maps.slice_dips_deg),
    }


def standalone(svg: str) -> str:
    """An inline picture as the text of a file: the page's light colours, on white."""
    light = dict(re.findall(r"--([a-z]+): ([^;]+);", CSS.partition("@media")[0]))
    text = re.sub(r"var\(--([a-z]+)\)", lambda found: light[found.group(1)].replace('"', "'"), svg)
    return text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" style="background: #fff" ', 1) + "\n"


def _dip_ends(maps: Workspace) -> tuple[np.ndarray, np.ndarray]:
    """(NX, NY) steepest and flattest dip served, deg; nonsense out of reach."""
    dips, served = maps.table.dips_deg, maps.table.dips_served
    return np.where(served, dips, -np.inf).max(-1), np.where(served, dips, np.inf).min(-1)


def _table_picture(
    maps: Workspace, tint: np.ndarray, regions: np.ndarray, label: Callable[[int], str], title: str, name: str
) -> str:
    """The table from above: `tint` (NX, NY) in [0, 1] as opacity, cells of one `regions` number (NX, NY; -1 out of
    reach) enclosed by a line and labelled, start areas and the arm's pan axis drawn in."""
    table = maps.table
    x, y = table.x_edges * _CM, table.y_edges * _CM
    with matplotlib.rc_context(plots.STYLE):
        figure, axes = plots.new_axes(title, _SIZE_IN)
        axes.grid(visible=False)
        axes.add_patch(Rectangle((x[0], y[0]), x[-1] - x[0], y[-1] - y[0], facecolor="none", edgecolor=plots.LINE))
        _fill(axes, x, y, np.where(regions >= 0, tint, 0.0), plots.GOOD)
        _outline(axes, x, y, regions, plots.MUTED, 0.7)
        taken = []
        for area in maps.areas:
            (x0, x1), (y0, y1) = (tuple(_CM * end for end in ends) for ends in (area.x_m, area.y_m))
            colour = plots.BAD if area.moved else plots.MUTED
            style = {"edgecolor": colour, "linewidth": 1.2, "linestyle": (0, (4, 2)), "fill": False}
            axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, **style))
            axes.text(x1, y1, area.name, va="bottom", ha="right", fontsize=7.5, color=colour)
            taken.append((x1, y1))
        for region, at in _label_places(regions, _middles(x), _middles(y), taken):
            axes.text(*at, label(region), ha="center", va="center", fontsize=6.5, color=plots.INK)
        axes.plot(*(maps.pan_axis_m * _CM), "o", color=plots.INK, markersize=5)
        axes.annotate("arm", maps.pan_axis_m * _CM, (5, 5), textcoords="offset points", fontsize=7.5)
        axes.set(xlabel="x [cm]", ylabel="y [cm]", aspect="equal")
        axes.set_xlim(min(x[0], maps.pan_axis_m[0] * _CM) - 3, x[-1] + 1)
        axes.set_ylim(y[0] - 1, y[-1] + 1)
    return plots.svg(figure, name, f"{title}: {100 * table.reached.mean():.0f} % of the table is reached")


def _slice_picture(heights: HeightSlice, grasp_height_m: float, dips_deg: Sequence[float]) -> str:
    """Distance and height at which each of `dips_deg` is within the joint limits, one outline each."""
    r, z = heights.radius_edges * _CM, heights.height_edges * _CM
    with matplotlib.rc_context(plots.STYLE):
        figure, axes = plots.new_axes("Approaches by height", _SIZE_IN)
        for dip, colour in zip(dips_deg, _SLICE_COLOURS, strict=False):
            served = heights.serves(dip)
            _fill(axes, r, z, 0.15 * served, colour)
            _outline(axes, r, z, served.astype(int) - 1, colour, 1.3)
            axes.plot([], [], color=colour, label=f"{dip:g}° down")
        axes.axhline(grasp_height_m * _CM, color=plots.INK, linewidth=1, linestyle=(0, (4, 3)), label="grasp height")
        axes.set(xlabel="distance from the pan axis [cm]", ylabel="height over the base [cm]", aspect="equal")
        axes.set_xlim(0, r[-1])
        axes.set_ylim(z[0], z[-1])
        figure.legend(loc="outside lower center", ncols=3, fontsize=7.5, frameon=False)
    reached = float(np.isfinite(heights.dip_low_deg).mean())
    return plots.svg(figure, "slice", f"Approaches by distance and height: {100 * reached:.0f} % of the cells reached")


def _fill(axes: Axes, x: np.ndarray, y: np.ndarray, tint: np.ndarray, colour: str) -> None:
    """Cells (NX, NY) with `tint` in [0, 1] as opacity; equal neighbours along y are one rectangle."""
    steps = np.rint(np.clip(tint, 0, 1) * _TINTS).astype(int)
    for i, column in enumerate(steps):
        ends = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
        for start, stop in zip(ends, ends[1:], strict=False):
            if column[start]:
                face = (*matplotlib.colors.to_rgb(colour), _STRONGEST * column[start] / _TINTS)
                box = (x[i], y[start]), x[i + 1] - x[i], y[stop] - y[start]
                axes.add_patch(Rectangle(*box, facecolor=face, edgecolor="none", antialiased=False))


def _outline(axes: Axes, x: np.ndarray, y: np.ndarray, regions: np.ndarray, colour: str, width: float) -> None:
    """A line along every edge between cells of different regions, (NX, NY); one path."""
    framed = np.pad(regions, 1, constant_values=-1)
    xs, ys = [], []
    for i, j in np.argwhere(framed[:-1, 1:-1] != framed[1:, 1:-1]):
        xs += [x[i], x[i], np.nan]
        ys += [y[j], y[j + 1], np.nan]
    for i, j in np.argwhere(framed[1:-1, :-1] != framed[1:-1, 1:]):
        xs += [x[i], x[i + 1], np.nan]
        ys += [y[j], y[j], np.nan]
    axes.plot(xs, ys, color=colour, linewidth=width, solid_capstyle="round")


def _label_places(
    regions: np.ndarray, x: np.ndarray, y: np.ndarray, taken: Sequence[tuple[float, float]]
) -> Iterator[tuple[int, tuple[float, float]]]:
    """(region, place) of every connected region with room for a label: as deep inside as it goes, and there as far as
    can be from the places taken. `x` (NX,) and `y` (NY,) are the middles of the cells."""
    taken = list(taken)
    for region in np.unique(regions[regions >= 0]):
        pieces, count = ndimage.label(regions == region)
        for piece in range(1, count + 1):
            inside = pieces == piece
            if inside.sum() < _SMALLEST_LABELLED:
                continue
            depth = ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
            columns, rows = np.nonzero(depth > depth.max() - 0.5)
            away = [
                min((np.hypot(x[i] - a, y[j] - b) for a, b in taken), default=0.0)
                for i, j in zip(columns, rows, strict=True)
            ]
            best = int(np.argmax(away))
            taken.append((float(x[columns[best]]), float(y[rows[best]])))
            yield int(region), taken[-1]


def _middles(edges: np.ndarray) -> np.ndarray:
    return (edges[:-1] + edges[1:]) / 2
