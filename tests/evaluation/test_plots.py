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


def figures(name: str = "f") -> dict[str, str]:
    return {
        "violins": plots.violins(SAMPLES, "Duration", "s", f"{name}1"),
        "scatter": plots.start_scatter(X, Y, SUCCESS, (-4, 4), (-1, 1), "vial <&> co", "cm", f"{name}2"),
        "rates": plots.start_rates(TRIES, TRIES // 2, (-4, 4), (-1, 1), "rates", "cm", f"{name}3"),
        "bars": plots.heading_bars(TRIES[0], TRIES[0] // 2, (-17, 17), "headings", f"{name}4"),
    }


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


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
def test_violins_of_degenerate_samples(values):
    parse(plots.violins({"seeds": values, "verified": []}, "Duration", "s", "v"))


def test_scatter_of_nothing_and_of_one():
    none = np.zeros(0)
    parse(plots.start_scatter(none, none, none.astype(bool), (0, 0), (-1, 1), "none", "cm", "s"))
    parse(plots.start_scatter(X[:1], Y[:1], SUCCESS[:1], (-4, 4), (-1, 1), "one", "cm", "s"))


def test_rates_write_successes_and_attempts_into_their_cell():
    tries = np.array([[0, 3], [7, 11]])
    svg = plots.start_rates(tries, np.array([[0, 1], [0, 11]]), (0, 0), (-1, 1), "t", "cm", "r")
    for text in (">–<", ">1/3<", ">0/7<", ">11/11<"):
        assert text in svg
    assert "3 of 4 cells were tried" in svg
