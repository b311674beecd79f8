"""Jobs from bytes to bytes: nothing of one job is left for the next, runners are kept and freed."""

from __future__ import annotations

from pathlib import Path

import pytest

from proto.messages.work import File, pack, unpack
from services.work.workshop import Workshop, read_inputs, shared_of
from so101.errors import SimulationError

from . import toy
from .toy import toy_context

LIMIT = 1 << 26


def do(workshop, context, job, fetched=None):
    shared = shared_of(context)

    def fetch(ref):
        if fetched is not None:
            fetched.append(ref.name)
        return shared.contents[ref.digest]

    return workshop.run(context.kind, shared.refs, job.index, read_inputs(context, job, LIMIT), fetch)


def test_a_job_gives_its_files_and_summary_and_leaves_nothing(site, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    workshop = Workshop(scratch, 1, LIMIT)
    context, (job,) = toy_context(tmp_path / "run", [5])
    result = do(workshop, context, job)
    (file,) = result.files
    assert file.name == "out/demo_000005.txt" and bytes(unpack(file.content)).decode() in result.summary
    assert list(scratch.iterdir()) == []


def test_what_jobs_share_is_fetched_once_and_the_oldest_runner_makes_room(site, tmp_path):
    workshop, fetched = Workshop(None, 2, LIMIT), []
    contexts = [toy_context(tmp_path / f"run{n}", [1, 2], settings=f'{{"n": {n}}}') for n in range(3)]
    for number in (0, 0, 1, 0, 2, 0):
        context, jobs = contexts[number]
        do(workshop, context, jobs[0], fetched)
    assert fetched == ["", "shared.bin"] * 3
    assert len(toy.closed) == 1  # of context 1, used longest ago
    workshop.close()
    assert len(toy.closed) == 3


def test_an_error_is_a_result_and_names_files_as_the_run_does(site, tmp_path):
    workshop = Workshop(None, 1, LIMIT)
    context, (bad, good) = toy_context(tmp_path / "run", [13, 14])
    error = do(workshop, context, bad).error
    assert (error.error, error.text) == ("DataError", "in/13: thirteen is bad")
    assert do(workshop, context, good).error is None


def test_names_that_lead_out_of_the_folder_are_not_written(site, tmp_path):
    workshop = Workshop(None, 1, LIMIT)
    context, (job,) = toy_context(tmp_path / "run", [5])
    shared = shared_of(context)
    for name in ("../escaped", "/tmp/escaped", ""):
        evil = (File(name or ".", pack(b"x")),)
        result = workshop.run("toy", shared.refs, 5, evil, lambda ref: shared.contents[ref.digest])
        assert result.error is not None
    assert not Path("/tmp/escaped").exists()


def test_what_fits_no_message_is_an_error_that_names_the_setting(site, tmp_path):
    context, (job,) = toy_context(tmp_path / "run", [5])
    with pytest.raises(SimulationError, match=r"the files of toy 5 have 7 bytes.*deploy\.messages\.max_bytes"):
        read_inputs(context, job, 1 << 20)
    result = do(Workshop(None, 1, 1 << 20), context, job)
    assert "toy 5 made 64 bytes" in result.error.text
