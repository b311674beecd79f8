"""cameras.yaml: sources and capture."""

from __future__ import annotations

import pytest

from so101.config import load_config
from so101.errors import ConfigError
from so101.pipeline.record import stage_of_setting


def test_a_camera_without_a_line_is_the_twin():
    config = load_config(overrides=["cameras.sources={side: {kind: synthetic}}"])
    assert [config.cameras.source(name).kind for name in config.cameras.names] == ["twin", "synthetic", "twin"]


@pytest.mark.parametrize(
    ("override", "text"),
    [
        (
            "cameras.sources.eog={kind: twin}",
            r"sources\.eog: no such camera; cameras has ego, side, top; did you mean 'ego'",
        ),
        ("cameras.sources.ego.kind=usb", r"sources\.ego.*'usb'.*'twin', 'v4l2', 'realsense', 'playback', 'synthetic'"),
        ("cameras.sources.ego={kind: v4l2}", r"sources\.ego\.v4l2\.device.*missing"),
        ("cameras.sources.ego={kind: v4l2, device: 0, pixel_format: JPG}", "pixel_format"),
        ("cameras.sources.ego={kind: twin, fps: 3}", "unknown key"),
        ("cameras.capture.reopen_min_s=99", r"reopen_min_s 99\.0 must not exceed reopen_max_s"),
        ("cameras.capture.read_timeout_s=0", "read_timeout_s"),
    ],
)
def test_mistakes_are_told(override, text):
    with pytest.raises(ConfigError, match=text):
        load_config(overrides=[override])


def test_no_stage_of_the_pipeline_depends_on_sources_or_capture():
    assert stage_of_setting("cameras.sources.ego.kind") is None
    assert stage_of_setting("cameras.capture.status_s") is None
    assert stage_of_setting("cameras.cameras.ego.fx_px") == "render"
