"""How sources move: numbers of known motions, one source or several, and a picture of them."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

from so101.datasets.merge_options import SourceSpec
from so101.errors import DataError
from so101.evaluation.source_plots import (
    EpisodeMotion,
    SourceMotion,
    source_figure,
    source_motions,
    source_numbers,
    write_sources_png,
)
from tests.datasets.merging import copy_of, make_source, merge, rewrite_column, small_config


@pytest.fixture(scope="module")
def config():
    return small_config()


@pytest.fixture(scope="module")
def sim(config, tmp_path_factory):
    return make_source(tmp_path_factory.mktemp("sim"), config, (24, 17))


@pytest.fixture(scope="module")
def both(config, sim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    other = copy_of(make_source(folder / "run", config, (20, 28, 31), first=50), folder / "real")
    specs = SourceSpec(sim, 3.0, "sim"), SourceSpec(other, 1.0, "real")
    merge(config, folder / "out", *specs, units={"real": "degrees"}, kinds={"real": "real"})
    return folder / "out"


def test_sources_keep_their_episodes_and_shares(config, both):
    sim, real = source_motions(both, config)
    assert [source[:5] for source in (sim, real)] == [("sim", "sim", 3.0, 0.75, 41), ("real", "real", 1.0, 0.25, 79)]
    assert [round(e.duration_s * 30) for e in (*sim.episodes, *real.episodes)] == [24, 17, 20, 28, 31]
    told = small_config("training.mix.weights={real: 9}")
    assert [source.share for source in source_motions(both, told)] == [0.25, 0.75]


def test_a_dataset_of_one_source_is_one_source(config, sim):
    (source,) = source_motions(sim, config)
    assert (source.kind, source.share, len(source.episodes)) == ("", 1.0, 2)


def test_jaw_strokes_are_the_way_of_its_command_in_spans(config, sim, tmp_path):
    """Open and shut again is two strokes, half open is half of one; an arm that stands still goes nowhere."""
    other = copy_of(sim, tmp_path / "x")
    (other / "meta/so101.json").write_bytes((sim / "meta/so101.json").read_bytes())

    def rest(values):
        values[:] = values[0]
        values[:, 5] = 0
        return values

    def open_and_shut(values):
        values = rest(values)
        values[5:10, 5] = 100
        values[15:, 5] = 50
        return values

    for index in range(2):
        rewrite_column(other, index, "observation.state", rest)
    rewrite_column(other, 0, "action", open_and_shut)
    rewrite_column(other, 1, "action", rest)
    (source,) = source_motions(other, config)
    first, second = source.episodes
    assert (first.jaw_strokes, second.jaw_strokes) == (pytest.approx(2.5), 0.0)
    assert first.path_length_m == pytest.approx(0, abs=1e-9)


def test_units_that_nobody_says_are_asked_for(config, both, tmp_path):
    other = copy_of(both, tmp_path / "x")
    for index in range(5):
        for key in ("action", "observation.state"):
            rewrite_column(other, index, key, lambda values: values / 4)
    with pytest.raises(DataError, match="degrees or normalised; which is it"):
        source_motions(other, config)
    assert len(source_motions(other, config, "degrees")) == 2


def test_figure_has_a_panel_a_statistic_and_a_violin_a_source(tmp_path):
    rng = np.random.default_rng(0)
    sources = [
        SourceMotion(name, kind, 1.0, 0.5, 10, [EpisodeMotion(*row) for row in rng.uniform(1, 2, (n, 4))])
        for name, kind, n in (("sim", "sim", 30), ("real", "real", 4))
    ]
    figure = source_figure(sources, "a title")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Path length [m]", "Duration [s]", "Smoothness, lower is smoother", "Jaw travel [strokes]"
    ]  # fmt: skip
    for axes in figure.axes:
        assert [label.get_text() for label in axes.get_xticklabels()] == ["sim\nsim, n = 30", "real\nreal, n = 4"]
        assert len(axes.collections) == 1  # the violin; four values are points
        assert axes.get_ylim()[0] == 0
    figure.savefig(io.BytesIO(), format="png")
    write_sources_png(tmp_path / "s.png", sources, "a title")
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    (numbers, _) = source_numbers(sources)
    assert (
        numbers["episodes"] == 30 and len(numbers["jaw_strokes"]) == 30 and not math.isnan(sum(numbers["smoothness"]))
    )
