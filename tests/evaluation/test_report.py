"""The page of a run: right numbers from what is on disk, whole with any stage missing, the same bytes each time."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

from so101.datasets.demo import save_demo
from so101.errors import DataError
from so101.evaluation.collect import collect
from so101.evaluation.media import frames_at, jpeg_data_uri
from so101.evaluation.report import write_report
from so101.files import write_json
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder

from .factory import make_demo, make_run, write_seeds_report, write_video

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Checks that tags nest, collects ids, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.links, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs[key] for key in ("href", "src", "poster") if attrs.get(key)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for key, value in attrs if key == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "title"} & set(self.open):
            self.text += data


def write(config, run) -> tuple[Page, dict, str]:
    """Runs the stage; returns the parsed page, its numbers and its text."""
    result = write_report(config, run, SilentReporter(), 1)
    text = (run.report / "index.html").read_text(encoding="utf-8")
    numbers = json.loads((run.report / "report.json").read_text())
    counts = {name: stage["count"] for name, stage in numbers["stages"].items() if stage["count"] is not None}
    assert result.produced == 1 and result.summary == counts
    return Page(text), numbers, text


@pytest.fixture(scope="module")
def full_run(config, fk, tmp_path_factory):
    return make_run(config, tmp_path_factory.mktemp("full") / "run_7", attempts=40, fk=fk)


@pytest.fixture(scope="module")
def full(config, full_run):
    return write(config, full_run)


def test_page_is_well_formed_and_every_link_leads_somewhere(full, full_run):
    page, _, _ = full
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        elif not link.startswith("data:"):
            assert (full_run.report / link).is_file(), link


def test_page_needs_nothing_from_outside(full, full_run):
    _, _, text = full
    assert not re.search(r"https?:|<script|@import|url\((?!#)", text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    assert str(full_run.root) not in text  # the page may be shared: no path of this machine


def test_counts_are_those_on_disk(config, full, full_run):
    _, numbers, _ = full
    stages = {name: (stage["count"], stage["of"]) for name, stage in numbers["stages"].items()}
    generated, failed = (len(list(folder.glob("*.npz"))) for folder in (full_run.generated, full_run.failed))
    kept = json.loads(full_run.filter_report.read_text())
    assert stages["attempts"] == (40, None) and generated + failed == 40
    assert stages["geometric"] == (len(kept["geometric"]), 40)
    assert stages["strict"] == (len(kept["strict"]), 40)
    verified, rejected = (len(list(folder.glob("*.npz"))) for folder in (full_run.verified, full_run.rejected))
    assert rejected > 0 and stages["verified"] == (verified, verified + rejected)
    assert (
        stages["seeds"] == (4, 5)
        and stages["rendered"] == (2, min(verified, config.skillgen.target_demos))
        and stages["in dataset"] == (2, 2)
    )
    assert sum(numbers["causes"].values()) == 40 - len(kept["strict"])
    assert numbers["replay_causes"] == {"slipped": rejected}
    assert numbers["attempt_seeds"] == [10_000, 10_039]
    assert sum(use["used"] for use in numbers["sources"]["grasp"]) == 40
    assert numbers["trajectories"]["seeds"]["duration_s"]["n"] == 4


def test_page_says_the_headline(full):
    page, numbers, _ = full
    strict = numbers["stages"]["strict"]
    low, high = strict["interval"]
    text = " ".join(page.text.replace("\u202f", "").split())
    assert f"{100 * strict['count'] / 40:.1f}%" in text
    assert f"{100 * low:.1f} – {100 * high:.1f}%" in text
    assert "Attempt seeds 10000 to 10039, n = 40" in text
    assert "4 of 5 recordings became usable seeds" in text
    assert "Not run yet" not in text


def test_same_bytes_each_time_and_in_any_folder(config, full, full_run, tmp_path):
    _, _, text = full
    copy = tmp_path / "elsewhere" / full_run.root.name
    shutil.copytree(full_run.root, copy)
    assert write(config, RunFolder(copy))[2] == text


def test_start_poses_of_attempts_lie_in_their_ranges(config, fk, full_run):
    summary = collect(config, full_run, fk)
    assert [(one.name, one.moved) for one in summary.coverage] == [("vial", True), ("rack", False)]
    for one in summary.coverage:
        placement = config.task.active.objects[one.name]
        x, y = (one.positions - placement.position_m[:2]).T
        assert len(x) == 40 and one.success.sum() == summary.strict and one.inside.all()
        assert placement.x_m[0] - 1e-9 <= x.min() < x.max() <= placement.x_m[1] + 1e-9
        assert placement.y_m[0] - 1e-9 <= y.min() < y.max() <= placement.y_m[1] + 1e-9


def test_coverage_of_the_page_is_that_of_the_attempts(config, full):
    page, numbers, _ = full
    objects = numbers["coverage"]["objects"]
    assert set(objects) == {"vial", "rack"} and objects["vial"]["moved"]
    for one in objects.values():
        for grid in (one["position"], one["heading"]):
            assert np.sum(grid["tried"]) == 40 and np.sum(grid["succeeded"]) == numbers["stages"]["strict"]["count"]
            assert len(grid["never_tried"]) == np.sum(np.array(grid["tried"]) == 0)
            assert grid["covered_share"] == np.mean(np.array(grid["succeeded"]) > 0)
    for name, uses in numbers["sources"].items():
        assert numbers["coverage"]["sources"][name]["top_share"] == uses[0]["used"] / 40
    assert "None of the cells that were tried" in page.text


def test_cells_that_fail_are_listed_with_their_causes(config, tmp_path):
    run = RunFolder(tmp_path)
    for index in range(30):
        save_demo(run.failed, make_demo(config, index, cause=("slipped", "dropped")[index % 2]))
    page, numbers, _ = write(config, run)
    low = [cell for one in numbers["coverage"]["objects"].values() for cell in one["position"]["low"]]
    assert sum(sum(cell["causes"].values()) for cell in low) == sum(cell["tried"] for cell in low) == 2 * 30
    assert all(cell["interval"][0] == 0.0 and cell["succeeded"] == 0 for cell in low)
    assert "Cells in which under 20\u202f% of the attempts succeed" in page.text and "slipped" in page.text


def test_an_empty_folder_gives_a_page(config, tmp_path):
    page, numbers, _ = write(config, RunFolder(tmp_path / "new"))
    assert all(stage["count"] is None for stage in numbers["stages"].values())
    for stage in ("seeds", "generate", "verify", "render"):
        assert stage == "verify" or f"./twin {stage}" in page.text
    assert "not run" in page.text


def test_no_success_at_all(config, tmp_path):
    run = RunFolder(tmp_path)
    for index in range(3):
        save_demo(run.failed, make_demo(config, index, cause="grasp_missed"))
    write_json(run.filter_report, {"geometric": [], "strict": [], "kept": []})
    for folder in (run.smoothed, run.verified, run.rejected):
        folder.mkdir()
    page, numbers, _ = write(config, run)
    assert numbers["stages"]["strict"]["count"] == 0 and numbers["stages"]["strict"]["interval"][0] == 0.0
    assert numbers["stages"]["verified"] == {"count": 0, "of": 0, "interval": None}
    assert numbers["causes"] == {"grasp_missed": 3}
    assert "Nothing was replayed" in page.text


def test_nothing_attempted(config, tmp_path):
    run = RunFolder(tmp_path)
    run.generated.mkdir()
    page, numbers, _ = write(config, run)
    assert numbers["stages"]["attempts"]["count"] == 0 and "Nothing was attempted" in page.text


def test_a_stage_that_has_not_run_leaves_the_rest(config, full_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(full_run.root, copy, ignore=shutil.ignore_patterns("videos", "dataset", "verified", "rejected"))
    page, numbers, _ = write(config, RunFolder(copy))
    assert numbers["stages"]["verified"]["count"] is None and numbers["stages"]["strict"]["count"] > 0
    assert "./twin verify" in page.text and "./twin render" in page.text


def test_loose_successes_are_told_from_failures(config, tmp_path):
    run = RunFolder(tmp_path)
    save_demo(run.generated, make_demo(config, 0, cause="not_inserted", geometric=True))
    save_demo(run.failed, make_demo(config, 1, cause="not_inserted"))
    page, numbers, _ = write(config, run)
    assert numbers["stages"]["geometric"]["count"] == 1 and numbers["stages"]["strict"]["count"] == 0
    assert "passes the loose filter only" in page.text


def test_failures_kept_as_one_frame_count(config, tmp_path):
    """What generation leaves of a failed attempt when skillgen.keep_failed is off."""
    run = RunFolder(tmp_path)
    demo = make_demo(config, 1, cause="slipped")
    first = {name: poses[:1] for name, poses in demo.objects.items()}
    save_demo(run.failed, demo.replace(q=demo.q[:1], q_target=demo.q_target[:1], objects=first))
    save_demo(run.generated, make_demo(config, 0))
    _, numbers, text = write(config, run)
    assert (numbers["stages"]["strict"]["count"], numbers["stages"]["strict"]["of"]) == (1, 2)
    assert "1 successes, 1 others" in text  # its start pose is on the map


def test_names_from_outside_are_escaped(config, tmp_path):
    run = RunFolder(tmp_path)
    bad = "<b>x</b>&\"'"
    save_demo(run.generated, make_demo(config, 0, sources=(bad, bad)))
    write_seeds_report(run, [{"name": bad, "kept": False, "cause": bad, bad: {bad: [bad, 1.5]}}], source=bad)
    page, _, text = write(config, run)
    assert "<b>x</b>" not in text
    assert page.text.count(bad) >= 8


def test_many_recordings_fold_away(config, tmp_path):
    run = RunFolder(tmp_path)
    entries = [{"name": f"episode_{i}", "kept": i < 7, "cause": "" if i < 7 else "slipped"} for i in range(100)]
    write_seeds_report(run, entries)
    page, _, text = write(config, run)
    assert "7 of 100 recordings became usable seeds" in page.text and "object upright between the jaws" in page.text
    assert "<details><summary>Each recording" in text and "episode_99" in page.text


def test_unfinished_files_are_no_videos(config, tmp_path):
    run = RunFolder(tmp_path)
    folder = run.video(3, "ego").parent
    folder.mkdir(parents=True)
    (folder / ".ego.123.tmp.mp4").write_bytes(b"half")
    (folder / "side.mp4").write_bytes(b"whole, but the other cameras are missing")
    _, numbers, _ = write(config, run)
    assert numbers["stages"]["rendered"]["count"] == 0


def test_report_settings_are_obeyed(config, full_run, tmp_path):
    report = config.dataset.report.model_copy(update={"video_demos": 1, "frame_moments": 3, "confidence": 0.5})
    changed = config.model_copy(update={"dataset": config.dataset.model_copy(update={"report": report})})
    copy = tmp_path / "run"
    shutil.copytree(full_run.root, copy)
    _, numbers, text = write(changed, RunFolder(copy))
    assert text.count("<video") == 3 and text.count("<img") == 9 and "50\u202f% Wilson" in text
    low, high = numbers["stages"]["strict"]["interval"]
    assert high - low < 0.1


def test_damaged_files_name_the_way_out(config, tmp_path):
    run = RunFolder(tmp_path)
    run.video(0, "ego").parent.mkdir(parents=True)
    for camera in config.cameras.names:
        run.video(0, camera).write_bytes(b"not a video")
    with pytest.raises(DataError, match=r"ego\.mp4: cannot be decoded .* run the render stage again"):
        write_report(config, run, SilentReporter(), 1)
    run.seeds_report.write_text("[]")
    with pytest.raises(DataError, match=r"seeds\.json: the report needs source, assumptions and candidates"):
        write_report(config, run, SilentReporter(), 1)
    run.seeds_report.write_text("{")
    with pytest.raises(DataError, match=r"seeds\.json: the report cannot read it"):
        write_report(config, run, SilentReporter(), 1)
    run.seeds_report.unlink()
    run.filter_report.write_text('{"kept": 3}')
    with pytest.raises(DataError, match=r"filter\.json: must be JSON with a list `kept`"):
        write_report(config, run, SilentReporter(), 1)
    run.filter_report.unlink()
    (run.dataset / "meta").mkdir(parents=True)
    (run.dataset / "meta/info.json").write_text("[]")
    with pytest.raises(DataError, match=r"info\.json: total_episodes and total_frames must be whole numbers"):
        write_report(config, run, SilentReporter(), 1)


def test_frames_are_those_asked_for(tmp_path):
    """The grey of frame n is 4 n in two channels, so a frame tells its number."""
    path = write_video(tmp_path / "v.mp4", frames=41)
    images, times = frames_at(path, [0.0, 0.5, 1.0])
    assert [round(float(image[5, :20, 2].mean()) / 4) for image in images] == [0, 20, 40]
    assert times == pytest.approx([0.0, 20 / 30, 40 / 30], abs=1e-3)


def test_jpeg_is_scaled_down_never_up():
    import base64
    import io

    from PIL import Image

    image = np.zeros((48, 64, 3), np.uint8)
    for width, expected in ((32, (32, 24)), (640, (64, 48))):
        data = base64.b64decode(jpeg_data_uri(image, width, 80).partition(",")[2])
        assert Image.open(io.BytesIO(data)).size == expected
