"""Jobs, their kinds, and the choice of who runs them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from so101.errors import ConfigError, SimulationError
from so101.pipeline import executors
from so101.pipeline.executors import EXECUTORS, LocalExecutor, make_executor, register_executor
from so101.pipeline.jobs import JOB_KINDS, Job, JobContext, JobKind, is_below, job_kind

KIND = JobKind("tests.pipeline.test_executors:Doubler", makes=("out/{demo}.txt",))


class Doubler:
    closed = 0

    def __init__(self, settings, folder):
        self.settings = settings

    def run(self, job, folder):
        (folder / f"{job.index}").write_text(self.settings)
        return {"twice": 2 * job.index}

    def close(self):
        Doubler.closed += 1


def choosing(name):
    return SimpleNamespace(deploy=SimpleNamespace(work=SimpleNamespace(executor=name)))


def test_every_kind_can_be_loaded():
    for kind in JOB_KINDS.values():
        assert callable(kind.load())


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "", ".", "a/\0"])
def test_names_that_lead_elsewhere_are_not_below(name):
    assert not is_below(name)


@pytest.mark.parametrize(
    ("kind", "name", "allowed"),
    [
        ("attempt", "generated/demo_000007.npz", True),
        ("attempt", "failed/demo_000007.npz", True),
        ("attempt", "generated/demo_000008.npz", False),
        ("attempt", "verified/demo_000007.npz", False),
        ("render", "videos/demo_000007/ego.mp4", True),
        ("render", "videos/demo_000007/looks.json", True),
        ("render", "videos/demo_000007/x/ego.mp4", False),
        ("render", "videos/demo_000007/../ego.mp4", False),
        ("render", "videos/demo_000007/ego.sh", False),
    ],
)
def test_a_job_makes_its_own_files_alone(kind, name, allowed):
    assert job_kind(kind).may_make(7, name) == allowed


def test_an_unknown_kind_is_named_with_those_there_are():
    with pytest.raises(SimulationError, match="kind 'rendr'.*attempt, verify, render; did you mean 'render'"):
        job_kind("rendr")


def test_local_jobs_write_into_the_run_folder_and_the_runner_is_closed(tmp_path, monkeypatch):
    monkeypatch.setitem(JOB_KINDS, "double", KIND)
    monkeypatch.setattr(Doubler, "closed", 0)
    context = JobContext("double", "text", tmp_path)
    results = LocalExecutor(None, 1).map_unordered(context, [Job(1), Job(2)], print)
    assert next(results) == (1, {"twice": 2}) and (tmp_path / "1").read_text() == "text"
    results.close()
    assert Doubler.closed == 1 and executors._runner is None


def test_an_executor_nobody_registered_is_explained(monkeypatch):
    monkeypatch.delitem(EXECUTORS, "network", raising=False)
    with pytest.raises(ConfigError, match="work.executor is 'network'; this program was started without the services"):
        make_executor(choosing("network"), 1)
    assert isinstance(make_executor(choosing("local"), 1), LocalExecutor)


def test_a_name_means_one_executor():
    register_executor("local", EXECUTORS["local"])
    with pytest.raises(ValueError, match="cannot be other:Thing too"):
        register_executor("local", "other:Thing")
