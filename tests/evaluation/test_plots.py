"""Figures: valid, repeatable SVG that takes its colours from the page, whatever the data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from so101.evaluation import plots

RNG = np.random.default_rng(0)
SAMPLES = {"seeds": [1.0, 2.0, 1.5], "generated": RNG.normal(2, 0.3, 60).tolist(), "verified": []}
X, Y, SUCCESS = RNG.uniform(-4, 4, 50), RNG.uniform(-1, 1, 50), RNG.random(50) < 0.7
TRIES = RNG.integers(0, 5, (5, 5))
EDGES = np.linspace(-4, 4, 6), np.linspace(-1, 1, 6)


def figures(name: str = "f") -> dict[str, str]:
    return {
        "violins": plots.violins(SAMPLES, "Duration", "s", f"{name}1"),
        "scatter": plots.start_scatter(X, Y, SUCCESS, (-4, 4), (-1, 1), "vial <&> co", "cm", f"{name}2"),
        "rates": plots.start_rates(TRIES, TRIES // 2, *EDGES, 0.2, "rates", "cm", f"{name}3"),
        "bars": plots.heading_bars(TRIES[0], TRIES[0] // 2, np.linspace(-17, 17, 6), "headings", f"{name}4"),
    }


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def marks(svg: str, colour: str) -> list[str]:
    """Points of a colour: matplotlib draws each as a use of one shape."""
    return re.findall(rf"<use [^>]*(?:fill|stroke): var\(--{colour}\)[^>]*/>", svg)


def bar_heights(svg: str, colour: str) -> list[float]:
    """Heights, px, of the rectangles of a colour."""
    paths = re.findall(rf'<path d="([^"]+)"[^>]*fill: var\(--{colour}\)', svg)
    return [float(np.ptp([float(y) for y in re.findall(r"[ML] \S+ (\S+)", path)])) for path in paths]


@pytest.mark.parametrize("kind", ["violins", "scatter", "rates", "bars"])
def test_figure_is_inline_svg_in_page_colours(kind):
    svg = figures()[kind]
    root = parse(svg)
    assert root.tag == "svg" and root.get("role") == "img" and root.get("aria-label")
    assert "width" not in root.attrib  # it takes the width of its place
    assert "var(--" in svg and not re.search(r"#(0\d)\1\1", svg)
    assert "#000000" not in svg and "DejaVu" not in svg


def test_equal_data_gives_equal_bytes():
    assert figures() == figures()


def test_ids_do_not_collide_and_references_resolve():
    ids = []
    for svg in figures().values():
        own = re.findall(r'\bid="([^"]+)"', svg)
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg)) <= set(own)
        ids += own
    assert len(ids) == len(set(ids))


def test_text_of_titles_is_escaped():
    assert "vial &lt;&amp;&gt; co" in figures()["scatter"]


def test_violins_mark_what_has_not_run():
    svg = plots.violins({"seeds": [], "generated": [], "verified": []}, "Duration", "s", "v")
    assert svg.count(">none<") == 3
    assert "no data" in parse(svg).get("aria-label")


@pytest.mark.parametrize("values", [[2.0], [2.0] * 50, [0.0] * 3, [1.0, 1.0 + 1e-9] * 10])
def test_violins_of_degenerate_samples_are_points(values):
    """A violin of values that do not spread would divide by zero: as many dots as values, and the median is said."""
    svg = plots.violins({"seeds": values, "verified": []}, "Duration", "s", "v")
    assert "nan" not in svg and f"seeds median {np.median(values):.3g}" in parse(svg).get("aria-label")
    if np.ptp(values) == 0:
        assert len(marks(svg, "seeds")) == len(values)


@pytest.mark.parametrize("n", [0, 1, 50])
def test_scatter_has_a_mark_for_every_start(n):
    x, y, success = X[:n], Y[:n], SUCCESS[:n]
    svg = plots.start_scatter(x, y, success, (-4, 4), (-1, 1), "t", "cm", "s")
    assert (len(marks(svg, "good")), len(marks(svg, "bad"))) == (success.sum(), (~success).sum())


@pytest.mark.parametrize("successes", [[0, 3, 0, 5], [0, 0, 0, 0]])
def test_bars_are_as_high_as_their_counts(successes):
    tries = np.array([0, 4, 2, 5])
    svg = plots.heading_bars(tries, np.array(successes), np.linspace(-10, 10, 5), "t", "b")
    heights = [bar_heights(svg, "good"), bar_heights(svg, "bad")]
    scale = max(h + g for h, g in zip(*heights, strict=True)) / 5
    assert np.array(heights[0]) / scale == pytest.approx(successes, abs=1e-3)
    assert np.array(heights[1]) / scale == pytest.approx(tries - successes, abs=1e-3)


def test_rates_write_successes_and_attempts_into_their_cell():
    tries = np.array([[0, 3], [7, 11]])
    edges = np.arange(3), np.linspace(-1, 1, 3)
    svg = plots.start_rates(tries, np.array([[0, 1], [0, 11]]), *edges, 0.2, "t", "cm", "r")
    for text in (">–<", ">1/3<", ">0/7<", ">11/11<"):
        assert text in svg
    assert "3 of 4 cells were tried" in svg


@pytest.mark.parametrize(("low_share", "failing"), [(0.0, 0), (0.2, 1), (0.5, 2)])
def test_rates_mark_cells_below_the_share(low_share, failing):
    svg = plots.start_rates(
        np.array([[0, 3], [7, 11]]), np.array([[0, 1], [0, 11]]), np.arange(3), np.arange(3), low_share, "t", "cm", "r"
    )
    assert len(re.findall(r"fill: var\(--bad\)", svg)) == failing
