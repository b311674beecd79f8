"""The real kinds of job give, from bytes to bytes, what a stage leaves in its folder."""

from __future__ import annotations

import json

import pytest

from proto.messages.work import unpack
from services.work.workshop import Workshop, read_inputs, shared_of
from so101.config import load_config
from so101.datasets.demo import save_demo
from so101.pipeline.executors import LocalExecutor
from so101.pipeline.jobs import JOB_KINDS, Job, JobContext
from tests.rendering.test_stage import make_demo

LIMIT = 1 << 26
DRAWN = "render.randomisation.enabled=true"


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(None, 2, LIMIT)
    yield workshop
    workshop.close()


@pytest.mark.parametrize(
    ("kind", "source"),
    [("attempt", None), ("verify", "smoothed"), ("render", "verified")],
)
def test_files_and_summary_are_those_of_the_local_executor(
    workshop, tmp_path, vial_config, vial_seeds, vial_runner, kind, source
):
    from so101.datasets.seeds_hdf5 import write_seeds
    from so101.kinematics import ArmKinematics

    config = load_config(overrides=["task.name=vial_to_rack", "render.settings.fast.supersample=1", DRAWN])
    write_seeds(tmp_path / "seeds.hdf5", vial_seeds, vial_config, ArmKinematics(vial_config).fk)
    job = Job(1)
    if source is not None:
        demo = make_demo(config, 1) if kind == "render" else vial_runner.run(1)
        path = save_demo(tmp_path / source, demo)
        job = Job(1, (path.relative_to(tmp_path).as_posix(),))
        config = config if kind == "render" else vial_config
    files = ("seeds.hdf5",) if kind == "attempt" else ()
    context = JobContext(kind, config.model_dump_json(), tmp_path, files)
    shared = shared_of(context)
    inputs = read_inputs(context, job, LIMIT)
    sent = workshop.run(kind, shared.refs, 1, inputs, lambda ref: shared.contents[ref.digest])
    assert sent.error is None
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    ((index, summary),) = LocalExecutor(None, 1).map_unordered(context, [job], print)
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {file.name: bytes(unpack(file.content)) for file in sent.files} == {
        path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in made
    }
    assert index == 1 and json.loads(sent.summary) == summary
    assert all(JOB_KINDS[kind].may_make(1, file.name) for file in sent.files)
    assert len(sent.files) == (4 if kind == "render" else 1)
