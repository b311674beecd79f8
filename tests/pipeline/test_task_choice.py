"""Which task a command takes when no option names one."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from so101.config import load_config
from so101.datasets.recordings import task_texts
from so101.errors import DataError
from so101.pipeline.record import write_record
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.task_choice import choose_task

CUBE = "Pick the orange cube and place it in the box"


def recording(folder, *texts, version=2):
    """The episode list of a LeRobot dataset, nothing else."""
    if version == 2:
        (folder / "meta").mkdir(parents=True)
        rows = [json.dumps({"episode_index": i, "tasks": [text]}) for i, text in enumerate(texts)]
        (folder / "meta" / "episodes.jsonl").write_text("\n".join(rows))
    else:
        path = folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"tasks": [[text] for text in texts]}), path)
    return folder


@pytest.fixture
def choose(tmp_path, vial_config):
    def call(source=None, *, makes_seeds=True, fresh=False):
        run = RunFolder(tmp_path / "run")
        return choose_task(vial_config, run, source=source, makes_seeds=makes_seeds, fresh=fresh)

    return call


@pytest.fixture
def cube_run(tmp_path):
    """A run folder of the cube task, made from a recording that is gone."""
    run, source = RunFolder(tmp_path / "run"), tmp_path / "gone"
    write_record(run, load_config(overrides=["task.name=cube_in_box"]), str(source))
    return source


def test_the_operator_works_on_the_task_of_task_yaml(choose):
    assert choose() == ("vial_to_rack", "")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("text", [CUBE, f" {CUBE.upper()} "])
def test_a_recording_chooses_the_task_with_its_text(choose, tmp_path, version, text):
    source = recording(tmp_path / "mine", text, text, version=version)
    name, why = choose(source)
    assert name == "cube_in_box" and why.startswith(f"task cube_in_box: {source} says ")


@pytest.mark.parametrize("texts", [["Fold the towel"], [CUBE, "Pick up the vial and place it in the rack"]])
def test_a_text_of_no_task_or_of_two_names_the_option(choose, tmp_path, texts):
    name, why = choose(recording(tmp_path / "mine", *texts))
    assert name == "vial_to_rack" and texts[0] in why and f"--task takes {', '.join(load_config().task.tasks)}" in why


def test_a_recording_without_texts_says_nothing(choose, tmp_path):
    (tmp_path / "mine.csv").write_text("shoulder_pan\n")
    assert choose(tmp_path / "mine.csv") == choose(recording(tmp_path / "mine")) == ("vial_to_rack", "")


def test_later_stages_take_the_task_of_the_folder(choose, cube_run):
    name, why = choose(makes_seeds=False)
    assert name == "cube_in_box" and why.startswith("task cube_in_box, as in ")


def test_the_same_recording_resumes_without_being_read_and_fresh_reads_it(choose, cube_run, tmp_path):
    assert choose(cube_run)[0] == "cube_in_box"
    recording(cube_run, "Pick up the vial and place it in the rack")
    assert choose(cube_run)[0] == "cube_in_box" and choose(cube_run, fresh=True)[0] == "vial_to_rack"


def test_another_recording_or_the_operator_does_not_take_the_task_of_the_folder(choose, cube_run, tmp_path):
    assert choose()[0] == choose(recording(tmp_path / "mine", "Fold the towel"))[0] == "vial_to_rack"


def test_a_damaged_list_of_episodes_is_named(tmp_path):
    source = recording(tmp_path / "mine", CUBE)
    (source / "meta" / "episodes.jsonl").write_text("{")
    with pytest.raises(DataError, match=r"episodes\.jsonl: not one JSON object a line"):
        task_texts(source)
