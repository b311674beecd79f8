"""Figures of the report: matplotlib to SVG text for inlining in a page.

Colours are placeholders while matplotlib draws and CSS variables afterwards, so that one figure suits a light and a
dark page. Text stays text. Equal data gives equal bytes: no dates, a fixed hash salt, ids prefixed with the figure's
name.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape

import matplotlib

matplotlib.use("Agg")

import numpy as np  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

# placeholder -> CSS custom property that the page defines for both colour schemes
_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--muted)",
    "#030303": "var(--line)",
    "#040404": "var(--good)",
    "#050505": "var(--bad)",
    "#060606": "var(--seeds)",
    "#070707": "var(--generated)",
    "#080808": "var(--verified)",
}
INK, MUTED, LINE, GOOD, BAD, SEEDS, GENERATED, VERIFIED = _COLOURS
SOURCE_COLOURS = {"seeds": SEEDS, "generated": GENERATED, "verified": VERIFIED}

STYLE = {
    "svg.fonttype": "none",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "text.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
}
SIZE_IN, _SMALL_IN = (3.7, 2.9), (2.9, 2.6)  # three or four abreast on a desktop, one on a phone
_LABEL_PT, _SMALLEST_PT, _LABELLED_CELLS = 7.5, 4.0, 6  # labels of cells shrink beyond this many across
_JITTER_SEED = 0
_FEW = 8  # below this many values a violin would invent a shape: the values are drawn instead


def svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an inline `<svg>` element that fills the width of its parent."""
    buffer = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    box = re.search(r'viewBox="[^"]+"', text).group()
    text = f'<svg {box} role="img" aria-label="{escape(description)}">' + text[text.index(">") + 1 :]
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 var(--font)", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    for placeholder, variable in _COLOURS.items():
        text = text.replace(placeholder, variable)
    return text


def new_axes(title: str, size_in: tuple[float, float] = SIZE_IN) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size_in, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, pad=8)
    axes.tick_params(length=0)
    axes.locator_params(nbins=5)
    return figure, axes


def violins(samples: Mapping[str, Sequence[float]], title: str, unit: str, name: str) -> str:
    """Distribution of one statistic by source: violins with median and quartiles, points where there are few values.

    Args:
        samples: source -> values; sources without values keep their place on the axis, marked "none".
        title, unit: of the statistic.
        name: unique on the page, letters and digits.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(f"{title} [{unit}]" if unit else title, _SMALL_IN)
        axes.grid(visible=False, axis="x")
        for place, (source, values) in enumerate(samples.items()):
            array = np.asarray(values, float)
            colour = SOURCE_COLOURS.get(source, MUTED)
            if not array.size:
                across = axes.get_xaxis_transform()  # x in data, y as a share of the height
                axes.text(place, 0.5, "none", ha="center", color=MUTED, transform=across, style="italic")
                continue
            draw_violin(axes, place, array, colour, INK)
        axes.set_xticks(range(len(samples)), [f"{source}\nn = {len(values)}" for source, values in samples.items()])
        axes.set_xlim(-0.6, len(samples) - 0.4)
        highest = max((max(values) for values in samples.values() if len(values)), default=0.0)
        axes.set_ylim(0, 1.08 * highest if highest > 0 else 1.0)
    text = "; ".join(f"{source} median {np.median(v):.3g}" for source, v in samples.items() if len(v))
    return svg(figure, name, f"{title} by source: {text or 'no data'}")


def draw_violin(axes: Axes, place: float, values: np.ndarray, colour: str, ink: str) -> None:
    """One violin of (N,) values with median and quartiles at `place` on the x axis; few values as points."""
    if values.size < _FEW or np.ptp(values) == 0:
        jitter = np.random.default_rng(_JITTER_SEED).uniform(-0.08, 0.08, values.size)
        axes.plot(place + jitter, values, "o", color=colour, markersize=4, markeredgewidth=0)
    else:
        body = axes.violinplot([values], [place], widths=0.75, showextrema=False)["bodies"][0]
        body.set(facecolor=colour, edgecolor=colour, alpha=None, linewidth=1)
        body.set_facecolor((*matplotlib.colors.to_rgb(colour), 0.35))
        low, high = np.percentile(values, [25, 75])
        axes.plot([place, place], [low, high], color=colour, linewidth=4, solid_capstyle="butt")
    median = float(np.median(values))
    axes.plot([place - 0.14, place + 0.14], [median, median], color=ink, linewidth=1.4)


def start_scatter(
    x: np.ndarray,
    y: np.ndarray,
    success: np.ndarray,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    title: str,
    unit: str,
    name: str,
) -> str:
    """Start positions (N,) of one object with their outcome, and the configured ranges as a dashed box."""
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(title)
        size = float(np.clip(60 / np.sqrt(max(len(x), 1)), 2.0, 6.0))
        axes.plot(x[success], y[success], "o", color=GOOD, markersize=size, markeredgewidth=0)
        axes.plot(x[~success], y[~success], "x", color=BAD, markersize=size + 1, markeredgewidth=1.2)
        _range_box(axes, x_range, y_range)
        axes.set(xlabel=f"x [{unit}]", ylabel=f"y [{unit}]")
        axes.margins(0.08)
    return svg(figure, name, f"{title}: {int(success.sum())} successes, {int((~success).sum())} others")


def start_rates(
    tries: np.ndarray,
    successes: np.ndarray,
    x_edges: np.ndarray,
    y_edges: np.ndarray,
    low_share: float,
    title: str,
    unit: str,
    name: str,
) -> str:
    """Success share per start cell: `tries` and `successes` (NX, NY) between edges (NX + 1,) and (NY + 1,). A cell
    shows successes/tries; with a share under `low_share` it has the colour of failure, untried ones have none."""
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(title)
        axes.grid(visible=False)
        x_edges, y_edges = _widened(x_edges), _widened(y_edges)
        size = float(np.clip(_LABEL_PT * _LABELLED_CELLS / tries.shape[0], _SMALLEST_PT, _LABEL_PT))
        for i, j in np.ndindex(tries.shape):
            width, height = x_edges[i + 1] - x_edges[i], y_edges[j + 1] - y_edges[j]
            share = successes[i, j] / tries[i, j] if tries[i, j] else 1.0
            low = share < low_share
            tint = BAD if low else GOOD
            alpha = 0.55 * (1.0 - share) if low else 0.65 * share
            face = (*matplotlib.colors.to_rgb(tint), alpha) if tries[i, j] else "none"
            axes.add_patch(
                Rectangle((x_edges[i], y_edges[j]), width, height, facecolor=face, edgecolor=LINE, linewidth=0.8)
            )
            label = f"{successes[i, j]}/{tries[i, j]}" if tries[i, j] else "–"
            axes.text(
                x_edges[i] + width / 2,
                y_edges[j] + height / 2,
                label,
                ha="center",
                va="center",
                fontsize=size,
                color=INK if tries[i, j] else MUTED,
            )
        axes.set_xlim(x_edges[0], x_edges[-1])
        axes.set_ylim(y_edges[0], y_edges[-1])
        axes.set(xlabel=f"x [{unit}]", ylabel=f"y [{unit}]")
    reached = int((tries > 0).sum())
    return svg(figure, name, f"{title}: {reached} of {tries.size} cells were tried")


def heading_bars(tries: np.ndarray, successes: np.ndarray, edges: np.ndarray, title: str, name: str) -> str:
    """Attempts per start heading (N,) between `edges` (N + 1,) deg, split into strict successes and others."""
    with matplotlib.rc_context(STYLE):
        figure, axes = new_axes(title)
        axes.grid(visible=False, axis="x")
        centers, width = (edges[:-1] + edges[1:]) / 2, 0.86 * np.diff(edges)
        axes.bar(centers, successes, width, color=GOOD)
        axes.bar(centers, tries - successes, width, bottom=successes, color=BAD)
        axes.set(xlabel="heading from nominal [deg]", ylabel="attempts")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, max(1, tries.max(initial=0)) * 1.05)
        axes.yaxis.get_major_locator().set_params(integer=True)
    return svg(figure, name, f"{title}: attempts per bin {tries.tolist()}, strict successes {successes.tolist()}")


def _widened(edges: np.ndarray) -> np.ndarray:
    """Edges of one cell without width made drawable."""
    return edges if edges[-1] > edges[0] else np.array([edges[0] - 0.5, edges[0] + 0.5])


def _range_box(axes: Axes, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
    axes.add_patch(
        Rectangle(
            (x_range[0], y_range[0]),
            x_range[1] - x_range[0],
            y_range[1] - y_range[0],
            fill=False,
            edgecolor=MUTED,
            linewidth=1,
            linestyle=(0, (4, 3)),
        )
    )
