"""The stage: three videos a demo, only what is missing, the same bytes however it was interrupted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import Demo, save_demo
from so101.datasets.videos import probe_video
from so101.errors import DataError
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.rendering import stage
from so101.rendering.looks import draw_looks
from so101.rendering.stage import render_demos

from .scene_states import home, start_objects

FRAMES = 3


class Recorder(SilentReporter):
    def __init__(self):
        self.started, self.advanced = None, 0

    def start(self, stage, total, done=0, unit="demos"):
        self.started = (stage, total, done)

    def advance(self, count=1, note=""):
        self.advanced += count


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=["skillgen.target_demos=3", "render.settings.fast.supersample=1"])


def make_demo(config, index, **changes):
    q = home(config) + np.linspace(0, 0.1, FRAMES)[:, None] * (index + 1)
    objects = {name: np.tile(pose, (FRAMES, 1)) for name, pose in start_objects(config).items()}
    values = {"task": config.task.name, "fps": config.cameras.fps_hz, "q_target": q, "q": q, "objects": objects}
    return Demo(index=index, seed=index, physics_state=np.zeros(1), **{**values, **changes})


@pytest.fixture(scope="module")
def done(config, tmp_path_factory):
    """A run with four verified demos, of which the first three by index are wanted; rendered by two workers."""
    run = RunFolder(tmp_path_factory.mktemp("run"))
    for index in (7, 2, 11, 5):
        save_demo(run.verified, make_demo(config, index))
    reporter = Recorder()
    result = render_demos(config, run, reporter, 2)
    assert reporter.started == ("render", 3, 0) and reporter.advanced == 3
    assert (result.stage, result.produced, result.summary["rendered_now"]) == ("render", 3, 3)
    return run


def contents(run):
    return {path.relative_to(run.videos).as_posix(): path.read_bytes() for path in run.videos.rglob("*.mp4")}


def test_the_first_wanted_demos_get_a_whole_video_a_camera(config, done):
    assert sorted(contents(done)) == [
        f"demo_{index:06d}/{camera}.mp4" for index in (2, 5, 7) for camera in ("ego", "side", "top")
    ]
    assert all(probe_video(path).num_frames == FRAMES for path in done.videos.rglob("*.mp4"))


def test_a_finished_stage_makes_no_renderer_and_touches_no_file(config, done, monkeypatch):
    before = contents(done)
    monkeypatch.setattr(stage, "StateRenderer", None)
    reporter = Recorder()
    result = render_demos(config, done, reporter, 2)
    assert reporter.started == ("render", 3, 3) and reporter.advanced == 0
    assert result.produced == 3 and contents(done) == before


def test_what_is_missing_short_or_broken_is_made_again_to_the_same_bytes(config, done):
    """Also: one process gives the bytes of two."""
    before = contents(done)
    done.video(2, "side").unlink()
    done.video(7, "top").write_bytes(before["demo_000007/top.mp4"][:200])
    (done.videos / "demo_000007" / ".top.1.tmp.mp4").write_bytes(b"left by a killed process")
    reporter = Recorder()
    result = render_demos(config, done, reporter, 1)
    assert reporter.started == ("render", 3, 1) and result.summary["rendered_now"] == 2
    assert contents(done) == before
    assert not list(done.videos.rglob(".*"))


def test_a_video_of_another_length_is_made_again(config, done, tmp_path):
    run = RunFolder(tmp_path)
    demo = make_demo(config, 0)
    save_demo(run.verified, demo)
    run.video(0, "ego").parent.mkdir(parents=True)
    for camera in config.cameras.names:
        run.video(0, camera).write_bytes(done.video(2, camera).read_bytes())
    assert stage.is_complete(demo, config, run)
    longer = demo.replace(q=np.tile(demo.q, (2, 1)))
    assert not stage.is_complete(longer, config, run)


def test_drawn_looks_differ_by_demo_are_written_down_and_repeat(tmp_path):
    config = load_config(overrides=["skillgen.target_demos=2", "render.randomisation.enabled=true"])
    run = RunFolder(tmp_path)
    for index in (0, 1):
        save_demo(run.verified, make_demo(config, 0).replace(index=index, seed=index))
    render_demos(config, run, SilentReporter(), 1)
    looks = [json.loads(run.looks(index).read_text()) for index in (0, 1)]
    assert looks == [json.loads(json.dumps(draw_looks(config, seed))) for seed in (0, 1)]
    assert looks[0] != looks[1]
    before = contents(run)
    assert before["demo_000000/side.mp4"] != before["demo_000001/side.mp4"]  # the demos themselves are the same
    run.looks(1).unlink()
    assert not stage.is_complete(make_demo(config, 1), config, run)
    render_demos(config, run, SilentReporter(), 1)
    assert contents(run) == before and run.looks(1).is_file()


def test_no_demo_is_explained(config, tmp_path):
    with pytest.raises(DataError, match=r"nothing to render: no demo in .*verified; run `\./twin verify` first"):
        render_demos(config, RunFolder(tmp_path), SilentReporter(), 1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"fps": 20.0}, r"has 20 frames a second, cameras\.yaml: fps_hz is 30; make them equal"),
        ({"task": "juggle"}, r"made for task 'juggle'.*render it with --set task\.name=juggle"),
        ({"q": np.zeros((0, 6)), "q_target": np.zeros((0, 6)), "objects": {}}, r"a demo without frames"),
    ],
)
def test_demos_that_do_not_fit_are_refused_before_anything_is_drawn(config, tmp_path, monkeypatch, changes, text):
    monkeypatch.setattr(stage, "StateRenderer", None)
    run = RunFolder(tmp_path)
    save_demo(run.verified, make_demo(config, 0, **changes))
    with pytest.raises(DataError, match=text):
        render_demos(config, run, SilentReporter(), 1)
    assert not run.videos.exists()
